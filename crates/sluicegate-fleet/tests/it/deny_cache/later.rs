//! A store whose answers come later: probes, requests that wait for them, and answers that nobody waits for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluicegate_core::clock::ManualClock;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::{Ask, DecidedBy, DecisionFuture, Mode};
use sluicegate_core::wrap::Within;
use sluicegate_core::{Decision, Policy, RateLimiter, StoreError};
use sluicegate_fleet::DenyCache;
use sluicegate_tests::around::around;
use sluicegate_tests::memory::{answer, store_on};
use sluicegate_tests::time::on_the_hour;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, yield_now};

use super::counted;

/// A store that decides at once, and answers when a test lets it; a reset at once, which overtakes what was asked before.
struct Gated {
    clock: ManualClock,
    gate: Arc<Semaphore>,
    calls: Arc<std::sync::atomic::AtomicU64>,
    limiter: RateLimiter,
    /// The same buckets, without a gate and a cache.
    direct: RateLimiter,
}

impl Gated {
    fn new(quota: &str) -> Self {
        Self::with_keys(quota, 50_000)
    }

    /// One whose cache has room for so many keys.
    fn with_keys(quota: &str, keys: usize) -> Self {
        let (clock, gate) = (on_the_hour(), Arc::new(Semaphore::new(0)));
        let memory = store_on(clock.clone());
        let store = around(&memory, {
            let gate = Arc::clone(&gate);
            move |within: &Within, asks: &[Ask<'_>]| {
                let (decision, gate) = (within.decide(asks), Arc::clone(&gate));
                if asks[0].mode() == Mode::Reset {
                    return decision;
                }
                DecisionFuture::pending(async move {
                    let Ok(permit) = gate.acquire_owned().await else {
                        return Err(StoreError::new(StoreErrorKind::Unavailable));
                    };
                    permit.forget();
                    decision.await
                })
            }
        });
        let (store, calls) = counted(store);
        let cache = DenyCache::builder(store).longest(Duration::from_secs(1)).keys(keys);
        let cache = cache.clock(clock.clone()).build().unwrap();
        let limiter = Policy::gcra("api", quota).on(cache).unwrap();
        let direct = Policy::gcra("api", quota).on(&memory).unwrap();
        Self { clock, gate, calls, limiter, direct }
    }

