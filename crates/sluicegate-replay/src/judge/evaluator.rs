//! Decides as a service does: with limiters on their own store, on the clock of the log.
//!
//! # The clock
//! The clock is set to the time of each request, and never runs by itself. So a replay of a year takes only as long as reading its lines,
//! and two replays give the same figures.
//!
//! # Room
//! A service has memory for a bounded number of keys; its log may have more, and a replay that forgets keys would count too few
//! rejections. Each policy has room for [`KEYS`] keys that are in debt at once, unless it sets a number itself. Keys that are forgotten
//! while they are in debt are [counted](Evaluator::forgotten), and the outcome says so.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::algorithm::{Anchor, Refill};
use sluicegate_core::clock::ManualClock;
use sluicegate_core::limiter::{Receipt, check_all};
use sluicegate_core::policy::Quotas;
use sluicegate_core::{Algorithm, ConfigError, Decision, Key, MemoryStore, Policy, Quota, RateLimiter};
use sluicegate_tower::limits::Limits;
use smallvec::SmallVec;

use crate::judge::figures::{Compared, RowTally};
use crate::replay::ReplayError;

/// One request's ask of the limiter in one row.
#[derive(Debug)]
pub(super) struct RowAsk {
    /// Its index among all rows.
    pub(super) row: usize,
    /// The key that the limit found; the store hashes it with the policy.
    pub(super) key: Key,
    /// The cost in units of its policy; never 0.
    pub(super) cost: u64,
    /// Whether its policy is enforced, or only tried out.
    pub(super) is_enforced: bool,
    /// The quotas of the key, which replace those of its row.
    pub(super) quotas: Option<Arc<Quotas>>,
}

/// The result of an ask.
///
/// A service answers only for the whole request. The replay has a result for each row, so that the outcome can say which rule refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The row had room, whether the request passed or another row refused it.
    Room,
    /// The row had no room; the wait in microseconds after which it would have had room, if a wait helps.
    Rejected(Option<u64>),
    /// The row was not asked: it is only tried out, and the request was refused before.
    NotAsked,
}

/// A limiter per row, and their clock.
///
/// Two evaluators, one for each way to treat whole seconds, never see each other's buckets.
pub(super) struct Evaluator {
    clock: ManualClock,
    store: MemoryStore,
    limiters: Vec<LazyLimiter>,
}

/// A policy whose table takes memory from its first request on.
struct LazyLimiter {
    policy: Policy,
    /// The first row of the same policy, whose limiter this one shares.
    shares: usize,
    /// Whether spent units may be given back exactly. That costs memory for each key, so it is set only where a rule gives back.
    keeps_accounts: Cell<bool>,
    /// Whether it is asked whatever the others refuse.
    is_alone: Cell<bool>,
    /// Opened by the first request of the row: policies that no request of the log uses need no tables.
    limiter: OnceCell<RateLimiter>,
}

/// The number of keys that each policy has room for, unless it sets one. They take memory only once they are used.
const KEYS: usize = 1 << 18;

