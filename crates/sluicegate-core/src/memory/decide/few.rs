//! One key each in two to four buckets, as most requests with several limits or quotas are: without
//! lists.
//!
//! Each state is looked at once ([`Rule::spend_now`](crate::algorithm::Rule::spend_now)), and what does not fit into
//! that look is left to the general way: turns, costs that never fit, logs, accounts, replaced policies. Locks are
//! taken in the order of the buckets' numbers, as everywhere. Two asks of one bucket would need one lock for both and
//! have to see each other, so they are left to the general way, too.

use super::single::status_after;
use super::{buckets_of, counts_rejected};
use crate::algorithm::{SpentNow, State};
use crate::decision::QuotaStatus;
use crate::memory::bucket::Bucket;
use crate::memory::home::Place;
use crate::memory::store::Inner;
use crate::memory::table::Kept;
use crate::store::{Ask, DecisionFuture, Mode, judge};

/// The most buckets that are decided this way.
const MOST: usize = 4;

/// One bucket of one ask.
#[derive(Clone, Copy)]
struct Asked<'a> {
    bucket: &'a Bucket,
    hash: u64,
    ask: &'a Ask<'a>,
    /// The place of the ask, and that of the quota in its policy.
    at: (u8, u8),
}

/// Where the table has the key, and what would become of a spend.
struct Found {
    slot: Option<usize>,
    state: State,
    spent: SpentNow,
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
        let mut count = 0;
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
                *all.get_mut(count)? = Some(Asked { bucket, hash, ask, at: (policy, quota) });
                count += 1;
            }
        }
        Some(count)
    }

    /// Decides the asks, which are about these buckets.
    #[inline]
    fn decide_several<'a, const N: usize>(&self, asks: &[Ask<'_>], asked: [Asked<'a>; N]) -> DecisionFuture {
        let (mut places, mut found) = ([const { None }; N], [const { None }; N]);
        let Some((now_us, granted)) = self.spend_several(&asked, &mut places, &mut found) else {
            drop(places);
            return DecisionFuture::ready(self.decide_all(asks));
        };
        drop(places);
        let statuses = asked.iter().zip(found.iter().flatten());
        let statuses = statuses.map(|(asked, found): (_, &Found)| found.status(asked, now_us, granted));
        DecisionFuture::ready(Ok(judge(now_us, 0, statuses)))
    }

    /// Spends from all buckets or from none, and says when and whether; `None` if it is for the general way.
    #[inline]
    fn spend_several<'a, const N: usize>(
        &self,
        asked: &[Asked<'a>; N],
        places: &mut [Option<Place<'a>>; N],
        found: &mut [Option<Found>; N],
    ) -> Option<(u64, bool)> {
        lock(asked, places)?;
        let now_us = self.ground.clock.now_us();
        let mut granted = true;
        for ((asked, place), found) in asked.iter().zip(&*places).zip(&mut *found) {
            let looked = found.insert(Found::at(asked, place.as_ref()?, now_us)?);
            granted &= looked.spent.passed;
        }
        if !granted && asked.iter().any(|asked| counts_rejected(asked.ask)) {
            return None;
        }
        if granted {
            for ((asked, place), found) in asked.iter().zip(places).zip(found) {
                found.as_ref()?.spend(asked, place.as_mut()?, now_us);
            }
        }
        Some((now_us, granted))
    }
}

/// Locks the sets of all keys, in the order of the buckets' numbers. `None` if two asks are about one bucket, or if units
/// are held in one.
#[inline]
fn lock<'a, const N: usize>(asked: &[Asked<'a>; N], places: &mut [Option<Place<'a>>; N]) -> Option<()> {
    let mut order: [usize; N] = std::array::from_fn(|index| index);
    order.sort_unstable_by_key(|index| asked[*index].bucket.number);
    // Buckets are numbered from 1 on.
    let mut last = 0;
    for index in order {
        let Asked { bucket, hash, .. } = &asked[index];
        if last == bucket.number {
            return None;
        }
        last = bucket.number;
        places[index] = Some(bucket.home.lock(bucket.home.index_of(*hash)));
        if bucket.holds.any() {
            return None;
        }
    }
    Some(())
}

impl Found {
    /// Looks for a key; `None` if one look is not enough.
    #[inline]
    fn at(asked: &Asked<'_>, place: &Place<'_>, now_us: u64) -> Option<Self> {
        let (slot, Kept { state, .. }) = place.look(asked.hash);
        let spent = asked.bucket.rule.spend_now(state, now_us, asked.cost())?;
        Some(Self { slot, state, spent })
    }

    #[inline]
    fn spend(&self, asked: &Asked<'_>, place: &mut Place<'_>, now_us: u64) {
        if asked.ask.mode().spends() {
            let kept = Kept { state: self.spent.state, ..Kept::default() };
            place.put_at(self.slot, asked.hash, kept, &asked.bucket.rule, now_us);
        }
    }

    #[inline]
    fn status(&self, asked: &Asked<'_>, now_us: u64, granted: bool) -> QuotaStatus {
        if !self.spent.passed || granted && asked.ask.mode().spends() {
            return status_after(asked.at, asked.bucket, &self.spent, now_us, asked.cost());
        }
        // It has room, and nothing is spent of it: it stands as after a cost of nothing.
        let unspent = asked.bucket.rule.spend_now(self.state, now_us, 0);
        status_after(asked.at, asked.bucket, unspent.as_ref().unwrap_or(&self.spent), now_us, 0)
    }
}

impl Asked<'_> {
    #[inline]
    fn cost(&self) -> u64 {
        self.ask.cost_of(self.at.1)
    }
}