    /// One that has spent all and was refused, a moment before its refusal is over.
    async fn refused(quota: &str) -> Self {
        let gated = Self::new(quota);
        let spent =
            answer(gated.direct.check("ada").cost(gated.limiter.policy().quotas()[0].rule().capacity()));
        assert!(spent.is_allowed());
        gated.gate.add_permits(1);
        assert!(!gated.limiter.check("ada").await.unwrap().is_allowed());
        assert_eq!(gated.calls(), 1);
        gated
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn check(&self) -> JoinHandle<Result<Decision, StoreError>> {
        tokio::spawn(self.limiter.check("ada").start())
    }

    fn checks(&self, count: usize) -> Vec<JoinHandle<Result<Decision, StoreError>>> {
        (0..count).map(|_| self.check()).collect()
    }
}

/// Lets all tasks go on as far as they can.
async fn settle() {
    for _ in 0..50 {
        yield_now().await;
    }
}

async fn allowed(all: Vec<JoinHandle<Result<Decision, StoreError>>>) -> usize {
    let mut count = 0;
    for one in all {
        count += usize::from(one.await.unwrap().unwrap().is_allowed());
    }
    count
}

#[tokio::test]
async fn one_of_all_who_ask_finds_out_and_the_others_share_its_refusal() {
    let gated = Gated::refused("1/min").await;
    gated.clock.advance(Duration::from_secs(1));
    let all = gated.checks(100);
    settle().await;
    assert_eq!(gated.calls(), 2);
    gated.gate.add_permits(1);
    assert_eq!(allowed(all).await, 0);
    assert_eq!(gated.calls(), 2);
}

#[tokio::test]
async fn what_is_let_pass_after_all_is_asked_for_by_each() {
    let gated = Gated::refused("4/s").await;
    gated.clock.advance(Duration::from_secs(1));
    let all = gated.checks(4);
    settle().await;
    assert_eq!(gated.calls(), 2);
    gated.gate.add_permits(1);
    settle().await;
    assert_eq!(gated.calls(), 5, "there is room for all of them");
    gated.gate.add_permits(3);
    assert_eq!(allowed(all).await, 4);
}

#[tokio::test]
async fn a_probe_that_takes_the_last_unit_refuses_the_others_without_a_call() {
    let gated = Gated::refused("1/s burst 1").await;
    gated.clock.advance(Duration::from_secs(1));
    let all = gated.checks(10);
    settle().await;
    gated.gate.add_permits(1);
    assert_eq!(allowed(all).await, 1);
    assert_eq!(gated.calls(), 2);
}

#[tokio::test]
async fn a_probe_that_fails_leaves_the_others_to_the_store() {
    let gated = Gated::refused("1/min").await;
    gated.clock.advance(Duration::from_secs(1));
    let all = gated.checks(3);
    settle().await;
    gated.gate.close();
    for one in all {
        // Memory is there, but its answers are lost: this process decides alone.
        assert_eq!(one.await.unwrap().unwrap().decided_by(), DecidedBy::Fallback);
    }
    assert_eq!(gated.calls(), 4);
}

#[tokio::test]
async fn a_caller_that_hangs_up_leaves_its_refusal_behind_and_nobody_waiting() {
    let gated = Gated::refused("1/min").await;
    gated.clock.advance(Duration::from_secs(1));
    drop(gated.limiter.check("ada").start());
    let waits = gated.check();
    settle().await;
    assert_eq!(gated.calls(), 2, "the probe goes on without its caller");
    gated.gate.add_permits(1);
    assert!(!waits.await.unwrap().unwrap().is_allowed());
    for _ in 0..10 {
        drop(gated.limiter.check("ada").start());
    }
    assert_eq!(gated.calls(), 2);
}

#[tokio::test]
async fn a_caller_that_hangs_up_while_it_waits_asks_nevertheless() {
    let gated = Gated::refused("2/s").await;
    gated.clock.advance(Duration::from_secs(1));
    let probe = gated.check();
    settle().await;
    drop(gated.limiter.check("ada").start());
    gated.gate.add_permits(2);
    settle().await;
    assert!(probe.await.unwrap().unwrap().is_allowed());
    assert_eq!(answer(gated.direct.peek("ada")).remaining(), 0, "what is asked is done, polled or not");
}

#[tokio::test]
async fn a_refusal_that_was_on_its_way_when_the_key_was_reset_is_not_kept() {
    let gated = Gated::new("1/min");
    assert!(answer(gated.direct.check("ada")).is_allowed());
    let refused = gated.check();
    settle().await;
    let _ = gated.limiter.reset("ada").await.unwrap();
    gated.gate.add_permits(1);
    assert!(!refused.await.unwrap().unwrap().is_allowed());
    gated.gate.add_permits(1);
    assert!(gated.limiter.check("ada").await.unwrap().is_allowed());
}

#[tokio::test]
async fn nor_is_it_if_so_many_keys_are_reset_after_that_one_that_it_is_forgotten() {
    let gated = Gated::with_keys("1/min", 1);
    assert!(answer(gated.direct.check("ada")).is_allowed());
    let refused = gated.check();
    settle().await;
    let _ = gated.limiter.reset("ada").await.unwrap();
    for other in 0_u64..200 {
        let _ = gated.limiter.reset(other).await.unwrap();
    }
    gated.gate.add_permits(1);
    assert!(!refused.await.unwrap().unwrap().is_allowed());
    gated.gate.add_permits(2);
    assert!(gated.limiter.check("ada").await.unwrap().is_allowed());
    assert!(!gated.limiter.check("ada").await.unwrap().is_allowed());
    let refused = gated.limiter.check("ada").await.unwrap();
    assert_eq!(refused.decided_by(), DecidedBy::Cache, "what is asked for later is kept");
}

#[tokio::test]
async fn refusals_that_are_on_their_way_when_other_keys_are_reset_are_kept() {
    let gated = Gated::new("1/min");
    let keys = 0_u64..40;
    let mut refused = Vec::new();
    for key in keys.clone() {
        assert!(answer(gated.direct.check(key)).is_allowed());
        refused.push(tokio::spawn(gated.limiter.check(key).start()));
    }
    settle().await;
    for other in 1_000_u64..2_000 {
        let _ = gated.limiter.reset(other).await.unwrap();
    }
    // Also for those that are not kept.
    gated.gate.add_permits(80);
    assert_eq!(allowed(refused).await, 0);
    for key in keys {
        let refused = gated.limiter.check(key).await.unwrap();
        assert_eq!(refused.decided_by(), DecidedBy::Cache, "{key}");
    }
}

#[tokio::test]
async fn a_probe_of_one_key_keeps_nobody_else_waiting() {
    let gated = Gated::refused("1/min").await;
    gated.clock.advance(Duration::from_secs(1));
    let probe = gated.check();
    settle().await;
    let other = tokio::spawn(gated.limiter.check("eve").start());
    settle().await;
    assert_eq!(gated.calls(), 3);
    gated.gate.add_permits(2);
    assert!(other.await.unwrap().unwrap().is_allowed());
    assert!(!probe.await.unwrap().unwrap().is_allowed());
}
