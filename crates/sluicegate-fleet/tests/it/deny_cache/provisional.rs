//! Answers that may be others in a moment: units that requests hold which are not decided yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sluicegate_core::limiter::check_all;
use sluicegate_core::store::{Ask, DecidedBy, DecisionFuture, QuotaStatus, judge};
use sluicegate_core::wrap::Within;
use sluicegate_core::{Decision, Key, MemoryStore, Policy, RateLimiter, Store};
use sluicegate_fleet::{DenyCache, Leased, Sharded};
use sluicegate_tests::around::around;
use sluicegate_tests::memory::{answer, store_on};
use sluicegate_tests::time::on_the_hour;

/// A store in memory of whose quotas with so many units others hold some, as long as it is said.
struct Held {
    memory: MemoryStore,
    store: Arc<dyn Store>,
    capacity: Arc<AtomicU64>,
    is_held: Arc<AtomicBool>,
}

impl Held {
    fn new(capacity: u64) -> Self {
        let memory = store_on(on_the_hour());
        let (capacity, is_held) = (Arc::new(AtomicU64::new(capacity)), Arc::new(AtomicBool::new(true)));
        let (of, held) = (Arc::clone(&capacity), Arc::clone(&is_held));
        let store = around(&memory, move |within: &Within, asks: &[Ask<'_>]| {
            // Relaxed, here and below: one thread.
            if !held.load(Ordering::Relaxed) {
                return within.decide(asks);
            }
            let decision = within.decide(asks).now().expect("memory answers at once");
            let capacity = of.load(Ordering::Relaxed);
            DecisionFuture::ready(decision.map(|it| provisional(it, capacity)))
        });
        Self { memory, store, capacity, is_held }
    }

    fn cache(&self) -> DenyCache {
        DenyCache::new(Arc::clone(&self.store))
    }

    /// They are given back: all of what a policy has spent of a key.
    fn give_back(&self, policy: &Policy, key: &str) {
        let elsewhere = RateLimiter::new(&self.memory, policy.clone()).unwrap();
        _ = answer(elsewhere.reset(key));
    }
}

fn provisional(decision: Decision, capacity: u64) -> Decision {
    let stated = |status: &QuotaStatus| match status.capacity() == capacity {
        true => status.provisional(),
        false => *status,
    };
    judge(decision.at_us(), 0, decision.quotas().iter().map(stated).collect::<Vec<_>>())
        .by(decision.decided_by())
}

fn policy(name: &str, limit: &str) -> Policy {
    Policy::gcra(name, limit).build().unwrap()
}

/// Once such a refusal was kept for two seconds, though the units came back within milliseconds.
#[test]
fn a_provisional_refusal_is_not_kept_however_it_was_asked_for() {
    type Asks = fn(&RateLimiter) -> Decision;
    let ways: [Asks; 3] = [
        |api| answer(api.check("ada")),
        |api| answer(api.check("ada").up_to(3)),
        |api| answer(check_all([api.check(&Key::from("ada")), api.check(&Key::from("eve"))])),
    ];
    for (place, way) in ways.into_iter().enumerate() {
        let held = Held::new(1);
        let of = policy("api", "1/h");
        let api = RateLimiter::new(held.cache(), of.clone()).unwrap();
        assert!(answer(api.check("ada")).is_allowed());
        assert_eq!(
            answer(api.check("ada")).decided_by(),
            DecidedBy::Store,
            "its last unit is provisional, too"
        );
        assert!(!way(&api).is_allowed(), "way {place}");
        held.give_back(&of, "ada");
        let again = way(&api);
        assert!(again.is_allowed() && again.decided_by() == DecidedBy::Store, "way {place}: {again:?}");
    }
}

#[test]
fn a_refusal_is_kept_again_when_nobody_holds_units_any_more() {
    let held = Held::new(1);
    let api = RateLimiter::new(held.cache(), policy("api", "1/h")).unwrap();
    assert!(answer(api.check("ada")).is_allowed());
    for (is_held, by) in [
        (true, DecidedBy::Store),
        (false, DecidedBy::Store),
        (false, DecidedBy::Cache),
        (true, DecidedBy::Cache),
    ] {
        held.is_held.store(is_held, Ordering::Relaxed);
        let refused = answer(api.check("ada"));
        assert_eq!((refused.is_allowed(), refused.decided_by()), (false, by));
    }
}

/// Of several quotas those are kept that nobody holds units of, and a cost that can never pass is impossible all the same.
#[test]
fn what_is_certain_is_kept_beside_it() {
    let held = Held::new(2);
    let of = Policy::gcra("api", "2/h").and("3/d").build().unwrap();
    let api = RateLimiter::new(held.cache(), of.clone()).unwrap();
    assert_eq!(answer(api.check("bob").cost(3)).decided_by(), DecidedBy::Store);
    assert_eq!(answer(api.check("bob").cost(3)).decided_by(), DecidedBy::Cache, "three never fit in two");
    assert!(answer(api.check("ada").cost(2)).is_allowed());
    assert_eq!(
        answer(api.check("ada")).decided_by(),
        DecidedBy::Store,
        "the day has one left, and the hour may have"
    );
    held.capacity.store(9, Ordering::Relaxed);
    assert_eq!(answer(api.check("ada")).decided_by(), DecidedBy::Store);
    assert_eq!(answer(api.check("ada")).decided_by(), DecidedBy::Cache);
}

/// A limit inside of a limit: the outer refuses for a moment, the inner for an hour.
#[test]
fn of_a_request_with_two_limits_only_the_certain_refusal_is_kept() {
    let held = Held::new(1);
    let cache = held.cache();
    let [outer, inner] = [policy("outer", "1/h"), policy("inner", "2/h")]
        .map(|policy| RateLimiter::new(&cache, policy).unwrap());
    let ada = Key::from("ada");
    let both = || answer(check_all([outer.check(&ada), inner.check(&ada)]));
    assert!(both().is_allowed());
    assert_eq!(both().decided_by(), DecidedBy::Store);
    assert!(answer(inner.check("ada")).is_allowed());
    let refused = both();
    assert_eq!(refused.decided_by(), DecidedBy::Cache, "the inner one is used up");
    assert_eq!(answer(outer.check("ada")).decided_by(), DecidedBy::Store);
}

#[test]
fn shards_and_leases_hand_it_on() {
    let held = Held::new(5);
    let sharded: Arc<dyn Store> =
        Sharded::builder(Arc::clone(&held.store), 2).policy("api").build().unwrap().into();
    let of = policy("api", "10/h");
    let api = RateLimiter::new(DenyCache::new(sharded), of).unwrap();
    assert!((0..2).all(|_| answer(api.check("ada").cost(5)).is_allowed()));
    for _ in 0..2 {
        let refused = answer(api.check("ada"));
        assert_eq!((refused.is_allowed(), refused.decided_by()), (false, DecidedBy::Store));
    }

    let held = Held::new(100);
    let api = RateLimiter::new(DenyCache::new(Leased::new(Arc::clone(&held.store))), policy("api", "100/h"))
        .unwrap();
    while answer(api.check("ada")).is_allowed() {}
    for _ in 0..2 {
        let refused = answer(api.check("ada"));
        assert_ne!(refused.decided_by(), DecidedBy::Cache, "{refused:?}");
    }
}