impl Evaluator {
    /// Limiters of these policies, one per row; rows of one policy share it.
    pub(super) fn new<'a>(policies: impl IntoIterator<Item = &'a Policy>) -> Result<Self, ConfigError> {
        Self::with_room(policies, KEYS)
    }

    /// Limiters with room for this many keys in debt at once.
    ///
    /// # Errors
    /// When the memory store cannot keep one of the policies, which is tested in a small store, without a table of its size.
    pub(super) fn with_room<'a>(
        policies: impl IntoIterator<Item = &'a Policy>,
        keys: usize,
    ) -> Result<Self, ConfigError> {
        let clock = ManualClock::new();
        let policies: Vec<&Policy> = policies.into_iter().collect();
        // The longest log of a key may be a sixteenth of all entries.
        let longest = policies.iter().filter_map(|policy| entries(policy)).max().unwrap_or(0);
        let entries = longest.saturating_mul(16).clamp(1 << 18, 1 << 31);
        let store =
            MemoryStore::builder().table_size(keys).log_entries(entries).clock(clock.clone()).build()?;
        // Whether the store can keep them shows in a small one with the same logs.
        let small = MemoryStore::builder().table_size(1).log_entries(entries).build()?;
        let mut first: HashMap<&str, usize> = HashMap::new();
        let row = |(row, policy): (usize, &&'a Policy)| {
            // The table of its own number of keys is made once a request asks for it.
            RateLimiter::new(&small, policy.with_table_size(1))?;
            let shares = *first.entry(policy.name()).or_insert(row);
            let (keeps_accounts, is_alone, limiter) = (Cell::new(false), Cell::new(false), OnceCell::new());
            Ok(LazyLimiter { policy: Policy::clone(policy), shares, keeps_accounts, is_alone, limiter })
        };
        let limiters = policies.iter().enumerate().map(row).collect::<Result<_, ConfigError>>()?;
        Ok(Self { clock, store, limiters })
    }

    /// Makes refunds exact under this row.
    pub(super) fn keep_accounts(&self, row: usize) {
        self.limiters[row].keeps_accounts.set(true);
    }

    /// Asks a row whatever the others refuse.
    pub(super) fn decide_alone(&self, row: usize) {
        self.limiters[row].is_alone.set(true);
    }

    /// The limiter of a row, opened by its first request.
    ///
    /// Making the evaluator has shown that a store can keep the policy, so nothing panics here.
    fn limiter(&self, row: usize) -> &RateLimiter {
        let LazyLimiter { policy, shares, keeps_accounts, limiter, .. } = &self.limiters[row];
        limiter.get_or_init(|| {
            let base = &self.limiters[*shares].policy;
            let limiter = match policy == base || !base.takes_quotas() {
                true => RateLimiter::new(&self.store, policy.clone()),
                // Another tier of the policy.
                false => self.limiter(*shares).with_quotas(Quotas::of(policy)),
            };
            let limiter = limiter.expect("a store like this one could keep it");
            if keeps_accounts.get() {
                limiter.remember(Policy::with_refunds).expect("memory keeps accounts of whatever it keeps");
            }
            limiter
        })
    }

    /// The limiter of an ask, under the quotas of its key if it has its own. `None` if the store cannot keep them, which a service answers
    /// with 500.
    fn limiter_for(&self, ask: &RowAsk) -> Option<RateLimiter> {
        let limiter = self.limiter(ask.row);
        ask.quotas.as_deref().map_or_else(|| Some(limiter.clone()), |own| limiter.with_quotas(own).ok())
    }

    /// The number of keys that the stores had no room for, and forgot before they were at rest.
    pub(super) fn forgotten(&self) -> u64 {
        self.store.stats().evictions
    }

    /// The moment at which the next asks are decided, in microseconds since the epoch.
    pub(super) fn set(&self, now_us: u64) {
        self.clock.set(Duration::from_micros(now_us));
    }

    /// Decides one ask on its own, at the moment that was set, and gives back at once if its response does. Returns the wait if it is
    /// refused.
    pub(super) fn check(&self, ask: &RowAsk, gives_back: bool) -> Verdict {
        let Some(limiter) = self.limiter_for(ask) else { return Verdict::Rejected(None) };
        match limiter.check(&ask.key).cost(ask.cost).now() {
            Ok(Ok(decision)) if !decision.is_allowed() => rejected(&decision, 0),
            Ok(Ok(mut decision)) => {
                if gives_back {
                    give_back(&mut decision, 0, &limiter, ask);
                }
                Verdict::Room
            }
            _ => Verdict::Room,
        }
    }

    /// Forgets what a key has spent.
    pub(super) fn reset(&self, row: usize, key: &Key) {
        // Memory answers at once, and has nothing to say about it.
        _ = self.limiter(row).reset(key).now();
    }

    /// Decides a request as a service does: the enforced policies together, then each that is only tried out. Units that the response gives
    /// back are given back at once.
    ///
    /// `given_back` says for a row whether its limit gives back by the response of this request. `verdicts` has a place for each ask.
    pub(super) fn decide(
        &self,
        now_us: u64,
        asks: &[RowAsk],
        given_back: impl Fn(usize) -> bool,
        verdicts: &mut [Verdict],
    ) {
        self.set(now_us);
        if let ([ask], [verdict]) = (asks, &mut *verdicts) {
            *verdict = self.check(ask, given_back(ask.row));
            return;
        }
        verdicts.fill(Verdict::NotAsked);
        let mut enforced: SmallVec<[(usize, RateLimiter); 8]> = SmallVec::new();
        for (place, ask) in asks.iter().enumerate().filter(|(_, ask)| ask.is_enforced) {
            let Some(limiter) = self.limiter_for(ask) else {
                verdicts[place] = Verdict::Rejected(None);
                return;
            };
            enforced.push((place, limiter));
        }
        let mut passes = true;
        if !enforced.is_empty() {
            let checks = enforced.iter().map(|(place, limiter)| {
                let ask = &asks[*place];
                limiter.check(&ask.key).cost(ask.cost)
            });
            if let Ok(Ok(mut decision)) = check_all(checks).now() {
                passes = decision.is_allowed();
                for (index, (place, limiter)) in enforced.iter().enumerate() {
                    let ask = &asks[*place];
                    verdicts[*place] = if passes { Verdict::Room } else { rejected(&decision, index) };
                    if passes && given_back(ask.row) {
                        give_back(&mut decision, index, limiter, ask);
                    }
                }
            }
        }
        let is_asked = |ask: &RowAsk| !ask.is_enforced && (passes || self.limiters[ask.row].is_alone.get());
        for (place, ask) in asks.iter().enumerate().filter(|(_, ask)| is_asked(ask)) {
            verdicts[place] = self.check(ask, given_back(ask.row));
        }
    }
}

