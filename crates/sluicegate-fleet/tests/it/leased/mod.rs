//! Leases, over stores in memory.

mod apart;
mod bound;
mod closing;
mod conformance;
mod local;
mod through;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::store::{Ask, DecidedBy, Mode};
use sluicegate_core::wrap::Within;
use sluicegate_core::{Decision, MemoryStore, RateLimiter, Store};
use sluicegate_fleet::leased::{Leased, LeasedBuilder};
use sluicegate_tests::around::around;
use sluicegate_tests::memory::{answer, store};

const MS: Duration = Duration::from_millis(1);

/// A store in memory that counts its calls, on a clock that a test turns, and what leases from it.
struct Scene {
    memory: MemoryStore,
    clock: ManualClock,
    /// Calls that spend or lease.
    calls: Arc<AtomicU64>,
    store: Leased,
}

impl Scene {
    fn new() -> Self {
        Self::with(|builder| builder)
    }

    fn with(settings: impl FnOnce(LeasedBuilder) -> LeasedBuilder) -> Self {
        let (memory, clock) = store();
        let calls = Arc::<AtomicU64>::default();
        let store = settings(Leased::builder(counted(&memory, &calls)).clock(clock.clone())).build().unwrap();
        Self { memory, clock, calls, store }
    }

    /// Another instance, over the same memory.
    fn another(&self) -> Leased {
        Leased::builder(counted(&self.memory, &self.calls)).clock(self.clock.clone()).build().unwrap()
    }

    fn limiter(&self, policy: PolicyBuilder) -> RateLimiter {
        policy.on(&self.store).unwrap()
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// A clock that is a thousandth slower than another one.
struct Slow(ManualClock);

impl Clock for Slow {
    fn now_us(&self) -> u64 {
        self.0.now_us() / 1_000 * 999
    }
}

/// A store that counts the calls in which it is asked to spend or to lease.
fn counted(memory: &MemoryStore, calls: &Arc<AtomicU64>) -> Arc<dyn Store> {
    let calls = Arc::clone(calls);
    around(memory, move |within: &Within, asks: &[Ask<'_>]| {
        if asks.iter().any(|ask| ask.mode().spends() || ask.mode() == Mode::Lease) {
            calls.fetch_add(1, Ordering::Relaxed);
        }
        within.decide(asks)
    })
}

/// Spends a unit some times, of which all pass; how many of them were decided by what is held.
fn spend(limiter: &RateLimiter, key: &str, times: u64) -> u64 {
    let is_local = |decision: &Decision| {
        assert!(decision.is_allowed(), "{decision:?}");
        decision.decided_by() == DecidedBy::Lease
    };
    (0..times).map(|_| answer(limiter.check(key))).filter(is_local).count() as u64
}

/// Spends until units are held.
fn lease(limiter: &RateLimiter, key: &str) {
    let is_local = |_: &u64| answer(limiter.check(key)).decided_by() == DecidedBy::Lease;
    assert!((0..100).any(|time| is_local(&time)), "nothing is leased");
}
