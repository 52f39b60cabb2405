//! Stores in memory, small and on a test's clock.

use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_core::store::DecisionFuture;
use sluicegate_core::{Decision, MemoryStore};

use crate::time::{Paused, on_the_hour};

/// A store on this clock.
#[must_use]
pub fn store_on(clock: impl Clock) -> MemoryStore {
    let store = MemoryStore::builder().table_size(1_000).clock(clock).build();
    store.expect("a store of a sensible size can be built")
}

/// A store on a clock that stands still on a whole hour.
#[must_use]
pub fn store() -> (MemoryStore, ManualClock) {
    let clock = on_the_hour();
    (store_on(clock.clone()), clock)
}

/// A store of this size, on a clock that stands still on a whole hour.
#[must_use]
pub fn store_for(keys: usize, log_entries: usize) -> (MemoryStore, ManualClock) {
    let clock = on_the_hour();
    let store = MemoryStore::builder().table_size(keys).log_entries(log_entries).clock(clock.clone()).build();
    (store.expect("a store of a sensible size can be built"), clock)
}

/// A store whose time is tokio's.
#[must_use]
pub fn paused_store() -> MemoryStore {
    store_on(Paused::now())
}

/// The answer of a memory store, which is there at once.
pub fn answer(decision: impl IntoFuture<IntoFuture = DecisionFuture>) -> Decision {
    decision.into_future().now().expect("memory answers at once").expect("memory has an answer")
}
