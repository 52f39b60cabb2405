//! Many threads admit exactly what one would: neither a unit more nor a unit less.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use sluicegate_core::limiter::check_all;
use sluicegate_core::store::Mode;
use sluicegate_core::{Decision, Key, MemoryStore, Outcome, Policy, Quota};

use crate::support::{ALL, answer, is_queue, limiter, secs, store, store_for};

const THREADS: u64 = 8;

/// Runs a piece of work on eight threads that begin together, and adds up what each says it was admitted.
fn on_all_threads(work: impl Fn(u64) -> u64 + Sync) -> u64 {
    let start = Barrier::new(usize::try_from(THREADS).expect("eight"));
    let (start, work) = (&start, &work);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    start.wait();
                    work(thread)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    })
}

fn admitted(decision: &Decision, cost: u64) -> u64 {
    if decision.is_allowed() { cost } else { 0 }
}

#[test]
fn threads_on_one_key_are_admitted_what_one_thread_is() {
    for algorithm in ALL {
        let (shared, clock) = store();
        let (own, own_clock) = store();
        let quota = Quota::per_minute(500);
        let (many, one) = (limiter(&shared, "p", algorithm, quota), limiter(&own, "p", algorithm, quota));
        for round in 0..4 {
            // Half of them ask for two units: one thread in a row is granted the same sum, for ones fill the gaps.
            let together = on_all_threads(|thread| {
                let cost = 1 + thread % 2;
                (0..150).map(|_| admitted(&answer(many.check("k").cost(cost)), cost)).sum()
            });
            let alone: u64 = (0..1_200).map(|_| admitted(&answer(one.check("k")), 1)).sum();
            assert_eq!(together, alone, "{algorithm}, round {round}");
            for clock in [&clock, &own_clock] {
                clock.advance(secs(17));
            }
        }
    }
}

/// Half of them ask as limiters do for one key, and half as middleware does.
#[tokio::test]
async fn threads_suspend_a_key_once_and_no_refusal_counts_after_that() {
    for algorithm in ALL {
        let policy = Policy::builder("p", algorithm, Quota::new(3, secs(86_400)));
        let policy = policy.suspend(300, "1h", "30min").on(&store().0).expect("the policy fits the store");
        let denied = on_all_threads(|thread| {
            let mode = (thread % 2 == 1).then_some(Mode::Spend);
            let outcomes = (0..100).map(|_| answer(policy.check("k").mode(mode)).outcome());
            outcomes.filter(|outcome| *outcome == Outcome::Denied).count() as u64
        });
        let strikes = policy.suspensions().strikes("k").await.unwrap().expect("it suspends keys");
        assert_eq!((strikes.counted, strikes.suspensions), (0, 1), "{algorithm}");
        // Refusals while a thread is about to suspend the key do not count.
        assert!(denied >= 299, "{algorithm}: {denied}");
    }
}

#[test]
fn threads_over_many_keys_are_admitted_what_one_thread_is() {
    const KEYS: u64 = 10_000;
    for algorithm in ALL {
        // Room for twenty times as many: in one run of ten the keys of a set are one more than its slots, and forget each other up
        // to twelve times a round.
        let (store, clock) = store_for(200_000, 200_000);
        let limiter = limiter(&store, "p", algorithm, Quota::per_minute(3));
        for round in 0..2_u64 {
            // Each key is asked for by all threads, twice by one of them, from different ends.
            let together = on_all_threads(|thread| {
                (0..KEYS)
                    .map(|key| if thread % 2 == 0 { key } else { KEYS - 1 - key })
                    .filter(|key| (key + thread) % 2 == 0)
                    .map(|key| admitted(&answer(limiter.check(key)), 1))
                    .sum()
            });
            let forgotten = store.stats().evictions;
            assert!(
                (3 * KEYS..=3 * KEYS + 3 * forgotten).contains(&together),
                "{algorithm}, round {round}: {together} were admitted, {forgotten} keys forgotten"
            );
            clock.advance(secs(3_600));
        }
        let forgotten = store.stats().evictions;
        assert!(forgotten < KEYS / 50, "{algorithm}: {forgotten} keys forgotten");
    }
}

