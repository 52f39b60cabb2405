//! What a look or a refusal does changes nothing, ever.

use sluicegate_conformance::Conformance;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::Quotas;
use sluicegate_core::{Algorithm, Decision, MemoryStore, Policy, Quota};

use crate::support::{ALL, answer, is_queue, secs, store};

/// The first peek under `100/min` once handed all units of `60/h` over to it, so that they were back after a minute.
#[test]
fn a_look_by_other_quotas_leaves_the_key_to_its_own() {
    let faster = Quotas::from(Quota::per_minute(100));
    for (algorithm, is_refusal) in ALL.into_iter().flat_map(|of| [(of, false), (of, true)]) {
        let left = |is_looked_at: bool| {
            let (store, clock) = store();
            let limiter = Policy::builder("p", algorithm, "60/h").on(&store).expect("it fits");
            let _ = answer(limiter.check("k").cost(50));
            clock.advance(secs(1));
            if is_looked_at {
                let look = if is_refusal { limiter.check("k").cost(100) } else { limiter.peek("k") };
                let _ = answer(look.under(&faster).expect("it fits"));
            }
            clock.advance(secs(50));
            answer(limiter.peek("k")).remaining()
        };
        assert_eq!(left(true), left(false), "{algorithm}, refused: {is_refusal}");
    }
}

/// Whoever came first decided how long the old rate was still in force, also by a look.
#[test]
fn a_replacement_takes_effect_at_its_moment_whoever_comes_first() {
    for algorithm in ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)) {
        for (old, new) in
            [("60/h", "60/min"), ("60/min", "60/h"), ("60/h", "20/h burst 60"), ("60/h", "60/7h")]
        {
            let Ok(new) = Policy::builder("p", algorithm, new).build() else { continue };
            let seen = |looks: &[u64]| -> Vec<Decision> {
                let (store, clock) = store();
                let limiter = Policy::builder("p", algorithm, old).on(&store).expect("it fits");
                let _ = answer(limiter.check("k").cost(50));
                clock.advance(secs(3));
                limiter.replace(new.clone(), Inherit::Spent).expect("it fits");
                for look in looks {
                    clock.advance(secs(*look));
                    if !answer(limiter.peek("k").cost(60)).is_allowed() {
                        let _ = answer(limiter.check("k").cost(60));
                    }
                }
                clock.advance(secs(5_000 - looks.iter().sum::<u64>()));
                [1, 20, 9].map(|cost| answer(limiter.check("k").cost(cost))).into()
            };
            let twin = format!("{:?}", seen(&[]));
            for looks in [&[0_u64] as &[u64], &[50], &[10, 100], &[4_000]] {
                assert_eq!(
                    format!("{:?}", seen(looks)),
                    twin,
                    "{algorithm}, {old} to {new}, looks after {looks:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn no_look_changes_a_later_answer_whatever_policies_and_quotas_come_and_go() {
    let (_, clock) = store();
    let memory = MemoryStore::builder().clock(clock.clone()).log_entries(1 << 22).build();
    let suite = Conformance::new(memory.expect("the settings are possible"), clock);
    for seed in 1..=12 {
        suite.looks_change_nothing(seed, 20).await;
    }
}

/// A key with a quota of its own keeps it through a replacement, until it spends by another.
#[test]
fn a_key_with_a_quota_of_its_own_is_handed_over_with_it() {
    for algorithm in [Algorithm::Gcra, Algorithm::SlidingLog, Algorithm::SlidingCounter] {
        let (store, clock) = store();
        let limiter = Policy::builder("p", algorithm, "10/min").on(&store).expect("it fits");
        let own = limiter.with_quotas(Quotas::from(Quota::per_hour(100))).expect("it fits");
        let _ = answer(own.check("k").cost(90));
        limiter
            .replace(Policy::builder("p", algorithm, "20/min").build().expect("it fits"), Inherit::Spent)
            .expect("it fits");
        assert_eq!(answer(limiter.peek("k")).remaining(), 0, "{algorithm}");
        clock.advance(secs(90));
        // By 20 a minute, 30 would be back.
        let left = answer(own.peek("k")).remaining();
        assert!((10..=12).contains(&left), "{algorithm}: {left}");
    }
}
