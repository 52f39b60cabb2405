use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_tests::random::Random;

use crate::clock::ManualClock;
use crate::policy::{OnFull, PolicyBuilder};
use crate::receipt::{Receipt, Trace};
use crate::store::{Ask, Mode, PreparedPolicy};
use crate::{Algorithm, Decision, Key, MemoryStore, Outcome, Policy, Quota, RateLimiter, Store};

fn policy(name: usize, random: &mut Random) -> Policy {
    builder(name, random).build().unwrap()
}

fn builder(name: usize, random: &mut Random) -> PolicyBuilder {
    let any = |random: &mut Random| {
        Algorithm::ALL[usize::try_from(random.below(Algorithm::ALL.len() as u64)).unwrap()]
    };
    let algorithm = any(random);
    let quota =
        |random: &mut Random| Quota::new(2 + random.below(5), Duration::from_secs(1 + random.below(60)));
    let mut builder = Policy::builder(format!("p{name}"), algorithm, quota(random));
    let is_queue = |builder: &PolicyBuilder| builder.clone().build().unwrap().quotas()[0].rule().is_queue();
    if random.below(3) == 0 && !is_queue(&builder) {
        // Half of the quotas use any algorithm.
        let own = if random.below(2) == 0 { algorithm } else { any(random) };
        let second = quota(random).counted_by(own);
        if !is_queue(&Policy::builder("second", own, second)) {
            builder = builder.and(second).named("second");
        }
    }
    let builder = if random.below(3) == 0 { builder.count_rejected() } else { builder };
    let builder = if random.below(3) == 0 { builder.refunds() } else { builder };
    if random.below(4) == 0 { builder.on_full(OnFull::Inherit) } else { builder }
}

/// The fast ways decide as the general one: for several limits and quotas, windows, queues and logs, keys
/// that are full, reserved turns, and one policy asked twice.
#[test]
fn every_way_decides_as_the_general_one_does() {
    for seed in 0..60 {
        let (mut random, clock) = (Random::new(seed), ManualClock::new());
        clock.set(Duration::from_secs(1_800_000_000));
        let store = || MemoryStore::builder().table_size(64).clock(clock.clone()).build().unwrap();
        let stores = [store(), store()];
        let policies: Vec<Policy> = (0..3).map(|name| policy(name, &mut random)).collect();
        let opened = stores.each_ref().map(|store| {
            let open = |policy: &Policy| store.0.open(Arc::new(policy.clone()), None).unwrap();
            policies.iter().map(open).collect::<Vec<PreparedPolicy>>()
        });
        for step in 0..200 {
            let asked: Vec<_> = (0..=random.below(3))
                .map(|_| {
                    let mode = match random.below(10) {
                        0 | 1 => Mode::Peek,
                        2 => Mode::Reserve { longest: Duration::from_secs(random.below(60)) },
                        3 => Mode::Charge,
                        _ => Mode::Spend,
                    };
                    let cost = [1, 1, 1, 2, 9][usize::try_from(random.below(5)).unwrap()];
                    (usize::try_from(random.below(3)).unwrap(), Key::from(random.below(2)), cost, mode)
                })
                .collect();
            let mut asks = [Vec::new(), Vec::new()];
            for (policy, key, cost, mode) in &asked {
                for (asks, opened) in asks.iter_mut().zip(&opened) {
                    asks.push(Ask::new(&opened[*policy], key.as_ref(), *cost, *mode));
                }
            }
            let short = stores[0].0.decide(&asks[0]).now().unwrap().unwrap();
            let general = stores[1].0.decide_all(&asks[1]).unwrap();
            let told = [short, general].map(|decision| told(decision, asked.len()));
            assert_eq!(told[0], told[1], "seed {seed}, step {step}: {asked:?} of {policies:?}");
            clock.advance(Duration::from_millis(
                [0, 0, 1, 700, 5_000][usize::try_from(random.below(5)).unwrap()],
            ));
        }
    }
}

/// All results of a decision about this number of asks, with its receipts.
fn told(mut decision: Decision, asks: usize) -> impl PartialEq + Debug {
    let receipts = (0..asks).map(|ask| decision.take_receipt(ask));
    // The numbers of births differ if one of the two tries out more than the other.
    let named = |trace: &Trace| Trace { birth: (trace.birth & 0xffff_ffff).min(1), ..*trace };
    let traces = |receipt: Receipt| [0, 1].map(|quota| receipt.trace(quota).map(named));
    let receipts: Vec<_> = receipts.map(|receipt| receipt.map(traces)).collect();
    let quotas = decision.quotas().to_vec();
    (decision.outcome(), decision.delay(), decision.at_us(), quotas, receipts)
}

