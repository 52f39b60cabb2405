//! Whatever instances lease, refund, reset and lose: never more is admitted than one store alone would admit.

use std::time::Duration;

use proptest::prelude::*;
use sluicegate_core::clock::Clock;
use sluicegate_core::limiter::Receipt;
use sluicegate_core::{Algorithm, Policy, RateLimiter};
use sluicegate_fleet::leased::{Batch, Leased};
use sluicegate_tests::memory::{answer, store};

use super::Slow;

/// What an instance does next.
#[derive(Clone, Debug)]
enum Step {
    /// So many requests in a row, of this cost.
    Spend {
        instance: usize,
        times: u64,
        cost: u64,
    },
    Refund {
        instance: usize,
    },
    Charge {
        instance: usize,
        cost: u64,
    },
    Wait {
        us: u64,
    },
    /// The instance is closed, and another one takes its place; or it dies.
    Restart {
        instance: usize,
        closes: bool,
    },
}

const INSTANCES: usize = 3;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..INSTANCES, 1..12_u64, 1..4_u64).prop_map(|(instance, times, cost)| Step::Spend { instance, times, cost }),
        2 => (0..INSTANCES).prop_map(|instance| Step::Refund { instance }),
        1 => (0..INSTANCES, 1..20_u64).prop_map(|(instance, cost)| Step::Charge { instance, cost }),
        6 => prop_oneof![0..2_000_u64, 0..200_000_u64, 0..1_500_000_u64].prop_map(|us| Step::Wait { us }),
        1 => (0..INSTANCES, any::<bool>()).prop_map(|(instance, closes)| Step::Restart { instance, closes }),
    ];
    prop::collection::vec(step, 1..120)
}

/// What was admitted, and when; what was given back is not.
struct Played {
    admitted: Vec<(u64, u64)>,
    local: u64,
}

fn play(policy: &Policy, steps: &[Step]) -> Played {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (memory, clock) = store();
    let instance = |slow: bool| {
        let builder = Leased::builder(&memory).batch(Batch::new().share(40));
        let store = match slow {
            true => builder.clock(Slow(clock.clone())).build(),
            false => builder.clock(clock.clone()).build(),
        }
        .unwrap();
        let limiter = RateLimiter::new(&store, policy.clone()).unwrap();
        (store, limiter)
    };
    let mut instances: Vec<_> = (0..INSTANCES).map(|index| instance(index == 0)).collect();
    let (mut admitted, mut receipts) = (Vec::new(), Vec::<(usize, Receipt)>::new());
    let mut local = 0;
    for step in steps {
        match *step {
            Step::Spend { instance, times, cost } => {
                for _ in 0..times {
                    let mut decision = answer(instances[instance].1.check("ada").cost(cost));
                    if decision.is_allowed() {
                        receipts.push((admitted.len(), decision.take_receipt(0).unwrap()));
                        admitted.push((clock.now_us(), cost));
                    }
                }
            }
            Step::Refund { instance } => {
                if let Some((index, mut receipt)) = receipts.pop() {
                    let cost = receipt.cost();
                    drop(answer(instances[instance].1.refund("ada", cost).of(&mut receipt)));
                    admitted[index].1 = 0;
                }
            }
            Step::Charge { instance, cost } => drop(answer(instances[instance].1.charge("ada", cost))),
            Step::Wait { us } => clock.advance(Duration::from_micros(us)),
            Step::Restart { instance: index, closes } => {
                let new = instance(index == 0);
                let (store, _) = std::mem::replace(&mut instances[index], new);
                if closes {
                    runtime.block_on(store.close(Duration::from_secs(1))).unwrap();
                }
                local += store.status().local;
            }
        }
    }
    local += instances.iter().map(|(store, _)| store.status().local).sum::<u64>();
    Played { admitted, local }
}

/// In no span more than the burst, and what has drained in it.
fn keeps_bucket(admitted: &[(u64, u64)], burst: u64, limit: u64, period_us: u64) {
    for (first, (begin_us, _)) in admitted.iter().enumerate() {
        let mut units = 0;
        for (end_us, cost) in &admitted[first..] {
            units += cost;
            let most = burst + (end_us - begin_us) * limit / period_us;
            assert!(units <= most, "{units} of {most} units from {begin_us} to {end_us}");
        }
    }
}

fn keeps_windows(admitted: &[(u64, u64)], limit: u64, period_us: u64) {
    for (at_us, _) in admitted {
        let own = admitted.iter().filter(|(other, _)| other / period_us == at_us / period_us);
        assert!(own.map(|(_, cost)| cost).sum::<u64>() <= limit);
    }
}

/// At each moment the share of the window before, and all of this one.
fn keeps_counter(admitted: &[(u64, u64)], limit: u64, period_us: u64) {
    for (last, (at_us, _)) in admitted.iter().enumerate() {
        let window = at_us / period_us;
        let of = |window: u64| {
            let own = admitted[..=last].iter().filter(move |(other, _)| other / period_us == window);
            own.map(|(_, cost)| cost).sum::<u64>()
        };
        let share = of(window - 1) * (period_us - at_us % period_us) / period_us;
        assert!(share + of(window) <= limit);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn instances_with_leases_admit_no_more_than_a_bucket(steps in steps(), refunds in any::<bool>()) {
        for (quota, burst, limit, period_us) in
            [("50/s", 50, 50, 1_000_000), ("20/s burst 60", 60, 20, 1_000_000), ("7/100ms burst 30", 30, 7, 100_000)]
        {
            let policy = Policy::gcra("api", quota);
            let policy = if refunds { policy.refunds() } else { policy }.build().unwrap();
            keeps_bucket(&play(&policy, &steps).admitted, burst, limit, period_us);
        }
    }

    #[test]
    fn instances_with_leases_admit_no_more_than_windows(steps in steps()) {
        let policy = Policy::fixed_window("api", "60/s").build().unwrap();
        keeps_windows(&play(&policy, &steps).admitted, 60, 1_000_000);
        let policy = Policy::sliding_counter("api", "60/s").build().unwrap();
        keeps_counter(&play(&policy, &steps).admitted, 60, 1_000_000);
    }

    #[test]
    fn instances_with_leases_admit_no_more_than_each_of_several_quotas(steps in steps()) {
        let policy = Policy::gcra("api", "50/s").and("200/10s").build().unwrap();
        let played = play(&policy, &steps);
        keeps_bucket(&played.admitted, 50, 50, 1_000_000);
        keeps_bucket(&played.admitted, 200, 200, 10_000_000);
    }
}

#[test]
fn traces_as_these_are_decided_here_for_a_good_part() {
    let spends = |instance| [Step::Spend { instance, times: 3, cost: 1 }, Step::Wait { us: 100_000 }];
    let steps: Vec<Step> = (0..200).flat_map(|step| spends(step % INSTANCES)).collect();
    for algorithm in [Algorithm::Gcra, Algorithm::SlidingCounter] {
        let policy = Policy::builder("api", algorithm, "50/s").build().unwrap();
        let Played { admitted, local } = play(&policy, &steps);
        assert!(local * 2 > admitted.len() as u64, "{algorithm}: {local} of {}", admitted.len());
    }
}
