//! Reads a response for the costs of its request: [`Tap`].

use std::ops::Range;
use std::sync::Arc;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use smallvec::SmallVec;

use crate::admission::meter::Meter;
use crate::json::{EventStream, FieldPath, JsonScanner};
use crate::settle::rule::{CostSource, OnAbort, Settle, number_in};

/// Reads a response as it passes, and settles the request when it has ended. If it is dropped before that, it settles as for an aborted response.
#[derive(Debug)]
pub(crate) struct Tap {
    accounts: SmallVec<[TapAccount; 1]>,
    /// `None` once all is settled.
    meter: Option<Meter>,
    bytes: u64,
    /// The length of the body, if the head states it: a server may not ask a body for more than that.
    length: Option<u64>,
    /// `None` if no field is read, or if the body is compressed.
    json: Option<JsonScanner>,
    events: Option<EventStream>,
}

/// An account of the request that the response settles.
#[derive(Debug)]
struct TapAccount {
    /// Its index in the meter.
    place: usize,
    settle: Arc<Settle>,
    /// One per source.
    told: SmallVec<[ToldCost; 2]>,
}

/// The number of a source, or the place to find it.
#[derive(Debug)]
enum ToldCost {
    Number(Option<u64>),
    /// The places of its fields in the JSON scanner.
    Json(Range<usize>),
    /// The places of its fields in the scanner of events.
    Sse(Range<usize>),
    Bytes,
}

impl Tap {
    /// Begins to read a response with this head. `accounts` are indexes in the meter, each with its settlement.
    pub(crate) fn new(
        meter: Meter,
        accounts: impl Iterator<Item = (usize, Arc<Settle>)>,
        head: &HeaderMap,
    ) -> Self {
        Self::reading(meter, accounts.collect(), head)
    }

    fn reading(meter: Meter, accounts: Vec<(usize, Arc<Settle>)>, head: &HeaderMap) -> Self {
        let (mut json, mut sse) = (Vec::new(), Vec::new());
        let mut told = |source: &CostSource| match source {
            CostSource::Header(name) => ToldCost::Number(number_in(head, name)),
            CostSource::Trailer(_) => ToldCost::Number(None),
            CostSource::Json(fields) => ToldCost::Json(append(&mut json, fields)),
            CostSource::Sse(fields) => ToldCost::Sse(append(&mut sse, fields)),
            CostSource::Bytes => ToldCost::Bytes,
        };
        let accounts = accounts.into_iter().map(|(place, settle)| {
            let told = settle.sources.iter().map(&mut told).collect();
            TapAccount { place, settle, told }
        });
        let accounts = accounts.collect();
        let is_plain = !is_encoded(head);
        Self {
            accounts,
            meter: Some(meter),
            bytes: 0,
            length: number_in(head, &CONTENT_LENGTH),
            json: (is_plain && !json.is_empty()).then(|| JsonScanner::new(json)),
            events: (is_plain && !sse.is_empty()).then(|| EventStream::new(sse)),
        }
    }

    /// Reads a piece of the body.
    pub(crate) fn data(&mut self, data: &[u8]) {
        self.bytes = self.bytes.saturating_add(data.len() as u64);
        if let Some(json) = &mut self.json {
            json.feed(data);
        }
        if let Some(events) = &mut self.events {
            events.feed(data);
        }
    }

    pub(crate) fn trailers(&mut self, trailers: &HeaderMap) {
        for TapAccount { settle, told, .. } in &mut self.accounts {
            for (source, told) in settle.sources.iter().zip(told) {
                if let CostSource::Trailer(name) = source {
                    *told = ToldCost::Number(number_in(trailers, name));
                }
            }
        }
    }

    /// Settles the accounts: the response has ended.
    pub(crate) fn complete(mut self) {
        self.settle(true);
    }

    fn settle(&mut self, is_complete: bool) {
        let Some(meter) = self.meter.take() else { return };
        meter.settle_each(|place| {
            let account = self.accounts.iter().find(|account| account.place == place)?;
            if is_complete || account.settle.on_abort == OnAbort::Seen { self.cost(account) } else { None }
        });
    }

    /// The cost that the response has stated, from the first source that has a number.
    fn cost(&self, account: &TapAccount) -> Option<u64> {
        account.settle.sources.iter().zip(&account.told).find_map(|(source, told)| match (source, told) {
            (_, ToldCost::Number(number)) => *number,
            (CostSource::Json(prices), ToldCost::Json(places)) => {
                sum(prices, self.json.as_ref()?.found(places.clone()))
            }
            (CostSource::Sse(prices), ToldCost::Sse(places)) => {
                sum(prices, self.events.as_ref()?.found(places.clone()))
            }
            (_, ToldCost::Bytes) => Some(self.bytes),
            _ => None,
        })
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let is_complete = self.length.is_some_and(|length| length > 0 && length == self.bytes);
        self.settle(is_complete);
    }
}

/// Whether a body is encoded, so that no field in it can be read.
pub(crate) fn is_encoded(head: &HeaderMap) -> bool {
    let encodings =
        head.get_all(CONTENT_ENCODING).iter().flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
    let mut encodings = encodings.map(<[u8]>::trim_ascii);
    encodings.any(|encoding| !encoding.is_empty() && !encoding.eq_ignore_ascii_case(b"identity"))
}

/// Appends the paths of these fields, and returns their places.
fn append(paths: &mut Vec<FieldPath>, fields: &[(FieldPath, i64)]) -> Range<usize> {
    let begin = paths.len();
    paths.extend(fields.iter().map(|(path, _)| path.clone()));
    begin..paths.len()
}

/// The cost of the found numbers at these prices, at least 0; `None` if there is no number.
fn sum(prices: &[(FieldPath, i64)], found: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    let costs = prices
        .iter()
        .zip(found)
        .filter_map(|((_, price), found)| Some(i128::from(found?) * i128::from(*price)));
    let cost = costs.reduce(i128::saturating_add)?;
    Some(u64::try_from(cost.max(0)).unwrap_or(u64::MAX))
}
