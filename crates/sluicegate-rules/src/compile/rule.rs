//! A rule of a file: its policies, key, cost, and refunds.

use std::sync::Arc;

use http::StatusCode;
use sluicegate_core::{ConfigError, Policy};
use sluicegate_tower::Limit;
use sluicegate_tower::bandwidth::Direction;
use sluicegate_tower::key::OnMissingKey;
use sluicegate_tower::settle::{OnAbort, Reserve, Settle};

use super::by::Classes;
use super::condition::Matcher;
use super::in_flight::Number;
use super::keys::{GivenKeys, KeyWords};
use super::own::KeyedPolicy;
use super::tiers::TierSet;
use super::value::{number, option};
use crate::at::{At, Position};
use crate::descriptor::RequestDescriptor;
use crate::error::Problems;
use crate::schema::{Cost, PricesEntry, SaidCost, SettleEntry};
use crate::shown::short;

/// A compiled rule.
pub(crate) struct Rule {
    pub name: String,
    /// The place of the rule in the file, for mistakes that show only when its limit is made.
    pub place: Position,
    pub group: Option<String>,
    pub(super) only_if: Matcher,
    /// The limits of each request of the rule, decided together.
    pub(super) budgets: Vec<Budget>,
    /// The indices of its waiting rooms in the file.
    pub rooms: Vec<usize>,
    pub(super) key: KeyWords,
    /// The status of its refusals, if it has one of its own.
    pub(super) status: Option<StatusCode>,
    /// The limit on requests of a key that are under way at once.
    pub(super) in_flight: Option<Number>,
    /// The importance of its requests, if the file sets it.
    pub(super) class: Option<Arc<Classes>>,
    /// Its settings.
    pub(super) asks: Arc<RuleAsks>,
    /// The names of the rules that it replaces.
    pub(super) replaces: Vec<At<String>>,
    /// Whether it is about descriptors, whose hits its cost is multiplied by.
    pub(super) is_about_descriptors: bool,
}

/// The settings of a rule, by which it asks. Rules of one group with equal settings ask a request only once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RuleAsks {
    pub limits: Vec<String>,
    /// The words of its key, and the entries of a descriptor that are its key.
    pub keys: Vec<String>,
    /// The rule itself, if it has a share, which belongs to it alone.
    pub shared_by: Option<String>,
    pub cost: RuleCost,
    pub refund_if: Vec<Statuses>,
    /// The places in responses that give the true cost of a request.
    pub settle: Option<Settle>,
    /// The bodies with bytes that it counts, if it does not count requests.
    pub bandwidth: Option<Direction>,
    pub on_missing_key: Option<OnMissingKey>,
    pub in_flight: Option<String>,
    pub classes: Vec<String>,
}

/// The limiter or tiers that a rule spends from.
pub(super) enum Budget {
    /// One policy for all of its requests.
    Policy(Box<KeyedPolicy>),
    /// The policy of the tier that a request is in.
    Tiers(Box<TierSet>),
}

impl Budget {
    /// Whether requests that exceed it are kept for later.
    pub(super) fn defers(&self) -> bool {
        matches!(self, Self::Policy(keyed) if keyed.defers)
    }
}

/// The cost of a request, in units of its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RuleCost {
    /// A fixed cost for each request. A cost of 0 is refused, because such a rule would limit nothing.
    Fixed(u64),
    /// The number in a field of the request, held within `least` and `most`: `missing` without the field, `most` if it is not a
    /// number. A client may write the field, so the file has to set the bounds. `field` is shown. With `counts_bytes`, it is the length of the body.
    Said { reserve: Reserve, field: String, counts_bytes: bool, least: u64, most: u64, missing: u64 },
}

/// Statuses of a response: one status, or a whole class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statuses {
    One(StatusCode),
    Class(u16),
}

impl Rule {
    /// All policies that it may spend from.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &KeyedPolicy> {
        self.budgets.iter().flat_map(|budget| match budget {
            Budget::Policy(policy) => vec![&**policy],
            Budget::Tiers(tiers) => tiers.policies().collect(),
        })
    }

    /// The number of its limits.
    pub(crate) fn size(&self) -> usize {
        self.budgets.len()
    }

    /// The names of all policies that it may spend from.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.policies().map(|keyed| keyed.policy.name())
    }

    /// Reports costs above the capacity of a policy, also under the quotas of single keys. A cost above the policy's own quotas
    /// is found when the limit is made.
    pub(super) fn check_cost(&self, problems: &mut Problems<'_>) {
        let above = |policy: &Policy, cost: u64| {
            let quota = policy.quotas().iter().find(|quota| quota.rule().capacity() < cost)?;
            Some(format!("above burst {} of {}", quota.rule().capacity(), quota.quota()))
        };
        for keyed in self.policies() {
            let name = keyed.policy.name();
            for policy in keyed.of_keys_with_own() {
                let least = self.asks.cost.least();
                if let Some(above) = above(&policy, least) {
                    let text = format!(
                        "cost {least} is {above}, which a key has in policy {name:?}: none of its requests would ever pass"
                    );
                    problems.error(self.place, text);
                }
            }
            let RuleCost::Said { field, most, .. } = &self.asks.cost else { continue };
            for policy in std::iter::once(keyed.policy.clone()).chain(keyed.of_keys_with_own()) {
                if let Some(above) = above(&policy, *most) {
                    let text = format!(
                        "cost {most}, the most that {field} may say, is {above} in policy {name:?}: such a request never passes"
                    );
                    problems.warning(self.place, text);
                }
            }
        }
    }

    /// The limit with the settings of the rule: key, name, cost and refunds.
    ///
    /// # Errors
    /// When the cost can never fit into the policy, so that none of its requests would pass.
    pub(super) fn finish(&self, limit: Limit, keys: &GivenKeys) -> Result<Limit, ConfigError> {
        let mut limit = limit.key(self.key.given(keys).extractor()).named(&*self.name);
        let RuleAsks { cost, refund_if, settle, bandwidth, on_missing_key, .. } = &*self.asks;
        if let Some(action) = on_missing_key {
            limit = limit.on_missing_key(*action);
        }
        limit = match cost.clone() {
            RuleCost::Fixed(cost) if self.is_about_descriptors => limit.cost(cost)?.cost_fn(move |request| {
                let hits = RequestDescriptor::of(request).map_or(1, RequestDescriptor::hits);
                cost.saturating_mul(hits)
            }),
            RuleCost::Fixed(cost) => limit.cost(cost)?,
            // Otherwise none of these requests would ever pass.
            RuleCost::Said { reserve, least, missing, .. } => {
                limit.cost(least)?.cost(missing)?.reserve(reserve)
            }
        };
        if let Some(direction) = bandwidth {
            limit = limit.bandwidth(*direction);
        }
        if !refund_if.is_empty() {
            let statuses = refund_if.clone();
            limit = limit.refund_if(move |head| statuses.iter().any(|known| known.has(head.status)));
        }
        if let Some(settle) = settle {
            limit = limit.settle(settle.clone());
        }
        Ok(limit)
    }

    /// Whether its cost is the length of a body.
    pub(super) fn counts_bytes(&self) -> bool {
        matches!(self.asks.cost, RuleCost::Said { counts_bytes: true, .. })
    }

    /// Whether a response may change what its request has spent.
    pub(super) fn changes_later(&self) -> bool {
        !self.asks.refund_if.is_empty() || self.asks.settle.is_some()
    }
}

