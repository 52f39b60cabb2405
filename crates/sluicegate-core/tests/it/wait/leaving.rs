//! Requests that leave while they wait: nobody goes twice for it, and as little as possible is lost.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate_core::error::AcquireErrorKind;
use sluicegate_core::limiter::check_all;
use sluicegate_core::limiter::{Inherit, Turn};
use sluicegate_core::{Algorithm, Key, MemoryStore, Policy, RateLimiter};
use sluicegate_tests::random::Random;
use sluicegate_tests::time::Paused;
use tokio::time::Instant;

use crate::support::secs;

const LONGEST: Duration = secs(600);

fn store() -> MemoryStore {
    MemoryStore::builder().table_size(64).clock(Paused::now()).build().unwrap()
}

fn one_a_second(store: &MemoryStore) -> RateLimiter {
    Policy::gcra("mail", "1/s burst 1").on(store).unwrap()
}

/// A turn under all of these, with a cost for each.
async fn turn(under: &[(&RateLimiter, u64)]) -> Option<Turn> {
    let ada = Key::from("ada");
    let checks = under.iter().map(|(limiter, cost)| limiter.check(&ada).cost(*cost).reserve(LONGEST));
    let decision = check_all(checks).await.unwrap();
    let limits = under.iter().map(|(limiter, cost)| ((*limiter).clone(), ada.clone(), *cost));
    decision.is_allowed().then(|| Turn::new(decision, limits))
}

async fn turns<const N: usize>(limiter: &RateLimiter) -> [Turn; N] {
    let mut turns = Vec::new();
    for _ in 0..N {
        turns.push(turn(&[(limiter, 1)]).await.unwrap());
    }
    turns.try_into().unwrap()
}

/// 20 passed in 10 s at 1/s over two handlers that share a name: each had a queue of its own.
#[tokio::test(start_paused = true)]
async fn those_who_name_a_policy_twice_stand_in_one_queue() {
    let (store, start) = (store(), Instant::now());
    let handlers = [one_a_second(&store), one_a_second(&store)];
    let mut waiting = Vec::new();
    for round in 0..60 {
        waiting.push(turn(&[(&handlers[round % 2], 1)]).await.unwrap());
    }
    let mut random = Random::new(7);
    for _ in 0..30 {
        // The first goes at once: it has spent its unit, and nobody takes its place.
        let leaves = 1 + random.index(waiting.len() - 1);
        drop(waiting.remove(leaves));
    }
    let passed = Arc::new(Mutex::new(0));
    for turn in waiting {
        let passed = Arc::clone(&passed);
        tokio::spawn(async move {
            let _ = turn.await;
            *passed.lock().unwrap() += 1;
        });
    }
    for second in 0..=29 {
        tokio::time::sleep_until(start + secs(second) + Duration::from_millis(1)).await;
        assert_eq!(*passed.lock().unwrap(), second + 1);
    }
    let next = turn(&[(&handlers[0], 1)]).await.unwrap();
    let _ = next.await;
    assert_eq!(start.elapsed().as_secs(), 30, "nothing was lost");
}

