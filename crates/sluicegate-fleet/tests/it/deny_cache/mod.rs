//! Refusals that are kept.

mod apart;
mod conforms;
mod crossings;
mod flood;
mod later;
mod leases;
mod model;
mod provisional;
mod settings;
mod short;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_core::clock::ManualClock;
use sluicegate_core::store::Ask;
use sluicegate_core::wrap::Within;
use sluicegate_core::{MemoryStore, Store};
use sluicegate_fleet::DenyCache;
use sluicegate_fleet::deny_cache::DenyCacheBuilder;
use sluicegate_tests::around::around;
use sluicegate_tests::memory::store_on;
use sluicegate_tests::time::on_the_hour;

/// A cache around a store in memory that counts its calls.
struct Scene {
    clock: ManualClock,
    memory: MemoryStore,
    cache: DenyCache,
    calls: Arc<AtomicU64>,
}

impl Scene {
    fn new() -> Self {
        Self::with(|builder| builder)
    }

    fn with(settings: impl FnOnce(DenyCacheBuilder) -> DenyCacheBuilder) -> Self {
        let clock = on_the_hour();
        let memory = store_on(clock.clone());
        let (store, calls) = counted(&memory);
        let cache = settings(DenyCache::builder(store).clock(clock.clone())).build().unwrap();
        Self { clock, memory, cache, calls }
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn advance_ms(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }
}

/// This store, and how often it was called.
fn counted(store: impl Into<Arc<dyn Store>>) -> (Arc<dyn Store>, Arc<AtomicU64>) {
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let store = around(store, move |within: &Within, asks: &[Ask<'_>]| {
        count.fetch_add(1, Ordering::Relaxed);
        within.decide(asks)
    });
    (store, calls)
}
