//! The promises of a line, played on virtual time.

use sluicegate_core::clock::micros;
use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use crate::line::pace::{TurnPace, WHOLE};
use crate::line::sale::{SECOND, SaleVisitor, crowd, entered, overtaken_by_us, play, random, settings};
use crate::line::schedule::Schedule;
use crate::line::{LineAnswer, LineAsk, LinePlace, LineSettings};

/// The number of estimates in a thousand that were off by at most this part of the remaining wait, or by this many microseconds: estimates
/// of first polls, or of later polls.
fn estimates_that_hold(visitors: &[SaleVisitor], first: bool, part: u64, or_us: u64) -> usize {
    let holds = |visitor: &SaleVisitor| -> Vec<bool> {
        let Some(entered_us) = visitor.entered_us else { return Vec::new() };
        let told = visitor.polls.iter().zip(&visitor.estimates);
        let told = told.enumerate().filter(|(number, _)| (*number == 0) == first);
        told.map(|(_, (poll_us, told_us))| {
            told_us.abs_diff(entered_us) <= (entered_us.saturating_sub(*poll_us) / part).max(or_us)
        })
        .collect()
    };
    let all: Vec<bool> = visitors.iter().flat_map(holds).collect();
    all.iter().filter(|holds| **holds).count() * 1_000 / all.len().max(1)
}

/// Polls after the first of each visitor, in the second with most of them.
fn busiest_second(visitors: &[SaleVisitor]) -> usize {
    let mut seconds = HashMap::<u64, usize>::new();
    for poll_us in visitors.iter().flat_map(|visitor| visitor.polls.iter().skip(1)) {
        *seconds.entry(poll_us / SECOND).or_default() += 1;
    }
    seconds.into_values().max().unwrap_or_default()
}

/// `2 + log2` of a wait in whole seconds, rounded up.
pub(super) fn polls_for(wait_us: u64) -> usize {
    let seconds = wait_us.div_ceil(SECOND).max(1);
    2 + seconds.next_power_of_two().trailing_zeros() as usize
}

/// The time from the first to the last visitor that entered, and the exact time at the rate.
fn took_us(visitors: &[SaleVisitor], a_second: u64) -> (u64, u64) {
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
        for first in [true, false] {
            let hold = estimates_that_hold(&visitors, first, 10, if first { SECOND / 2 } else { SECOND });
            println!("{rate}: {hold} of a thousand estimates hold; first: {first}");
            assert!(hold >= 900, "{rate}: {hold}");
        }
    }
}

#[test]
fn the_places_of_those_who_leave_are_used() {
    for (rate, count, a_second) in [("1000/s", 10_000, 1_000), ("200/s", 20_000, 200)] {
        let mut visitors = crowd(count, true, |number| random(number).is_multiple_of(5));
        let schedule = play(settings(rate), &mut visitors);
        assert!(
            visitors.iter().all(|visitor| visitor.entered_us.is_some() || visitor.leaves_after.is_some())
        );
        let (took_us, exact_us) = took_us(&visitors, a_second);
        assert!(took_us <= exact_us + exact_us / 100, "{rate}: {took_us} for {exact_us}");
        assert!(overtaken_by_us(&visitors) <= SECOND, "{rate}: {}", overtaken_by_us(&visitors));
        assert!(busiest_second(&visitors) as u64 <= 3 * a_second, "{rate}: {}", busiest_second(&visitors));
        assert!(schedule.share_now().abs_diff(WHOLE * 4 / 5) < WHOLE / 10, "{}", schedule.share_now());
    }
}

/// Appointments are whole seconds, and nobody knows before who leaves: among few visitors, another part leaves than among many.
fn far_us(rate: u64) -> u64 {
    6 * SECOND + 20 * SECOND / rate
}

#[test]
fn estimates_count_with_the_share_that_leaves_once_it_is_known() {
    for (rate, count, a_second) in [("1000/s", 10_000, 1_000), ("200/s", 20_000, 200), ("100/s", 2_000, 100)]
    {
        let leaves = |number: u64| random(number).is_multiple_of(5);
        let mut visitors = crowd(count, true, leaves);
        // The same number comes while the line moves, two for each turn.
        let later = |number: u64| SaleVisitor {
            came_us: 6 * SECOND + number * SECOND / (2 * a_second),
            leaves_after: leaves(number + count).then_some(1),
            whole_seconds: true,
            ..SaleVisitor::default()
        };
        visitors.extend((0..count / 2).map(later));
        play(settings(rate), &mut visitors);
        let (at_once, later) = visitors.split_at(usize::try_from(count).unwrap());
        let told = |visitors, first| estimates_that_hold(visitors, first, 10, SECOND);
        println!(
            "{rate}: of a thousand estimates hold {} of those that came at once, {} later; {} and {} when they ask again",
            told(at_once, true),
            told(later, true),
            told(at_once, false),
            told(later, false)
        );
        // While no visitor has been called, the share that will leave is unknown: first estimates of visitors that came at once are not
        // asserted.
        assert!(
            told(later, true) >= 900 && told(later, false) >= 900 && told(at_once, false) >= 900,
            "{rate}"
        );
    }
}

