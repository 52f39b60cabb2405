//! One key in one bucket in one table, as almost every decision is: without lists.
//!
//! It is the way of most requests, so it locks one set, reads the clock once (before the lock where a level drains, behind it where
//! a window begins), looks at the state once, and makes the decision in place. A turn, or units that are held for others, are left
//! to the general way.
//!
//! The table's sizes are constants here, so that the compiler unrolls the search of a set. A spend
//! that fits is judged, spent and reported from one look at the state ([`Rule::spend_now`](crate::algorithm::Rule::spend_now));
//! everything else takes the longer way below it, with the same result.

use super::counts_rejected;
use crate::algorithm::{Looked, Rule, State};
use crate::decision::{Decision, QuotaStatus};
use crate::memory::bucket::Bucket;
use crate::memory::change::trace;
use crate::memory::store::Inner;
use crate::memory::table::{Kept, Locked, Table, state_words};
use crate::store::{Ask, Balance, DecisionFuture, Judged, Mode};

impl Inner {
    /// Decides one key in one bucket. Where units are held or a turn is given out, it is left to the general case.
    #[inline]
    pub(super) fn decide_single<const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool>(
        &self,
        table: &Table<SLOTS, WORDS, ACCOUNTS>,
        bucket: &Bucket,
        ask: &Ask<'_>,
    ) -> DecisionFuture {
        let hash = self.ground.hash(bucket.salt, ask.key());
        // Before the lock, which is held for less then; but a window must not begin after a moment that is counted in it.
        let is_level = const { state_words::<WORDS, ACCOUNTS>() == 1 };
        let before_us = if is_level { Some(self.ground.clock.now_us()) } else { None };
        self.decide_found(table, bucket, (ask, hash), before_us)
    }

    /// Decides a key whose hash is known, as of this moment or of one under the lock.
    #[inline]
    pub(super) fn decide_found<const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool>(
        &self,
        table: &Table<SLOTS, WORDS, ACCOUNTS>,
        bucket: &Bucket,
        (ask, hash): (&Ask<'_>, u64),
        before_us: Option<u64>,
    ) -> DecisionFuture {
        let in_general = || DecisionFuture::ready(self.decide_all(std::slice::from_ref(ask)));
        let mut set = table.lock(table.set_of(hash));
        if bucket.holds.any() {
            drop(set);
            return in_general();
        }
        let now_us = before_us.unwrap_or_else(|| self.ground.clock.now_us());
        let (found, before) = set.look(hash);
        let state = before.state;
        let (rule, mode, cost) = (&bucket.rule, ask.mode(), ask.cost());
        if mode == Mode::Spend
            && let Some(spent) = spend_now::<WORDS, ACCOUNTS>(rule, state, now_us, cost)
        {
            // The same as below, from one look at the state instead of five.
            if !spent.passed && counts_rejected(ask) {
                drop(set);
                return in_general();
            }
            let after = spent.passed.then(|| kept::<ACCOUNTS>(bucket, before, spent.state, now_us));
            if let Some(after) = after {
                set.put(found, hash, after, rule, now_us);
            }
            drop(set);
            let status = status_after((0, 0), bucket.capacity, &spent, cost);
            let decision = Decision::single(now_us, status);
            return DecisionFuture::ready(Ok(match after {
                Some(after) if ACCOUNTS => told((bucket, ask), decision, state, after, now_us),
                _ => decision,
            }));
        }
        self.decide_at_length((set, found, before), bucket, (ask, hash), now_us)
    }

    /// The numbers that one look does not tell.
    #[inline(never)]
    fn decide_at_length<const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool>(
        &self,
        (mut set, found, before): (Locked<'_, SLOTS, WORDS, ACCOUNTS>, Option<usize>, Kept),
        bucket: &Bucket,
        (ask, hash): (&Ask<'_>, u64),
        now_us: u64,
    ) -> DecisionFuture {
        let (rule, mode, cost, state) = (&bucket.rule, ask.mode(), ask.cost(), before.state);
        if mode.spends() && rule.begins() && state.until_us <= now_us {
            drop(set);
            return DecisionFuture::ready(self.decide_all(std::slice::from_ref(ask)));
        }
        let judged = Judged::new(rule, mode, rule.slot(state, now_us, cost), now_us);
        let spends = judged.passed() && mode.spends();
        let is_left = if judged.passed() { judged.departs_us() > now_us } else { counts_rejected(ask) };
        if mode.spends() && is_left {
            drop(set);
            return DecisionFuture::ready(self.decide_all(std::slice::from_ref(ask)));
        }
        let after =
            spends.then(|| kept::<ACCOUNTS>(bucket, before, rule.spend(state, now_us, now_us, cost), now_us));
        if let Some(after) = after {
            set.put(found, hash, after, rule, now_us);
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

/// One look at a state. All rules whose states are one word are levels, so of those no other is asked.
// Always, because it is most of a decision.
#[inline(always)]
pub(super) fn spend_now<const WORDS: usize, const ACCOUNTS: bool>(
    rule: &Rule,
    state: State,
    now_us: u64,
    cost: u64,
) -> Option<Looked> {
    match const { state_words::<WORDS, ACCOUNTS>() } {
        1 => rule.spend_level_now(state, now_us, cost),
        _ => rule.spend_now(state, now_us, cost),
    }
}

/// The part of a key that is kept after a spend.
#[inline]
fn kept<const ACCOUNTS: bool>(bucket: &Bucket, before: Kept, state: State, now_us: u64) -> Kept {
    Kept { state, account: if ACCOUNTS { bucket.account_of(&before, now_us) } else { before.account } }
}

/// The decision, with what is needed to give it back.
#[cold]
fn told(
    (bucket, ask): (&Bucket, &Ask<'_>),
    decision: Decision,
    before: State,
    after: Kept,
    now_us: u64,
) -> Decision {
    if ask.cost() == 0 {
        return decision;
    }
    decision.with_traces([trace(bucket, before, after, after.account.birth(), now_us)])
}

/// Where a bucket stands after a spend that was looked at once.
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
