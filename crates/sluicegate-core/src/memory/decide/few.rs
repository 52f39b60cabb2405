//! One key each in up to four buckets, as most requests with several limits or quotas are: without
//! lists.
//!
//! Locks are taken in the order of the buckets' numbers, as everywhere. Two asks of one bucket are
//! left to the general way: they would need one lock for both and have to see each other.

use super::buckets_of;
use super::single::status_after;
use crate::algorithm::{SpentNow, State};
use crate::decision::QuotaStatus;
use crate::memory::bucket::Bucket;
use crate::memory::home::Place;
use crate::memory::store::Inner;
use crate::memory::table::Kept;
use crate::store::{Ask, Balance, DecisionFuture, Judged, Mode, judge};

/// The most buckets that are decided this way.
const MOST: usize = 4;

/// One bucket of one ask.
#[derive(Clone, Copy)]
struct Asked<'a> {
    bucket: &'a Bucket,
    hash: u64,
    mode: Mode,
    cost: u64,
    /// The ask, and the quota of its policy.
    at: (u8, u8),
}

/// Where the table has the key, and whether the ask passes.
struct Found {
    slot: Option<usize>,
    state: State,
    /// From one look at the state, where that is enough.
    spent: Option<SpentNow>,
    judged: Judged,
}

impl Inner {
    /// Decides asks that spend or look, in different buckets. The general way takes what is left: more buckets, logs, accounts,
    /// replaced policies, reservations, and what is held for them.
    pub(super) fn decide_few(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        let in_general = || DecisionFuture::ready(self.decide_all(asks));
        let mut all = [None; MOST];
        let mut places = [const { None }; MOST];
        let mut found = [const { None }; MOST];
        let Some(count) = self.gather(asks, &mut all) else { return in_general() };
        if lock(&all, count, &mut places).is_none() {
            drop(places);
            return in_general();
        }
        let now_us = self.ground.clock.now_us();
        for ((asked, place), found) in all.iter().zip(&places).zip(&mut found) {
            let (Some(asked), Some(place)) = (asked, place) else { break };
            *found = Found::at(asked, place, now_us);
            if found.is_none() {
                drop(places);
                return in_general();
            }
        }
        let granted = found.iter().flatten().all(|found: &Found| found.judged.passed());
        if granted {
            for ((asked, place), found) in all.iter().zip(&mut places).zip(&mut found) {
                let (Some(asked), Some(place), Some(found)) = (asked, place, found) else { break };
                found.spend(asked, place, now_us);
            }
        }
        drop(places);
        let statuses = all.iter().flatten().zip(found.iter().flatten());
        let statuses = statuses.map(|(asked, found)| found.status(asked, now_us, granted));
        DecisionFuture::ready(Ok(judge(now_us, 0, statuses)))
    }

    /// Finds the buckets, in the order of the asks, and says how many they are.
    #[inline]
    fn gather<'a>(&self, asks: &[Ask<'a>], all: &mut [Option<Asked<'a>>; MOST]) -> Option<usize> {
        let mut count = 0;
        for (policy, ask) in (0_u8..).zip(asks) {
            let buckets = buckets_of(ask).ok()?;
            if buckets.has_older() || !matches!(ask.mode(), Mode::Spend | Mode::Peek) {
                return None;
            }
            for (quota, bucket) in (0_u8..).zip(&*buckets.each) {
                let is_known = all.iter().flatten().any(|other| other.bucket.number == bucket.number);
                if count == MOST || is_known || bucket.accounts || bucket.rule.log().is_some() {
                    return None;
                }
                let hash = self.ground.hash(bucket.salt, ask.key());
                let (mode, cost) = (ask.mode(), ask.cost_of(quota));
                all[count] = Some(Asked { bucket, hash, mode, cost, at: (policy, quota) });
                count += 1;
            }
        }
        (count > 0).then_some(count)
    }
}

/// Locks the sets of all keys, if nothing is held in their buckets, as all decisions do: in the order of the buckets'
/// numbers.
///
/// If units are held somewhere the locks are dropped again and the general way takes over, which
/// takes them in the same order.
#[inline]
fn lock<'a>(
    all: &[Option<Asked<'a>>; MOST],
    count: usize,
    places: &mut [Option<Place<'a>>; MOST],
) -> Option<()> {
    let mut next = 0;
    for _ in 0..count {
        let waiting = (0..).zip(all.iter().flatten()).filter(|(_, asked)| asked.bucket.number >= next);
        let (index, Asked { bucket, hash, .. }) = waiting.min_by_key(|(_, asked)| asked.bucket.number)?;
        let place = bucket.home.lock(bucket.home.index_of(*hash));
        if bucket.holds.any() {
            return None;
        }
        places[index] = Some(place);
        next = bucket.number + 1;
    }
    Some(())
}

impl Found {
    /// Looks for a key; `None` if what it asks takes a turn.
    #[inline]
    fn at(asked: &Asked<'_>, place: &Place<'_>, now_us: u64) -> Option<Self> {
        let slot = place.find(asked.hash);
        let state = place.get(slot).state;
        let (rule, mode, cost) = (&asked.bucket.rule, asked.mode, asked.cost);
        if mode == Mode::Spend
            && let Some(spent) = rule.spend_now(state, now_us, cost)
        {
            let judged = if spent.passed {
                Judged::passing(now_us)
            } else {
                Judged::new(rule, mode, rule.slot(state, now_us, cost), now_us)
            };
            return Some(Self { slot, state, spent: Some(spent), judged });
        }
        let judged = Judged::new(rule, mode, rule.slot(state, now_us, cost), now_us);
        let has_turn = mode.spends() && judged.passed() && judged.departs_us() > now_us;
        (!has_turn).then_some(Self { slot, state, spent: None, judged })
    }

    #[inline]
    fn spend(&mut self, asked: &Asked<'_>, place: &mut Place<'_>, now_us: u64) {
        if !asked.mode.spends() {
            return;
        }
        let rule = &asked.bucket.rule;
        let spent = self.spent.as_ref().map(|spent| spent.state);
        self.state = spent.unwrap_or_else(|| rule.spend(self.state, now_us, now_us, asked.cost));
        place.put_at(self.slot, asked.hash, Kept { state: self.state, ..Kept::default() }, rule, now_us);
    }

    #[inline]
    fn status(&self, asked: &Asked<'_>, now_us: u64, granted: bool) -> QuotaStatus {
        let rule = &asked.bucket.rule;
        if let Some(spent) = self.spent.as_ref().filter(|_| granted) {
            return status_after(asked.at, rule, spent, now_us, asked.cost);
        }
        let opens_us = |cost| rule.slot(self.state, now_us, cost).opens_us;
        let balance = Balance::of(rule, self.state, now_us);
        let spent = if granted && asked.mode.spends() { asked.cost } else { 0 };
        self.judged.status(asked.at, balance, now_us, opens_us).spending(spent)
    }
}
