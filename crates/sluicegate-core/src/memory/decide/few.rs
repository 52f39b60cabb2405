//! One to four quotas of different buckets, without lists: almost all decisions that the limiter's fast path leaves.
//!
//! Each state is looked at once ([`Rule::spend_now`](crate::algorithm::Rule::spend_now)). Cases that this look cannot decide are left to the
//! general way: turns, costs that never fit or are given back, logs, replaced policies, quotas that keys bring. Locks are taken in the
//! order of the buckets' numbers, as everywhere. Two asks of one bucket would need one lock for both and affect each other, so
//! they are also left to the general way.
//!
//! Results are written in place: copying words just written stalls on store forwarding.

use super::{buckets_of, counts_rejected, status_after};
use crate::algorithm::{Balance, Looked, State};
use crate::decision::{Decision, QuotaStatus};
use crate::few::sort_few;
use crate::memory::buckets::Bucket;
use crate::memory::home::{Home, LockedSet};
use crate::memory::slot::{QuotaRules, SlotWords};
use crate::memory::store::PolicyBuckets;
use crate::memory::table::{Locked, NarrowTable};
use crate::store::{Ask, DecisionFuture, Mode};

/// The most buckets that are decided this way.
const MOST: usize = 4;

/// One bucket of one ask.
struct BucketAsk<'a> {
    bucket: &'a Bucket,
    ask: &'a Ask<'a>,
    hash: u64,
    cost: u64,
    /// The index of the ask, and the index of the quota in its policy.
    at: (u8, u8),
    /// The table, if states are of one word, as most are.
    table: Option<&'a NarrowTable>,
    /// The key's slot in its set.
    slot: Option<usize>,
    spent: Looked,
}

impl PolicyBuckets {
    /// Decides asks about one to four buckets, and all others by the general way.
    pub(in crate::memory) fn decide_now(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        let mut all = [const { None }; MOST];
        let is_few = self.gather(asks, &mut all).is_some();
        match &mut all {
            // Each array has one element per bucket, so that the compiler unrolls all loops.
            [Some(a), None, None, None] if is_few => self.decide_few(asks, &mut [a]),
            [Some(a), Some(b), None, None] if is_few => self.decide_few(asks, &mut [a, b]),
            [Some(a), Some(b), Some(c), None] if is_few => self.decide_few(asks, &mut [a, b, c]),
            [Some(a), Some(b), Some(c), Some(d)] if is_few => self.decide_few(asks, &mut [a, b, c, d]),
            _ => DecisionFuture::ready(self.decide_all(asks)),
        }
    }

    /// Finds the buckets, in the order of the asks; `None` if they need the general way.
    #[inline]
    fn gather<'a>(&self, asks: &'a [Ask<'a>], all: &mut [Option<BucketAsk<'a>>; MOST]) -> Option<()> {
        let mut all = all.iter_mut();
        for (policy, ask) in (0_u8..).zip(asks) {
            let key = self.context.hashed(ask.key());
            for (quota, bucket) in (0_u8..).zip(buckets(ask)?) {
                let hash = self.context.hash(bucket.salt, key);
                let table = if let Home::Narrow(table) = bucket.home() { Some(table) } else { None };
                *all.next()? = Some(BucketAsk::new(bucket, table, (ask, hash), (policy, quota)));
            }
        }
        Some(())
    }

    /// Decides the asks, which are about these buckets.
    #[inline]
    fn decide_few<'a, const N: usize>(
        &self,
        asks: &[Ask<'_>],
        few: &mut [&mut BucketAsk<'a>; N],
    ) -> DecisionFuture {
        let is_in_order = (1..N).all(|next| few[next - 1].bucket.number < few[next].bucket.number);
        if !is_in_order {
            sort_few(few, |asked| asked.bucket.number);
        }
        let is_twice = (1..N).any(|next| few[next - 1].bucket.number == few[next].bucket.number);
        let comes_back = few.iter().any(|asked| asked.table.is_none() && asked.bucket.accounts());
        let spent = if is_twice || comes_back {
            None
        } else if few.iter().all(|asked| asked.table.is_some()) {
            // Read before the locks, to hold them for less time: no window begins here.
            let now_us = self.context.clock.now_us();
            let lock = |asked: &BucketAsk<'a>| asked.table.map(|table| table.lock(table.set_of(asked.hash)));
            spend(few, lock, || now_us)
        } else {
            // Read under the locks: a window must not begin after a moment counted in it.
            spend(few, |asked| Some(asked.lock()), || self.context.clock.now_us())
        };
        let Some(now_us) = spent else {
            return DecisionFuture::ready(self.decide_all(asks));
        };
        if !is_in_order {
            sort_few(few, |asked| asked.at);
        }
        DecisionFuture::ready(Ok(match few.as_slice() {
            [asked] => Decision::single(now_us, asked.status()),
            several => Decision::of(now_us, 0, several.iter().map(|asked| asked.status())),
        }))
    }
}

