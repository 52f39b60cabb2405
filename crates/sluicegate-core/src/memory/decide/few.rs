//! One key each in two to four buckets, without lists: most requests with several limits or quotas are
//! of this kind.
//!
//! Each state is looked at once ([`Rule::spend_now`](crate::algorithm::Rule::spend_now)). Cases that this look cannot
//! decide are left to the general way: turns, costs that never fit, logs, accounts, replaced policies. Locks are
//! taken in the order of the buckets' numbers, as everywhere. Two asks of one bucket would need one lock for both and
//! have to see each other, so they are left to the general way, too.
//!
//! Results are written in place: copying words just written stalls on store forwarding.

use super::single::status_after;
use super::{buckets_of, counts_rejected};
use crate::algorithm::{Left, Looked, State};
use crate::decision::{Decision, QuotaStatus};
use crate::few::sort_few;
use crate::memory::bucket::Bucket;
use crate::memory::home::{Home, LockedSet};
use crate::memory::plans::QuotaRules;
use crate::memory::store::PolicyBuckets;
use crate::memory::table::{Locked, SlotWords};
use crate::store::{Ask, DecisionFuture, Mode};

/// The most buckets that are decided this way.
const MOST: usize = 4;

/// One bucket of one ask.
struct BucketAsk<'a> {
    bucket: &'a Bucket,
    ask: &'a Ask<'a>,
    hash: u64,
    cost: u64,
    /// The place of the ask, and that of the quota in its policy.
    at: (u8, u8),
    /// The key's slot in its set.
    slot: Option<usize>,
    spent: Looked,
}

impl PolicyBuckets {
    /// Decides asks that spend or look, in different buckets.
    pub(super) fn decide_few(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        let mut all = [const { None }; MOST];
        let is_few = self.gather(asks, &mut all).is_some();
        match &mut all {
            // The arrays are as long as there are buckets, so that the compiler unrolls all loops.
            [Some(a), Some(b), None, None] if is_few => self.decide_several(asks, &mut [a, b]),
            [Some(a), Some(b), Some(c), None] if is_few => self.decide_several(asks, &mut [a, b, c]),
            [Some(a), Some(b), Some(c), Some(d)] if is_few => self.decide_several(asks, &mut [a, b, c, d]),
            _ => DecisionFuture::ready(self.decide_all(asks)),
        }
    }

