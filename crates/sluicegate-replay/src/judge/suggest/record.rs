//! The part of a log in which limits are searched: which key asked how much, and when.
//!
//! # Sampling
//! An event takes 32 bytes, and there is room for 256 MiB of them, that is eight million. When it is used up, the row with the most events
//! keeps those of its 10,000 heaviest keys and of half of the other keys, drawn by a hash of their number; next time of a quarter, and so
//! on. Keys are drawn and not requests, because a limit sees whole keys: a key with half of its requests missing seems to need half of the
//! limit. A plain sample of a sixteenth of all keys was off by 2 to 66 % where 33 % was true, because few heavy keys make most rejections;
//! heavy keys are not drawn but kept.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use sluicegate_core::Policy;

use crate::judge::suggest::RowSearch;
use crate::outcome::{Counted, Frontier, FrontierPoint, Share};

/// An ask of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::judge) struct RecordedAsk {
    /// The number of the key in its row.
    pub(in crate::judge) key: u32,
    pub(in crate::judge) cost: u32,
    /// The number of the request.
    pub(in crate::judge) request: u32,
    /// Whether its response gave back.
    pub(in crate::judge) gives_back: bool,
    pub(in crate::judge) kind: AskKind,
    /// The number of its client.
    pub(in crate::judge) client: u32,
    pub(in crate::judge) at_us: u64,
}

/// The part of the log to which an ask belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::judge) enum AskKind {
    /// Limits are learned from it.
    #[default]
    Ordinary,
    /// It was found to be unusual.
    Unusual,
    /// It is left out by hand.
    LeftOut,
}

impl RecordedAsk {
    /// The place of its side among counts: ordinary asks first, then all others.
    pub(super) fn side(&self) -> usize {
        usize::from(self.kind != AskKind::Ordinary)
    }
}

/// The number of the heaviest keys of a row that are kept whole when there is no room for all.
const HEAVIEST: usize = 10_000;

/// With fewer drawn keys, a row says nothing certain about the others.
const FEWEST_DRAWN: usize = 1_000;

/// The record of one row.
#[derive(Debug, Default)]
pub(in crate::judge) struct RowRecord {
    /// Events in the order of their requests, until they are grouped by key.
    pub(super) events: Vec<RecordedAsk>,
    /// One in 2^level of the keys that are not heavy is kept.
    level: u32,
    heavy: HashSet<u32>,
    /// Whether there was no room for enough keys to search a limit in; then nothing is kept.
    pub(super) is_lost: bool,
}

impl RowRecord {
    /// The number of keys of its kind that this one stands for.
    pub(super) fn weight(&self, key: u32) -> u64 {
        if self.level == 0 || self.heavy.contains(&key) { 1 } else { 1 << self.level }
    }

    /// The asks of these kinds alone, which stand for as many keys as here.
    pub(super) fn only(&self, is_it: impl Fn(AskKind) -> bool) -> Self {
        let events = self.events.iter().filter(|event| is_it(event.kind)).copied().collect();
        Self { events, level: self.level, heavy: self.heavy.clone(), is_lost: self.is_lost }
    }

    /// Whether any ask is of one of these kinds.
    pub(super) fn has(&self, is_it: impl Fn(AskKind) -> bool) -> bool {
        self.events.iter().any(|event| is_it(event.kind))
    }

    fn keeps(&self, key: u32) -> bool {
        self.level == 0 || mixed(key).trailing_zeros() >= self.level || self.heavy.contains(&key)
    }

    /// Keeps half of the keys that are not heavy, or nothing if too few would be left.
    fn halve(&mut self) {
        if self.level == 0 {
            self.heavy = heaviest(&self.events);
        }
        self.level += 1;
        let mut events = std::mem::take(&mut self.events);
        events.retain(|event| self.keeps(event.key));
        let drawn: HashSet<u32> = events.iter().map(|event| event.key).collect();
        let drawn = drawn.iter().filter(|key| !self.heavy.contains(key)).count();
        self.is_lost = drawn < FEWEST_DRAWN;
        if !self.is_lost {
            events.shrink_to_fit();
            self.events = events;
        }
    }
}

