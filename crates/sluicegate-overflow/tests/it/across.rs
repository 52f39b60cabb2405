//! What a line crosses: visitors who leave, come back, share a ticket; operators who change it; clocks that step.

use std::time::{Duration, SystemTime};

use sluicegate_core::Quota;
use sluicegate_overflow::line::{LineAnswer, LineChange, LineMode, LinePlace};

use crate::support::{Polled, START, seconds};

/// A line with this many places in it, all of which have asked once.
fn line_of(rate: &str, places: usize) -> (Polled, Vec<LinePlace>) {
    let line = Polled::new(rate, |room| room);
    while line.room.status().waiting == 0 {
        line.ask(None);
    }
    let places = (1..places).map(|_| line.waits(None).place).collect();
    (line, places)
}

#[test]
fn a_visitor_that_was_passed_over_and_comes_back_within_ten_minutes_is_next() {
    let (line, places) = line_of("1/s", 30);
    line.after(seconds(90));
    for place in places.iter().skip(1).step_by(2) {
        line.ask(Some(*place));
        line.after(seconds(1));
    }
    line.after(seconds(60));
    line.status();
    assert!(line.status().passed_over > 0, "{:?}", line.status());
    assert_eq!(line.after(seconds(300)).turn(Some(places[0])).place, places[0]);
    // After that it is forgotten, and the visitor is a new one.
    let late = line.after(seconds(600)).turn(Some(places[2])).place;
    assert_ne!(late, places[2]);
}

#[test]
fn a_place_whose_turn_is_far_away_is_kept_however_seldom_its_visitor_asks() {
    let (line, places) = line_of("1/min", 60);
    let last = *places.last().unwrap();
    for _ in 0..3 {
        assert_eq!(line.after(seconds(700)).waits(Some(last)).place, last);
    }
}

#[test]
fn a_copied_ticket_gains_no_second_place_and_no_second_pass() {
    let (line, places) = line_of("10/s", 30);
    let (first, admitted) = (places[0], line.status().admitted);
    let waiting = line.status().waiting;
    for _ in 0..5 {
        assert_eq!(line.waits(Some(places[20])).place, places[20]);
    }
    assert_eq!(line.status().waiting, waiting);

    let turn = line.after(seconds(2)).turn(Some(first));
    let copy = line.after(seconds(10)).turn(Some(first));
    assert_eq!((copy.place, line.status().admitted), (first, admitted + 1));
    assert_eq!(copy.lasts, turn.lasts + turn.after - seconds(10));
    // When the minute for lost answers is over, it is no place any more.
    let copy = line.after(seconds(70)).turn(Some(first));
    assert_ne!(copy.place, first);
}

#[test]
fn places_of_another_line_are_new_places_here() {
    let (line, places) = line_of("1/s", 10);
    let foreign = [
        LinePlace::new(places[0].number, !places[0].lot),
        LinePlace::new(u64::MAX, 0),
        LinePlace::new(9_999, 3),
    ];
    for place in foreign {
        assert_ne!(line.waits(Some(place)).place, place);
    }
}

#[test]
fn a_paused_room_lets_nobody_in_and_all_keep_their_places() {
    let (line, places) = line_of("10/s", 30);
    line.change(LineChange::Mode(LineMode::Paused));
    for _ in 0..4 {
        let standing = line.after(seconds(60)).waits(Some(places[0]));
        assert_eq!((standing.place, standing.wait), (places[0], None));
        assert!((30..=120).contains(&standing.ask_after.as_secs()), "{standing:?}");
    }
    line.change(LineChange::Mode(LineMode::Metered));
    line.turn(Some(places[0]));
}

#[test]
fn an_opened_room_lets_everybody_in_and_goes_back_to_its_rate() {
    let (line, places) = line_of("1/min", 30);
    line.change(LineChange::Mode(LineMode::Open));
    for place in &places[..20] {
        assert_eq!(line.turn(Some(*place)).after, Duration::ZERO);
    }
    // Of those that come meanwhile, none is a rank to wait for afterwards; those that did not ask meanwhile keep their places.
    (0..100).for_each(|_| _ = line.turn(None));
    line.change(LineChange::Mode(LineMode::Metered));
    let newcomer = line.waits(None);
    assert!(newcomer.position.unwrap() <= 13, "{newcomer:?}");
    let mut turns = Vec::new();
    (0..15).for_each(|_| enter(&line, &places[20..], &mut turns, 60));
    assert_eq!(turns, places[20..]);
}

