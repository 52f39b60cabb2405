//! Settings, order and numbers.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::{MemoryStore, Policy, Store};
use sluicegate_fleet::DenyCache;
use sluicegate_tests::memory::answer;

use super::Scene;

#[test]
fn settings_out_of_range_are_named() {
    let builder = || DenyCache::builder(MemoryStore::new());
    for (builder, named) in [
        (builder().longest(Duration::ZERO), "0ns"),
        (builder().longest(Duration::from_millis(5_001)), "5.001s"),
        (builder().keys(0), "0 keys"),
        (builder().keys(usize::MAX), "18446744073709551615 keys"),
    ] {
        let error = builder.build().unwrap_err();
        assert!(error.kind() == ConfigErrorKind::Store && error.to_string().contains(named), "{error}");
    }
}

#[test]
fn a_full_cache_forgets_what_ends_soonest() {
    let scene = Scene::with(|builder| builder.keys(2));
    let limiter = Policy::gcra("api", "1/min").on(&scene.cache).unwrap();
    for key in ["a", "b", "c"] {
        assert!(answer(limiter.check(key)).is_allowed());
        scene.advance_ms(1);
    }
    let status = scene.cache.status();
    assert_eq!((status.keys, status.slots, status.evictions), (2, 2, 1));
    for key in ["c", "b"] {
        assert!(!answer(limiter.check(key)).is_allowed());
    }
    assert_eq!(scene.calls(), 3, "they are known");
    assert!(!answer(limiter.check("a")).is_allowed());
    assert_eq!(scene.calls(), 4, "it had to make room");
}

#[test]
fn its_numbers_are_part_of_the_status_of_its_store() {
    let scene = Scene::new();
    let store: Arc<dyn Store> = (&scene.cache).into();
    let limiter = Policy::gcra("api", "1/min").on(Arc::clone(&store)).unwrap();
    for _ in 0..10 {
        _ = answer(limiter.check("ada"));
    }
    let status = store.status().deny_cache.unwrap();
    assert_eq!((status.asked, status.refused, status.keys), (1, 9, 1));
}
