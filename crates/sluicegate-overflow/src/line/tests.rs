//! The promises of a line, played on virtual time.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use crate::line::course::Course;
use crate::line::pace::{Pace, WHOLE, micros};
use crate::line::sale::{SECOND, Visitor, play, random, settings};
use crate::line::{Answer, Ask, LineSettings, Place};

/// A crowd that comes within a second, of which a part leaves at once.
fn crowd(count: u64, whole_seconds: bool, leaves: impl Fn(u64) -> bool) -> Vec<Visitor> {
    let visitor = |number| Visitor {
        came_us: SECOND + number * SECOND / count,
        leaves_after: leaves(number).then_some(1),
        whole_seconds,
        ..Visitor::default()
    };
    (0..count).map(visitor).collect()
}

fn entered(visitors: &[Visitor]) -> Vec<u64> {
    let mut all: Vec<u64> = visitors.iter().filter_map(|visitor| visitor.entered_us).collect();
    all.sort_unstable();
    all
}

/// By how much a visitor entered before a visitor that had come earlier, at worst.
fn overtaken_by_us(visitors: &[Visitor]) -> u64 {
    let mut latest_us = 0;
    let mut worst_us = 0;
    for entered_us in visitors.iter().filter_map(|visitor| visitor.entered_us) {
        worst_us = worst_us.max(latest_us - entered_us.min(latest_us));
        latest_us = latest_us.max(entered_us);
    }
    worst_us
}

/// Of the visitors that had to wait, nine of ten were told their turn by at most this part of the wait beside it, or this many
/// microseconds.
fn estimates_hold(visitors: &[Visitor], part: u64, or_us: u64) -> bool {
    let off = |visitor: &Visitor| {
        let (told_us, entered_us) = (*visitor.estimates.first()?, visitor.entered_us?);
        let wait_us = entered_us - visitor.came_us;
        Some(told_us.abs_diff(entered_us) <= (wait_us / part).max(or_us))
    };
    let all: Vec<bool> = visitors.iter().filter_map(off).collect();
    all.iter().filter(|holds| **holds).count() * 10 >= all.len() * 9
}

/// Polls after the first of each visitor, in the second with most of them.
fn busiest_second(visitors: &[Visitor]) -> usize {
    let mut seconds = HashMap::<u64, usize>::new();
    for poll_us in visitors.iter().flat_map(|visitor| visitor.polls.iter().skip(1)) {
        *seconds.entry(poll_us / SECOND).or_default() += 1;
    }
    seconds.into_values().max().unwrap_or_default()
}

/// `2 + log2` of a wait in whole seconds, rounded up.
fn polls_for(wait_us: u64) -> usize {
    let seconds = wait_us.div_ceil(SECOND).max(1);
    2 + seconds.next_power_of_two().trailing_zeros() as usize
}

/// How long it took from the first to the last who entered, and how long it takes at the rate exactly.
fn took_us(visitors: &[Visitor], a_second: u64) -> (u64, u64) {
    let all = entered(visitors);
    (all[all.len() - 1] - all[0], (all.len() as u64 - 1) * SECOND / a_second)
}

#[test]
fn a_crowd_enters_at_the_rate_within_a_hundredth_in_its_order_and_asks_seldom() {
    for (rate, count, a_second, whole_seconds) in
        [("1000/s", 10_000, 1_000, false), ("1000/s", 10_000, 1_000, true), ("200/s", 20_000, 200, true)]
    {
        let mut visitors = crowd(count, whole_seconds, |_| false);
        play(settings(rate), &mut visitors);
        assert_eq!(entered(&visitors).len() as u64, count, "nobody is lost");
        let (took_us, exact_us) = took_us(&visitors, a_second);
        assert!(took_us <= exact_us + exact_us / 100, "{rate}: {took_us} for {exact_us}");
        assert!(overtaken_by_us(&visitors) <= SECOND, "{rate}: {}", overtaken_by_us(&visitors));
        assert!(busiest_second(&visitors) as u64 <= 3 * a_second, "{rate}: {}", busiest_second(&visitors));
        for visitor in &visitors {
            let wait_us = visitor.entered_us.unwrap() - visitor.came_us;
            assert!(visitor.polls.len() <= polls_for(wait_us), "{rate}: {wait_us}: {visitor:?}");
        }
        assert!(estimates_hold(&visitors, 10, SECOND / 2), "{rate}");
    }
}