#[test]
fn visitors_that_entered_an_open_room_have_passes_of_their_own_that_end_one_by_one() {
    let line = Polled::new("100/s", |room| room.most_active(2).pass_lasts(seconds(60)));
    line.change(LineChange::Mode(LineMode::Open));
    let entered: Vec<LinePlace> = (0..4).map(|_| line.turn(None).place).collect();
    let status = line.status();
    assert_eq!((status.active, status.admitted, status.waiting), (Some(2), 4, 0));
    line.change(LineChange::Mode(LineMode::Metered));
    let next = line.waits(None).place;
    assert!(entered.iter().all(|place| place.number != next.number));
    // A pass above the bound makes no room, and ends for its own visitor only.
    line.end(entered[3]);
    line.waits(Some(next));
    line.end(entered[0]);
    assert_eq!(line.turn(Some(next)).place, next);
    // It took no place, so a visitor with an ended pass lines up like any other.
    assert_ne!(line.waits(Some(entered[0])).place, entered[0]);
}

/// All that have not entered yet ask once, and then so many seconds go by.
fn enter(line: &Polled, places: &[LinePlace], turns: &mut Vec<LinePlace>, after: u64) {
    for place in places {
        if !turns.contains(place) && matches!(line.ask(Some(*place)), LineAnswer::Turn(_)) {
            turns.push(*place);
        }
    }
    line.after(seconds(after));
}

#[test]
fn a_turn_is_not_given_again_when_its_pass_is_over_or_was_ended() {
    let line = Polled::new("100/s", |room| room.pass_lasts(seconds(10)));
    let (first, second) = (line.turn(None).place, line.turn(None).place);
    line.end(second);
    assert_ne!(line.after(seconds(10)).turn(Some(first)).place, first);
    assert_ne!(line.after(seconds(5)).turn(Some(second)).place, second);
}

#[test]
fn another_rate_is_in_the_next_estimate() {
    let (line, places) = line_of("1/s", 101);
    let last = *places.last().unwrap();
    let before = line.waits(Some(last)).wait.unwrap();
    line.change(LineChange::Rate(Quota::per_second(10)));
    let after = line.waits(Some(last)).wait.unwrap();
    assert!(before.as_secs() > 95 && (9..=12).contains(&after.as_secs()), "{before:?} {after:?}");
    assert_eq!(line.status().rate, Quota::per_second(10).burst(1));
}

#[test]
fn a_clock_that_steps_costs_nobody_a_place() {
    for step in [seconds(90_000), START - seconds(1), START + seconds(7_200), START + seconds(400_000)] {
        let (line, places) = line_of("10/s", 300);
        line.clock.set(step);
        for place in &places {
            let answer = format!("{:?}", line.ask(Some(*place)));
            assert!(answer.contains(&format!("number: {}", place.number)), "{step:?}: {answer}");
        }
        // And it goes on from there.
        line.after(seconds(1)).turn(Some(places[0]));
    }
}

#[test]
fn early_comers_are_drawn_by_lot_and_later_ones_line_up_behind_them() {
    let opens = SystemTime::UNIX_EPOCH + START + seconds(60);
    let line = Polled::new("10/s", |room| room.opens_at(opens));
    let early: Vec<LinePlace> = (0..100).map(|_| line.waits(None).place).collect();
    let standing = line.waits(Some(early[0]));
    assert_eq!((standing.opens_after, standing.position), (Some(seconds(60)), None));
    line.after(seconds(59)).waits(Some(early[0]));

    line.after(seconds(1));
    let late = line.waits(None);
    assert!(late.position.unwrap() > 90, "{late:?}");
    let mut turns = Vec::new();
    for _ in 0..200 {
        for place in &early {
            if !turns.contains(place) && matches!(line.ask(Some(*place)), LineAnswer::Turn(_)) {
                turns.push(*place);
            }
        }
        line.after(Duration::from_millis(100));
    }
    assert_eq!(turns.len(), 100);
    let arrivals: Vec<u64> = turns.iter().map(|place| place.number).collect();
    assert!(!arrivals.is_sorted(), "{arrivals:?}");
    // Within a second, that is ten turns, the order is that of the lots.
    let ranks: Vec<u64> = turns.iter().map(|place| place.rank(100)).collect();
    assert!(ranks.iter().enumerate().all(|(turn, rank)| rank.abs_diff(turn as u64) <= 20), "{ranks:?}");
}

