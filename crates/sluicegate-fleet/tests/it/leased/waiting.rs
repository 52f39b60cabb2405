//! Requests that come while a refill is under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_core::clock::Clock;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::{Ask, DecidedBy, DecisionFuture, Mode};
use sluicegate_core::wrap::Within;
use sluicegate_core::{MemoryStore, Policy, RateLimiter, StoreError};
use sluicegate_fleet::leased::Leased;
use sluicegate_tests::around::around;
use sluicegate_tests::memory::{answer, paused_store};
use sluicegate_tests::time::Paused;
use tokio::runtime::Handle;

const ROUND_TRIP: Duration = Duration::from_millis(10);

/// A store ten milliseconds away, and what leases from it.
struct Far {
    memory: MemoryStore,
    leases: Arc<AtomicU64>,
    calls: Arc<AtomicU64>,
    fails: Arc<AtomicU64>,
    store: Leased,
    limiter: RateLimiter,
}

impl Far {
    fn new(clock: impl Clock) -> Self {
        let memory = paused_store();
        let (leases, calls, fails) =
            (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let (asked, called, failing) = (Arc::clone(&leases), Arc::clone(&calls), Arc::clone(&fails));
        let far = around(&memory, move |within: &Within, asks: &[Ask<'_>]| {
            called.fetch_add(1, Ordering::Relaxed);
            if asks.iter().any(|ask| ask.mode() == Mode::Lease) {
                asked.fetch_add(1, Ordering::Relaxed);
            }
            let (answer, fails) = (within.decide(asks), failing.load(Ordering::Relaxed) > 0);
            DecisionFuture::begun(&Handle::current(), async move {
                tokio::time::sleep(ROUND_TRIP).await;
                if fails { Err(StoreError::new(StoreErrorKind::Timeout)) } else { answer.await }
            })
        });
        let store = Leased::builder(far).clock(clock).build().unwrap();
        let limiter = Policy::fixed_window("api", "10000/h").on(&store).unwrap();
        Self { memory, leases, calls, fails, store, limiter }
    }

    /// A request has been decided, so that the next one leases.
    async fn warm() -> Self {
        let far = Self::new(Paused::now());
        let _ = far.limiter.check("ada").await.unwrap();
        assert_eq!(far.leases.load(Ordering::Relaxed), 0);
        far
    }

    fn passed(&self) -> u64 {
        let plain = Policy::fixed_window("api", "10000/h").on(&self.memory).unwrap();
        10_000 - answer(plain.peek("ada")).remaining() - self.store.status().held
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_come_meanwhile_share_one_refill() {
    let far = Far::warm().await;
    let before = far.calls.load(Ordering::Relaxed);
    let answers: Vec<_> = (0..5).map(|_| far.limiter.check("ada").start()).collect();
    let mut local = 0;
    for answer in answers {
        let decision = answer.await.unwrap();
        assert!(decision.is_allowed());
        local += u64::from(decision.decided_by() == DecidedBy::Lease);
    }
    assert_eq!(local, 4, "the first of them has brought the lease");
    assert_eq!(far.leases.load(Ordering::Relaxed), 1);
    assert_eq!(far.calls.load(Ordering::Relaxed) - before, 1);
    assert_eq!(far.passed(), 6);
}

#[tokio::test(start_paused = true)]
async fn more_requests_than_the_refill_brings_do_not_wait_for_it() {
    let far = Far::warm().await;
    let before = tokio::time::Instant::now();
    let answers: Vec<_> = (0..200).map(|_| far.limiter.check("ada").start()).collect();
    for answer in answers {
        assert!(answer.await.unwrap().is_allowed());
    }
    assert_eq!(before.elapsed(), ROUND_TRIP);
    tokio::time::sleep(2 * ROUND_TRIP).await;
    assert_eq!(far.passed(), 201);
}

#[tokio::test(start_paused = true)]
async fn a_refill_goes_on_when_the_request_that_began_it_is_dropped() {
    let far = Far::warm().await;
    drop(far.limiter.check("ada").start());
    let waits = far.limiter.check("ada").start();
    assert_eq!(waits.await.unwrap().decided_by(), DecidedBy::Lease);
    assert_eq!(far.passed(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_and_is_dropped_has_spent_all_the_same() {
    let far = Far::warm().await;
    let first = far.limiter.check("ada").start();
    drop(far.limiter.check("ada").start());
    let _ = first.await.unwrap();
    tokio::time::sleep(ROUND_TRIP).await;
    assert_eq!(far.passed(), 3);
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_go_on_by_themselves_when_the_refill_fails() {
    let far = Far::warm().await;
    far.fails.store(1, Ordering::Relaxed);
    let (first, second) = (far.limiter.check("ada").start(), far.limiter.check("ada").start());
    far.fails.store(0, Ordering::Relaxed);
    assert_eq!(first.await.unwrap().decided_by(), DecidedBy::Fallback);
    let second = second.await.unwrap();
    assert_eq!((second.is_allowed(), second.decided_by()), (true, DecidedBy::Store));
    let status = far.store.status();
    assert_eq!(status.held, 0);
    assert!(status.lost > 0, "it may have been granted");
}

#[tokio::test(start_paused = true)]
async fn a_reset_while_a_refill_is_under_way_drops_what_it_brings() {
    let far = Far::warm().await;
    let first = far.limiter.check("ada").start();
    let _ = far.limiter.reset("ada").await.unwrap();
    let _ = first.await.unwrap();
    let status = far.store.status();
    assert_eq!(status.held, 0);
    assert!(status.lost > 0);
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_a_refill_and_gives_it_back() {
    let far = Far::warm().await;
    let first = far.limiter.check("ada").start();
    tokio::task::yield_now().await;
    let (first, closed) = tokio::join!(first, far.store.close(Duration::from_secs(1)));
    closed.unwrap();
    let _ = first.unwrap();
    let status = far.store.status();
    assert!(status.returned > 0, "{status:?}");
    assert_eq!(far.passed(), 2);
}
