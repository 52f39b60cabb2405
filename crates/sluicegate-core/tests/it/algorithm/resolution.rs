//! A log with a resolution beside the units that it has admitted, each at its own moment.

use proptest::prelude::*;
use sluicegate_core::clock::Clock;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::{Algorithm, Policy, Quota};

use crate::support::{answer, limiter, store, us};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Never above the limit in any span of a period; and what is refused would be refused by an exact log of the same
    /// units whose period is less than a part longer.
    #[test]
    fn it_never_passes_more_than_the_limit_and_is_at_most_a_part_late(
        parts in 1..=40_u32,
        (limit, period) in (1..=50_u64, 1_000..=100_000_u64),
        steps in prop::collection::vec((0..=3_000_u64, 1..=9_u64), 1..120),
    ) {
        let (store, clock) = store();
        let limiter = limiter(&store, "log", Algorithm::SlidingLogIn(parts), Quota::new(limit, us(period)));
        let part = period.div_ceil(parts.into());
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        let within = |admitted: &[(u64, u64)], now: u64, span: u64| -> u64 {
            admitted.iter().filter(|(at, _)| at + span > now).map(|(_, cost)| cost).sum()
        };
        for (idle, cost) in steps {
            clock.advance(us(idle));
            let now = clock.now_us();
            if answer(limiter.check("k").cost(cost)).is_allowed() {
                admitted.push((now, cost));
                prop_assert!(within(&admitted, now, period) <= limit);
            } else {
                prop_assert!(within(&admitted, now, period + part - 1) + cost > limit);
            }
        }
    }
}

#[test]
fn a_log_becomes_one_with_a_resolution_and_one_without_again() {
    let (store, clock) = store();
    let limiter = Policy::sliding_log("log", "10/10s").on(&store).unwrap();
    for _ in 0..6 {
        let _ = answer(limiter.check("k"));
        clock.advance(us(100_000));
    }
    let in_parts = Policy::sliding_log("log", "10/10s").resolution(10).build().unwrap();
    limiter.replace(in_parts, Inherit::Spent).unwrap();
    assert_eq!(answer(limiter.check("k").cost(4)).remaining(), 0);
    // Six of the first second and four of the next moment: one entry, as old as the last of it.
    clock.advance(us(9_399_999));
    assert_eq!(answer(limiter.peek("k")).remaining(), 0);
    clock.advance(us(600_001));
    assert_eq!(answer(limiter.peek("k")).remaining(), 10);
    let _ = answer(limiter.check("k").cost(3));
    limiter.replace(Policy::sliding_log("log", "10/10s").build().unwrap(), Inherit::Spent).unwrap();
    assert_eq!(answer(limiter.peek("k")).remaining(), 7);
}

#[test]
fn a_resolution_that_cannot_be_is_refused_with_its_value() {
    let (store, _) = store();
    for (parts, shown) in [(0, "0: cut"), (1_001, "1001: cut")] {
        let error = Policy::sliding_log("log", "5/min").resolution(parts).on(&store).unwrap_err();
        assert_eq!(error.kind(), ConfigErrorKind::Policy, "{error}");
        assert!(error.to_string().contains(shown) && error.to_string().contains("1 to 1000"), "{error}");
    }
    let error = Policy::gcra("api", "5/min").resolution(20).on(&store).unwrap_err().to_string();
    assert!(
        error.starts_with("policy \"api\": a resolution of 20 is for a sliding log, and gcra"),
        "{error}"
    );
    let error = Policy::sliding_log("log", "100000001/h").resolution(20).on(&store).unwrap_err().to_string();
    assert!(error.contains("at most 100000000, not 100000001"), "{error}");
}

#[test]
fn a_limit_of_a_hundred_million_takes_the_room_of_its_parts() {
    let (store, clock) = store();
    let limiter = Policy::sliding_log("log", "100000000/h").resolution(60).on(&store).unwrap();
    for _ in 0..120 {
        assert!(answer(limiter.check("k").cost(1_600_000)).is_allowed());
        clock.advance(us(60_000_000));
    }
    assert!(!answer(limiter.check("k").cost(5_600_001)).is_allowed(), "59 minutes are counted");
}
