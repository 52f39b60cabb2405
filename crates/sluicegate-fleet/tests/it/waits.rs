//! What a refusal says is true through every order of stores: a client that waits as long, and is alone meanwhile, passes.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::clock::ManualClock;
use sluicegate_core::policy::{Policy, PolicyBuilder};
use sluicegate_core::{Algorithm, Quota, RateLimiter, Store};
use sluicegate_fleet::{DenyCache, Leased, Sharded};
use sluicegate_resilient::Resilient;
use sluicegate_tests::memory::{answer, store_on};
use sluicegate_tests::random::Random;
use sluicegate_tests::time::on_the_hour;

/// From inside out; an order is a bit for each.
const PLACES: [&str; 4] = ["Sharded", "Resilient", "Leased", "DenyCache"];

fn around(within: Arc<dyn Store>, order: u32, clock: &ManualClock) -> Arc<dyn Store> {
    let has = |place: &str| PLACES.iter().position(|of| *of == place).is_some_and(|at| order >> at & 1 == 1);
    let mut store = within;
    if has("Sharded") {
        store = Sharded::builder(store, 2).above(1).build().unwrap().into();
    }
    if has("Resilient") {
        store = Resilient::builder(store).clock(clock.clone()).build().unwrap().into();
    }
    if has("Leased") {
        store = Leased::builder(store).clock(clock.clone()).build().unwrap().into();
    }
    if has("DenyCache") {
        store = DenyCache::builder(store).clock(clock.clone()).build().unwrap().into();
    }
    store
}

/// Three instances, of which many ask at once and then one client at a time, by turns. Says how many waits were told, and how many of them
/// did not suffice.
fn told(order: u32, policy: &PolicyBuilder, limit: u64, seed: u64) -> [u64; 2] {
    let (clock, mut random, mut counts) = (on_the_hour(), Random::new(seed), [0; 2]);
    let memory: Arc<dyn Store> = store_on(clock.clone()).into();
    let instances: [RateLimiter; 3] =
        std::array::from_fn(|_| policy.clone().on(around(Arc::clone(&memory), order, &clock)).unwrap());
    let check = |random: &mut Random| answer(instances[random.index(3)].check("ada"));
    let spacing_us =
        u64::try_from(instances[0].policy().quotas()[0].quota().period().as_micros()).unwrap() / limit;
    let on =
        |random: &mut Random, most_us: u64| clock.advance(Duration::from_micros(random.below(most_us + 1)));
    for round in 0..6 {
        for _ in 0..if round == 0 { limit * 3 } else { limit / 2 } {
            let _ = check(&mut random);
            on(&mut random, spacing_us);
        }
        for _ in 0..10 {
            let refused = check(&mut random);
            if let Some(wait) = refused.retry_after() {
                clock.advance(wait);
                counts[0] += 1;
                counts[1] += u64::from(!check(&mut random).is_allowed());
            }
            on(&mut random, spacing_us / 4);
        }
    }
    counts
}

/// Once the cache around leases refused for longer than the store's answer had said: of 46 waits, 18 did not suffice.
#[test]
fn who_waits_as_long_as_a_refusal_says_and_is_alone_passes_through_every_order() {
    let (mut all, mut failed) = (0, Vec::new());
    let second = |place: usize| Algorithm::ALL[(place + 4) % Algorithm::ALL.len()];
    for (place, algorithm) in Algorithm::ALL.into_iter().enumerate() {
        for (limit, period, is_mixed) in [(100, "s", false), (40, "2s", false), (40, "2s", true)] {
            let policy = Policy::builder("api", algorithm, format!("{limit}/{period}").as_str());
            let mixed = policy.clone().and(Quota::new(60, Duration::from_secs(3)).counted_by(second(place)));
            // A queue has one quota.
            let policy = if is_mixed && mixed.clone().build().is_ok() { mixed } else { policy };
            for order in 0..1 << PLACES.len() {
                let counts = told(order, &policy, limit, order.into());
                all += counts[0];
                if counts[1] > 0 {
                    let places: Vec<_> =
                        (0..PLACES.len()).filter(|at| order >> at & 1 == 1).map(|at| PLACES[at]).collect();
                    let policy = policy.clone().build().unwrap();
                    failed.push(format!("{policy} {places:?}: {counts:?}"));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}, {all}:\n{}", failed.len(), failed.join("\n"));
    assert!(all > 10_000, "{all}");
}
