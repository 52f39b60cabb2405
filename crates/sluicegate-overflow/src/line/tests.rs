//! The promises of a line, played on virtual time.

use sluicegate_core::clock::micros;
use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use crate::line::pace::TurnPace;
use crate::line::sale::{
    BEGINS_US, SECOND, SaleVisitor, crowd, entered, overtaken_by_us, play, random, settings,
};
use crate::line::schedule::Schedule;
use crate::line::{LineAnswer, LineAsk, LinePlace, LineSettings};

/// The most by which a visitor entered later than it was told at a poll.
fn later_than_told_us(visitors: &[SaleVisitor]) -> u64 {
    let late_us = |visitor: &SaleVisitor| {
        let told_us = visitor.estimates.iter().min().copied().unwrap_or(u64::MAX);
        visitor.entered_us.unwrap_or_default().saturating_sub(told_us)
    };
    visitors.iter().map(late_us).max().unwrap_or_default()
}

/// Polls a second after the first of each visitor, in the ten seconds with most of them, rounded up.
fn most_polls_a_second(visitors: &[SaleVisitor]) -> u64 {
    let mut spans = HashMap::<u64, u64>::new();
    for poll_us in visitors.iter().flat_map(|visitor| visitor.polls.iter().skip(1)) {
        *spans.entry(poll_us / (10 * SECOND)).or_default() += 1;
    }
    spans.into_values().max().unwrap_or_default().div_ceil(10)
}

/// `2 + log3` of a wait in whole seconds, rounded up.
pub(super) fn polls_for(wait_us: u64) -> usize {
    let seconds = wait_us.div_ceil(SECOND).max(1);
    (2..).find(|polls| 3_u64.pow(*polls - 2) >= seconds).unwrap() as usize
}

/// The time from the first to the last visitor that entered, and the exact time at the rate.
fn took_us(visitors: &[SaleVisitor], a_second: u64) -> (u64, u64) {
    let all = entered(visitors);
    (all[all.len() - 1] - all[0], (all.len() as u64 - 1) * SECOND / a_second)
}

/// The promises to visitors that come in the order of the list: their order, the longest waits, and the number of polls.
fn keeps_order_waits_and_polls(visitors: &[SaleVisitor], rate: u64, most_overtaken_us: u64) {
    for visitor in visitors.iter().filter(|visitor| visitor.leaves_after.is_none()) {
        let wait_us = visitor.entered_us.expect("nobody is lost") - visitor.came_us;
        assert!(visitor.polls.len() <= polls_for(wait_us), "{rate}: {wait_us}: {visitor:?}");
    }
    let longest_us = visitors.iter().filter_map(|visitor| Some(visitor.entered_us? - visitor.came_us)).max();
    let (overtaken_us, late_us) = (overtaken_by_us(visitors), later_than_told_us(visitors));
    let polls = most_polls_a_second(visitors);
    println!(
        "{rate}/s: overtaken by {overtaken_us}, later than told by {late_us}, {polls} polls in a second"
    );
    assert!(overtaken_us <= most_overtaken_us, "{rate}: {overtaken_us}");
    assert!(late_us <= 2 * SECOND, "{rate}: {late_us}");
    assert!(polls <= polls_for(longest_us.unwrap()) as u64 * rate, "{rate}: {polls}");
}

#[test]
fn a_crowd_of_which_up_to_a_third_leaves_enters_at_the_rate_within_a_hundredth_in_its_order() {
    for (rate, count, whole_seconds) in [(1_000, 10_000, false), (1_000, 10_000, true), (200, 20_000, true)] {
        for leave in [0, 10, 20, 33] {
            let mut visitors = crowd(count, whole_seconds, |number| random(number) % 100 < leave);
            play(settings(&format!("{rate}/s")), &mut visitors);
            keeps_order_waits_and_polls(&visitors, rate, SECOND);
            let (took_us, exact_us) = took_us(&visitors, rate);
            assert!(took_us <= exact_us + exact_us / 100, "{rate} {leave}: {took_us} for {exact_us}");
        }
    }
}

