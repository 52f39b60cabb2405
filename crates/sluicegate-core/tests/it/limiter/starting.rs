//! `Quota::starting_with`: a key that the store does not know starts with less than a burst. The exact model of it is among the
//! algorithms; here is what else can happen to such a key.

use sluicegate_core::algorithm::{Drain, Refill};
use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::limiter::check_all;
use sluicegate_core::policy::OnFull;
use sluicegate_core::store::Mode;
use sluicegate_core::{Algorithm, Decision, Key, Outcome, Policy, Quota, RateLimiter};

use crate::support::{ALL, answer, limiter, secs, store, store_for, us};
use crate::wait::turns::Desk;

/// The algorithms under which a key can start with less than a burst.
const STARTING: [Algorithm; 5] = [
    Algorithm::Gcra,
    Algorithm::TokenBucket(Refill::Greedy),
    Algorithm::TokenBucket(Refill::Interval),
    Algorithm::TokenBucket(Refill::AlignedInterval),
    Algorithm::LeakyBucket(Drain::Meter),
];

/// Sixty a minute, of which a newcomer has ten.
fn ten_of_sixty() -> Quota {
    Quota::per_minute(60).starting_with(10)
}

fn remaining(limiter: &RateLimiter, key: &str) -> u64 {
    answer(limiter.peek(key)).remaining()
}

fn replace(limiter: &RateLimiter, algorithm: Algorithm, quota: Quota, how: Inherit) {
    let policy = Policy::builder("p", algorithm, quota).build().expect("the policy is good");
    limiter.replace(policy, how).expect("it fits");
}

/// A minute that begins with the clock: aligned refills come at its end.
fn on_the_minute(clock: &ManualClock) {
    clock.set(us(clock.now_us().next_multiple_of(60_000_000)));
}

#[test]
fn of_two_quotas_each_starts_as_it_says_and_a_refusal_by_the_other_makes_the_key_known() {
    let (store, clock) = store();
    let policy = Policy::gcra("p", ten_of_sixty()).and("1/10s").named("slow").on(&store).expect("it fits");
    let left = |decision: &Decision| decision.quotas().iter().map(|of| of.remaining()).collect::<Vec<_>>();
    assert_eq!(left(&answer(policy.peek("k"))), [10, 1]);
    assert!(answer(policy.check("k")).is_allowed());
    assert!(answer(policy.check("other")).is_allowed());
    clock.advance(secs(5));
    let refused = answer(policy.check("k"));
    assert_eq!((refused.is_allowed(), left(&refused)), (false, vec![14, 0]));

    let plain = limiter(&store, "plain", Algorithm::Gcra, Quota::per_hour(1));
    let starting = limiter(&store, "starting", Algorithm::Gcra, ten_of_sixty());
    let keys = ["a", "b"].map(Key::from);
    let both = || answer(check_all([plain.check(&keys[0]), starting.check(&keys[1])]));
    let _ = answer(plain.check("a"));
    assert!(!both().is_allowed());
    clock.advance(secs(7));
    // Refused by the other, and known since.
    assert_eq!(remaining(&starting, "b"), 17);
}

#[test]
fn a_newcomer_waits_for_exactly_what_it_lacks() {
    for algorithm in [Algorithm::Gcra, Algorithm::LeakyBucket(Drain::Meter)] {
        let (store, _clock) = store();
        let limiter = limiter(&store, "p", algorithm, ten_of_sixty());
        let turn = answer(limiter.check("k").cost(13).reserve(secs(3)));
        assert_eq!((turn.is_allowed(), turn.delay()), (true, secs(3)), "{algorithm}");
        let too_long = answer(limiter.check("k").reserve(us(3_999_999)));
        assert_eq!(too_long.outcome(), Outcome::Denied, "{algorithm}");
    }
}

#[test]
fn a_turn_that_is_given_up_was_never_spent_and_its_key_stays_known() {
    for algorithm in [STARTING[0], STARTING[1], STARTING[4]] {
        let desk = Desk::new();
        let policy = desk.open(Policy::builder("p", algorithm, ten_of_sixty()));
        let mut turn = desk.ask(&policy, 13, Mode::Reserve { longest: secs(60) });
        assert!(turn.is_allowed() && !turn.delay().is_zero(), "{algorithm}");
        let receipt = turn.take_receipt(0).expect("it is allowed");
        assert!(desk.of(Mode::Return, &[(&policy, &receipt)]), "{algorithm}");
        let left = desk.ask(&policy, 1, Mode::Peek);
        assert_eq!(left.remaining(), 10, "{algorithm}");
        desk.clock.advance(left.reset_after());
        assert_eq!(desk.ask(&policy, 1, Mode::Peek).remaining(), 60, "{algorithm}");
    }
}

#[test]
fn as_much_as_there_is_takes_what_newcomers_have() {
    for algorithm in STARTING {
        let (store, _clock) = store();
        let limiter = limiter(&store, "p", algorithm, ten_of_sixty());
        let taken = answer(limiter.check("k").up_to(25));
        assert_eq!((taken.granted(), taken.remaining()), (Some(10), 0), "{algorithm}");
        let costs = [("a", 9), ("a", 2), ("b", 10), ("c", 11)];
        let allowed = costs.map(|(key, cost)| answer(limiter.check(key).cost(cost)).is_allowed());
        assert_eq!(allowed, [true, false, true, false], "{algorithm}");
    }
}

