//! The order of stores around stores: each around each of them, and all of them together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::{ConfigError, MemoryStore, Policy, Store};
use sluicegate_fleet::leased::Leased;
use sluicegate_fleet::{DenyCache, Regional, Sharded};
use sluicegate_observed::Observed;
use sluicegate_resilient::Resilient;
use sluicegate_tests::memory::answer;

type Around = fn(Arc<dyn Store>) -> Result<Arc<dyn Store>, ConfigError>;

/// From inside out. The first two have one place.
const ALL: [(&str, Around); 6] = [
    ("Sharded", |within| Ok(Sharded::builder(within, 2).above(1_000).build()?.into())),
    ("Regional", |within| {
        let regional = Regional::builder("eu", Arc::clone(&within), MemoryStore::new());
        Ok(regional.region("eu", 1).build()?.into())
    }),
    ("Resilient", |within| Ok(Resilient::builder(within).build()?.into())),
    ("Leased", |within| Ok(Leased::builder(within).build()?.into())),
    ("DenyCache", |within| Ok(DenyCache::builder(within).build()?.into())),
    ("Observed", |within| {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Ok(Observed::named(format!("order-{}", COUNT.fetch_add(1, Ordering::Relaxed)), within)?.into())
    }),
];

/// Whether the first may go around the second.
fn may(around: &str, within: &str) -> bool {
    let place = |name| ALL.iter().position(|(of, _)| *of == name).unwrap().max(1);
    // A region's store and the reserve may each survive outages by itself.
    place(around) > place(within) || (around, within) == ("Regional", "Resilient")
}

#[test]
fn each_store_goes_around_those_of_lower_places_only_and_says_so_when_it_is_built() {
    for (around, build) in ALL {
        for (within, build_within) in ALL {
            let built = build_within(MemoryStore::new().into()).and_then(build);
            match built {
                Ok(_) => assert!(may(around, within), "{around} around {within}"),
                Err(error) => {
                    assert!(!may(around, within), "{around} around {within}: {error}");
                    let (kind, told) = match around {
                        "Observed" => (ConfigErrorKind::NameTaken, "each decision would count twice"),
                        _ => (ConfigErrorKind::Store, "the order, from outside in, is"),
                    };
                    assert_eq!(error.kind(), kind);
                    assert!(error.to_string().contains(told), "{error}");
                }
            }
        }
    }
}

/// What is wrong further in is found as well: a store that is right where it stands hides nothing.
#[test]
fn a_store_of_a_lower_place_is_refused_behind_one_that_says_nothing_of_its_place() {
    for (around, build) in ALL {
        for (within, build_within) in ALL {
            let Ok(inner) = build_within(MemoryStore::new().into()) else { continue };
            let plain = sluicegate_tests::around::instance(&inner);
            let put = build(plain).and_then(|store| Policy::gcra("p", "100/h").on(store));
            assert_eq!(
                put.is_ok(),
                may(around, within),
                "{around} around a plain store around {within}: {put:?}"
            );
        }
    }
}

#[test]
fn all_together_in_their_order_decide() {
    let build = |store: Arc<dyn Store>, (_, build): &(&str, Around)| build(store);
    for innermost in &ALL[..2] {
        let mut stores = vec![*innermost];
        stores.extend_from_slice(&ALL[2..]);
        let store = stores.iter().try_fold(MemoryStore::new().into(), build).unwrap();
        let limiter = Policy::fixed_window("p", "3/d").on(store).unwrap();
        let passed = (0..5).filter(|_| answer(limiter.check("ada")).is_allowed()).count();
        assert_eq!(passed, 3, "{}", innermost.0);
    }
}
