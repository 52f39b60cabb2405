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
    // A turn is given again for a minute: 60,000 places of 24 bytes, and the room in which the list grows.
    assert!(bytes < 4 << 20, "{bytes} bytes");
    line.after(seconds(120));
    for client in 0..100_000 {
        line.ask_of(None, Some(client));
        line.clock.advance(Duration::from_millis(100));
    }
    let taken = region.change();
    let bytes = taken.bytes_allocated.saturating_sub(taken.bytes_deallocated);
    println!("{bytes} bytes when ten a second do");
    assert!(bytes < 1 << 20, "{bytes} bytes");
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