#[test]
fn the_first_estimates_of_a_crowd_count_with_the_share_that_left_the_crowd_before() {
    for (rate, count) in [("1000/s", 10_000), ("200/s", 20_000)] {
        let mut visitors = Vec::new();
        for number in 0..2_u64 {
            let mut crowd = crowd(count, true, |at| random(at ^ number << 32).is_multiple_of(5));
            crowd.iter_mut().for_each(|visitor| visitor.came_us += number * 3_600 * SECOND);
            visitors.extend(crowd);
        }
        play(settings(rate), &mut visitors);
        let (before, now) = visitors.split_at(visitors.len() / 2);
        let told = [before, now].map(|visitors| estimates_that_hold(visitors, true, 10, SECOND));
        println!("{rate}: of a thousand first estimates hold {told:?} of the first and of the second crowd");
        assert!(told[1] >= 900, "{rate}: {told:?}");
    }
}

#[test]
fn a_small_sale_is_as_exact_as_a_large_one_but_for_its_last_second() {
    for seed in 0..10 {
        let mut visitors = crowd(2_000, true, |number| random(number ^ seed << 32).is_multiple_of(5));
        play(settings("200/s"), &mut visitors);
        let all = entered(&visitors);
        let drift = |count: usize| {
            let exact_us = (count as u64 - 1) * SECOND / 200;
            i64::try_from(all[count - 1] - all[0]).unwrap() - i64::try_from(exact_us).unwrap()
        };
        // A thousandth of the time that nine of ten take, and a twentieth of a second in the last second, when nobody is left to be held.
        assert!(drift(all.len() * 9 / 10) <= 7_200, "{seed}: {}", drift(all.len() * 9 / 10));
        assert!(drift(all.len()) <= 50_000, "{seed}: {}", drift(all.len()));
    }
}

/// Steps of a trace: who asks, and how much later.
fn steps() -> impl Strategy<Value = Vec<(u8, u16)>> {
    prop::collection::vec((any::<u8>(), 0_u16..4_000), 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Compares with an exact line of visitors that stay: it knows who will leave, and gives each turn to the next of the others.
    #[test]
    fn no_visitor_is_far_from_the_turn_that_it_has_in_an_exact_line(
        seed: u64, rate in prop::sample::select(vec![5_u64, 20, 100, 300]), waits in 5_u64..60, leaves in prop::sample::select(vec![0, 20, 5, 3])
    ) {
        let count = rate * waits;
        let number = |index: u64| random(seed ^ random(index));
        let mut visitors: Vec<SaleVisitor> = (0..count).map(|index| SaleVisitor {
            // Half of them come at once, and the others over the time that all of them take.
            came_us: SECOND + if index % 2 == 0 { 0 } else { number(index) % (waits * SECOND) },
            leaves_after: (leaves > 0 && number(index + count).is_multiple_of(leaves)).then_some(1),
            whole_seconds: true,
            ..SaleVisitor::default()
        }).collect();
        visitors.sort_by_key(|visitor| visitor.came_us);
        play(settings(&format!("{rate}/s")), &mut visitors);
        let (mut ready_us, mut worst_us) = (0, 0);
        for visitor in visitors.iter().filter(|visitor| visitor.leaves_after.is_none()) {
            let exact_us = visitor.came_us.max(ready_us);
            ready_us = exact_us + SECOND / rate;
            let entered_us = visitor.entered_us.expect("nobody is lost");
            worst_us = worst_us.max(entered_us.abs_diff(exact_us));
        }
        prop_assert!(worst_us <= far_us(rate), "{worst_us}");
    }
}

proptest! {
    /// Compares with the simplest line: a list of turns, none of which is closer to the last than the rate says.
    #[test]
    fn no_visitor_enters_above_the_rate_twice_or_never(
        steps in steps(), rate in prop::sample::select(vec!["1/s", "7/s", "30/min", "100/s"]), most in prop::option::of(1_u64..9)
    ) {
        let spacing_us = { let pace = TurnPace::new(rate.parse().unwrap()).unwrap(); pace.span_us(1, WHOLE) - 1 };
        let lasts_us = 20 * SECOND;
        let mut schedule = Schedule::new(
            LineSettings { most_active: most, pass_lasts: Duration::from_micros(lasts_us), ..settings(rate) }, 1).unwrap();
        let mut now_us = 1;
        let mut places = HashMap::<u8, LinePlace>::new();
        let mut turns = Vec::<(u64, LinePlace)>::new();
        for (number, (who, after_ms)) in steps.into_iter().enumerate() {
            now_us += u64::from(after_ms) * 1_000;
            let ask = LineAsk::new(places.get(&who).copied(), u32::try_from(number).unwrap());
            match schedule.ask(now_us, ask) {
                LineAnswer::Waiting(standing) => {
                    places.insert(who, standing.place);
                    prop_assert!(standing.ask_after >= Duration::from_secs(1));
                    prop_assert!(!turns.iter().any(|(_, place)| *place == standing.place));
                }
                LineAnswer::Turn(turn) => {
                    let at_us = now_us + micros(turn.after);
                    places.insert(who, turn.place);
                    if !turns.iter().any(|(_, place)| *place == turn.place) {
                        turns.push((at_us, turn.place));
                    }
                }
                LineAnswer::NoPlace(none) => prop_assert!(false, "{none:?}"),
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
        prop_assert_eq!(schedule.status(now_us).admitted, turns.len() as u64);
        // A visitor that keeps asking enters.
        for (who, mut place) in places {
            let mut at_us = now_us;
            let entered = (0..2_000).any(|_| {
                at_us += SECOND;
                match schedule.ask(at_us, LineAsk::new(Some(place), 0)) {
                    LineAnswer::Waiting(standing) => place = standing.place,
                    other => return matches!(other, LineAnswer::Turn(_)),
                }
                false
            });
            prop_assert!(entered, "{who} at {place:?}");
            now_us = at_us;
        }
    }
}
