//! The requests of one second, decided in their order: [`Second`].
//!
//! Requests are decided by the second, because those with whole seconds can be spread over it only when all of them are known. The lists
//! are filled again for each second, so that none is allocated twice.

use crate::judge::evaluator::{Evaluator, RowAsk, Verdict};
use crate::judge::keys::RowKeys;
use crate::judge::order::{NumberedAsk, QueuedAsk, requests, spread};
use crate::judge::states::StateTables;
use crate::read::{Brought, Came};
use crate::settings::WithinSecond;

/// The requests of one second, and everything that they ask.
#[derive(Default)]
pub(super) struct Second {
    requests: Vec<SecondRequest>,
    /// The asks of all requests, one after the other.
    asks: Vec<NumberedAsk>,
    /// The asks with their keys, if a part needs them.
    named: Vec<RowAsk>,
}

/// A request, with its asks among all.
#[derive(Clone, Copy)]
pub(super) struct SecondRequest {
    pub(super) came: Came,
    /// The range of its asks among all.
    begin: usize,
    end: usize,
}

/// Decides requests, with whole seconds taken in both ways.
///
/// Both variants give the same verdicts, which a test compares: tables take less memory and time, and evaluators can do everything that a store
/// can.
pub(super) enum Judge {
    /// Decides by the states of keys alone.
    StateTables(StateTables),
    /// Decides by a store for each way: spread, and together.
    Evaluators(Box<[Evaluator; 2]>),
}

impl Judge {
    /// The number of keys that the store of this way had no room for, and forgot before they were at rest.
    pub(super) fn forgotten(&self, within: WithinSecond) -> u64 {
        match self {
            Self::StateTables(_) => 0,
            Self::Evaluators(evaluators) => evaluator(evaluators, within).forgotten(),
        }
    }
}

/// The store of this way.
fn evaluator([spread, together]: &[Evaluator; 2], within: WithinSecond) -> &Evaluator {
    match within {
        WithinSecond::Spread => spread,
        WithinSecond::Together => together,
    }
}

impl Second {
    /// Replaces the previous second; with keys and their quotas, if they are given.
    pub(super) fn fill(&mut self, held: &[QueuedAsk], keys: Option<(&RowKeys, &Brought)>) {
        let Self { requests: all, asks, named } = self;
        all.clear();
        asks.clear();
        named.clear();
        for request in requests(held) {
            let begin = asks.len();
            asks.extend(request.iter().filter_map(|held| held.asks));
            all.push(SecondRequest { came: request[0].came, begin, end: asks.len() });
        }
        let Some((keys, brought)) = keys else { return };
        named.extend(asks.iter().map(|NumberedAsk { row, key, cost, is_enforced, quotas }| {
            let (row, cost, is_enforced) = (*row as usize, *cost, *is_enforced);
            RowAsk { row, key: keys.key(row, *key), cost, is_enforced, quotas: brought.quotas(*quotas) }
        }));
    }

    /// Each request, and its moment if whole seconds are taken in this way.
    pub(super) fn requests(&self, within: WithinSecond) -> impl Iterator<Item = (u64, SecondRequest)> {
        let all = self.requests.len() as u64;
        (0..).zip(&self.requests).map(move |(place, request)| match within {
            WithinSecond::Spread => (spread(request.came, place, all), *request),
            WithinSecond::Together => (request.came.at_us, *request),
        })
    }

    /// The asks of all requests.
    pub(super) fn all(&self) -> &[NumberedAsk] {
        &self.asks
    }

    /// The asks of a request, each with its place among all.
    pub(super) fn asks(&self, request: SecondRequest) -> impl Iterator<Item = (usize, &NumberedAsk)> {
        (request.begin..request.end).zip(&self.asks[request.begin..request.end])
    }

    /// The asks of a request with their keys, if those were given.
    pub(super) fn named(&self, request: SecondRequest) -> &[RowAsk] {
        &self.named[request.begin..request.end]
    }

    /// Decides all requests with whole seconds taken in this way. `gives_back` says for a row and a status whether its limit gives back.
    ///
    /// `verdicts` is filled with one verdict for each ask, in their order. Where all requests came at one moment and each asks one row, a
    /// store decides them in batches, which finds their buckets together.
    pub(super) fn decide(
        &self,
        within: WithinSecond,
        judge: &mut Judge,
        gives_back: impl Fn(usize, Option<u16>) -> bool,
        verdicts: &mut Vec<Verdict>,
    ) {
        verdicts.clear();
        verdicts.resize(self.asks.len(), Verdict::NotAsked);
        let evaluator = match judge {
            Judge::StateTables(tables) => {
                for (at_us, SecondRequest { begin, end, .. }) in self.requests(within) {
                    tables.decide(within, at_us, &self.asks[begin..end], &mut verdicts[begin..end]);
                }
                return;
            }
            Judge::Evaluators(evaluators) => evaluator(evaluators, within),
        };
        if let Some(at_us) = self.moment().filter(|_| within == WithinSecond::Together)
            && evaluator.may_batch(&self.named)
        {
            return evaluator.decide_at_once(at_us, &self.named, verdicts);
        }
        for (at_us, request) in self.requests(within) {
            let given_back = |row| gives_back(row, request.came.status);
            let place = request.begin..request.end;
            evaluator.decide(at_us, &self.named[place.clone()], given_back, &mut verdicts[place]);
        }
    }

    /// The time of all requests, if they share it and none asks more than one row.
    fn moment(&self) -> Option<u64> {
        let at_us = self.requests.first()?.came.at_us;
        let is_plain =
            |request: &SecondRequest| request.came.at_us == at_us && request.end - request.begin <= 1;
        self.requests.iter().all(is_plain).then_some(at_us)
    }
}