#[test]
fn a_key_that_is_known_is_no_newcomer_under_another_policy_and_what_it_lacks_stays() {
    for (old, new) in STARTING.into_iter().flat_map(|old| STARTING.map(|new| (old, new))) {
        let (store, clock) = store();
        on_the_minute(&clock);
        let limiter = limiter(&store, "p", old, ten_of_sixty());
        for key in ["spent", "full"] {
            let _ = answer(limiter.check(key).cost(5));
        }
        clock.advance(secs(60));
        let _ = answer(limiter.check("spent").cost(10));
        let spent = 60 - remaining(&limiter, "spent");
        // Another start, none, and one again: known keys keep what they have spent, whoever is full stays it.
        for (quota, start) in [
            (Quota::per_minute(90).starting_with(3), 3),
            (Quota::per_minute(120), 120),
            (Quota::per_minute(130).starting_with(0), 0),
        ] {
            replace(&limiter, new, quota, Inherit::Spent);
            let burst = quota.burst_size();
            assert_eq!(remaining(&limiter, "spent"), burst - spent, "{old} to {new} {quota}");
            let full = if quota.limit() == 130 { start } else { burst };
            // Full under a policy without a start, it was forgotten.
            assert_eq!(remaining(&limiter, "full"), full, "{old} to {new} {quota}");
            assert_eq!(remaining(&limiter, "never seen"), start, "{old} to {new} {quota}");
        }
    }
}

#[test]
fn a_replacement_that_forgets_makes_newcomers_and_a_log_is_not_charged_for_being_known() {
    for algorithm in STARTING {
        let (store, clock) = store();
        on_the_minute(&clock);
        let limiter = limiter(&store, "p", algorithm, ten_of_sixty());
        let _ = answer(limiter.check("k"));
        clock.advance(secs(100));
        for log in [Algorithm::SlidingLog, Algorithm::SlidingCounter] {
            replace(&limiter, log, Quota::per_minute(7), Inherit::Spent);
            assert_eq!(remaining(&limiter, "k"), 7, "{algorithm} to {log}");
            replace(&limiter, algorithm, ten_of_sixty(), Inherit::Reset);
            on_the_minute(&clock);
            let _ = answer(limiter.check("k"));
            clock.advance(secs(100));
            assert_eq!(remaining(&limiter, "k"), 60, "{algorithm}");
        }
        replace(&limiter, algorithm, Quota::per_minute(60).starting_with(4), Inherit::Reset);
        assert_eq!(remaining(&limiter, "k"), 4, "{algorithm}");
    }
}

#[test]
fn a_key_that_made_room_in_a_full_table_is_a_newcomer_and_no_key_has_more_than_a_burst() {
    for algorithm in STARTING {
        let (store, clock) = store_for(8, 64);
        on_the_minute(&clock);
        let limiter = limiter(&store, "p", algorithm, ten_of_sixty());
        // As many as a set has room for, wherever they are: none of them makes room for another one.
        for key in 0..3_u64 {
            let _ = answer(limiter.check(key));
        }
        clock.advance(secs(100));
        assert_eq!(answer(limiter.peek(0_u64)).remaining(), 60, "{algorithm}");
        for key in 100..500_u64 {
            let _ = answer(limiter.check(key));
        }
        let left: Vec<_> = (0..3_u64).map(|key| answer(limiter.peek(key)).remaining()).collect();
        assert!(
            left.contains(&10) && left.iter().all(|left| [10, 60].contains(left)),
            "{algorithm}: {left:?}"
        );
        assert!(store.stats().evictions > 0);
    }
}

#[test]
fn to_start_with_the_burst_is_the_plain_quota_and_what_starts_full_refuses_less() {
    for algorithm in ALL {
        let rule = |quota| sluicegate_core::algorithm::Rule::new(algorithm, quota);
        assert_eq!(rule(Quota::per_minute(5).starting_with(5)), rule(Quota::per_minute(5)), "{algorithm}");
        let short = Policy::builder("p", algorithm, "5/min start 4");
        if STARTING.contains(&algorithm) {
            let inherits = short.clone().on_full(OnFull::Inherit).build().expect_err("nobody can inherit");
            assert!(inherits.to_string().contains("5/min start 4"), "{inherits}");
            assert!(short.build().is_ok(), "{algorithm}");
        } else {
            let error = short.build().expect_err("it starts full");
            assert_eq!(error.kind(), ConfigErrorKind::Burst);
            assert!(error.to_string().contains(&format!("{algorithm} starts full")), "{error}");
        }
    }
    let error = Policy::gcra("p", "5/min burst 7 start 8").build().expect_err("more than the burst");
    assert!(error.to_string().contains("starts a key with 8 units, and its burst is 7"), "{error}");
}

#[test]
fn a_policy_with_another_start_is_another_policy() {
    let policy = |quota: &str| Policy::gcra("p", quota).build().expect("it is good");
    assert_ne!(policy("5/min start 2"), policy("5/min start 3"));
    assert_ne!(policy("5/min start 2"), policy("5/min"));
    assert_eq!(policy("5/min start 2").to_string(), "p: 5/min start 2 (gcra)");
}