    /// Finds the buckets, in the order of the asks; `None` if they are for the general way.
    #[inline]
    fn gather<'a>(&self, asks: &'a [Ask<'a>], all: &mut [Option<BucketAsk<'a>>; MOST]) -> Option<()> {
        let mut all = all.iter_mut();
        for (policy, ask) in (0_u8..).zip(asks) {
            let buckets = buckets_of(ask).ok()?;
            if buckets.has_older() || ask.own().is_some() || !matches!(ask.mode(), Mode::Spend | Mode::Peek) {
                return None;
            }
            for (quota, bucket) in (0_u8..).zip(&*buckets.each) {
                *all.next()? = Some(BucketAsk {
                    bucket,
                    ask,
                    hash: self.context.hash(bucket.salt, ask.key()),
                    cost: ask.cost_of(quota),
                    at: (policy, quota),
                    slot: None,
                    spent: Looked { passed: false, state: State::REST, left: Left::default() },
                });
            }
        }
        Some(())
    }

    /// Decides the asks, which are about these buckets.
    #[inline]
    fn decide_several<const N: usize>(
        &self,
        asks: &[Ask<'_>],
        few: &mut [&mut BucketAsk<'_>; N],
    ) -> DecisionFuture {
        let is_in_order = (1..N).all(|next| few[next - 1].bucket.number < few[next].bucket.number);
        if !is_in_order {
            sort_few(few, |asked| asked.bucket.number);
        }
        let is_twice = (1..N).any(|next| few[next - 1].bucket.number == few[next].bucket.number);
        let spent = if is_twice {
            None
        } else if few.iter().all(|asked| asked.bucket.rules.own.is_plain()) {
            self.spend_levels(few)
        } else {
            self.spend_several(few)
        };
        let Some(now_us) = spent else {
            return DecisionFuture::ready(self.decide_all(asks));
        };
        if !is_in_order {
            sort_few(few, |asked| asked.at);
        }
        DecisionFuture::ready(Ok(Decision::of(now_us, 0, few.iter().map(|asked| asked.status()))))
    }

    /// Spends from all buckets or from none, and returns the moment; `None` leaves the asks to the general way.
    #[inline]
    fn spend_several<const N: usize>(&self, few: &mut [&mut BucketAsk<'_>; N]) -> Option<u64> {
        let mut places = [const { None }; N];
        for (asked, place) in few.iter().zip(&mut places) {
            match asked.bucket.home() {
                Home::Narrow(table) => *place = Some(LockedSet::Narrow(table.lock(table.set_of(asked.hash)))),
                Home::Wide(table) => *place = Some(LockedSet::Wide(table.lock(table.set_of(asked.hash)))),
                _ => return None,
            }
        }
        // Read under the locks: a window must not begin after a moment that is counted in it.
        spend(few, places, || self.context.clock.now_us())
    }

    /// [`spend_several`](Self::spend_several) for levels that are spans of time, as most are: their tables are of one kind.
    #[inline]
    fn spend_levels<const N: usize>(&self, few: &mut [&mut BucketAsk<'_>; N]) -> Option<u64> {
        // Read before the locks: no window begins here.
        let now_us = self.context.clock.now_us();
        let mut sets = [const { None }; N];
        for (asked, set) in few.iter().zip(&mut sets) {
            let Home::Narrow(table) = asked.bucket.home() else { return None };
            *set = Some(table.lock(table.set_of(asked.hash)));
        }
        spend(few, sets, || now_us)
    }
}

/// A locked set, of a table of one kind or of any.
trait LockedSpot {
    fn look(&self, hash: u64) -> (Option<usize>, SlotWords);
    fn put(&mut self, slot: Option<usize>, hash: u64, kept: SlotWords, rules: &QuotaRules, now_us: u64);
}

impl LockedSpot for LockedSet<'_> {
    #[inline]
    fn look(&self, hash: u64) -> (Option<usize>, SlotWords) {
        self.look(hash)
    }

    #[inline]
    fn put(&mut self, slot: Option<usize>, hash: u64, kept: SlotWords, rules: &QuotaRules, now_us: u64) {
        self.put_at(slot, hash, kept, rules, now_us);
    }
}

impl<const SLOTS: usize, const WORDS: usize> LockedSpot for Locked<'_, SLOTS, WORDS, false> {
    #[inline]
    fn look(&self, hash: u64) -> (Option<usize>, SlotWords) {
        self.look(hash)
    }

    #[inline]
    fn put(&mut self, slot: Option<usize>, hash: u64, kept: SlotWords, rules: &QuotaRules, now_us: u64) {
        self.put(slot, hash, kept, rules, now_us);
    }
}

/// Spends in the sets of all keys, or in none.
#[inline]
fn spend<S: LockedSpot, const N: usize>(
    few: &mut [&mut BucketAsk<'_>; N],
    mut spots: [Option<S>; N],
    now_us: impl FnOnce() -> u64,
) -> Option<u64> {
    if few.iter().any(|asked| asked.bucket.holds.any()) {
        return None;
    }
    let now_us = now_us();
    let mut granted = true;
    for (asked, spot) in few.iter_mut().zip(spots.iter().flatten()) {
        let (slot, SlotWords { state, .. }) = spot.look(asked.hash);
        asked.slot = slot;
        asked.spend_now(state, now_us)?;
        granted &= asked.spent.passed;
    }
    if !granted && few.iter().any(|asked| counts_rejected(asked.ask)) {
        return None;
    }
    for (asked, spot) in few.iter_mut().zip(spots.iter_mut().flatten()) {
        if granted && asked.ask.mode().spends() {
            let kept = SlotWords { state: asked.spent.state, ..SlotWords::default() };
            spot.put(asked.slot, asked.hash, kept, &asked.bucket.rules, now_us);
        } else {
            asked.spend_nothing(spot.look(asked.hash).1.state, now_us);
        }
    }
    Some(now_us)
}

impl BucketAsk<'_> {
    /// Repeats the look with a cost of 0 if the quota had room: another quota has refused, or the ask only looks.
    #[cold]
    fn spend_nothing(&mut self, state: State, now_us: u64) {
        if self.spent.passed {
            self.cost = 0;
            self.spend_now(state, now_us);
        }
    }

    /// Decides from one look at the state; `None` if that is not enough.
    #[inline]
    fn spend_now(&mut self, state: State, now_us: u64) -> Option<()> {
        // The most common kind comes first, so that its result goes from registers to its place.
        match self.bucket.rules.own.spend_plainly_now(state, now_us, self.cost) {
            Some(spent) => self.spent = spent,
            None => self.spend_other_now(state, now_us)?,
        }
        Some(())
    }

    #[inline(never)]
    fn spend_other_now(&mut self, state: State, now_us: u64) -> Option<()> {
        self.spent = self.bucket.rules.own.spend_now(state, now_us, self.cost, ())?;
        Some(())
    }

    #[inline]
    fn status(&self) -> QuotaStatus {
        status_after(self.at, self.bucket.capacity, &self.spent, self.cost)
    }
}
