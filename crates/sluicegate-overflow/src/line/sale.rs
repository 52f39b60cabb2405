//! A sale on virtual time: visitors that ask when they are told to, or leave.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use sluicegate_core::Quota;

use crate::line::course::Course;
use crate::line::pace::micros;
use crate::line::{Answer, Ask, LineSettings, Place};

pub(super) const SECOND: u64 = 1_000_000;

/// A visitor, and what has become of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Visitor {
    pub(super) place: Option<Place>,
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

/// Plays the visitors until all have entered or left.
pub(super) fn play(settings: LineSettings, visitors: &mut [Visitor]) -> Course {
    let mut course = Course::new(settings, 1).unwrap();
    let mut asks: BinaryHeap<_> =
        visitors.iter().enumerate().map(|(index, visitor)| Reverse((visitor.came_us, index))).collect();
    while let Some(Reverse((now_us, index))) = asks.pop() {
        let visitor = &mut visitors[index];
        let lot = u32::try_from(random(index as u64) >> 32).unwrap();
        visitor.polls.push(now_us);
        match course.ask(now_us, Ask::new(visitor.place, lot)) {
            Answer::Turn(turn) => {
                visitor.place = Some(turn.place);
                visitor.entered_us = Some(now_us + micros(turn.after));
            }
            Answer::Waiting(standing) => {
                assert!(
                    visitor.place.is_none_or(|place| place == standing.place),
                    "{visitor:?} lost its place"
                );
                visitor.place = Some(standing.place);
                visitor.estimates.push(now_us + micros(standing.wait.unwrap()));
                let mut after_us = micros(standing.ask_after);
                if visitor.whole_seconds {
                    after_us = after_us.div_ceil(SECOND) * SECOND;
                }
                if visitor.leaves_after.is_none_or(|polls| visitor.polls.len() < polls as usize) {
                    asks.push(Reverse((now_us + after_us, index)));
                }
            }
            Answer::NoPlace(none) => panic!("{none:?}"),
        }
    }
    course
}