/// The buckets of an ask about the units available now that is counted by its policy's quotas.
#[inline]
fn buckets<'a>(ask: &Ask<'a>) -> Option<impl Iterator<Item = &'a Bucket> + use<'a>> {
    let buckets = buckets_of(ask).ok()?;
    let is_question = matches!(ask.mode(), Mode::Spend | Mode::Peek | Mode::Reserve { .. });
    let is_plain = is_question
        && !buckets.replaced.are_any()
        && ask.own().is_none()
        && !ask.policy().policy().gives_back();
    is_plain.then(|| buckets.each.iter().map(|bucket| &**bucket))
}

/// A locked set, of a table of one known kind or of any kind.
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

impl LockedSpot for Locked<'_, 1, 8> {
    #[inline]
    fn look(&self, hash: u64) -> (Option<usize>, SlotWords) {
        self.look(hash)
    }

    #[inline]
    fn put(&mut self, slot: Option<usize>, hash: u64, kept: SlotWords, rules: &QuotaRules, now_us: u64) {
        self.put(slot, hash, kept, rules, now_us);
    }
}

/// Spends from all buckets or from none, and returns the moment; `None` leaves the asks to the general way.
#[inline]
fn spend<'a, S: LockedSpot, const N: usize>(
    few: &mut [&mut BucketAsk<'a>; N],
    lock: impl Fn(&BucketAsk<'a>) -> Option<S>,
    now_us: impl FnOnce() -> u64,
) -> Option<u64> {
    let mut spots = [const { None }; N];
    for (asked, spot) in few.iter().zip(&mut spots) {
        *spot = lock(asked);
    }
    let now_us = now_us();
    let mut granted = true;
    for (asked, spot) in few.iter_mut().zip(spots.iter().flatten()) {
        let (slot, before) = spot.look(asked.hash);
        if before.plan > 0 {
            return None;
        }
        asked.slot = slot;
        asked.spend_now(before.state, now_us)?;
        granted &= asked.spent.passed;
    }
    if !granted && few.iter().any(|asked| asked.outlasts_refusal()) {
        return None;
    }
    for (asked, spot) in few.iter_mut().zip(spots.iter_mut().flatten()) {
        if !granted || asked.ask.mode() == Mode::Peek {
            asked.spend_nothing(spot.look(asked.hash).1.state, now_us);
        } else {
            let kept = SlotWords { state: asked.spent.state, ..SlotWords::default() };
            spot.put(asked.slot, asked.hash, kept, &asked.bucket.rules, now_us);
        }
    }
    Some(now_us)
}

impl<'a> BucketAsk<'a> {
    #[inline]
    fn new(
        bucket: &'a Bucket,
        table: Option<&'a NarrowTable>,
        (ask, hash): (&'a Ask<'a>, u64),
        at: (u8, u8),
    ) -> Self {
        Self {
            bucket,
            ask,
            hash,
            cost: ask.cost_of(at.1),
            at,
            table,
            slot: None,
            spent: Looked {
                passed: false,
                state: State::REST,
                balance: Balance::at_rest(0),
                available_after_us: 0,
            },
        }
    }

    #[inline]
    fn lock(&self) -> LockedSet<'a> {
        let home = self.bucket.home();
        home.lock(home.index_of(self.hash))
    }

    /// Whether the ask spends or waits although it is refused.
    #[inline]
    fn outlasts_refusal(&self) -> bool {
        matches!(self.ask.mode(), Mode::Reserve { .. }) || counts_rejected(self.ask)
    }

    /// Decides from one look at the state; `None` if one look is not enough.
    #[inline]
    fn spend_now(&mut self, state: State, now_us: u64) -> Option<()> {
        // The most common kind comes first, so that its result goes straight from registers to its place.
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

    /// Repeats the look with a cost of 0 if the quota had room: another quota has refused, or the ask is a peek.
    #[cold]
    fn spend_nothing(&mut self, state: State, now_us: u64) {
        if self.spent.passed {
            self.cost = 0;
            // A look that can decide a cost can decide a cost of 0, too.
            _ = self.spend_now(state, now_us);
        }
    }

    #[inline]
    fn status(&self) -> QuotaStatus {
        status_after(self.at, &self.spent, self.cost)
    }
}
