//! Examples that can be done in one's head: those that the design names, and what each verb does.

use sluicegate_core::algorithm::{Anchor, Drain};
use sluicegate_core::{Algorithm, Outcome, Policy, Quota};

use crate::support::{START, answer, limiter, ms, secs, store, us};

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