/// Two went at one instant in 69 of 120 rounds.
#[test]
fn a_race_of_taking_and_leaving_gives_no_turn_twice() {
    for seed in 0..120 {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (handle, limiter) = {
            let _in = runtime.enter();
            (runtime.handle().clone(), one_a_second(&store()))
        };
        let survivors = std::thread::scope(|scope| {
            let threads = [0, 1, 2, 3].map(|thread| {
                let (handle, limiter) = (&handle, &limiter);
                scope.spawn(move || {
                    let _in = handle.enter();
                    let (mut random, mut mine) = (Random::new(seed * 4 + thread), Vec::new());
                    for _ in 0..12 {
                        let decision = limiter.check("ada").reserve(LONGEST).now().unwrap().unwrap();
                        mine.push(Turn::new(decision, [(limiter.clone(), "ada".into(), 1)]));
                        if random.below(2) == 0 {
                            let leaves = random.index(mine.len());
                            drop(mine.remove(leaves));
                        }
                    }
                    mine
                })
            });
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let mut went = Vec::new();
        runtime.block_on(async {
            for turn in survivors {
                went.push(turn.await.spent_us());
            }
        });
        went.sort_unstable();
        let closest = went.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
        assert!(closest >= 1_000_000, "seed {seed}: {went:?}");
    }
}

/// Requests with other costs once took turns that were left, and those behind them waited longer than they had been told.
#[tokio::test(start_paused = true)]
async fn no_request_proceeds_after_its_own_turn_whoever_leaves_and_comes() {
    let (store, mut random) = (store(), Random::new(3));
    for algorithm in [Algorithm::Gcra, Algorithm::SlidingLog] {
        for round in 0..40 {
            let limiter =
                Policy::builder(format!("mail-{algorithm}-{round}"), algorithm, "4/s").on(&store).unwrap();
            let (mut waiting, late) = (Vec::new(), Arc::new(Mutex::new(Vec::new())));
            for _ in 0..60 {
                let (cost, longest) = (1 + random.below(3), Duration::from_millis(50 * random.below(60)));
                let limits = [(limiter.clone(), Key::from("ada"), cost)];
                let decision = limiter.check("ada").cost(cost).reserve(longest).await.unwrap();
                if decision.is_allowed() {
                    let (latest, late) = (Instant::now() + decision.delay(), Arc::clone(&late));
                    assert!(decision.delay() <= longest);
                    waiting.push(tokio::spawn(async move {
                        let _ = Turn::new(decision, limits).await;
                        late.lock()
                            .unwrap()
                            .extend((Instant::now() > latest + Duration::from_millis(1)).then_some(latest));
                    }));
                }
                if random.below(3) == 0 && !waiting.is_empty() {
                    waiting.swap_remove(random.index(waiting.len())).abort();
                }
                tokio::time::sleep(Duration::from_millis(random.below(120))).await;
            }
            tokio::time::sleep(secs(10)).await;
            assert!(late.lock().unwrap().is_empty(), "{algorithm}, round {round}");
        }
    }
}

/// A hole of five units was taken by requests of one unit, and one that waits ten seconds at most was admitted after 66.
#[tokio::test(start_paused = true)]
async fn a_longest_wait_is_kept_behind_a_turn_that_was_left() {
    let limiter = Policy::gcra("mail", "1/s burst 60").on(store()).unwrap();
    assert!(limiter.check("ada").cost(60).await.unwrap().is_allowed());
    let mut waiting = Vec::new();
    for cost in [5, 60, 1] {
        waiting.push(turn(&[(&limiter, cost)]).await.unwrap());
    }
    drop(waiting.remove(0));
    let start = Instant::now();
    let refused = limiter.check("ada").acquire(secs(10)).await.unwrap_err();
    assert_eq!((refused.kind(), start.elapsed()), (AcquireErrorKind::TooLate, secs(0)));
}

#[tokio::test(start_paused = true)]
async fn units_that_other_limits_have_counted_go_back_with_the_turn_if_they_keep_accounts() {
    for keeps in [false, true] {
        let store = store();
        let user = Policy::gcra("user", "1/min").on(&store).unwrap();
        let address = Policy::gcra("address", "10/min");
        let address = if keeps { address.refunds() } else { address }.on(&store).unwrap();
        let under = [(&user, 1), (&address, 1)];
        let (_first, second) = (turn(&under).await.unwrap(), turn(&under).await.unwrap());
        drop(second);
        assert_eq!(address.peek("ada").await.unwrap().remaining(), if keeps { 9 } else { 8 });
        assert_eq!(user.peek("ada").await.unwrap().retry_after(), Some(secs(60)));
    }
}

#[tokio::test(start_paused = true)]
async fn turns_from_before_a_reset_do_not_go_back_to_the_new_bucket() {
    for resets in [0, 1, 2] {
        let limiter = one_a_second(&store());
        let [_now, first, second] = turns(&limiter).await;
        match resets {
            0 => drop(limiter.reset("ada").await.unwrap()),
            1 => {
                limiter.replace(Policy::gcra("mail", "1/s burst 1").build().unwrap(), Inherit::Reset).unwrap()
            }
            _ => {
                limiter.replace(Policy::gcra("mail", "2/s burst 1").build().unwrap(), Inherit::Reset).unwrap()
            }
        }
        assert!(limiter.check("ada").await.unwrap().is_allowed());
        drop((first, second));
        assert!(!limiter.check("ada").await.unwrap().is_allowed(), "{resets}");
    }
}

/// The receipt named the turn that the request was given on arrival, which was another one's by then.
#[tokio::test(start_paused = true)]
async fn a_request_that_moved_up_gives_back_what_it_has_used() {
    let store = store();
    let limiter = Policy::gcra("mail", "1/s burst 1").refunds().on(&store).unwrap();
    let [now, first, second, third] = turns(&limiter).await;
    let start = now.await.spent_us();
    drop(first);
    let mut used = second.await;
    assert_eq!(used.spent_us() - start, 1_000_000);
    let mut receipt = used.take_receipt(0).unwrap();
    assert_eq!(receipt.at_us() - start, 1_000_000);
    let _ = limiter.refund("ada", 1).of(&mut receipt).await.unwrap();
    let third = third.await.spent_us() - start;
    assert_eq!(third, 2_000_000);
    assert!(!limiter.check("ada").await.unwrap().is_allowed(), "one a second, whatever came back");
}

/// In a layer with two limits, or with costs that differ, the next request once waited for all that had gone: 14 s.
#[tokio::test(start_paused = true)]
async fn the_next_request_waits_for_few_of_those_that_a_client_opens_and_aborts() {
    let costs: [fn(u64) -> u64; 2] = [|_| 1, |request| 1 + request % 2];
    for (seed, cost) in (0..20).flat_map(|seed| costs.map(|cost| (seed, cost))) {
        for limits in [1, 2] {
            let (store, mut random) = (store(), Random::new(seed));
            let address = Policy::gcra("address", "50/s burst 50").on(&store).unwrap();
            let user = Policy::gcra("user", "10/s burst 2").on(&store).unwrap();
            let under = |cost| [(&user, cost), (&address, cost)];
            let mut open = Vec::new();
            for request in 0..150 {
                open.extend(turn(&under(cost(request))[..limits]).await);
            }
            while !open.is_empty() {
                let aborted = random.index(open.len());
                drop(open.remove(aborted));
            }
            let start = Instant::now();
            let _ = turn(&under(1)[..limits]).await.unwrap().await;
            let waited = start.elapsed();
            // Under two limits some requests wait for one of them and some for both, and do not use each other's turns.
            let most = secs([3, 8][limits - 1]);
            assert!(waited <= most, "seed {seed}, {limits} limits: {waited:?}");
        }
    }
}
