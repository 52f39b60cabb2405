//! Examples that can be done in one's head: those that the design names, and what each verb does.

use sluicegate_core::algorithm::{Anchor, Drain, Refill};
use sluicegate_core::limiter::check_all;
use sluicegate_core::store::Mode;
use sluicegate_core::{Algorithm, Key, Outcome, Policy, Quota};

use crate::support::{ALL, START, answer, is_queue, limiter, ms, secs, store, us};

#[test]
fn sixty_per_second_is_sixty_a_second() {
    assert_eq!(Quota::per_second(60), Quota::new(60, secs(1)));
    assert_eq!(Ok(Quota::per_second(60)), "60/s".parse());
    let (store, clock) = store();
    let limiter = limiter(&store, "sixty", Algorithm::Gcra, Quota::per_second(60));
    assert!((0..60).all(|_| answer(limiter.check("k")).is_allowed()));
    assert_eq!(
        answer(limiter.check("k")).retry_after(),
        Some(us(16_667)),
        "a sixtieth of a second, rounded up"
    );
    clock.advance(secs(1));
    assert!((0..60).all(|_| answer(limiter.check("k")).is_allowed()));
}

#[test]
fn a_sliding_counter_takes_a_quarter_of_80_at_three_quarters() {
    let (store, clock) = store();
    let limiter = limiter(&store, "w", Algorithm::SlidingCounter, Quota::per_minute(100));
    let _ = answer(limiter.charge("k", 80));
    clock.set(START + secs(60 + 45));
    let _ = answer(limiter.charge("k", 60));
    let decision = answer(limiter.check("k"));
    assert_eq!((decision.outcome(), decision.remaining()), (Outcome::Allowed, 100 - 80 / 4 - 60 - 1));
}

#[test]
fn a_sliding_counter_rounds_the_previous_share_down() {
    let (store, clock) = store();
    let limiter = limiter(&store, "w", Algorithm::SlidingCounter, Quota::new(7, secs(10)));
    let _ = answer(limiter.charge("k", 5));
    clock.set(START + secs(10 + 3));
    let _ = answer(limiter.charge("k", 3));
    // 0.7 * 5 is 3.5, of which 3 count.
    assert!(answer(limiter.check("k")).is_allowed());
    let denied = answer(limiter.check("k"));
    // 5 * (10 - e) / 10 falls below 3 just after four tenths.
    assert_eq!(denied.retry_after(), Some(secs(1) + us(1)));
}

#[test]
fn a_fixed_window_passes_twice_its_limit_at_a_border_and_no_more() {
    let (store, clock) = store();
    let limiter = limiter(&store, "w", Algorithm::FixedWindow(Anchor::Epoch), Quota::per_minute(10));
    clock.set(START + secs(60) - us(1));
    let before = (0..30).filter(|_| answer(limiter.check("k")).is_allowed()).count();
    clock.advance(us(1));
    let after = (0..30).filter(|_| answer(limiter.check("k")).is_allowed()).count();
    assert_eq!((before, after), (10, 10));
}

#[test]
fn a_bucket_passes_its_burst_after_any_idle_time_and_never_one_more() {
    for algorithm in
        [Algorithm::Gcra, Algorithm::TokenBucket(Refill::Greedy), Algorithm::LeakyBucket(Drain::Meter)]
    {
        let (store, clock) = store();
        let limiter = limiter(&store, "b", algorithm, Quota::per_second(7).burst(5));
        for idle in [secs(0), secs(1), secs(3_600), secs(86_400 * 365 * 40)] {
            clock.advance(idle);
            let passed = (0..20).filter(|_| answer(limiter.check("k")).is_allowed()).count();
            assert_eq!(passed, 5, "{algorithm} after {idle:?}");
        }
    }
}

#[test]
fn ten_turns_come_half_a_second_apart() {
    let (store, _) = store();
    let queue = Policy::leaky_queue("queue", "2/s burst 10").on(&store).expect("it fits");
    let waits = Policy::gcra("waits", "2/s burst 1").wait_up_to(ms(4_500)).on(&store).expect("it fits");
    for limiter in [&queue, &waits] {
        for turn in 0..10 {
            let decision = answer(limiter.check("k"));
            assert_eq!((decision.outcome(), decision.delay()), (Outcome::Allowed, ms(500 * turn)));
        }
        let refused = answer(limiter.check("k"));
        assert_eq!((refused.outcome(), refused.retry_after()), (Outcome::Denied, Some(ms(500))));
        assert_eq!(refused.delay(), ms(0));
    }
}

/// A spacing that is no whole number of microseconds once added up its roundings: 3 a second became 2.999997, and
/// 700,000 a second became 500,000.
#[test]
fn a_queue_keeps_its_rate_however_odd_the_spacing() {
    for (rate, count) in [(3_u64, 10_u64), (700_000, 7_001)] {
        let (store, _) = store();
        let quota = Quota::per_second(rate).burst(10_000);
        let queue = limiter(&store, "queue", Algorithm::LeakyBucket(Drain::Queue), quota);
        for turn in 0..count {
            let exact = us((turn * 1_000_000).div_ceil(rate));
            assert_eq!(answer(queue.check("k")).delay(), exact, "turn {turn} at {rate}/s");
        }
    }
}

