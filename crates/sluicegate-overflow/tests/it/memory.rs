//! What waiting visitors take.

use std::alloc::System;

use sluicegate_tower::PeerIp;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::support::Polled;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn a_hundred_thousand_who_wait_take_less_than_50_mib() {
    let line = Polled::new("1000/s", |room| room.places_per_client(10, PeerIp::new()));
    let region = Region::new(ALLOCATOR);
    for client in 0..103_000 {
        line.ask_of(None, Some(client));
    }
    let taken = region.change();
    let bytes = taken.bytes_allocated.saturating_sub(taken.bytes_deallocated);
    assert!(line.status().waiting >= 100_000);
    assert!(bytes < 50 << 20, "{bytes} bytes");
}