/// The keys with the most of these events.
fn heaviest(events: &[RecordedAsk]) -> HashSet<u32> {
    let mut asked: HashMap<u32, u64> = HashMap::new();
    events.iter().for_each(|event| *asked.entry(event.key).or_default() += 1);
    let mut keys: Vec<(u32, u64)> = asked.into_iter().collect();
    if keys.len() > HEAVIEST {
        keys.select_nth_unstable_by_key(HEAVIEST, |(key, asked)| (std::cmp::Reverse(*asked), *key));
        keys.truncate(HEAVIEST);
    }
    keys.into_iter().map(|(key, _)| key).collect()
}

/// Numbers of keys come in the order of their first request; the draw must not depend on that order.
pub(in crate::judge) fn mixed(key: u32) -> u64 {
    let mut mixed = (u64::from(key) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The record of all rows, in bounded memory.
#[derive(Debug)]
pub(in crate::judge) struct LogRecord {
    pub(in crate::judge) rows: Vec<RowRecord>,
    requests: u32,
    /// The number of events that there is room for.
    most: usize,
    kept: usize,
    /// Whether the whole log is here.
    pub(in crate::judge) is_whole: bool,
}

impl LogRecord {
    /// An empty record of this many rows, with events of at most this many bytes.
    pub(in crate::judge) fn new(rows: usize, bytes: usize) -> Self {
        Self {
            rows: (0..rows).map(|_| RowRecord::default()).collect(),
            requests: 0,
            most: bytes / size_of::<RecordedAsk>(),
            kept: 0,
            is_whole: true,
        }
    }

    /// Marks ordinary asks as unusual where their client and their time say so.
    pub(in crate::judge) fn mark(&mut self, is_unusual: impl Fn(u32, u64) -> bool) {
        for event in self.rows.iter_mut().flat_map(|kept| &mut kept.events) {
            if event.kind == AskKind::Ordinary && is_unusual(event.client, event.at_us) {
                event.kind = AskKind::Unusual;
            }
        }
    }

    /// The number of the next request.
    pub(in crate::judge) fn request(&mut self) -> u32 {
        self.requests = self.requests.saturating_add(1);
        self.requests
    }

    /// Keeps an ask of this row, if its key is kept; the largest row gives up half of its drawn keys when there is no room.
    pub(in crate::judge) fn keep(&mut self, row: usize, event: RecordedAsk) {
        let kept = &mut self.rows[row];
        if kept.is_lost || !kept.keeps(event.key) {
            return;
        }
        kept.events.push(event);
        self.kept += 1;
        while self.kept > self.most {
            // The row that fills memory gives way, whichever one asks for more.
            let Some(largest) = self.rows.iter_mut().max_by_key(|kept| kept.events.len()) else { return };
            largest.halve();
            self.kept = self.rows.iter().map(|kept| kept.events.len()).sum();
            self.is_whole = false;
        }
    }
}

#[cfg(test)]
impl RecordedAsk {
    /// An ordinary ask of one unit.
    pub(super) fn plain(key: u32, at_us: u64) -> Self {
        let (kind, client) = (AskKind::Ordinary, key);
        Self { key, cost: 1, request: 0, gives_back: false, kind, client, at_us }
    }
}

// Limits with their rejections on both sides, and the one that meets the requirements of both: [`Tradeoffs`].
//
// # Limits that are tried
// All limits up to 10, and then each a fifth above the one before it, up to the lowest that rejects nothing. Each is replayed over the keys
// that need more.
//
// # Source
// Knees are the points that are farthest from the line between the ends of the curve, as in Ramer (1972) and in Douglas and Peucker (1973):
// the first over the whole, the others over each side of it.

/// A bend that is flatter than this, in parts of a thousand, is no knee.
const FLAT: i128 = 20;

/// The limits of a row under which ordinary and unusual requests are counted apart.
pub(super) struct Tradeoffs<'a> {
    search: RowSearch<'a>,
    needs: Vec<u64>,
    pub(super) frontier: Frontier,
}

impl<'a> Tradeoffs<'a> {
    /// Replays events that were put together by key; `None` if the policy can have no limit that rejects nothing.
    pub(super) fn new(policy: &'a Policy, kept: &'a RowRecord) -> Option<Self> {
        let search = RowSearch::new(policy, kept);
        let needs = search.needs()?;
        let mut all = FrontierPoint::default();
        for key in &search.keys {
            let ordinary = key.events.iter().filter(|event| event.kind == AskKind::Ordinary).count() as u64;
            all.count([ordinary, key.events.len() as u64 - ordinary], key.weight);
        }
        let mut tradeoffs = Self { search, needs, frontier: Frontier::default() };
        let highest = tradeoffs.needs.iter().copied().max()?;
        let limits = std::iter::successors(Some(1), |limit| Some((limit + 1).max(limit + limit / 5)));
        let limits: Vec<u64> = limits.take_while(|limit| *limit < highest).chain([highest]).collect();
        let points = limits.into_iter().map(|limit| tradeoffs.at(limit)).collect::<Option<Vec<_>>>()?;
        let knees = knees(&points, all);
        tradeoffs.frontier = Frontier { ordinary: all.ordinary, unusual: all.unusual, points, knees };
        Some(tradeoffs)
    }

    /// The rejections of a limit.
    pub(super) fn at(&self, limit: u64) -> Option<FrontierPoint> {
        let keys: Vec<usize> = (0..self.needs.len()).filter(|place| self.needs[*place] > limit).collect();
        let mut point = FrontierPoint { limit, ..FrontierPoint::default() };
        for (place, rejected) in keys.iter().zip(self.search.rejected_by_kind(limit, &keys)?) {
            point.count(rejected, self.search.keys[*place].weight);
        }
        Some(point)
    }

    /// The highest limit that rejects at most the one share of ordinary and at least the other share of unusual requests or keys; `least` is
    /// the least limit that may be enough for ordinary ones.
    pub(super) fn between(&self, most: Share, least: Share, from: u64) -> Option<FrontierPoint> {
        let Frontier { ordinary, unusual, points, .. } = &self.frontier;
        let is_it = |point: &FrontierPoint| {
            point.ordinary.is_within(most, *ordinary) && point.unusual.reaches(least, *unusual)
        };
        let known = points.iter().rev().copied().find(is_it);
        let mut found = known.or_else(|| self.at(from).filter(is_it))?;
        let above = points.iter().map(|point| point.limit).find(|limit| *limit > found.limit);
        let mut above = above.unwrap_or(found.limit + 1);
        while above - found.limit > 1 {
            let between = self.at(found.limit + (above - found.limit) / 2)?;
            match is_it(&between) {
                true => found = between,
                false => above = between.limit,
            }
        }
        Some(found)
    }
}

impl FrontierPoint {
    /// Adds ordinary and other requests of a key that stands for this many.
    fn count(&mut self, [ordinary, unusual]: [u64; 2], weight: u64) {
        for (side, requests) in [(&mut self.ordinary, ordinary), (&mut self.unusual, unusual)] {
            side.requests += requests * weight;
            side.keys += if requests > 0 { weight } else { 0 };
        }
    }
}

/// The knees of a curve, in the order of limits.
fn knees(points: &[FrontierPoint], all: FrontierPoint) -> Vec<FrontierPoint> {
    let place = |at: usize| {
        let thousandths = |side: Counted, all: Counted| i128::from(side.part(all) / 1_000_000);
        (thousandths(points[at].ordinary, all.ordinary), thousandths(points[at].unusual, all.unusual))
    };
    // Twice the area of the triangle over the line, and the length of the line along both axes: their quotient is a distance.
    let farthest = |range: RangeInclusive<usize>| {
        let (from, to) = (place(*range.start()), place(*range.end()));
        let (across, up) = (to.0 - from.0, to.1 - from.1);
        let above = |at: usize| {
            let (x, y) = place(at);
            (across * (y - from.1) - up * (x - from.0)).abs() / (across.abs() + up.abs()).max(1)
        };
        let inner = (*range.start() + 1)..*range.end();
        inner
            .map(|at| (above(at), at))
            .max_by_key(|(above, at)| (*above, *at))
            .filter(|(above, _)| *above > FLAT)
    };
    let Some(last) = points.len().checked_sub(1) else { return Vec::new() };
    let Some((_, middle)) = farthest(0..=last) else { return Vec::new() };
    let sides = [farthest(0..=middle), farthest(middle..=last)];
    let mut found: Vec<usize> = sides.into_iter().flatten().map(|(_, at)| at).chain([middle]).collect();
    found.sort_unstable();
    found.into_iter().map(|at| points[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps these events of a row, in room for that many.
    fn keep(record: &mut LogRecord, row: usize, keys: impl Iterator<Item = u32>) {
        for key in keys {
            let event = RecordedAsk::plain(key, 0);
            record.keep(row, event);
        }
    }

    fn with_room(rows: usize, events: usize) -> LogRecord {
        LogRecord::new(rows, events * size_of::<RecordedAsk>())
    }

    #[test]
    fn heavy_keys_stay_whole_and_a_sample_of_the_others() {
        let keys = 200_000_u32;
        let mut record = with_room(1, 60_000);
        keep(&mut record, 0, (0..100).cycle().take(5_000).chain(100..keys));
        let kept = &record.rows[0];
        assert!(!record.is_whole && !kept.is_lost && kept.events.len() <= 60_000);
        assert_eq!(kept.events.iter().filter(|event| event.key < 100).count(), 5_000);
        let estimate: u64 = kept.events.iter().map(|event| kept.weight(event.key)).sum();
        assert!(estimate.abs_diff(5_000 + u64::from(keys) - 100) < 10_000, "{estimate}");
    }

    #[test]
    fn the_row_that_fills_memory_gives_way_and_not_the_one_that_asks_last() {
        let mut record = with_room(2, 60_000);
        keep(&mut record, 0, 0..59_990);
        keep(&mut record, 1, (0..10).cycle().take(100));
        assert!(record.rows[0].events.len() < 40_000 && !record.rows[0].is_lost);
        assert_eq!((record.rows[1].events.len(), record.rows[1].level), (100, 0));
    }

    #[test]
    fn a_row_of_heavy_keys_alone_is_lost_rather_than_kept_without_bound() {
        let mut record = with_room(2, 60_000);
        keep(&mut record, 1, 0..10);
        keep(&mut record, 0, (0..500).cycle().take(70_000));
        assert!(record.rows[0].is_lost && record.rows[0].events.is_empty());
        assert_eq!((record.rows[1].is_lost, record.rows[1].events.len()), (false, 10));
    }
}

#[cfg(test)]
mod frontier_tests {
    use super::*;
    use super::{LogRecord, RecordedAsk};

    const MINUTE_US: u64 = 60_000_000;

    /// Forty ordinary keys that ask once to twelve times in a minute, and 500 others that ask six times.
    fn mixed() -> RowRecord {
        let mut record = LogRecord::new(1, 1 << 20);
        for key in 0..540 {
            let (asks, kind) =
                if key < 40 { (1 + key % 12, AskKind::Ordinary) } else { (6, AskKind::Unusual) };
            for ask in 0..asks {
                let at_us = u64::from(ask) * MINUTE_US / 60;
                record.keep(0, RecordedAsk { kind, ..RecordedAsk::plain(key, at_us) });
            }
        }
        record.rows.remove(0)
    }

    #[test]
    fn both_sides_of_each_limit_are_counted_and_the_knees_are_where_it_bends() {
        let (policy, kept) = (Policy::fixed_window("p", "10/min").build().unwrap(), mixed());
        let tradeoffs = Tradeoffs::new(&policy, &kept).expect("it can have any limit");
        let Frontier { ordinary, unusual, points, knees } = &tradeoffs.frontier;
        assert_eq!((ordinary.keys, unusual.requests, unusual.keys), (40, 3_000, 500));
        let at = |limit: u64| *points.iter().find(|point| point.limit == limit).unwrap();
        assert_eq!((at(5).unusual.requests, at(6).unusual.requests, at(12).ordinary.requests), (500, 0, 0));
        assert!(
            (2..=3).contains(&knees.len()) && knees.iter().all(|knee| points.contains(knee)),
            "{knees:?}"
        );
        let share = |text: &str| text.parse::<Share>().unwrap();
        let found = |most, least| tradeoffs.between(share(most), share(least), 1).map(|point| point.limit);
        assert_eq!(found("100%", "16%"), Some(5), "500 of 3,000");
        assert_eq!(found("100%", "90%/keys"), Some(5));
        assert_eq!(found("1%", "16%"), None);
        assert_eq!(found("1%", "0%"), Some(12));
    }
}
