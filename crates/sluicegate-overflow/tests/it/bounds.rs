//! The bounds of a room: how many wait, of one client, and are inside; and what cannot be a room.

use std::time::Duration;

use sluicegate_core::error::ConfigErrorKind;
use sluicegate_overflow::line::{LineAnswer, MemoryLine};
use sluicegate_overflow::{WaitingRoom, WaitingRoomBuilder};
use sluicegate_tower::PeerIp;

use crate::support::{FULL, Polled, TOO_MANY, seconds};

fn problem(builder: WaitingRoomBuilder) -> (ConfigErrorKind, String) {
    let error = builder.build(MemoryLine::new()).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn each_setting_that_cannot_work_is_refused_with_its_value() {
    let room = || WaitingRoom::builder("sale", "10/s");
    for (builder, kind, text) in [
        (WaitingRoom::builder("sale", "0/s"), ConfigErrorKind::Quota, "the limit is 0"),
        (WaitingRoom::builder("sale", "9/s by gcra"), ConfigErrorKind::Quota, "leave \"by gcra\" out"),
        (WaitingRoom::builder("sale", "often"), ConfigErrorKind::Unreadable, "\"often\" is not a quota"),
        (WaitingRoom::builder("The Sale", "1/s"), ConfigErrorKind::Name, "\"The Sale\""),
        (room().secrets([7; 15], None), ConfigErrorKind::Layer, "a secret of 15 bytes"),
        (room().secrets([7; 16], Some(&[7; 3])), ConfigErrorKind::Layer, "a secret of 3 bytes"),
        (room().most_active(0), ConfigErrorKind::Layer, "most_active(0)"),
        (room().longest_line(0), ConfigErrorKind::Layer, "longest_line(0)"),
        (room().places_per_client(0, PeerIp::new()), ConfigErrorKind::Layer, "places_per_client(0)"),
        (room().pass_lasts(Duration::ZERO), ConfigErrorKind::Layer, "pass_lasts(0s)"),
    ] {
        let (found, message) = problem(builder);
        assert_eq!(found, kind, "{message}");
        assert!(message.contains(text), "{message}");
    }
}

#[test]
fn a_full_room_says_so_and_a_place_that_had_its_turn_makes_room() {
    let line = Polled::new("6/min", |room| room.longest_line(2));
    line.turn(None);
    let first = line.waits(None);
    line.waits(None);
    assert_eq!(line.ask(None), FULL);
    assert_eq!(line.after(seconds(10)).turn(Some(first.place)).place, first.place);
    line.waits(None);
    assert_eq!(line.ask(None), FULL);
}

#[test]
fn a_client_has_so_many_places_and_no_other_client_is_counted_with_it() {
    let line = Polled::new("6/min", |room| room.places_per_client(2, PeerIp::new()));
    line.turn(None);
    let mut places = Vec::new();
    for client in [7, 7, 8] {
        match line.ask_of(None, Some(client)) {
            LineAnswer::Waiting(standing) => places.push(standing.place),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(line.ask_of(None, Some(7)), TOO_MANY);
    // Each of them asks again as often as it likes, and a turn makes room for another place.
    line.after(seconds(10));
    assert!(matches!(line.ask_of(Some(places[0]), Some(7)), LineAnswer::Turn(_)));
    assert!(matches!(line.ask_of(None, Some(7)), LineAnswer::Waiting(_)));
    assert_eq!(line.ask_of(None, Some(7)), TOO_MANY);
}

#[test]
fn no_more_are_inside_than_may_be_until_a_pass_ends() {
    let line = Polled::new("100/s", |room| room.most_active(3).pass_lasts(seconds(60)));
    let passes: Vec<_> = (0..3).map(|_| line.turn(None).place).collect();
    let fourth = line.waits(None);
    let fifth = line.waits(None);
    assert_eq!(line.status().active, Some(3));
    // A visitor that leaves early makes room for the next.
    line.end(passes[1]);
    line.end(passes[1]);
    let turn = line.after(seconds(1)).turn(Some(fourth.place));
    assert_eq!(turn.place, fourth.place);
    line.waits(Some(fifth.place));
    line.after(seconds(60)).turn(Some(fifth.place));
}

#[test]
fn the_estimate_knows_when_passes_end() {
    let line = Polled::new("100/s", |room| room.most_active(2).pass_lasts(seconds(60)));
    line.turn(None);
    line.after(seconds(10)).turn(None);
    let waits: Vec<_> = (0..3).map(|_| line.waits(None).wait.unwrap().as_secs()).collect();
    assert_eq!(waits, [50, 60, 110]);
}
