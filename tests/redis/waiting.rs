//! Requests of four instances that wait for their turns under one policy, and leave.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate_core::algorithm::Anchor;
use sluicegate_core::{Algorithm, Policy, Quota, RateLimiter};
use sluicegate_tests::random::Random;
use sluicegate_tests::servers::deployments::standalone;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::{connected, patient};

const SPAN: Duration = Duration::from_secs(6);

/// What went, by the server's own clock, in microseconds, and its cost.
type Went = Arc<Mutex<Vec<(u64, u64)>>>;

/// A client that waits for a turn again and again, and leaves seven times out of ten.
async fn come_and_go(limiter: RateLimiter, went: Went, mut random: Random, until: Instant) {
    while Instant::now() < until {
        let (cost, patience) = (1 + random.below(2), Duration::from_millis(random.below(120)));
        let leaves = random.below(10) < 7;
        let turn = limiter.check("all").cost(cost).acquire(Duration::from_secs(1));
        let decision = tokio::select! {
            decision = turn => decision.unwrap(),
            () = sleep(patience), if leaves => continue,
        };
        if decision.is_allowed() {
            went.lock().unwrap().push((decision.spent_us(), cost));
        } else {
            sleep(patience).await;
        }
    }
}

/// Two went at one instant, over two instances, when a turn was given back that a later one depended on.
#[tokio::test(flavor = "multi_thread")]
async fn four_instances_whose_clients_wait_and_leave_never_let_more_go_than_the_policy() {
    let quota = Quota::per_second(50).burst(5);
    let window = Quota::per_second(50);
    for (name, algorithm, quota) in [
        ("gcra", Algorithm::Gcra, quota),
        ("window", Algorithm::FixedWindow(Anchor::Epoch), window),
        ("log", Algorithm::SlidingLog, window),
    ] {
        let (went, until) = (Went::default(), Instant::now() + SPAN / 3);
        let mut clients = JoinSet::new();
        for instance in 0..4_u64 {
            let store = connected(patient("leaving"), &standalone().url()).await;
            let limiter = Policy::builder(name, algorithm, quota).on(&store).unwrap();
            for client in 0..12 {
                clients.spawn(come_and_go(
                    limiter.clone(),
                    Arc::clone(&went),
                    Random::new(instance * 100 + client),
                    until,
                ));
            }
        }
        while clients.join_next().await.transpose().unwrap().is_some() {}
        let mut went = went.lock().unwrap().clone();
        went.sort_unstable();
        let all: u64 = went.iter().map(|(_, cost)| cost).sum();
        assert!(all >= 40, "{name}: {all} units of some 100 were used");
        for (first, (from_us, _)) in went.iter().enumerate() {
            let mut units = 0;
            for (at_us, cost) in &went[first..] {
                units += cost;
                let passed_us = at_us - from_us;
                let most = match algorithm {
                    Algorithm::Gcra => 5 + passed_us * 50 / 1_000_000,
                    // As many borders as lie between the two.
                    Algorithm::FixedWindow(_) => 50 * (at_us / 1_000_000 - from_us / 1_000_000 + 1),
                    _ => 50 * (passed_us / 1_000_000 + 1),
                };
                assert!(units <= most, "{name}: {units} units within {passed_us} us");
            }
        }
    }
}
