//! The places in responses that give their costs.

use sluicegate_core::ConfigError;
use sluicegate_tower::settle::{OnAbort, Settle};

use super::rule::MOST_UNITS;
use super::{number, option};
use crate::at::At;
use crate::error::Problems;
use crate::read::short;
use crate::schema::{PricesEntry, SettleEntry};

/// The places that an entry names, in the order of reading. All of their mistakes are reported.
pub(super) fn settle(given: &At<SettleEntry>, problems: &mut Problems<'_>) -> Option<Settle> {
    let SettleEntry { header, trailer, json, sse, bytes, on_abort } = &given.value;
    let on_abort: Option<OnAbort> = option(on_abort.as_ref(), problems);
    let sources = [
        header.as_ref().map(|name| checked(Settle::header(&name.value), name, problems)),
        trailer.as_ref().map(|name| checked(Settle::trailer(&name.value), name, problems)),
        json.as_ref().map(|prices| fields(prices, Settle::json, problems)),
        sse.as_ref().map(|prices| fields(prices, Settle::sse, problems)),
        bytes.as_ref().map(|of| length(of, problems)),
    ];
    let sources: Vec<Option<Settle>> = sources.into_iter().flatten().collect();
    if sources.is_empty() {
        problems.error(
            given.place,
            "this does not say where a response tells its cost: write json, sse, header, trailer or bytes: response",
        );
    }
    let all: Option<Vec<Settle>> = sources.into_iter().collect();
    Some(all?.into_iter().reduce(Settle::or)?.on_abort(on_abort.unwrap_or_default()))
}

/// Fields with their prices.
type PricedFields = Vec<(String, i64)>;

/// The cost in fields, each with its price.
fn fields(
    given: &At<PricesEntry>,
    make: fn(PricedFields) -> Result<Settle, ConfigError>,
    problems: &mut Problems<'_>,
) -> Option<Settle> {
    let prices: Option<PricedFields> = match &given.value {
        PricesEntry::Text(field) => Some(vec![(field.clone(), 1)]),
        PricesEntry::Entry(prices) => {
            let price = |(field, price): &(At<String>, At<String>)| {
                // Each field separately, so that a mistake is reported at its place.
                let (sign, units) =
                    price.value.strip_prefix('-').map_or((1, &*price.value), |units| (-1, units));
                let units = At { value: units.to_owned(), place: price.place };
                let price = number(&units, "a number of units", 1..=MOST_UNITS, problems)?;
                let price = i64::try_from(price).ok()?.saturating_mul(sign);
                let alone = vec![(field.value.clone(), price)];
                checked(make(alone), field, problems).map(|_| (field.value.clone(), price))
            };
            prices.0.iter().map(price).collect::<Vec<_>>().into_iter().collect()
        }
    };
    checked(make(prices?), given, problems)
}

fn length(of: &At<String>, problems: &mut Problems<'_>) -> Option<Settle> {
    if of.value != "response" {
        let text = format!("{:?} is not counted in bytes: write bytes: response", short(&of.value));
        problems.error(of.place, text);
        return None;
    }
    Some(Settle::bytes())
}

fn checked<T>(
    result: Result<Settle, ConfigError>,
    at: &At<T>,
    problems: &mut Problems<'_>,
) -> Option<Settle> {
    result.map_err(|error| problems.error(at.place, error.problem())).ok()
}