/// Gives back everything that an ask, at this place of a decision, has spent.
fn give_back(decision: &mut Decision, place: usize, limiter: &RateLimiter, ask: &RowAsk) {
    let receipt: Option<Receipt> = decision.take_receipt(place);
    if let Some(mut receipt) = receipt {
        _ = limiter.refund(&ask.key, ask.cost).of(&mut receipt).now();
    }
}

/// The most entries that a log of this policy has, if it keeps one.
///
/// The longest log counts, if there are several.
fn entries(policy: &Policy) -> Option<usize> {
    let logs = policy.quotas().iter().filter_map(|quota| quota.rule().log());
    logs.map(|log| usize::try_from(log.most_entries()).unwrap_or(usize::MAX)).max()
}

/// Whether the policy at this place of a decision had no room.
///
/// A decision of several policies says for each quota which of them it belongs to. The wait is that of the quota that waits the longest;
/// `None` if a quota can never have room for the cost.
fn rejected(decision: &Decision, policy: usize) -> Verdict {
    let own = decision.quotas().iter().filter(|status| status.policy_index() == policy && !status.passed());
    let mut wait: Option<u64> = None;
    let (mut is_rejected, mut helps) = (false, true);
    for status in own {
        is_rejected = true;
        helps &= !status.is_impossible();
        let us = u64::try_from(status.available_after().as_micros()).unwrap_or(u64::MAX);
        wait = wait.max(Some(us));
    }
    match is_rejected {
        true => Verdict::Rejected(wait.filter(|_| helps)),
        false => Verdict::Room,
    }
}

/// The head of a response with this status, for limits that give back by responses.
///
/// A rule with `refund_if` looks at the status alone; the log has nothing else of a response. A 429 gives nothing back, because the handler
/// was never asked.
pub(super) fn response(status: u16) -> Option<http::response::Parts> {
    // A refusal is what the limits did then; it is not known what the service would have answered.
    let is_known = status != 429;
    let response = http::Response::builder().status(status).body(()).ok().filter(|_| is_known)?;
    Some(response.into_parts().0)
}

/// Whether the limit gives back for a response with this status.
pub(super) fn gives_back(limits: &Limits, limit: usize, status: Option<u16>) -> bool {
    limits.may_give_back(limit)
        && status.and_then(response).is_some_and(|head| limits.gives_back(limit, &head))
}

