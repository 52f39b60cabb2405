//! How a store is asked: calls, and what becomes of them when their caller hangs up.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_core::key::KeyRef;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::{Ask, DecisionFuture, PreparedPolicy, ShortAnswer, ShortWay};
use sluicegate_core::wrap::{Within, Wrap};
use sluicegate_core::{ConfigError, MemoryStore, Outcome, Policy, RateLimiter, Store};

use super::suspended;
use crate::support::{secs, store};

/// A store that answers a little later, as one on a network does, and counts calls.
struct Later {
    within: Within,
    calls: Arc<AtomicU32>,
    asked: Arc<Mutex<Vec<usize>>>,
    /// Whether it knows without a call which keys are at rest, as a store in memory does.
    knows: bool,
}

impl Wrap for Later {
    type Own = ();

    fn within(&self) -> &Within {
        &self.within
    }

    fn prepare(&self, _: &Arc<Policy>, _: Option<(&(), Inherit)>) -> Result<(), ConfigError> {
        Ok(())
    }

    fn ask(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.asked.lock().expect("nobody panics").push(asks.len());
        let answer = self.within.decide(asks);
        DecisionFuture::pending(async {
            tokio::task::yield_now().await;
            answer.await
        })
    }

    fn short_way(&self, _: &PreparedPolicy, within: Arc<dyn ShortWay>) -> Option<Arc<dyn ShortWay>> {
        self.knows.then(|| Arc::new(AtRest(within)) as Arc<dyn ShortWay>)
    }
}

/// Knows which keys are at rest, and has no other short way.
struct AtRest(Arc<dyn ShortWay>);

impl ShortWay for AtRest {
    fn spend(&self, _: &KeyRef<'_>, _: u64) -> Option<ShortAnswer> {
        None
    }

    fn is_at_rest(&self, key: &KeyRef<'_>) -> bool {
        self.0.is_at_rest(key)
    }
}

struct Scene {
    limiter: RateLimiter,
    calls: Arc<AtomicU32>,
    asked: Arc<Mutex<Vec<usize>>>,
    clock: ManualClock,
}

impl Scene {
    fn new() -> Self {
        Self::on_a_store_that(false)
    }

    fn on_a_store_that(knows: bool) -> Self {
        let (calls, asked) = (Arc::default(), Arc::default());
        let (memory, clock): (MemoryStore, _) = store();
        let (within, calls_of, asked_of) = (Within::new(memory), Arc::clone(&calls), Arc::clone(&asked));
        let later = Later { within, calls: calls_of, asked: asked_of, knows };
        let policy = Policy::fixed_window("api", "1/d").suspend(3, "1min", "30min");
        let limiter = policy.on(Arc::new(later) as Arc<dyn Store>).expect("the policy fits the store");
        Self { limiter, calls, asked, clock }
    }

    /// The asks of each call since the last time.
    fn asked(&self) -> Vec<usize> {
        self.calls.store(0, Ordering::Relaxed);
        std::mem::take(&mut *self.asked.lock().expect("nobody panics"))
    }
}

#[tokio::test]
async fn a_decision_is_one_call_and_a_refusal_that_counts_two_and_one_that_suspends_three() {
    let scene = Scene::new();
    let check = async || scene.limiter.check("ada").await.unwrap();
    assert!(check().await.is_allowed());
    assert_eq!(scene.asked(), [2]);
    for _ in 0..2 {
        assert_eq!(check().await.outcome(), Outcome::Denied);
        assert_eq!(scene.asked(), [2, 3]);
    }
    suspended(&check().await, secs(1_800));
    assert_eq!(scene.asked(), [2, 3, 3]);
    suspended(&check().await, secs(1_800));
    assert_eq!(scene.asked(), [2]);
}

/// Every key was looked up as long as any key was suspended, which made decisions in memory six times as slow.
#[tokio::test]
async fn only_a_key_that_was_ever_suspended_is_looked_up_in_memory() {
    let scene = Scene::on_a_store_that(true);
    let check = async |key| scene.limiter.check(key).await.unwrap();
    let suspensions = scene.limiter.suspensions();
    let _ = suspensions.suspend("eve", secs(1_800)).await.unwrap();
    scene.asked();
    assert!(check("ada").await.is_allowed());
    assert_eq!(scene.asked(), [1]);
    suspended(&check("eve").await, secs(1_800));
    assert_eq!(scene.asked(), [2]);

    // A clock that is set back finds the suspension again.
    let begun = Duration::from_micros(scene.clock.now_us());
    scene.clock.advance(secs(1_801));
    assert!(check("eve").await.is_allowed());
    assert_eq!(scene.asked(), [2]);
    scene.clock.set(begun + secs(1_740));
    suspended(&check("eve").await, secs(60));

    let _ = suspensions.release("eve").await.unwrap();
    scene.asked();
    assert_eq!(check("eve").await.outcome(), Outcome::Denied);
    assert_eq!(scene.asked(), [1, 3]);
}

#[tokio::test]
async fn a_caller_that_hangs_up_at_any_moment_does_not_evade_what_follows_its_refusal() {
    for polls in 0..6 {
        let scene = Scene::new();
        assert!(scene.limiter.check("ada").await.unwrap().is_allowed());
        for _ in 0..3 {
            let mut hangs_up = Box::pin(scene.limiter.check("ada").start());
            for _ in 0..polls {
                if hangs_up.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
            }
            drop(hangs_up);
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        }
        suspended(&scene.limiter.peek("ada").await.unwrap(), secs(1_800));
    }
}

/// With one refusal as the limit, all of them would be one too many.
#[tokio::test]
async fn refusals_at_the_same_time_suspend_a_key_once() {
    for after in [1, 3] {
        let scene = Scene::new();
        let policy = Policy::fixed_window("api", "1/d").suspend(after, "1min", "30min").build().unwrap();
        scene.limiter.replace(policy, Inherit::Spent).unwrap();
        assert!(scene.limiter.check("ada").await.unwrap().is_allowed());
        let tasks: Vec<_> = (0..40).map(|_| tokio::spawn(scene.limiter.check("ada").start())).collect();
        for task in tasks {
            assert!(!task.await.unwrap().unwrap().is_allowed());
        }
        suspended(&scene.limiter.peek("ada").await.unwrap(), secs(1_800));
    }
}