#[test]
fn a_cost_that_never_fits_is_impossible_and_has_no_retry_after() {
    for algorithm in ALL {
        let (store, _) = store();
        let limiter = limiter(&store, "p", algorithm, Quota::per_minute(5));
        for verdict in [
            limiter.check("k").cost(6),
            limiter.peek("k").cost(u64::MAX),
            limiter.check("k").cost(6).reserve(secs(1_000_000)),
        ] {
            let decision = answer(verdict);
            assert_eq!(
                (decision.outcome(), decision.retry_after()),
                (Outcome::Impossible, None),
                "{algorithm}"
            );
            assert_eq!(decision.remaining(), 5, "{algorithm}");
        }
    }
}

#[test]
fn denied_request_spends_nothing() {
    for algorithm in ALL {
        let (store, _) = store();
        let limiter = limiter(&store, "d", algorithm, Quota::per_minute(5));
        let _ = answer(limiter.check("k").cost(4));
        let before = answer(limiter.peek("k"));
        for _ in 0..10 {
            assert_eq!(answer(limiter.check("k").cost(2)).outcome(), Outcome::Denied, "{algorithm}");
            assert_eq!(answer(limiter.check("k").cost(9)).outcome(), Outcome::Impossible, "{algorithm}");
        }
        assert_eq!(answer(limiter.peek("k")).quotas(), before.quotas(), "{algorithm}");
    }
}

#[test]
fn peek_spends_nothing() {
    for algorithm in ALL {
        let (store, _) = store();
        let limiter = limiter(&store, "p", algorithm, Quota::per_minute(5));
        for _ in 0..10 {
            assert_eq!(answer(limiter.peek("k")).remaining(), 5, "{algorithm}");
        }
        assert_eq!(store.stats().keys, 0, "{algorithm}");
    }
}

#[test]
fn a_refund_gives_back_and_never_lifts_above_rest() {
    for algorithm in ALL {
        let (store, _) = store();
        let limiter = limiter(&store, "r", algorithm, Quota::per_minute(5));
        let _ = answer(limiter.check("k").cost(5));
        assert_eq!(answer(limiter.refund("k", 2)).remaining(), 2, "{algorithm}");
        let full = answer(limiter.refund("k", 1_000));
        assert_eq!((full.remaining(), full.reset_after()), (5, secs(0)), "{algorithm}");
        assert_eq!(answer(limiter.check("k").cost(5)).outcome(), Outcome::Allowed, "{algorithm}");
        assert_eq!(answer(limiter.check("k")).outcome(), Outcome::Denied, "{algorithm}");
    }
}

#[test]
fn a_charge_goes_into_debt_that_later_requests_wait_for() {
    for algorithm in ALL {
        let (store, clock) = store();
        let limiter = limiter(&store, "c", algorithm, Quota::per_minute(5));
        let charged = answer(limiter.charge("k", 9));
        assert_eq!((charged.outcome(), charged.remaining()), (Outcome::Allowed, 0), "{algorithm}");
        let wait = answer(limiter.check("k")).retry_after().expect("a debtor is denied");
        // Five of nine fit into the first period, so one unit has to wait for the second at least as long as it takes.
        assert!(wait >= secs(60), "{algorithm}: {wait:?}");
        clock.advance(wait - us(1));
        assert!(!answer(limiter.check("k")).is_allowed(), "{algorithm}");
        clock.advance(us(1));
        assert!(answer(limiter.check("k")).is_allowed(), "{algorithm}");
    }
}

#[test]
fn a_reset_forgets_debts_too() {
    for algorithm in ALL {
        let (store, _) = store();
        let limiter = limiter(&store, "r", algorithm, Quota::per_minute(5));
        let _ = answer(limiter.charge("k", 12));
        let reset = answer(limiter.reset("k"));
        assert_eq!((reset.remaining(), reset.reset_after()), (5, secs(0)), "{algorithm}");
        assert_eq!(store.stats().keys, 0, "{algorithm}");
    }
}

#[test]
fn a_turn_later_than_the_longest_wait_is_refused_and_not_taken() {
    let (store, _) = store();
    let limiter = limiter(&store, "t", Algorithm::Gcra, Quota::per_second(2).burst(1));
    let delay = |longest| {
        let decision = answer(limiter.check("k").reserve(longest));
        decision.is_allowed().then(|| decision.delay()).ok_or_else(|| decision.retry_after())
    };
    assert_eq!(delay(ms(0)), Ok(ms(0)));
    assert_eq!(delay(ms(499)), Err(Some(ms(1))));
    assert_eq!(delay(ms(500)), Ok(ms(500)));
    assert_eq!(delay(ms(500)), Err(Some(ms(500))));
    assert_eq!(delay(secs(5)), Ok(secs(1)));
}

