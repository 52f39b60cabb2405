//! One key each in two to four buckets, as most requests with several limits or quotas are: without
//! lists.
//!
//! Each state is looked at once ([`Rule::spend_now`](crate::algorithm::Rule::spend_now)), and what does not fit into
//! that look is left to the general way: turns, costs that never fit, logs, accounts, replaced policies. Locks are
//! taken in the order of the buckets' numbers, as everywhere. Two asks of one bucket would need one lock for both and
//! have to see each other, so they are left to the general way, too.

use super::single::status_after;
use super::{buckets_of, counts_rejected};
use crate::algorithm::{Looked, State};
use crate::decision::{Decision, QuotaStatus};
use crate::memory::bucket::Bucket;
use crate::memory::home::{Home, Place};
use crate::memory::store::Inner;
use crate::memory::table::Kept;
use crate::store::{Ask, DecisionFuture, Mode};

/// The most buckets that are decided this way.
const MOST: usize = 4;

/// One bucket of one ask.
#[derive(Clone, Copy)]
struct Asked<'a> {
    bucket: &'a Bucket,
    hash: u64,
    ask: &'a Ask<'a>,
    cost: u64,
    /// The place of the ask, and that of the quota in its policy.
    at: (u8, u8),
    /// Its own place among all of them.
    index: u8,
}

impl Inner {
    /// Decides asks that spend or look, in different buckets.
    pub(super) fn decide_few(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        let mut all = [None; MOST];
        // The arrays are as long as there are buckets, so that the compiler unrolls all loops.
        match (self.gather(asks, &mut all), &all) {
            (Some(2), [Some(a), Some(b), ..]) => self.decide_several(asks, [*a, *b]),
            (Some(3), [Some(a), Some(b), Some(c), _]) => self.decide_several(asks, [*a, *b, *c]),
            (Some(MOST), [Some(a), Some(b), Some(c), Some(d)]) => self.decide_several(asks, [*a, *b, *c, *d]),
            _ => DecisionFuture::ready(self.decide_all(asks)),
        }
    }

    /// Finds the buckets, in the order of the asks, and says how many they are; `None` if they are for the general way.
    #[inline]
    fn gather<'a>(&self, asks: &'a [Ask<'a>], all: &mut [Option<Asked<'a>>; MOST]) -> Option<usize> {
        let mut count = 0_u8;
        for (policy, ask) in (0_u8..).zip(asks) {
            let buckets = buckets_of(ask).ok()?;
            if buckets.has_older() || !matches!(ask.mode(), Mode::Spend | Mode::Peek) {
                return None;
            }
            for (quota, bucket) in (0_u8..).zip(&*buckets.each) {
                if !bucket.home.is_plain() {
                    return None;
                }
                let hash = self.ground.hash(bucket.salt, ask.key());
                let (cost, at) = (ask.cost_of(quota), (policy, quota));
                *all.get_mut(usize::from(count))? = Some(Asked { bucket, hash, ask, cost, at, index: count });
                count += 1;
            }
        }
        Some(count.into())
    }

    /// Decides the asks, which are about these buckets.
    #[inline]
    fn decide_several<const N: usize>(&self, asks: &[Ask<'_>], mut asked: [Asked<'_>; N]) -> DecisionFuture {
        sort(&mut asked);
        let mut statuses = [QuotaStatus::at_rest((0, 0), 0); N];
        DecisionFuture::ready(match self.spend_several(&asked, &mut statuses) {
            Some(now_us) => Ok(Decision::several(now_us, &statuses)),
            None => self.decide_all(asks),
        })
    }

    /// Spends from all buckets or from none. Says where they stand, in the order of the asks, and when that is; `None` if it is for the
    /// general way.
    // Always: it is called in one place for each number of buckets.
    #[inline(always)]
    fn spend_several<const N: usize>(
        &self,
        asked: &[Asked<'_>; N],
        statuses: &mut [QuotaStatus; N],
    ) -> Option<u64> {
        if (1..N).any(|next| asked[next - 1].bucket.number == asked[next].bucket.number) {
            return None;
        }
        let mut places =
            asked.each_ref().map(|asked| asked.bucket.home.lock(asked.bucket.home.index_of(asked.hash)));
        if asked.iter().any(|asked| asked.bucket.holds.any()) {
            return None;
        }
        let now_us = self.ground.clock.now_us();
        let (mut granted, mut after) = (true, [(None, State::REST); N]);
        for ((asked, place), after) in asked.iter().zip(&places).zip(&mut after) {
            let (slot, Kept { state, .. }) = place.look(asked.hash);
            let spent = spend_now(asked.bucket, state, now_us, asked.cost)?;
            granted &= spent.passed;
            statuses[usize::from(asked.index)] =
                status_after(asked.at, asked.bucket.capacity, &spent, asked.cost);
            *after = (slot, spent.state);
        }
        if !granted && asked.iter().any(|asked| counts_rejected(asked.ask)) {
            return None;
        }
        for ((asked, place), (slot, state)) in asked.iter().zip(&mut places).zip(after) {
            if granted && asked.ask.mode().spends() {
                place.put_at(slot, asked.hash, Kept { state, ..Kept::default() }, &asked.bucket.rule, now_us);
            } else {
                unspent(asked, place, now_us, &mut statuses[usize::from(asked.index)]);
            }
        }
        Some(now_us)
    }
}

/// Of a quota that has room, and of which nothing is spent, where it stands: as after a cost of nothing.
#[cold]
fn unspent(asked: &Asked<'_>, place: &Place<'_>, now_us: u64, status: &mut QuotaStatus) {
    let (_, Kept { state, .. }) = place.look(asked.hash);
    if status.passed()
        && let Some(unspent) = spend_now(asked.bucket, state, now_us, 0)
    {
        *status = status_after(asked.at, asked.bucket.capacity, &unspent, 0);
    }
}

/// One look at a state; at a level, which most are, without asking what else it could be.
#[inline]
fn spend_now(bucket: &Bucket, state: State, now_us: u64, cost: u64) -> Option<Looked> {
    match bucket.home {
        Home::Narrow(_) => bucket.rule.spend_level_now(state, now_us, cost),
        _ => bucket.rule.spend_now(state, now_us, cost),
    }
}

/// In the order of the buckets' numbers, in which their sets are locked. They mostly are.
#[inline]
fn sort<const N: usize>(asked: &mut [Asked<'_>; N]) {
    for sorted in 1..N {
        let mut index = sorted;
        while index > 0 && asked[index - 1].bucket.number > asked[index].bucket.number {
            asked.swap(index - 1, index);
            index -= 1;
        }
    }
}
