//! Requests of four instances that wait for their turns under one policy, and leave.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate_core::algorithm::Anchor;
use sluicegate_core::error::AcquireErrorKind;
use sluicegate_core::limiter::{Turn, check_all};
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{Algorithm, Key, Policy, Quota, RateLimiter};
use sluicegate_tests::random::Random;
use sluicegate_tests::servers::deployments::standalone;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

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
        let acquired = tokio::select! {
            acquired = turn => acquired,
            () = sleep(patience), if leaves => continue,
        };
        match acquired {
            Ok(turn) => went.lock().unwrap().push((turn.spent_us(), cost)),
            Err(error) => {
                assert_eq!(error.kind(), AcquireErrorKind::TooLate, "{error}");
                sleep(patience).await;
            }
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
        // Clients on a busy machine come and go less often.
        assert!(all >= 10, "{name}: {all} units of some 100 were used");
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

/// Turns of clients that left were good for the same client only, and soon nobody was served.
#[tokio::test(flavor = "multi_thread")]
async fn two_instances_use_a_shared_limit_although_the_clients_leave_that_have_limits_of_their_own() {
    let (went, clock) = (Arc::<Mutex<Vec<(u64, DecidedBy)>>>::default(), Instant::now());
    let mut clients = JoinSet::new();
    let mut instances = Vec::new();
    for _ in 0..2 {
        let store = connected(patient("beside"), &standalone().url()).await;
        let own = Policy::gcra("own", "100/s").on(&store).unwrap();
        instances.push((own, Policy::gcra("shared", "100/s burst 1").on(&store).unwrap()));
    }
    // Three times as many as there are turns, each of another client, that wait for half a second.
    for client in 0_u64..900 {
        let ((own, shared), went) = (instances[usize::from(client % 3 == 0)].clone(), Arc::clone(&went));
        clients.spawn(async move {
            let (longest, client) = (Duration::from_secs(2), Key::from(client));
            let all = Key::from("all");
            let checks = [own.check(&client), shared.check(&all)].map(|check| check.reserve(longest));
            let decision = check_all(checks).await.unwrap();
            let limits = [(own.clone(), client.clone(), 1), (shared.clone(), all, 1)];
            if !decision.is_allowed() {
                return;
            }
            let turn = Turn::new(decision, limits);
            if let Ok(decision) = timeout(Duration::from_millis(500), turn).await {
                went.lock().unwrap().push((decision.spent_us(), decision.decided_by()));
            }
        });
        sleep_until(clock + Duration::from_micros(3_333) * u32::try_from(client).unwrap()).await;
    }
    while clients.join_next().await.transpose().unwrap().is_some() {}
    let mut went = went.lock().unwrap().clone();
    went.sort_unstable_by_key(|(at, _)| *at);
    let too_many = went.windows(2).find(|pair| pair[1].0 - pair[0].0 < 10_000);
    assert!(too_many.is_none(), "more than the limit: {too_many:?}");
    let (last, _) = went.last().unwrap();
    // In the last second, after that many have left: once it was none, and a busy machine misses some.
    let served = went.iter().filter(|(at, _)| *at + 1_000_000 > *last).count();
    assert!(served >= 20, "{served} of 100");
}
