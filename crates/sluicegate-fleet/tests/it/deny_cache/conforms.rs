//! A store with a cache is a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_conformance::Conformance;
use sluicegate_core::MemoryStore;
use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_fleet::DenyCache;

/// Each reading is a minute after the one before, so that no refusal is ever kept.
#[derive(Default)]
struct Leaps(AtomicU64);

impl Clock for Leaps {
    fn now_us(&self) -> u64 {
        self.0.fetch_add(60_000_000, Ordering::Relaxed)
    }
}

fn suite(clock: ManualClock, of_cache: impl Clock) -> Conformance {
    let memory = MemoryStore::builder().clock(clock.clone()).log_entries(1 << 22).build().unwrap();
    let cache = DenyCache::builder(memory).clock(Arc::new(of_cache)).build().unwrap();
    Conformance::new(cache, clock)
}

#[tokio::test]
async fn it_passes_the_examples_of_the_suite() {
    let clock = ManualClock::new();
    let suite = suite(clock.clone(), clock);
    suite.worked_examples().await;
    suite.all_or_nothing().await;
    suite.modes().await;
}

#[tokio::test]
async fn a_cache_that_keeps_nothing_changes_no_number() {
    let suite = suite(ManualClock::new(), Leaps::default());
    suite.same_decisions_as_memory(Duration::ZERO, 11, 20).await;
    suite.same_refunds_as_memory(12, 20).await;
    suite.same_replacements_as_memory(13, 20).await;
    suite.same_suspensions_as_memory(14, 10).await;
}