// Judges the same quotas under another algorithm, each row alone: [`OtherAlgorithm`].
//
// A comparison shows the effect of another algorithm with the same quotas, for each rule by itself: if all rules changed at once,
// a rule would be asked fewer requests because another one has refused more, and the figures would say nothing about the algorithm. Each
// algorithm has a store of its own with a separate policy for each row, so that rows that share a policy stay apart.
//
// Each algorithm takes at least as much memory and time as the replay itself.

/// Algorithms that are compared.
///
/// Only algorithms with a definition of their own: the policing leaky bucket is GCRA, a shaping one delays requests and rejects by its
/// queue, and aligned windows differ from these only by where they begin.
pub(super) const COMPARED: [Algorithm; 6] = [
    Algorithm::Gcra,
    Algorithm::FixedWindow(Anchor::Epoch),
    Algorithm::SlidingCounter,
    Algorithm::SlidingLog,
    Algorithm::TokenBucket(Refill::Greedy),
    Algorithm::TokenBucket(Refill::Interval),
];

/// All rows under one algorithm, each alone.
pub(super) struct OtherAlgorithm {
    algorithm: Algorithm,
    evaluator: Evaluator,
    rows: Vec<AloneRow>,
}

/// One row, under the compared algorithm.
struct AloneRow {
    /// The index in the evaluator, or the reason why there is none.
    place: Result<usize, String>,
    /// Whether its quotas were taken without their burst, because the algorithm supports none.
    drops_burst: bool,
    /// The number of its requests that were rejected so far.
    rejected: u64,
}

impl OtherAlgorithm {
    /// All rows under this algorithm. A row whose quotas the algorithm cannot keep has the reason instead of a count.
    ///
    /// # Errors
    /// When the store cannot keep what the builder has accepted.
    pub(super) fn new(algorithm: Algorithm, all: &[RowTally], limits: &Limits) -> Result<Self, ReplayError> {
        let mut policies: Vec<Policy> = Vec::new();
        let rows = all.iter().enumerate().map(|(number, row)| {
            let (policy, drops_burst) = under(algorithm, number, &row.figures.policy);
            let place = policy.map(|policy| {
                policies.push(policy);
                policies.len() - 1
            });
            AloneRow { place, drops_burst, rejected: 0 }
        });
        let rows: Vec<AloneRow> = rows.collect();
        let evaluator = Evaluator::new(&policies).map_err(ReplayError::limits)?;
        for (row, _) in rows.iter().zip(all).filter(|(_, tally)| limits.may_give_back(tally.limit)) {
            row.place.iter().for_each(|place| evaluator.keep_accounts(*place));
        }
        Ok(Self { algorithm, evaluator, rows })
    }

    /// Decides the asks of a request.
    ///
    /// Gives back what a response gives back, as in the replay: `given_back` says for a row whether it does.
    pub(super) fn decide(&mut self, at_us: u64, asks: &[RowAsk], given_back: impl Fn(usize) -> bool) {
        self.evaluator.set(at_us);
        for ask in asks {
            let row = &mut self.rows[ask.row];
            if let Ok(place) = &row.place {
                let quotas = ask.quotas.as_deref().map(|own| under_it(self.algorithm, own, row.drops_burst));
                let ask = RowAsk { row: *place, key: ask.key.clone(), quotas, ..*ask };
                let verdict = self.evaluator.check(&ask, given_back(ask.row));
                row.rejected += u64::from(matches!(verdict, Verdict::Rejected(_)));
            }
        }
    }

    /// The result of the row at this index.
    pub(super) fn compared(&self, row: usize) -> Compared {
        let AloneRow { place, drops_burst, rejected } = &self.rows[row];
        Compared {
            algorithm: self.algorithm,
            rejected: place.clone().map(|_| *rejected),
            drops_burst: *drops_burst,
        }
    }
}

/// The quotas of a key under another algorithm, changed like those of its row.
fn under_it(algorithm: Algorithm, own: &Quotas, drops_burst: bool) -> Arc<Quotas> {
    let under = |(_, quota): (Option<&str>, Quota)| {
        let quota = if drops_burst { Quota::new(quota.limit(), quota.period()) } else { quota };
        quota.counted_by(algorithm)
    };
    Arc::new(own.each().map(under).collect::<Vec<_>>().into())
}

