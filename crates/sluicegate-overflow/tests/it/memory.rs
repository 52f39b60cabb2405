//! What waiting visitors take.

use std::alloc::System;
use std::time::Duration;

use sluicegate_overflow::line::{LineChange, LineMode};
use sluicegate_tower::PeerIp;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::support::{Polled, seconds};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One after the other: both count what the whole process allocates.
#[test]
fn waiting_visitors_take_little_and_leave_nothing() {
    a_hundred_thousand_who_wait_take_less_than_50_mib();
    an_open_room_keeps_nothing_of_those_who_entered();
    an_open_room_keeps_nothing_while_a_visitor_sleeps_and_passes_are_bounded();
}

fn an_open_room_keeps_nothing_of_those_who_entered() {
    let line = Polled::new("1000/s", |room| room.places_per_client(10, PeerIp::new()));
    line.change(LineChange::Mode(LineMode::Open));
    let region = Region::new(ALLOCATOR);
    for client in 0..200_000 {
        line.ask_of(None, Some(client));
        line.clock.advance(Duration::from_millis(1));
    }
    let taken = region.change();
    let bytes = taken.bytes_allocated.saturating_sub(taken.bytes_deallocated);
    println!("{bytes} bytes while a thousand a second enter an open room");
    // The runner of the tests allocates beside it; what is kept of 200,000 clients is megabytes.
    assert!(bytes < 1 << 14, "{bytes} bytes");
}

/// Each of them once left a pass for a quarter of an hour, and a place for as long as the sleeper was not missed.
fn an_open_room_keeps_nothing_while_a_visitor_sleeps_and_passes_are_bounded() {
    let line = Polled::new("1/h", |room| room.most_active(20));
    line.turn(None);
    let sleeper = line.waits(None);
    line.change(LineChange::Mode(LineMode::Open));
    let region = Region::new(ALLOCATOR);
    for _ in 0..200_000 {
        line.turn(None);
        line.clock.advance(Duration::from_millis(1));
    }
    let taken = region.change();
    let bytes = taken.bytes_allocated.saturating_sub(taken.bytes_deallocated);
    println!("{bytes} bytes while one visitor sleeps and a thousand a second enter");
    assert!(bytes < 4 << 10, "{bytes} bytes");
    assert_eq!((line.status().waiting, line.status().active), (1, Some(20)));
    // The sleeper has kept its place, and the first pass that expires is room for it.
    line.change(LineChange::Mode(LineMode::Metered));
    line.waits(Some(sleeper.place));
    assert_eq!(line.after(seconds(3_600)).turn(Some(sleeper.place)).place, sleeper.place);
}

fn a_hundred_thousand_who_wait_take_less_than_50_mib() {
    let line = Polled::new("1000/s", |room| room.places_per_client(10, PeerIp::new()));
    let region = Region::new(ALLOCATOR);
    for client in 0..103_000 {
        line.ask_of(None, Some(client));
    }
    let taken = region.change();
    let bytes = taken.bytes_allocated.saturating_sub(taken.bytes_deallocated);
    assert!(line.status().waiting >= 100_000);
    println!("{} bytes for each of a hundred thousand", bytes / 100_000);
    assert!(bytes < 50 << 20, "{bytes} bytes");
}
