//! Periods that are no whole number of microseconds.

use std::time::Duration;

use sluicegate_core::algorithm::Rule;
use sluicegate_core::clock::Clock;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::{Algorithm, Quota};

use crate::support::{ALL, START, answer, limiter, ms, secs, store, us};

/// A third of a second, as far as a duration can say it.
const THIRD: Duration = Duration::from_nanos(333_333_333);

/// Algorithms that count a rate, and not what came in a window.
fn rates() -> impl Iterator<Item = Algorithm> {
    ALL.into_iter().filter(|algorithm| Rule::new(*algorithm, Quota::new(1, THIRD)).is_ok())
}

#[test]
fn one_in_a_third_of_a_second_is_kept_to_the_nanosecond() {
    assert_eq!(rates().count(), 5, "GCRA, the greedy token bucket and the leaky buckets");
    for algorithm in rates() {
        // Never at rest, so that no part of a microsecond is lost.
        let ((store, clock), quota) = (store(), Quota::new(1, THIRD).burst(2));
        let limiter = limiter(&store, "third", algorithm, quota);
        for number in 0..10_000_u64 {
            let decision = answer(limiter.check("k"));
            assert!(decision.is_allowed(), "{algorithm}: {number}");
            let since = us(clock.now_us()) - START;
            let exact = (u128::from(number.saturating_sub(1)) * THIRD.as_nanos()).div_ceil(1_000);
            assert_eq!(since.as_micros(), exact, "{algorithm}: {number}");
            if let Some(wait) = answer(limiter.peek("k")).retry_after() {
                clock.advance(wait);
            }
        }
    }
}

#[test]
fn windows_begin_on_whole_microseconds_and_say_so() {
    for algorithm in ALL {
        let Err(error) = Rule::new(algorithm, Quota::new(5, THIRD)) else { continue };
        assert_eq!(error.kind(), ConfigErrorKind::Inexact, "{algorithm}");
        let message = error.to_string();
        assert!(message.contains("5/333333333ns") && message.contains("token bucket or GCRA"), "{message}");
    }
    assert_eq!(ALL.len() - rates().count(), 7, "windows, and buckets that are refilled at intervals");
}

#[test]
fn odd_periods_keep_their_burst_and_their_ceiling() {
    for period in [Duration::from_nanos(1_001), THIRD, secs(86_400) / 7, ms(1) + Duration::from_nanos(1)] {
        let quota = Quota::new(1, period).burst(5);
        assert_eq!(quota.to_string().parse(), Ok(quota));
        let rule = Rule::new(Algorithm::Gcra, quota).expect("it is exact");
        assert_eq!((rule.capacity(), rule.debt_ceiling()), (5, 50), "{quota}");
    }
    let huge = Quota::new(u64::MAX / 2, THIRD);
    let error = Rule::new(Algorithm::Gcra, huge).expect_err("a thousand times that is too much");
    assert_eq!(error.kind(), ConfigErrorKind::Inexact);
}
