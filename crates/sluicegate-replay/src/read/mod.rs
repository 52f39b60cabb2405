//! From the bytes of logs to requests and their asks: [`LineParser`], by several threads.

mod format;
mod lines;
mod reader;

pub use self::format::Format;
pub(crate) use self::format::{Guess, time};
pub(crate) use self::lines::{Batches, LONGEST, LineBatch, take_apart};
pub(crate) use self::reader::{
    Came, KeyedAsk, LineParser, LogFormat, Marks, NO_CLIENT, NO_TEXT, ParsedBatch, ReadRange, network_of,
};

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use sluicegate_core::RateLimiter;
use sluicegate_core::policy::Quotas;
use sluicegate_core::support::{read, write};
use sluicegate_tower::limits::Limits;
use smallvec::SmallVec;

use crate::outcome::KeyGroup;

// The rows that are counted, one for each policy of each rule: [`Rows`].
//
// A rule may spend from several policies, by tier; several rules may spend from one policy. A row is one rule with one policy. Figures are
// shown by row, and buckets belong to policies.

/// The rows of all limits: one for each policy that a limit may ask.
#[derive(Clone)]
pub(crate) struct Rows {
    pub(crate) limits: Limits,
    /// The limiters of each limit.
    of_limit: Arc<[Vec<LimiterRow>]>,
    /// The limit of each row.
    pub(crate) limit_of: Arc<[usize]>,
    /// The quotas that requests bring for their keys.
    pub(crate) brought: Brought,
}

/// A limiter of a limit.
pub(crate) struct LimiterRow {
    /// Identifies the limiter; its counts in the service are not touched.
    limiter: RateLimiter,
    /// Its place among all limiters, also of limits that are not replayed.
    place: usize,
    /// The number of quotas of its policy.
    quotas: usize,
    /// The number of the row; `None` if only other rules are replayed.
    pub(crate) row: Option<usize>,
    /// The rows of its groups of keys, if those are counted too.
    pub(crate) groups: Option<RowGroups>,
}

/// The rows in which the requests of a row are counted by groups of their clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowGroups {
    pub(crate) network: usize,
    pub(crate) session: usize,
}

/// A row that is to be counted.
pub(crate) struct CountedRow {
    /// The rule.
    pub(crate) name: String,
    /// The place of its limit.
    pub(crate) limit: usize,
    pub(crate) limiter: RateLimiter,
    /// The group of keys that it is counted by, beside the keys of the rule.
    pub(crate) group: Option<KeyGroup>,
}

impl Rows {
    /// The rows of these limits, and those that are to be counted: all, or those of the rules with these names.
    ///
    /// Rows of other rules are known too, because whether a service answers a request with 500 depends on everything that it asks.
    pub(crate) fn of(limits: Limits, only: &[String], has_groups: bool) -> (Self, Vec<CountedRow>) {
        let mut named: Vec<CountedRow> = Vec::new();
        let mut of_limit = Vec::new();
        let mut all: Vec<RateLimiter> = Vec::new();
        for (limit, (name, limiters)) in limits.limiters().enumerate() {
            let is_replayed = only.is_empty() || only.contains(&name);
            let mut rows = Vec::new();
            for limiter in limiters {
                let place = all.iter().position(|known| known.is(limiter)).unwrap_or_else(|| {
                    all.push(limiter.clone());
                    all.len() - 1
                });
                let row = is_replayed.then_some(named.len());
                let quotas = limiter.policy().quotas().len();
                let counted = |group| {
                    let (name, limiter) = (name.clone(), limiter.clone());
                    CountedRow { name, limit, limiter, group }
                };
                named.extend(row.map(|_| counted(None)));
                // Tiers of one policy share the rows of its groups, as they share its keys.
                let shared = rows.iter().find(|row: &&LimiterRow| row.place == place);
                let groups = shared.map_or_else(
                    || {
                        row.filter(|_| has_groups)?;
                        let network = named.len();
                        named
                            .extend([KeyGroup::Network, KeyGroup::Session].map(|group| counted(Some(group))));
                        Some(RowGroups { network, session: network + 1 })
                    },
                    |row| row.groups,
                );
                rows.push(LimiterRow { limiter: limiter.clone(), place, quotas, row, groups });
            }
            of_limit.push(rows);
        }
        let limit_of = named.iter().map(|row| row.limit).collect();
        (Self { limits, of_limit: of_limit.into(), limit_of, brought: Brought::default() }, named)
    }