#[test]
fn if_more_leave_the_line_is_slower_but_never_slower_than_a_place_for_each_turn() {
    for (rate, count, leave) in [(1_000, 10_000, 40), (200, 20_000, 40), (200, 20_000, 95), (5, 600, 40)] {
        let mut visitors = crowd(count, true, |number| random(number) % 100 < leave);
        play(settings(&format!("{rate}/s")), &mut visitors);
        keeps_order_waits_and_polls(&visitors, rate, SECOND);
        let (took_us, exact_us) = took_us(&visitors, rate);
        println!("{rate} {leave}: {took_us} for {exact_us}");
        // Half as fast again as with a turn for each place; a little less if a turn is a part of a second that counts.
        let places_us = count * SECOND / rate;
        assert!(took_us <= places_us * 2 / 3 + places_us / 20 + SECOND, "{rate} {leave}: {took_us}");
    }
}

#[test]
fn a_line_of_an_hour_keeps_its_order_and_its_rate() {
    for leave in [0, 15, 30] {
        let mut visitors = crowd(36_000, true, |number| random(number) % 100 < leave);
        play(settings("10/s"), &mut visitors);
        keeps_order_waits_and_polls(&visitors, 10, 2 * SECOND);
        let (took_us, exact_us) = took_us(&visitors, 10);
        assert!(took_us <= exact_us + exact_us / 50, "{leave}: {took_us} for {exact_us}");
    }
}

/// Half as many come while the line moves, two for each turn.
#[test]
fn late_comers_overtake_nobody_who_sleeps() {
    for (rate, count) in [(200, 20_000), (100, 10_000)] {
        let leaves = |number: u64| random(number).is_multiple_of(5);
        let mut visitors = crowd(count, true, leaves);
        let later = |number: u64| SaleVisitor {
            came_us: 6 * SECOND + number * SECOND / (2 * rate),
            leaves_after: leaves(number + count).then_some(1),
            whole_seconds: true,
            ..SaleVisitor::default()
        };
        visitors.extend((0..count / 2).map(later));
        play(settings(&format!("{rate}/s")), &mut visitors);
        keeps_order_waits_and_polls(&visitors, rate, SECOND);
        let (took_us, exact_us) = took_us(&visitors, rate);
        assert!(took_us <= exact_us + exact_us / 100, "{rate}: {took_us} for {exact_us}");
    }
}

#[test]
fn early_comers_enter_at_the_rate_from_the_opening_on_in_the_order_of_their_lots() {
    for leave in [0, 20] {
        let opens_us = 600 * SECOND;
        let mut visitors = crowd(20_000, true, |number| random(number) % 100 < leave);
        // They come over five minutes.
        visitors.iter_mut().for_each(|visitor| visitor.came_us = (visitor.came_us - SECOND) * 300);
        let opens_at_us = BEGINS_US + opens_us;
        play(LineSettings { opens_at_us, ..settings("200/s") }, &mut visitors);
        let all = entered(&visitors);
        assert!((opens_us..opens_us + SECOND).contains(&all[0]), "{}", all[0]);
        let (took_us, exact_us) = took_us(&visitors, 200);
        assert!(took_us <= exact_us + exact_us / 100, "{leave}: {took_us} for {exact_us}");
        visitors.sort_by_key(|visitor| visitor.place.map(|place| place.rank(20_000)));
        // In a second, the lots of more or fewer than that many ranks come up.
        assert!(overtaken_by_us(&visitors) <= 2 * SECOND, "{leave}: {}", overtaken_by_us(&visitors));
        let polls = most_polls_a_second(&visitors);
        println!("{leave}: {took_us} for {exact_us}, {polls} polls a second");
        assert!(polls <= polls_for(opens_us) as u64 * 200, "{leave}: {polls}");
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

/// Appointments are whole seconds, and nobody knows before who leaves: among few visitors, another part leaves than among many.
fn far_us(rate: u64) -> u64 {
    6 * SECOND + 20 * SECOND / rate
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
        let spacing_us = { let pace = TurnPace::new(rate.parse().unwrap()).unwrap(); pace.span_us(1) - 1 };
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
