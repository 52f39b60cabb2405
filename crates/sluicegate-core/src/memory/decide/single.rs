//! One key in one bucket in one table, as almost every decision is: without lists.
//!
//! It is the way of most requests, so it locks one set, reads the clock once (before the lock where a level drains, under it where
//! a window begins), looks at the state once, and makes the decision in place. A turn, or units that are held for others, are left
//! to the general way.
//!
//! The table's sizes are constants here, so that the compiler unrolls the search of a set. A spend
//! that fits is judged, spent and reported from one look at the state ([`Rule::spend_now`](crate::algorithm::Rule::spend_now));
//! everything else takes the longer way below it, with the same result.

use super::counts_rejected;
use crate::algorithm::{Looked, Rule, SpendState, State};
use crate::decision::{Decision, QuotaStatus};
use crate::memory::bucket::Bucket;
use crate::memory::change::trace;
use crate::memory::plans::KeyRule;
use crate::memory::store::PolicyBuckets;
use crate::memory::table::{Locked, SlotWords, Table, state_words};
use crate::store::{Ask, Balance, DecisionFuture, Judged, Mode};

impl PolicyBuckets {
    /// Decides one key in one bucket. Where units are held or a turn is given out, it is left to the general case.
    #[inline]
    pub(super) fn decide_single<const SLOTS: usize, const WORDS: usize>(
        &self,
        table: &Table<SLOTS, WORDS, false>,
        bucket: &Bucket,
        ask: &Ask<'_>,
    ) -> DecisionFuture {
        let hash = self.context.hash(bucket.salt, ask.key());
        // Read before the lock, to hold it for less time; but a window must not begin after a moment that is counted in it.
        let is_level = const { state_words::<WORDS, false>() == 1 };
        let before_us = if is_level { Some(self.context.clock.now_us()) } else { None };
        self.decide_found(table, bucket, (ask, hash), before_us)
    }

    /// Decides a key whose hash is known, as of this moment or of one under the lock.
    #[inline]
    pub(super) fn decide_found<const SLOTS: usize, const WORDS: usize>(
        &self,
        table: &Table<SLOTS, WORDS, false>,
        bucket: &Bucket,
        (ask, hash): (&Ask<'_>, u64),
        before_us: Option<u64>,
    ) -> DecisionFuture {
        if ask.mode() != Mode::Spend {
            return self.decide_at_length(table, bucket, ask);
        }
        let in_general = || DecisionFuture::ready(self.decide_all(std::slice::from_ref(ask)));
        let set = table.lock(table.set_of(hash));
        if bucket.holds.any() {
            drop(set);
            return in_general();
        }
        let now_us = before_us.unwrap_or_else(|| self.context.clock.now_us());
        let (slot, before) = set.look(hash);
        let (rule, cost) = (&bucket.rules.own, ask.cost());
        let found = FoundKey { set, slot, hash, before, bucket, now_us, plan: None };
        let spent = spend_now::<WORDS>(rule, before.state, now_us, cost, found);
        let Some(spent) = spent else {
            return self.decide_at_length(table, bucket, ask);
        };
        if !spent.passed && counts_rejected(ask) {
            return in_general();
        }
        let status = status_after((0, 0), bucket.capacity, &spent, cost);
        DecisionFuture::ready(Ok(Decision::single(now_us, status)))
    }

    /// Decides asks for which one look at the state is not enough, in every kind of table.
    #[inline(never)]
    pub(super) fn decide_at_length<
        const SLOTS: usize,
        const WORDS: usize,
        const ACCOUNTS: bool,
        const OWN: usize,
    >(
        &self,
        table: &Table<SLOTS, WORDS, ACCOUNTS, OWN>,
        bucket: &Bucket,
        ask: &Ask<'_>,
    ) -> DecisionFuture {
        let hash = self.context.hash(bucket.salt, ask.key());
        let mut set = table.lock(table.set_of(hash));
        let now_us = self.context.clock.now_us();
        let (found, before) = set.look(hash);
        let (rule, mode, cost, state) = (&bucket.rules.own, ask.mode(), ask.cost(), before.state);
        let is_begun = mode.spends() && rule.begins() && state.until_us <= now_us;
        if bucket.holds.any() || is_begun || before.plan > 0 {
            drop(set);
            return DecisionFuture::ready(self.decide_all(std::slice::from_ref(ask)));
        }
        let judged = Judged::new(rule, mode, rule.slot(state, now_us, cost), now_us);
        let spends = judged.passed() && mode.spends() && cost > 0;
        let is_left = if judged.passed() { judged.departs_us() > now_us } else { counts_rejected(ask) };
        if mode.spends() && is_left {
            drop(set);
            return DecisionFuture::ready(self.decide_all(std::slice::from_ref(ask)));
        }
        let after =
            spends.then(|| kept::<ACCOUNTS>(bucket, before, rule.spend(state, now_us, now_us, cost), now_us));
        if let Some(after) = after {
            set.put(found, hash, after, &bucket.rules, now_us);
        }
        drop(set);
        let now = after.map_or(state, |after| after.state);
        let opens_us = |cost| rule.slot(now, now_us, cost).opens_us;
        let status = judged.status((0, 0), Balance::of(rule, now, now_us), now_us, opens_us);
        let decision = Decision::single(now_us, status.spending(if spends { cost } else { 0 }));
        DecisionFuture::ready(Ok(match after {
            Some(after) if ACCOUNTS => told((bucket, ask), decision, state, after, now_us),
            _ => decision,
        }))
    }
}

/// A key in its locked set.
pub(super) struct FoundKey<'a, const SLOTS: usize, const WORDS: usize, const OWN: usize> {
    pub(super) set: Locked<'a, SLOTS, WORDS, false, OWN>,
    pub(super) slot: Option<usize>,
    pub(super) hash: u64,
    pub(super) before: SlotWords,
    pub(super) bucket: &'a Bucket,
    pub(super) now_us: u64,
    /// The quota that the key brings, if it has its own.
    pub(super) plan: Option<&'a KeyRule>,
}