    /// The row of this limiter of a limit; if several tiers share a policy, the row with the limiter's quotas.
    pub(crate) fn row(&self, limit: usize, limiter: &RateLimiter) -> Option<&LimiterRow> {
        let rows = &self.of_limit[limit];
        let of_policy = || rows.iter().find(|row| row.limiter.is(limiter));
        rows.iter().find(|row| row.limiter == *limiter).or_else(of_policy)
    }

    /// The number of the quotas by which a limiter of this row decides.
    pub(crate) fn quotas(&self, row: &LimiterRow, limiter: &RateLimiter) -> u32 {
        self.brought.number(&row.limiter, limiter)
    }

    /// Whether requests that this limit cannot be asked about are reported.
    fn is_replayed(&self, limit: usize) -> bool {
        self.of_limit[limit].iter().any(|row| row.row.is_some())
    }
}

/// A request's asks of enforced policies, to find requests that a service answers with 500.
#[derive(Default)]
pub(super) struct Enforced {
    /// The places of the limiters that were asked so far.
    places: SmallVec<[usize; 4]>,
    quotas: usize,
    /// Whether one of them was asked twice.
    is_twice: bool,
}

impl Enforced {
    /// Adds an ask of this row, by which the request is refused if the row has no room.
    pub(crate) fn add(&mut self, row: &LimiterRow) {
        self.is_twice |= self.places.contains(&row.place);
        self.places.push(row.place);
        self.quotas += row.quotas;
    }

    /// The reason for which the service answers 500, if it does. It does so before anything is spent, so the request is left out here, and
    /// reported.
    pub(super) fn mistake(&self) -> Option<&'static str> {
        match () {
            () if self.is_twice => Some(TWICE),
            () if self.quotas > MOST_QUOTAS => Some(TOO_MANY),
            () => None,
        }
    }
}

/// The most quotas that a store decides together.
const MOST_QUOTAS: usize = 16;

const TWICE: &str = "the request asks one policy twice, which the service answers with 500";
const TOO_MANY: &str = "the request asks more than 16 quotas, which the service answers with 500";

// The quotas that requests bring for their keys, each with a number: [`Brought`].
//
// Several threads read lines, so the numbers depend on which thread comes first. Figures do not: a number only stands for quotas.

/// All quotas of keys so far. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Brought(Arc<RwLock<NumberedQuotas>>);

#[derive(Debug, Default)]
struct NumberedQuotas {
    numbers: HashMap<Arc<Quotas>, u32>,
    each: Vec<Arc<Quotas>>,
}

/// The number of a row's own quotas.
pub(crate) const OWN_OF_ROW: u32 = 0;

impl Brought {
    /// The number of the quotas of an ask's limiter, or [`OWN_OF_ROW`] if they are those of its row.
    pub(super) fn number(&self, row: &RateLimiter, limiter: &RateLimiter) -> u32 {
        if limiter == row {
            return OWN_OF_ROW;
        }
        let quotas = limiter.with_policy(Quotas::of);
        if quotas == row.with_policy(Quotas::of) {
            return OWN_OF_ROW;
        }
        let known = |all: &NumberedQuotas| all.numbers.get(&quotas).copied();
        if let Some(number) = known(&read(&self.0)) {
            return number;
        }
        let mut all = write(&self.0);
        known(&all).unwrap_or_else(|| {
            let quotas = Arc::new(quotas);
            all.each.push(Arc::clone(&quotas));
            let number = u32::try_from(all.each.len()).unwrap_or(u32::MAX);
            all.numbers.insert(quotas, number);
            number
        })
    }

    /// The quotas with this number; `None` for those of the row.
    pub(crate) fn quotas(&self, number: u32) -> Option<Arc<Quotas>> {
        let place = usize::try_from(number).ok()?.checked_sub(1)?;
        read(&self.0).each.get(place).cloned()
    }
}
