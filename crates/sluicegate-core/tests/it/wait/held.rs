//! Units of a shared limit that are held for requests which wait for limits of their own.

use sluicegate_core::limiter::{Inherit, check_all};
use sluicegate_core::policy::Quotas;
use sluicegate_core::{Algorithm, Decision, MemoryStore, Policy, Quota, RateLimiter};

use crate::support::{ALL, answer, is_queue, limiter, secs, store, store_for, us};

/// A request of a client that waits for its own limit, if it has to, and holds a unit of the shared one.
fn ask([own, shared]: &[RateLimiter; 2], client: u64) -> Decision {
    answer(check_all([own.check(client).reserve(secs(3_600)), shared.check(u64::MAX).reserve(secs(3_600))]))
}

fn waits_for_its_turn(decision: &Decision) -> bool {
    decision.is_allowed() && !decision.delay().is_zero()
}

/// Each decision about the shared key goes through these moments, and clients could invent any number of them.
#[test]
fn units_of_a_key_are_held_until_a_hundred_moments_at_the_most() {
    for algorithm in ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)) {
        let (store, clock) = store_for(10_000, 160_000);
        let own = Policy::gcra("own", "1/min").on(&store).expect("it fits");
        let shared = Policy::builder("shared", algorithm, "10000/h").on(&store).expect("it fits");
        let limiters = [own, shared];
        let wait = |clients: std::ops::Range<u64>| {
            let waits = clients.map(|client| {
                clock.advance(us(1_000));
                ask(&limiters, client)
            });
            waits.filter(waits_for_its_turn).count()
        };
        assert_eq!((wait(0..150), wait(0..150)), (0, 100), "{algorithm}");
        // Half of them have departed a minute after their first request.
        clock.advance(secs(60) - us(200_000));
        assert_eq!(wait(1_000..1_150), 0, "{algorithm}");
        assert!((30..=100).contains(&wait(1_000..1_150)), "{algorithm}");
    }
}

#[test]
fn any_number_of_requests_that_depart_together_hold_units_and_each_gives_back_its_own() {
    for algorithm in ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)) {
        let (store, clock) = store_for(10_000, 160_000);
        let own = Policy::fixed_window("own", "1/min").on(&store).expect("it fits");
        let shared = Policy::builder("shared", algorithm, "1000/h").on(&store).expect("it fits");
        let limiters = [own, shared.clone()];
        let first: Vec<Decision> = (0..400).map(|client| ask(&limiters, client)).collect();
        assert!(first.iter().all(|decision| decision.delay().is_zero()), "{algorithm}");
        let mut waiting: Vec<Decision> = (0..400).map(|client| ask(&limiters, client)).collect();
        assert!(waiting.iter().all(waits_for_its_turn), "{algorithm}");
        assert_eq!(answer(shared.peek(u64::MAX)).remaining(), 200, "{algorithm}");
        for decision in waiting.iter_mut().take(300) {
            let mut receipt = decision.take_receipt(1).expect("it has spent");
            let _ = answer(shared.refund(u64::MAX, 1).of(&mut receipt));
        }
        assert_eq!(answer(shared.peek(u64::MAX)).remaining(), 500, "{algorithm}");
        clock.advance(secs(60));
        let left = answer(shared.peek(u64::MAX)).remaining();
        assert!((500..=520).contains(&left), "{algorithm}: {left} units are left after a minute");
    }
}

/// A limiter whose key has `units` held until this many seconds from now, and the decision that holds them.
fn holding(store: &MemoryStore, shared: &RateLimiter, units: u64, seconds: u64) -> Decision {
    let own = limiter(store, "own", Algorithm::Gcra, Quota::new(1, secs(seconds)));
    assert!(answer(own.check("client")).is_allowed());
    let longest = secs(seconds);
    let held = check_all([
        own.check("client").reserve(longest),
        shared.check("shared").cost(units).reserve(longest),
    ]);
    let held = answer(held);
    assert!(waits_for_its_turn(&held));
    held
}

/// A refund after the turn had come took the units of requests that came after the reset.
#[test]
fn units_that_were_held_at_a_reset_are_not_given_back_after_their_turn() {
    let ways: [fn(&RateLimiter); 4] = [
        |shared| drop(answer(shared.reset("shared"))),
        |shared| shared.reset_all().expect("it fits"),
        |shared| [(); 2].into_iter().for_each(|()| shared.reset_all().expect("it fits")),
        |shared| {
            let _ = answer(shared.reset("shared"));
            let twice = shared.policy().with_quotas(&[Quota::per_hour(20)]).expect("it is possible");
            shared.replace(twice, Inherit::Spent).expect("it fits");
        },
    ];
    for algorithm in ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)) {
        for (way, reset) in ways.into_iter().enumerate() {
            let (store, clock) = store();
            let shared = limiter(&store, "shared", algorithm, Quota::per_hour(10));
            let mut held = holding(&store, &shared, 5, 60);
            let mut receipt = held.take_receipt(1).expect("it has spent");
            reset(&shared);
            clock.advance(secs(1));
            let all = answer(shared.peek("shared")).remaining();
            assert!(all >= 10 && answer(shared.check("shared").cost(all)).is_allowed(), "{algorithm}");
            clock.advance(secs(60));
            let left = answer(shared.peek("shared")).remaining();
            let _ = answer(shared.refund("shared", 5).of(&mut receipt));
            assert_eq!(answer(shared.peek("shared")).remaining(), left, "{algorithm}, after the reset {way}");
        }
    }
}