#[test]
fn quotas_of_one_policy_spend_together_or_not_at_all() {
    for algorithm in ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)) {
        let (store, clock) = store();
        let policy = Policy::builder("two", algorithm, "5/min").and("2/10s").on(&store).expect("it fits");
        let remaining = || {
            let decision = answer(policy.peek("k"));
            decision.quotas().iter().map(|status| status.remaining()).collect::<Vec<_>>()
        };
        let _ = answer(policy.check("k").cost(2));
        let before = remaining();
        let denied = answer(policy.check("k"));
        assert_eq!((denied.outcome(), denied.deciding().quota_index()), (Outcome::Denied, 1), "{algorithm}");
        assert_eq!(remaining(), before, "{algorithm}");
        clock.advance(denied.retry_after().expect("it is denied"));
        assert!(answer(policy.check("k")).is_allowed(), "{algorithm}");
        // Three fit into the minute, never into the ten seconds.
        assert_eq!(answer(policy.check("k").cost(3)).outcome(), Outcome::Impossible, "{algorithm}");
    }
}

#[test]
fn policies_with_their_own_keys_and_costs_spend_together_or_not_at_all() {
    for (first, second) in ALL.into_iter().zip(ALL.into_iter().rev()) {
        let (store, _) = store();
        let by_ip = limiter(&store, "ip", first, Quota::per_minute(10));
        let by_user = limiter(&store, "user", second, Quota::per_minute(5));
        let (ip, user) = (Key::from("198.51.100.7"), Key::from("ada"));
        let both = |cost| answer(check_all([by_ip.check(&ip), by_user.check(&user).cost(cost)]));
        assert!(both(3).is_allowed());
        assert_eq!((answer(by_ip.peek(&ip)).remaining(), answer(by_user.peek(&user)).remaining()), (9, 2));
        let denied = both(3);
        assert_eq!((denied.outcome(), denied.deciding().policy_index()), (Outcome::Denied, 1));
        assert_eq!(both(6).outcome(), Outcome::Impossible);
        assert_eq!((answer(by_ip.peek(&ip)).remaining(), answer(by_user.peek(&user)).remaining()), (9, 2));
        assert!(both(2).is_allowed());
    }
}

#[test]
fn the_same_bucket_twice_in_one_call_is_spent_from_twice() {
    for algorithm in ALL {
        let (store, _) = store();
        let limiter = limiter(&store, "twin", algorithm, Quota::per_minute(5));
        let key = Key::from("k");
        let twice = |a, b| answer(check_all([limiter.check(&key).cost(a), limiter.check(&key).cost(b)]));
        assert_eq!(twice(3, 3).outcome(), Outcome::Impossible, "{algorithm}: six never fit into five");
        assert!(twice(2, 1).is_allowed(), "{algorithm}");
        assert_eq!(twice(2, 1).outcome(), Outcome::Denied, "{algorithm}: two are left, not three");
        assert_eq!(answer(limiter.peek(&key)).remaining(), 2, "{algorithm}");
        assert!(twice(1, 1).is_allowed(), "{algorithm}");
        assert_eq!(answer(limiter.peek(&key)).remaining(), 0, "{algorithm}");
    }
}

#[test]
fn a_peek_beside_a_spend_can_refuse_it() {
    let (store, _) = store();
    let guard = limiter(&store, "guard", Algorithm::Gcra, Quota::per_minute(1));
    let spent = limiter(&store, "spent", Algorithm::Gcra, Quota::per_minute(5));
    let key = Key::from("k");
    let ask = || answer(check_all([guard.check(&key).mode(Mode::Peek), spent.check(&key)]));
    assert!(ask().is_allowed() && ask().is_allowed(), "a peek spends nothing of the guard");
    let _ = answer(guard.check(&key));
    assert_eq!(ask().outcome(), Outcome::Denied);
    assert_eq!(answer(spent.peek(&key)).remaining(), 3);
}

/// Once, `7/week` ended on Thursdays, and `7/week in UTC` on Mondays.
#[test]
fn a_week_in_windows_begins_on_monday() {
    let in_utc = if cfg!(feature = "calendar") { "7/week in UTC" } else { "7/week by fixed-window" };
    for quota in [in_utc, "7/week by fixed-window", "7/7d by token-bucket-aligned", "7/week carry over 2"] {
        let (store, clock) = store();
        let limiter = Policy::gcra("week", quota).on(&store).unwrap();
        clock.set(secs(1_735_689_600)); // Wednesday, the first of January 2025
        let monday = secs(5 * 86_400);
        let left = answer(limiter.check("k").cost(7)).remaining();
        assert_eq!((left, answer(limiter.check("k")).retry_after()), (0, Some(monday)), "{quota}");
        clock.advance(monday);
        assert_eq!(answer(limiter.peek("k")).remaining(), 7, "{quota}");
    }
}
