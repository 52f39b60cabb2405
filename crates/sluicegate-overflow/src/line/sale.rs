//! A sale on virtual time, with visitors that ask when they are told to, or leave.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use sluicegate_core::Quota;
use sluicegate_core::clock::micros;

use crate::line::schedule::Schedule;
use crate::line::{LineAnswer, LineAsk, LineChange, LinePlace, LineSettings};

pub(super) const SECOND: u64 = 1_000_000;

/// The beginning of a sale by its clock: in 2026, so that it can be set back for years.
pub(super) const BEGINS_US: u64 = 1_784_000_000 * SECOND;

/// A visitor and its history.
#[derive(Clone, Debug, Default)]
pub(super) struct SaleVisitor {
    pub(super) place: Option<LinePlace>,
    pub(super) came_us: u64,
    /// The number of polls after which it leaves.
    pub(super) leaves_after: Option<u32>,
    /// A browser refreshes after whole seconds only.
    pub(super) whole_seconds: bool,
    pub(super) polls: Vec<u64>,
    /// The turns that it was told to expect, at each poll.
    pub(super) estimates: Vec<u64>,
    pub(super) entered_us: Option<u64>,
}

pub(super) fn settings(rate: &str) -> LineSettings {
    LineSettings {
        name: "sale".to_owned(),
        rate: rate.parse::<Quota>().unwrap().burst(1),
        opens_at_us: 0,
        most_active: None,
        pass_lasts: Duration::from_secs(600),
        longest_line: 1_000_000,
        places_per_client: None,
    }
}

/// Numbers that look random, and are the same in each run.
pub(super) fn random(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A crowd that comes within a second; a part of it leaves at once.
pub(super) fn crowd(count: u64, whole_seconds: bool, leaves: impl Fn(u64) -> bool) -> Vec<SaleVisitor> {
    let visitor = |number| SaleVisitor {
        came_us: SECOND + number * SECOND / count,
        leaves_after: leaves(number).then_some(1),
        whole_seconds,
        ..SaleVisitor::default()
    };
    (0..count).map(visitor).collect()
}

pub(super) fn entered(visitors: &[SaleVisitor]) -> Vec<u64> {
    let mut all: Vec<u64> = visitors.iter().filter_map(|visitor| visitor.entered_us).collect();
    all.sort_unstable();
    all
}

/// The worst time by which a visitor entered before one that had come earlier.
pub(super) fn overtaken_by_us(visitors: &[SaleVisitor]) -> u64 {
    let mut latest_us = 0;
    let mut worst_us = 0;
    for entered_us in visitors.iter().filter_map(|visitor| visitor.entered_us) {
        worst_us = worst_us.max(latest_us - entered_us.min(latest_us));
        latest_us = latest_us.max(entered_us);
    }
    worst_us
}

/// The events of a sale, in microseconds since it began.
#[derive(Clone, Debug, Default)]
pub(super) struct SaleEvents {
    /// The span in which no visitor reaches the line; visitors try again each five seconds.
    pub(super) outage: (u64, u64),
    /// The moment from which the clock is fast or slow, and by how much.
    pub(super) clock: (u64, i64),
    /// Changes in the order of their times.
    pub(super) changes: Vec<(u64, LineChange)>,
}

impl SaleEvents {
    fn clock_us(&self, now_us: u64) -> u64 {
        let (from_us, step_us) = self.clock;
        (BEGINS_US + now_us).saturating_add_signed(if now_us < from_us { 0 } else { step_us })
    }
}

/// Plays the visitors until all have entered or left.
pub(super) fn play(settings: LineSettings, visitors: &mut [SaleVisitor]) {
    play_with(settings, visitors, &SaleEvents::default());
}

/// Plays the visitors and the events until all have entered or left.
pub(super) fn play_with(settings: LineSettings, visitors: &mut [SaleVisitor], events: &SaleEvents) {
    let mut schedule = Schedule::new(settings, events.clock_us(0)).unwrap();
    let mut changes = events.changes.iter().peekable();
    let mut asks: BinaryHeap<_> =
        visitors.iter().enumerate().map(|(index, visitor)| Reverse((visitor.came_us, index))).collect();
    while let Some(Reverse((now_us, index))) = asks.pop() {
        let visitor = &mut visitors[index];
        while let Some((at_us, change)) = changes.next_if(|(at_us, _)| *at_us <= now_us) {
            schedule.change(events.clock_us(*at_us), *change).unwrap();
        }
        if (events.outage.0..events.outage.1).contains(&now_us) {
            let left_us = events.outage.1 - now_us;
            asks.push(Reverse((now_us + left_us.next_multiple_of(5 * SECOND), index)));
            continue;
        }
        let lot = u32::try_from(random(index as u64) >> 32).unwrap();
        visitor.polls.push(now_us);
        match schedule.ask(events.clock_us(now_us), LineAsk::new(visitor.place, lot)) {
            LineAnswer::Turn(turn) => {
                visitor.place = Some(turn.place);
                visitor.entered_us = Some(now_us + micros(turn.after));
            }
            LineAnswer::Waiting(standing) => {
                assert!(
                    visitor.place.is_none_or(|place| place == standing.place),
                    "{visitor:?} lost its place"
                );
                visitor.place = Some(standing.place);
                visitor.estimates.push(now_us + micros(standing.wait.unwrap_or_default()));
                let mut after_us = micros(standing.ask_after);
                if visitor.whole_seconds {
                    after_us = after_us.div_ceil(SECOND) * SECOND;
                }
                if visitor.leaves_after.is_none_or(|polls| visitor.polls.len() < polls as usize) {
                    asks.push(Reverse((now_us + after_us, index)));
                }
            }
            LineAnswer::NoPlace(none) => panic!("{none:?}"),
        }
    }
}
