//! The requests of one second, decided in their order: [`Second`].

use crate::court::{Ask, Court, Verdict};
use crate::keys::Keys;
use crate::order::{Came, Held, requests, spread};
use crate::settings::WithinSecond;

/// The requests of one second, and all that they ask.
#[derive(Default)]
pub(crate) struct Second {
    requests: Vec<Request>,
    asks: Vec<Ask>,
    /// The number of the key of each ask.
    keys: Vec<u32>,
}

/// A request, with its asks among all.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) came: Came,
    begin: usize,
    end: usize,
}

impl Second {
    /// Takes the place of the second before it.
    pub(crate) fn fill(&mut self, held: &[Held], keys: &[Keys]) {
        let Self { requests: all, asks, keys: numbers } = self;
        all.clear();
        asks.clear();
        numbers.clear();
        for request in requests(held) {
            let begin = asks.len();
            for ask in request.iter().filter_map(|held| held.asks) {
                let (row, cost, is_enforced) = (ask.row as usize, ask.cost, ask.is_enforced);
                asks.push(Ask { row, key: keys[row].key(ask.key), cost, is_enforced });
                numbers.push(ask.key);
            }
            all.push(Request { came: request[0].came, begin, end: asks.len() });
        }
    }

    /// Each request, and when it came if whole seconds are taken in this way.
    pub(crate) fn requests(&self, within: WithinSecond) -> impl Iterator<Item = (u64, Request)> {
        let all = self.requests.len() as u64;
        (0..).zip(&self.requests).map(move |(place, request)| match within {
            WithinSecond::Spread => (spread(request.came, place, all), *request),
            WithinSecond::Together => (request.came.at_us, *request),
        })
    }

    /// The asks of a request, each with its place among all.
    pub(crate) fn asks(&self, request: Request) -> impl Iterator<Item = (usize, &Ask)> {
        (request.begin..request.end).zip(&self.asks[request.begin..request.end])
    }

    /// The same without their places.
    pub(crate) fn asks_of(&self, request: Request) -> &[Ask] {
        &self.asks[request.begin..request.end]
    }

    /// The number of the key of the ask in this place.
    pub(crate) fn key(&self, place: usize) -> u32 {
        self.keys[place]
    }

    /// Decides all requests with whole seconds taken in this way. A limit gives back if that is said of its row and a status.
    pub(crate) fn decide(
        &self,
        within: WithinSecond,
        court: &Court,
        gives_back: impl Fn(usize, Option<u16>) -> bool,
        verdicts: &mut Vec<Verdict>,
    ) {
        verdicts.clear();
        verdicts.resize(self.asks.len(), Verdict::NotAsked);
        if let Some(at_us) = self.moment().filter(|_| within == WithinSecond::Together)
            && court.may_batch(&self.asks)
        {
            return court.decide_at_once(at_us, &self.asks, verdicts);
        }
        for (at_us, request) in self.requests(within) {
            let given_back = |row| gives_back(row, request.came.status);
            let place = request.begin..request.end;
            court.decide(at_us, &self.asks[place.clone()], given_back, &mut verdicts[place]);
        }
    }

    /// The time of all requests, if it is that of all and none asks more than one row.
    fn moment(&self) -> Option<u64> {
        let at_us = self.requests.first()?.came.at_us;
        let is_plain = |request: &Request| request.came.at_us == at_us && request.end - request.begin <= 1;
        self.requests.iter().all(is_plain).then_some(at_us)
    }
}
