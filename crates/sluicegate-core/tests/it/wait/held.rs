//! Units of a shared limit that are held for requests which wait for limits of their own.

use sluicegate_core::limiter::check_all;
use sluicegate_core::{Decision, Policy, RateLimiter};

use crate::support::{ALL, answer, is_queue, secs, store_for, us};

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