impl RuleCost {
    /// The fewest units that must fit into each quota.
    fn least(&self) -> u64 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Said { least, missing, .. } => *least.max(missing),
        }
    }
}

impl Statuses {
    fn has(self, status: StatusCode) -> bool {
        match self {
            Self::One(one) => one == status,
            Self::Class(hundreds) => status.as_u16() / 100 == hundreds,
        }
    }
}

/// The most units that a request may cost in a file.
pub(super) const MOST_UNITS: u64 = 1 << 32;

pub(super) fn units(cost: &At<Cost>, problems: &mut Problems<'_>) -> Option<RuleCost> {
    match &cost.value {
        Cost::Text(text) => {
            let text = At { value: text.clone(), place: cost.place };
            number(&text, "a number of units", 1..=MOST_UNITS, problems).map(RuleCost::Fixed)
        }
        Cost::Entry(given) => {
            let SaidCost { header, json, bytes, min, max, missing } = &**given;
            let mut number = |text| number(text, "a number of units", 1..=MOST_UNITS, problems);
            let (least, most) = (number(min), number(max));
            let missing = match (missing, bytes) {
                (Some(missing), None) => number(missing),
                (None, Some(_)) => least,
                (Some(missing), Some(_)) => {
                    let text = "\"missing\" says nothing of a length: a request without a body costs \"min\"";
                    problems.error(missing.place, text);
                    None
                }
                (None, None) => {
                    problems.error(
                        cost.place,
                        "\"missing\" is missing here: the cost of a request without the field",
                    );
                    None
                }
            };
            let reserved = missing.unwrap_or_default();
            let said = match (header, json, bytes) {
                (None, None, Some(of)) if of.value == "request" => {
                    Ok((Reserve::bytes(most.unwrap_or_default()), "the length of the body".to_owned()))
                }
                (None, None, Some(of)) => {
                    let text =
                        format!("{:?} is not counted in bytes here: write bytes: request", short(&of.value));
                    problems.error(of.place, text);
                    Err(())
                }
                (Some(name), None, None) => Reserve::header(&name.value, reserved)
                    .map(|reserve| (reserve, format!("header {}", name.value.to_ascii_lowercase())))
                    .map_err(|_| {
                        let text = format!("{:?} is not the name of a header field", short(&name.value));
                        problems.error(name.place, text);
                    }),
                (None, Some(field), None) => Reserve::json(&field.value, reserved)
                    .map(|reserve| (reserve, format!("field {} of the body", field.value)))
                    .map_err(|error| problems.error(field.place, error.problem())),
                _ => {
                    let text = "the cost is in one place of a request: write header, json, or bytes: request";
                    problems.error(cost.place, text);
                    Err(())
                }
            };
            let ((reserve, field), least, most) = (said.ok()?, least?, most?);
            if least > most {
                problems.error(min.place, format!("the least cost {least} is above the most, {most}"));
                return None;
            }
            let reserve = reserve.at_least(least).at_most(most);
            let counts_bytes = bytes.is_some();
            Some(RuleCost::Said { reserve, field, counts_bytes, least, most, missing: missing? })
        }
    }
}

/// The status of a refusal.
pub(super) fn status(text: &At<String>, problems: &mut Problems<'_>) -> Option<StatusCode> {
    let status = number(text, "the status of a refusal", 400..=599, problems)?;
    StatusCode::from_u16(u16::try_from(status).ok()?).ok()
}

/// One status, or `5xx` for a whole class.
pub(super) fn statuses(word: &At<String>, problems: &mut Problems<'_>) -> Option<Statuses> {
    let class = word.value.strip_suffix("xx").and_then(|hundreds| hundreds.parse().ok());
    let found = match class {
        Some(hundreds @ 1..=5) => Some(Statuses::Class(hundreds)),
        _ => word.value.parse().ok().map(Statuses::One),
    };
    if found.is_none() {
        let text = format!(
            "{:?} is not a status: write one, as 502, or all of a hundred, as 2xx",
            short(&word.value)
        );
        problems.error(word.place, text);
    }
    found
}

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