/// They came on top of the debt, but were forgotten a burst after their turn.
#[test]
fn held_units_of_a_key_in_debt_count_until_both_have_drained() {
    for algorithm in ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)) {
        let in_debt = || {
            let (store, clock) = store_for(1_000, 16_000);
            let shared = limiter(&store, "shared", algorithm, Quota::per_hour(10));
            let _ = holding(&store, &shared, 5, 60);
            let _ = answer(shared.charge("shared", 40));
            let resets = answer(shared.peek("shared")).reset_after();
            (store, clock, shared, resets)
        };
        let (_, clock, shared, resets) = in_debt();
        let twice = shared.policy().with_quotas(&[Quota::per_hour(20)]).expect("it is possible");
        shared.replace(twice, Inherit::Spent).expect("it fits");
        clock.advance(resets - secs(1));
        assert!(answer(shared.peek("shared")).remaining() < 20, "{algorithm}: it is not handed over");

        let (store, clock, shared, resets) = in_debt();
        let passed = resets.min(secs(2 * 3_600));
        clock.advance(passed);
        let own = limiter(&store, "clients", Algorithm::Gcra, Quota::per_minute(1));
        for client in (0..100_u64).chain(0..100) {
            let both = [own.check(client), shared.check(client)].map(|check| check.reserve(secs(100)));
            assert!(answer(check_all(both)).is_allowed(), "{algorithm}");
        }
        let left = answer(shared.peek("shared")).reset_after();
        assert_eq!(left, resets - passed, "{algorithm}: others have swept them away");
    }
}

/// They counted as a spend of the next request, hours after they had drained.
#[test]
fn held_units_that_have_drained_since_their_turn_do_not_count_under_a_new_policy() {
    for algorithm in ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)) {
        let left_after = |is_replaced: bool| {
            let (store, clock) = store();
            let shared = limiter(&store, "shared", algorithm, Quota::per_hour(10));
            let _ = holding(&store, &shared, 5, 60);
            clock.advance(secs(40 * 60));
            if is_replaced {
                let twice = shared.policy().with_quotas(&[Quota::per_hour(20)]).expect("it is possible");
                shared.replace(twice, Inherit::Spent).expect("it fits");
            }
            clock.advance(secs(59 * 60));
            answer(shared.peek("shared")).remaining()
        };
        let [taken, most] = [20 - left_after(true), 10 - left_after(false)];
        assert!(taken <= most, "{algorithm}: {taken} units count, and {most} were left");
    }
}

/// Under quotas that a later request brought, they drained beside the units before them and not after them.
#[test]
fn held_units_become_a_spend_under_the_quotas_of_their_time() {
    for algorithm in ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)) {
        let asked_between = |is_asked: bool| {
            let (store, clock) = store();
            let policy = Policy::builder("shared", algorithm, Quota::per_minute(100)).build();
            let policy = policy.expect("the policy is good").taking_quotas();
            let shared = RateLimiter::new(&store, policy).expect("it fits");
            let [before, after] = [100, 200]
                .map(|limit| shared.with_quotas(Quotas::from(Quota::per_hour(limit))).expect("they fit"));
            assert!(answer(before.check("shared").cost(50)).is_allowed(), "{algorithm}");
            let _ = holding(&store, &before, 50, 60);
            clock.advance(secs(60));
            if is_asked {
                let _ = answer(before.check("shared").cost(1));
            }
            clock.advance(secs(29 * 60));
            answer(after.peek("shared")).remaining()
        };
        let [left, reference] = [false, true].map(asked_between);
        assert!((reference..=reference + 2).contains(&left), "{algorithm}: {left} for {reference}");
    }
}

/// A refund took the units of requests that came after a flood of keys had made the store forget the key.
#[test]
fn units_that_were_held_are_not_given_back_to_a_key_that_was_forgotten_since() {
    let logs = |algorithm| matches!(algorithm, Algorithm::SlidingLogIn(_));
    for algorithm in ALL.into_iter().filter(|algorithm| !is_queue(*algorithm) && !logs(*algorithm)) {
        for keeps_accounts in [false, true] {
            let (store, clock) = store();
            let policy = Policy::builder("shared", algorithm, Quota::per_hour(10)).table_size(1).build();
            let policy = policy.expect("the policy is good");
            let policy = if keeps_accounts { policy.with_refunds() } else { policy };
            let shared = RateLimiter::new(&store, policy).expect("it fits");
            let mut receipt = holding(&store, &shared, 5, 60).take_receipt(1).expect("it has spent");
            clock.advance(secs(60));
            assert_eq!(answer(shared.peek("shared")).remaining(), 5, "{algorithm}");
            (0..50_u64).for_each(|other| drop(answer(shared.check(other).cost(10))));
            assert_eq!(answer(shared.peek("shared")).remaining(), 10, "{algorithm}: it is forgotten");
            clock.advance(secs(1));
            assert!(answer(shared.check("shared").cost(10)).is_allowed(), "{algorithm}");
            let _ = answer(shared.refund("shared", 5).of(&mut receipt));
            assert_eq!(answer(shared.peek("shared")).remaining(), 0, "{algorithm}, {keeps_accounts}");
        }
    }
}
