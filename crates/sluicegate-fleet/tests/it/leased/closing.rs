//! The end of a process that holds units.

use std::time::Duration;

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{Policy, Store};
use sluicegate_fleet::leased::Leased;
use sluicegate_tests::around::{Fault, remote};
use sluicegate_tests::memory::answer;
use std::sync::Arc;

use super::{Scene, lease};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn another_instance_can_spend_what_was_held_by_one_that_was_closed() {
    for (name, policy) in [
        ("gcra", Policy::gcra("gcra", "1000/min")),
        ("fixed-window", Policy::fixed_window("fixed-window", "1000/min")),
        ("sliding-counter", Policy::sliding_counter("sliding-counter", "1000/min")),
    ] {
        let scene = Scene::new();
        let plain = policy.clone().on(&scene.memory).unwrap();
        let limiter = scene.limiter(policy);
        lease(&limiter, "ada");
        let held = scene.store.status().held;
        let before = answer(plain.peek("ada")).remaining();
        scene.store.close(SECOND).await.unwrap();
        assert_eq!(answer(plain.peek("ada")).remaining(), before + held, "{name}");
        let status = scene.store.status();
        assert_eq!((status.held, status.returned), (0, held), "{name}");
        // A second time there is nothing.
        scene.store.close(SECOND).await.unwrap();
        assert_eq!(answer(plain.peek("ada")).remaining(), before + held, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_leased_once_it_is_closed() {
    let scene = Scene::new();
    let limiter = scene.limiter(Policy::gcra("api", "1000/min"));
    lease(&limiter, "ada");
    scene.store.close(SECOND).await.unwrap();
    for _ in 0..100 {
        assert_eq!(answer(limiter.check("ada")).decided_by(), DecidedBy::Store);
    }
    assert_eq!(scene.store.status().held, 0);
}

#[tokio::test(start_paused = true)]
async fn units_that_have_ended_are_not_given_back() {
    let scene = Scene::new();
    let limiter = scene.limiter(Policy::fixed_window("api", "1000/min"));
    lease(&limiter, "ada");
    scene.clock.advance(Duration::from_secs(60));
    assert!(answer(limiter.check("ada")).is_allowed());
    scene.store.close(SECOND).await.unwrap();
    assert_eq!(scene.store.status().returned, 0);
    assert_eq!(answer(limiter.peek("ada")).remaining(), 999);
}

#[tokio::test(start_paused = true)]
async fn a_return_without_an_answer_is_counted_and_not_repeated() {
    let (memory, clock) = sluicegate_tests::memory::store();
    let fault = Fault::default();
    let store = Leased::builder(remote(&memory, &fault)).clock(clock.clone()).build().unwrap();
    let limiter = Policy::fixed_window("api", "1000/h").on(&store).unwrap();
    for _ in 0..5 {
        let _ = limiter.check("ada").await.unwrap();
    }
    tokio::task::yield_now().await;
    let held = store.status().held;
    assert!(held > 0);
    fault.set(Some(StoreErrorKind::Timeout));
    let unreturned = store.close(SECOND).await.unwrap_err();
    assert_eq!(unreturned.units(), held);
    assert!(unreturned.to_string().contains("leased unit"), "{unreturned}");
    fault.set(None);
    store.close(SECOND).await.unwrap();
    // It had arrived.
    let plain = Policy::fixed_window("api", "1000/h").on(Arc::clone(&store_of(&memory))).unwrap();
    assert_eq!(answer(plain.peek("ada")).remaining(), 995);
}

fn store_of(memory: &sluicegate_core::MemoryStore) -> Arc<dyn Store> {
    memory.into()
}
