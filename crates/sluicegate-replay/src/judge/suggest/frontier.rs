//! Limits with their rejections on both sides, and the one that meets the requirements of both: [`Tradeoffs`].
//!
//! # Limits that are tried
//! All limits up to 10, and then each a fifth above the one before it, up to the lowest that rejects nothing. Each is replayed over the keys
//! that need more.
//!
//! # Source
//! Knees are the points that are farthest from the line between the ends of the curve, as in Ramer (1972) and in Douglas and Peucker (1973):
//! the first over the whole, the others over each side of it.

use std::ops::RangeInclusive;

use sluicegate_core::Policy;

use super::record::{AskKind, RowRecord};
use super::search::RowSearch;
use crate::frontier::{Counted, Frontier, FrontierPoint};
use crate::share::Share;

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
    use crate::judge::suggest::record::{LogRecord, RecordedAsk};

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