impl<const SLOTS: usize, const WORDS: usize, const OWN: usize> SpendState
    for FoundKey<'_, SLOTS, WORDS, OWN>
{
    /// Keeps the state, and unlocks the set.
    #[inline(always)]
    fn settle(self, after: Option<State>) {
        let Self { mut set, slot, hash, before, bucket, now_us, plan } = self;
        if let Some(state) = after {
            let mut after = SlotWords { state, ..before };
            if OWN > 0 {
                // A key at rest may have been counted by another plan.
                after.plan = plan.map_or(0, |plan| plan.number);
                if let Some(plan) = plan {
                    plan.reaches(state.until_us);
                }
            }
            set.put(slot, hash, after, &bucket.rules, now_us);
        }
    }
}

/// Spends from one look at a state. All rules whose states are one word are levels, so only levels are tried for them.
// Inlined always, because it is most of a decision.
#[inline(always)]
pub(super) fn spend_now<const WORDS: usize>(
    rule: &Rule,
    state: State,
    now_us: u64,
    cost: u64,
    settle: impl SpendState,
) -> Option<Looked> {
    match const { state_words::<WORDS, false>() } {
        1 => rule.spend_level_now(state, now_us, cost, settle),
        _ => rule.spend_now(state, now_us, cost, settle),
    }
}

/// The part of a key that is kept after a spend.
#[inline]
fn kept<const ACCOUNTS: bool>(bucket: &Bucket, before: SlotWords, state: State, now_us: u64) -> SlotWords {
    let account =
        if ACCOUNTS { bucket.account_of(&bucket.rules.own, &before, now_us) } else { before.account };
    SlotWords { state, account, plan: before.plan }
}

/// The decision, with what is needed to give it back.
#[cold]
fn told(
    (bucket, ask): (&Bucket, &Ask<'_>),
    decision: Decision,
    before: State,
    after: SlotWords,
    now_us: u64,
) -> Decision {
    if ask.cost() == 0 {
        return decision;
    }
    decision.with_traces([trace((bucket, &bucket.rules.own), before, after, after.account.birth(), now_us)])
}

/// The status of a bucket after a spend that one look has decided.
#[inline]
pub(super) fn status_after(place: (u8, u8), capacity: u64, spent: &Looked, cost: u64) -> QuotaStatus {
    let Looked { passed, left, .. } = spent;
    let status = QuotaStatus::at_rest(place, capacity)
        .with_remaining(left.remaining)
        .with_reset_after_us(left.reset_after_us);
    if *passed {
        status.with_more_after_us(left.available_after_us).spending(cost)
    } else {
        status.refused_for_us(left.available_after_us)
    }
}