#[test]
fn the_places_of_those_who_leave_are_used() {
    for (rate, count, a_second) in [("1000/s", 10_000, 1_000), ("200/s", 20_000, 200)] {
        let mut visitors = crowd(count, true, |number| random(number).is_multiple_of(5));
        let course = play(settings(rate), &mut visitors);
        assert!(
            visitors.iter().all(|visitor| visitor.entered_us.is_some() || visitor.leaves_after.is_some())
        );
        let (took_us, exact_us) = took_us(&visitors, a_second);
        assert!(took_us <= exact_us + exact_us / 100, "{rate}: {took_us} for {exact_us}");
        assert!(overtaken_by_us(&visitors) <= SECOND, "{rate}: {}", overtaken_by_us(&visitors));
        assert!(busiest_second(&visitors) as u64 <= 3 * a_second, "{rate}: {}", busiest_second(&visitors));
        assert!(course.share_now().abs_diff(WHOLE * 4 / 5) < WHOLE / 10, "{}", course.share_now());
    }
}

/// Steps of a trace: who asks, and how much later.
fn steps() -> impl Strategy<Value = Vec<(u8, u16)>> {
    prop::collection::vec((any::<u8>(), 0_u16..4_000), 1..400)
}

proptest! {
    /// Against the simplest line that there is: a list of turns, none of which is closer to the last than the rate says.
    #[test]
    fn no_visitor_enters_above_the_rate_twice_or_never(
        steps in steps(), rate in prop::sample::select(vec!["1/s", "7/s", "30/min", "100/s"]), most in prop::option::of(1_u64..9)
    ) {
        let spacing_us = { let pace = Pace::new(rate.parse().unwrap()).unwrap(); pace.span_us(1, WHOLE) - 1 };
        let lasts_us = 20 * SECOND;
        let mut course = Course::new(
            LineSettings { most_active: most, pass_lasts: Duration::from_micros(lasts_us), ..settings(rate) }, 1).unwrap();
        let mut now_us = 1;
        let mut places = HashMap::<u8, Place>::new();
        let mut turns = Vec::<(u64, Place)>::new();
        for (number, (who, after_ms)) in steps.into_iter().enumerate() {
            now_us += u64::from(after_ms) * 1_000;
            let ask = Ask::new(places.get(&who).copied(), u32::try_from(number).unwrap());
            match course.ask(now_us, ask) {
                Answer::Waiting(standing) => {
                    places.insert(who, standing.place);
                    prop_assert!(standing.ask_after >= Duration::from_secs(1));
                    prop_assert!(!turns.iter().any(|(_, place)| *place == standing.place));
                }
                Answer::Turn(turn) => {
                    let at_us = now_us + micros(turn.after);
                    places.insert(who, turn.place);
                    if !turns.iter().any(|(_, place)| *place == turn.place) {
                        turns.push((at_us, turn.place));
                    }
                }
                Answer::NoPlace(none) => prop_assert!(false, "{none:?}"),
            }
        }
        for pair in turns.windows(2) {
            prop_assert!(pair[1].0 >= pair[0].0 + spacing_us, "{pair:?}");
        }
        if let Some(most) = most {
            for (index, (at_us, _)) in turns.iter().enumerate() {
                let inside = turns[..index].iter().filter(|(before_us, _)| before_us + lasts_us > *at_us).count();
                prop_assert!((inside as u64) < most, "{inside} at {at_us}");
            }
        }
        prop_assert_eq!(course.status(now_us).admitted, turns.len() as u64);
        // And a visitor that keeps asking enters.
        for (who, mut place) in places {
            let mut at_us = now_us;
            let entered = (0..2_000).any(|_| {
                at_us += SECOND;
                match course.ask(at_us, Ask::new(Some(place), 0)) {
                    Answer::Waiting(standing) => place = standing.place,
                    other => return matches!(other, Answer::Turn(_)),
                }
                false
            });
            prop_assert!(entered, "{who} at {place:?}");
            now_us = at_us;
        }
    }
}
