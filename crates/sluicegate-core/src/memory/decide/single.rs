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
use crate::algorithm::SpentNow;
use crate::decision::{Decision, QuotaStatus};
use crate::memory::bucket::Bucket;
use crate::memory::change::trace;
use crate::memory::store::Inner;
use crate::memory::table::{Kept, Table, state_words};
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
        let kept = |state| Kept {
            state,
            account: if ACCOUNTS { bucket.account_of(&before, now_us) } else { before.account },
        };
        let told = |decision: Decision, after: Option<Kept>| match after {
            Some(after) if ACCOUNTS && cost > 0 => {
                decision.with_traces([trace(bucket, state, after, after.account.birth(), now_us)])
            }
            _ => decision,
        };
        if mode == Mode::Spend {
            // The same as below, from one look at the state instead of five.
            if let Some(spent) = rule.spend_now(state, now_us, cost) {
                if !spent.passed && counts_rejected(ask) {
                    drop(set);
                    return in_general();
                }
                let after = spent.passed.then(|| kept(spent.state));
                if let Some(after) = after {
                    set.put(found, hash, after, rule, now_us);
                }
                drop(set);
                let status = status_after((0, 0), bucket, &spent, now_us, cost);
                let decision = Decision::single(now_us, status);
                return DecisionFuture::ready(Ok(told(decision, after)));
            }
        }
        let judged = Judged::new(rule, mode, rule.slot(state, now_us, cost), now_us);
        let spends = judged.passed() && mode.spends();
        let is_left = if judged.passed() { judged.departs_us() > now_us } else { counts_rejected(ask) };
        if mode.spends() && is_left {
            drop(set);
            return in_general();
        }
        let after = spends.then(|| kept(rule.spend(state, now_us, now_us, cost)));
        if let Some(after) = after {
            set.put(found, hash, after, rule, now_us);
        }
        drop(set);
        let state = after.map_or(state, |after| after.state);
        let opens_us = |cost| rule.slot(state, now_us, cost).opens_us;
        let status = judged.status((0, 0), Balance::of(rule, state, now_us), now_us, opens_us);
        let decision = Decision::single(now_us, status.spending(if spends { cost } else { 0 }));
        DecisionFuture::ready(Ok(told(decision, after)))
    }
}

/// Where a bucket stands after a spend that was looked at once.
#[inline]
pub(super) fn status_after(
    place: (u8, u8),
    bucket: &Bucket,
    spent: &SpentNow,
    now_us: u64,
    cost: u64,
) -> QuotaStatus {
    let left = bucket.rule.after(spent, now_us);
    let status = QuotaStatus::at_rest(place, bucket.capacity)
        .with_remaining(left.remaining)
        .with_reset_after_us(left.reset_after_us);
    if spent.passed {
        status.with_more_after_us(left.available_after_us).spending(cost)
    } else {
        status.refused_for_us(left.available_after_us)
    }
}
