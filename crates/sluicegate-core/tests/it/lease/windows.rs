//! In windows a leased unit counts where it was leased, so it is spent in the same window, and needs no floor.

use sluicegate_core::algorithm::{Algorithm, Anchor, Refill};
use sluicegate_core::clock::Clock;
use sluicegate_core::limiter::Receipt;
use sluicegate_core::{Policy, Quota};
use sluicegate_tests::random::Random;

use super::scene::Scene;
use crate::support::us;

const TRACES: u64 = 150;
const STEPS: usize = 80;
const LIMIT: u64 = 6;
const PERIOD_US: u64 = 1_000;

/// A lease that is out: the moments at which its units are over, the next one last.
struct Lease {
    receipt: Receipt,
    ends_us: Vec<u64>,
    is_late: bool,
}

/// When units were admitted in a random trace, with leases that are spent as late as they may be, refunds and returns.
fn admitted(policy: sluicegate_core::policy::PolicyBuilder, random: &mut Random) -> Vec<(u64, u64)> {
    let scene = Scene::of(policy);
    let (mut leases, mut spends): (Vec<Lease>, Vec<(Receipt, usize)>) = (Vec::new(), Vec::new());
    let mut admitted = Vec::new();
    for _ in 0..STEPS {
        match random.below(9) {
            0..=2 => scene.clock.advance(us(random.below(PERIOD_US / 2))),
            3..=5 => {
                let cost = 1 + random.below(2);
                let (spent, lease) = scene.refill(cost, random.below(LIMIT));
                if let Some(spent) = spent {
                    spends.push((spent, admitted.len()));
                    admitted.push((scene.now_us(), cost));
                }
                if let Some(receipt) = lease {
                    let ends_us = scene.ends(&receipt).into_iter().rev().collect();
                    leases.push(Lease { receipt, ends_us, is_late: random.below(2) == 0 });
                }
            }
            6 if !spends.is_empty() => {
                let (receipt, place) = spends.swap_remove(random.index(spends.len()));
                scene.refund(&receipt, 1);
                admitted[place].1 -= 1;
            }
            7 if !leases.is_empty() => {
                let lease = leases.swap_remove(random.index(leases.len()));
                scene.refund(&lease.receipt, lease.ends_us.len() as u64);
            }
            8 if !leases.is_empty() => {
                let place = random.index(leases.len());
                admitted.extend(leases[place].ends_us.pop().map(|_| (scene.now_us(), 1)));
            }
            _ => {}
        }
        let now_us = scene.clock.now_us();
        for lease in &mut leases {
            while let Some(end_us) = lease.ends_us.pop_if(|end_us| *end_us < now_us) {
                admitted.extend(lease.is_late.then_some((end_us, 1)));
            }
        }
    }
    admitted.extend(leases.into_iter().flat_map(|lease| lease.ends_us).map(|end_us| (end_us, 1)));
    admitted.sort_unstable();
    admitted
}

fn each_trace(algorithm: Algorithm, burst: u64, check: impl Fn(u64, &[(u64, u64)])) {
    for seed in 0..TRACES {
        let mut random = Random::new(seed);
        let quota = Quota::new(LIMIT, us(PERIOD_US));
        let quota = if burst == LIMIT { quota } else { quota.burst(burst) };
        let policy = Policy::builder("p", algorithm, quota);
        let policy = if random.below(2) == 0 { policy.refunds() } else { policy };
        check(seed, &admitted(policy, &mut random));
    }
}

/// The most that any span lets pass, if that depends on how many borders it crosses.
fn in_spans(all: &[(u64, u64)], is_kept: impl Fn(u64, u64, u64) -> bool) -> bool {
    (0..all.len()).all(|first| {
        let mut sum = 0;
        all[first..].iter().all(|(at_us, units)| {
            sum += units;
            is_kept(all[first].0, *at_us, sum)
        })
    })
}

#[test]
fn no_window_sees_more_than_its_limit() {
    for algorithm in [Algorithm::FixedWindow(Anchor::Epoch), Algorithm::SlidingCounter] {
        each_trace(algorithm, LIMIT, |seed, all| {
            for window in all.chunk_by(|one, other| one.0 / PERIOD_US == other.0 / PERIOD_US) {
                let sum: u64 = window.iter().map(|(_, units)| units).sum();
                assert!(sum <= LIMIT, "{algorithm}, seed {seed}: {sum} at {}", window[0].0);
            }
        });
    }
}

#[test]
fn no_span_sees_more_than_the_burst_and_what_its_borders_give() {
    let aligned = Algorithm::TokenBucket(Refill::AlignedInterval);
    each_trace(aligned, 2 * LIMIT, |seed, all| {
        let is_kept = |from_us: u64, to_us: u64, sum| {
            sum <= 2 * LIMIT + (to_us / PERIOD_US - from_us / PERIOD_US) * LIMIT
        };
        assert!(in_spans(all, is_kept), "seed {seed}");
    });
    for (algorithm, burst) in [
        (Algorithm::FixedWindow(Anchor::FirstHit), LIMIT),
        (Algorithm::TokenBucket(Refill::Interval), 2 * LIMIT),
    ] {
        each_trace(algorithm, burst, |seed, all| {
            let is_kept =
                |from_us: u64, to_us: u64, sum| sum <= burst + ((to_us - from_us) / PERIOD_US + 1) * LIMIT;
            assert!(in_spans(all, is_kept), "{algorithm}, seed {seed}");
        });
    }
}