#[test]
fn opposite_orders_of_two_keys_neither_deadlock_nor_admit_more() {
    for (first, second) in ALL.into_iter().zip(ALL.into_iter().cycle().skip(3)) {
        let (store, _) = store();
        let a = limiter(&store, "a", first, Quota::per_minute(400));
        let b = limiter(&store, "b", second, Quota::per_minute(300));
        let (x, y) = (Key::from("x"), Key::from("y"));
        let passed = on_all_threads(|thread| {
            let check = |_| {
                let mut both = [a.check(&x), b.check(&y)];
                if thread % 2 == 1 {
                    both.reverse();
                }
                answer(check_all(both))
            };
            (0..100).map(check).map(|decision| admitted(&decision, 1)).sum()
        });
        assert_eq!(passed, 300, "{first} and {second}");
        assert_eq!(answer(a.peek(&x)).remaining(), 100, "{first}: what b refused was not spent from a");
    }
}

#[test]
fn quotas_of_one_policy_are_spent_together_by_all_threads() {
    for algorithm in ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)) {
        let (store, _) = store();
        let policy = Policy::builder("two", algorithm, "700/h").and("250/min").on(&store).expect("it fits");
        let one = || admitted(&answer(policy.check("k")), 1);
        let statuses =
            || answer(policy.peek("k")).quotas().iter().map(|status| status.remaining()).collect::<Vec<_>>();
        let alone: u64 = (0..480).map(|_| one()).sum();
        let left = statuses();
        let _ = answer(policy.reset("k"));
        assert_eq!(on_all_threads(|_| (0..60).map(|_| one()).sum()), alone, "{algorithm}");
        assert_eq!(statuses(), left, "{algorithm}");
    }
}

#[test]
fn refunds_and_charges_of_all_threads_conserve_units() {
    for algorithm in ALL {
        let (store, _) = store_for(64, 160_000);
        let limiter = limiter(&store, "p", algorithm, Quota::per_minute(10_000));
        let (spent, given) = (AtomicU64::new(0), AtomicU64::new(0));
        let _ = on_all_threads(|thread| {
            for step in 0..100_u64 {
                let cost = 1 + (step + thread) % 3;
                let count = admitted(&answer(limiter.check("k").cost(cost)), cost);
                let _ = answer(limiter.charge("k", 2));
                // Relaxed: read only after all threads have ended.
                spent.fetch_add(count + 2, Ordering::Relaxed);
                if step % 4 == 0 {
                    // Never more than this very thread has spent, so that no refund is lost at rest.
                    let _ = answer(limiter.refund("k", 2));
                    given.fetch_add(2, Ordering::Relaxed);
                }
            }
            0
        });
        let used = spent.into_inner() - given.into_inner();
        assert_eq!(answer(limiter.peek("k")).remaining(), 10_000 - used, "{algorithm}");
    }
}

/// On the machine's own clock: a thread that had read it before another one, and came second, once entered its spending
/// into a log or a window later than its decision said, and the refund did not find it. Buckets
/// may keep the moments between the two, less than a unit. In a queue it is a turn that has not come: it goes back only if it
/// is the last.
#[test]
fn what_all_threads_spend_and_give_back_is_back() {
    for algorithm in ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)) {
        let limiter = limiter(&MemoryStore::new(), "p", algorithm, Quota::per_day(10_000));
        let _ = on_all_threads(|_| {
            for _ in 0..200 {
                let mut receipt = answer(limiter.check("k")).take_receipt(0).expect("it is allowed");
                let _ = answer(limiter.refund("k", 1).of(&mut receipt));
            }
            0
        });
        let is_bucket = limiter.policy().quotas()[0].rule().fits_one_word();
        let kept = answer(limiter.charge("k", 0)).reset_after();
        assert!(kept.is_zero() || is_bucket && kept < secs(8), "{algorithm}: {kept:?}");
    }
}

#[test]
fn turns_reserved_by_all_threads_are_all_different() {
    let (store, _) = store();
    let limiter = Policy::gcra("turns", "1000/s burst 1").wait_up_to(secs(10)).on(&store).expect("it fits");
    let sum = on_all_threads(|_| {
        (0..50).map(|_| u64::try_from(answer(limiter.check("k")).delay().as_millis()).expect("small")).sum()
    });
    // Four hundred turns a millisecond apart: 0 + 1 + ... + 399.
    assert_eq!(sum, 399 * 400 / 2);
}