/// The policy under another algorithm, without bursts if that algorithm supports none. An algorithm that starts full is not compared where
/// keys start with less than a burst, and says so.
fn under(algorithm: Algorithm, number: usize, policy: &Policy) -> (Result<Policy, String>, bool) {
    let name = format!("row-{number}");
    let quotas: Vec<Quota> = quotas_of(policy).into_iter().map(|quota| quota.counted_by(algorithm)).collect();
    let build = |quotas: &[Quota]| copy(policy, &name, algorithm, quotas).map_err(|error| error.to_string());
    let plain: Vec<Quota> = quotas.iter().map(|quota| Quota::new(quota.limit(), quota.period())).collect();
    let has_burst = quotas.iter().any(|quota| quota.burst_size() != quota.limit());
    let starts = quotas.iter().any(|quota| quota.start().is_some_and(|start| start < quota.burst_size()));
    match build(&quotas) {
        Err(_) if has_burst && !starts => (build(&plain), true),
        built => (built, false),
    }
}

// Copies of a policy that are tried out beside it, under another algorithm.
//
// A trial has to equal the policy in everything but the one tried difference, or its figures would compare two differences at once. So it
// is built by the same builder, and a test compares a copy that changes nothing with its original.

/// A policy of this name with these quotas, under this algorithm. Its waits, its counting of refused requests, its suspensions and its room
/// for keys are those of `policy`.
///
/// # Errors
/// When the algorithm cannot keep the quotas, such as a burst under an algorithm that supports none.
pub(super) fn copy(
    policy: &Policy,
    name: &str,
    algorithm: Algorithm,
    quotas: &[Quota],
) -> Result<Policy, ConfigError> {
    let first = quotas.first().copied().unwrap_or(Quota::per_second(1));
    let mut builder = Policy::builder(name, algorithm, first).on_exceeded(policy.on_exceeded());
    for quota in quotas.iter().skip(1) {
        builder = builder.and(*quota);
    }
    if policy.counts_rejected() {
        builder = builder.count_rejected();
    }
    if let Some(keys) = policy.table_size() {
        builder = builder.table_size(keys);
    }
    builder = builder.on_full(policy.on_full());
    if let Some(suspension) = policy.suspension()
        && let (Some((after, within)), Some(first), Some(longest), Some(remembers)) =
            (suspension.after(), suspension.lasts(0), suspension.lasts(u64::MAX), suspension.remembers())
    {
        builder = builder.suspend(after, within, first).up_to(longest).remember(remembers);
    }
    let copy = builder.build()?;
    Ok(if policy.takes_quotas() { copy.taking_quotas() } else { copy })
}

/// The quotas of a policy alone, as they are written in a file.
pub(super) fn quotas_of(policy: &Policy) -> Vec<Quota> {
    policy.quotas().iter().map(|quota| quota.quota()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_waits_counts_suspends_and_has_room_as_its_policy_does() {
        let policy = Policy::gcra("p", "5/min burst 3").suspend(3, "1min", "5min").up_to("1h").remember("2h");
        let policy = policy.on_exceeded("wait 2s".parse().unwrap()).count_rejected();
        let policy = policy.table_size(50).on_full("inherit".parse().unwrap()).build().unwrap();
        assert_eq!(copy(&policy, "p", policy.algorithm(), &quotas_of(&policy)).unwrap(), policy);
        let mixed = Policy::gcra("p", "5/min").and("9/d by sliding-log").build().unwrap();
        assert_eq!(copy(&mixed, "p", mixed.algorithm(), &quotas_of(&mixed)).unwrap(), mixed);
    }

    #[test]
    fn all_quotas_of_a_row_are_counted_by_the_algorithm_that_is_compared() {
        let mixed = Policy::gcra("p", "5/min burst 2").and("9/d by sliding-log").build().unwrap();
        for algorithm in COMPARED {
            let (compared, drops_burst) = under(algorithm, 0, &mixed);
            let compared = compared.unwrap();
            assert!(compared.quotas().iter().all(|quota| quota.algorithm() == algorithm), "{compared}");
            assert_eq!(drops_burst, compared.quotas()[0].quota().burst_size() == 5, "{compared}");
        }
    }
}