#[test]
fn a_rate_that_is_set_before_the_room_opens_is_that_of_the_opening() {
    let opens = SystemTime::UNIX_EPOCH + START + seconds(60);
    let line = Polled::new("1/s", |room| room.opens_at(opens));
    let early: Vec<LinePlace> = (0..100).map(|_| line.waits(None).place).collect();
    line.after(seconds(10)).change(LineChange::Rate(Quota::per_second(50)));
    let waits = early.iter().map(|place| line.waits(Some(*place)).wait.unwrap().as_secs());
    assert!(waits.clone().all(|wait| (50..=53).contains(&wait)), "{:?}", waits.collect::<Vec<_>>());
    line.change(LineChange::Rate(Quota::per_second(10)));
    line.after(seconds(50));
    let mut entered = 0;
    for _ in 0..11 {
        let turns = early.iter().filter(|place| matches!(line.ask(Some(**place)), LineAnswer::Turn(_)));
        entered = turns.count();
        line.after(seconds(1));
    }
    assert!(entered > 90, "{entered} of a hundred in eleven seconds");
    assert_eq!(line.status().admitted, 100);
}

#[test]
fn a_rate_that_is_set_while_somebody_returns_late_costs_neither_it_nor_the_others_a_turn() {
    let (line, places) = line_of("2/s", 40);
    // The first stays away, and the others go on.
    let mut turns = Vec::new();
    (0..8).for_each(|_| enter(&line, &places[1..], &mut turns, 1));
    line.change(LineChange::Rate(Quota::per_second(4)));
    assert_eq!(line.turn(Some(places[0])).place, places[0]);
    line.change(LineChange::Rate(Quota::per_second(1)));
    (0..40).for_each(|_| enter(&line, &places[1..], &mut turns, 1));
    assert_eq!(turns, places[1..]);
}

#[test]
fn a_room_that_opens_again_after_a_pause_lets_in_at_the_rate_and_in_order() {
    let (line, places) = line_of("1/s", 20);
    line.after(seconds(3)).change(LineChange::Mode(LineMode::Paused));
    for place in &places {
        line.waits(Some(*place));
    }
    line.after(seconds(3_000));
    line.change(LineChange::Mode(LineMode::Metered));
    line.change(LineChange::Mode(LineMode::Paused));
    line.change(LineChange::Mode(LineMode::Metered));
    let mut turns = Vec::new();
    (0..30).for_each(|_| enter(&line, &places, &mut turns, 1));
    assert_eq!(turns, places);
}

#[test]
fn two_handles_of_a_room_are_one_line() {
    let line = Polled::new("1/min", |room| room);
    let other = line.room.clone();
    line.turn(None);
    line.waits(None);
    assert_eq!((other.status().waiting, other.status().admitted), (1, 1));
    assert_eq!(format!("{:?}", other.status()), format!("{:?}", line.room.status()));
}

#[test]
fn one_that_is_alone_enters_at_once_whatever_was_before() {
    let line = Polled::new("1/min", |room| room);
    assert_eq!(line.turn(None).after, Duration::ZERO);
    assert_eq!(line.after(seconds(60)).turn(None).after, Duration::ZERO);
    let third = line.waits(None);
    assert_eq!((third.position, third.wait.unwrap()), (Some(1), seconds(60)));
    assert_eq!(line.after(seconds(3_600)).turn(None).after, Duration::ZERO);
}