/// A limiter decides one key without an ask: under windows, queues and logs, with refusals that count, with refunds,
/// and while turns are reserved.
#[test]
fn the_short_way_of_a_limiter_decides_as_the_general_one_does() {
    for seed in 0..60 {
        let (mut random, clock) = (Random::new(seed), ManualClock::new());
        clock.set(Duration::from_secs(1_800_000_000));
        let policy = builder(0, &mut random);
        let waits = if random.below(2) == 0 { Some(Duration::from_secs(random.below(60))) } else { None };
        let policy = waits
            .map_or_else(|| policy.clone(), |longest| policy.clone().wait_up_to(longest))
            .build()
            .unwrap();
        let [store, other] =
            [(); 2].map(|()| MemoryStore::builder().table_size(64).clock(clock.clone()).build().unwrap());
        let limiter = RateLimiter::new(store, policy.clone()).unwrap();
        let opened = other.0.open(Arc::new(policy.clone()), None).unwrap();
        for step in 0..200 {
            let (key, cost) =
                (Key::from(random.below(2)), [1, 1, 1, 0, 2, 9][usize::try_from(random.below(6)).unwrap()]);
            let longest = Duration::from_secs(random.below(60));
            let (mode, short) = match random.below(8) {
                0 => (Mode::Reserve { longest }, limiter.check(&key).cost(cost).reserve(longest).start()),
                1 => (Mode::Charge, limiter.charge(&key, cost).start()),
                _ => (opened.spends(), limiter.check(&key).cost(cost).start()),
            };
            let short = short.now().unwrap().unwrap();
            let general = other.0.decide_all(&[Ask::new(&opened, key.as_ref(), cost, mode)]).unwrap();
            let told = [short, general].map(|decision| told(decision, 1));
            assert_eq!(told[0], told[1], "seed {seed}, step {step}: {mode:?} of {cost} by {policy:?}");
            clock.advance(Duration::from_millis(
                [0, 0, 1, 700, 5_000][usize::try_from(random.below(5)).unwrap()],
            ));
        }
    }
}

/// A policy that suspends keys takes the fast path while no key is suspended: refusals there count, and a key that is suspended, by
/// refusals or by hand, is refused at once.
#[test]
fn the_short_way_beside_suspensions_decides_as_asks_do() {
    let mut outcomes = [0; 3];
    for seed in 0..60 {
        let (mut random, clock) = (Random::new(seed), ManualClock::new());
        clock.set(Duration::from_secs(1_800_000_000));
        let (most, within, first) = (1 + random.below(3), 5 + random.below(60), 1 + random.below(30));
        let policy = builder(0, &mut random);
        let policy =
            policy.suspend(most, Duration::from_secs(within), Duration::from_secs(first)).build().unwrap();
        let [short, asked] = [(); 2].map(|()| {
            let store = MemoryStore::builder().table_size(64).clock(clock.clone()).build().unwrap();
            RateLimiter::new(store, policy.clone()).unwrap()
        });
        for step in 0..200 {
            let (key, cost) =
                (Key::from(random.below(2)), [1, 1, 1, 0, 2, 9][usize::try_from(random.below(6)).unwrap()]);
            if random.below(40) == 0 {
                let lasts = Duration::from_secs(random.below(20));
                drop([&short, &asked].map(|limiter| limiter.suspensions().suspend(&key, lasts)));
            }
            let decisions = [short.check(&key).cost(cost), asked.check(&key).cost(cost).mode(Mode::Spend)];
            let [short, asked] = decisions.map(|decision| {
                let decision = decision.now().unwrap().unwrap();
                (decision.outcome(), decision.retry_after(), decision.at_us(), decision.quotas().to_vec())
            });
            assert_eq!(short, asked, "seed {seed}, step {step}: {cost} by {policy:?}");
            match short.0 {
                Outcome::Allowed => outcomes[0] += 1,
                Outcome::Suspended => outcomes[1] += 1,
                _ => outcomes[2] += 1,
            }
            clock.advance(Duration::from_millis(
                [0, 0, 1, 700, 5_000, 60_000][usize::try_from(random.below(6)).unwrap()],
            ));
        }
    }
    assert!(outcomes.iter().all(|count| *count > 500), "{outcomes:?}");
}
