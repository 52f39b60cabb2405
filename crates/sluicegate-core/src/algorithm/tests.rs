use std::time::Duration;

use super::*;
use crate::Quota;

/// All algorithms whose state is two words.
fn all() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL
        .into_iter()
        .filter(|algorithm| !matches!(algorithm, Algorithm::SlidingLog | Algorithm::SlidingLogIn(_)))
}

#[test]
fn any_limit_to_a_million_with_any_period_from_a_millisecond_to_30_days_works() {
    let awkward = [1, 2, 3, 7, 997, 7_919, 65_537, 999_983, 1_000_000];
    let periods_ms = [1, 2, 3, 999, 1_000, 59_999, 60_000, 86_400_000, 2_591_999_999, 2_592_000_000];
    for limit in awkward {
        for period in periods_ms {
            for algorithm in all() {
                let quota = Quota::new(limit, Duration::from_millis(period));
                Rule::new(algorithm, quota).unwrap_or_else(|error| panic!("{algorithm} {quota}: {error}"));
            }
        }
    }
}

#[test]
fn what_cannot_be_exact_is_refused_with_the_reason() {
    for (algorithm, quota, reason) in [
        (
            Algorithm::Gcra,
            Quota::new(7_919, Duration::from_micros(2_591_999_999_999)),
            "no whole number of milli",
        ),
        (Algorithm::Gcra, Quota::per_second(0), "limit of 0/s is 0"),
        (Algorithm::Gcra, Quota::per_second(1).burst(0), "burst of 1/s burst 0 is 0"),
        (Algorithm::Gcra, Quota::new(1, Duration::ZERO), "period of a quota of 1 is 0"),
        (Algorithm::Gcra, Quota::new(1, Duration::from_nanos(1)), "at least 1 microsecond"),
        (Algorithm::Gcra, Quota::new(1, Duration::from_secs(3_153_600_000)), "longer than ten years"),
        (Algorithm::Gcra, Quota::per_day(1).burst(10_000), "longer than ten years to refill"),
        (
            Algorithm::SlidingCounter,
            Quota::per_minute(5).burst(9),
            "sliding-counter does not support a burst",
        ),
        (Algorithm::SlidingLog, Quota::per_minute(10_000_000), "at most 1000000"),
    ] {
        let message = Rule::new(algorithm, quota).unwrap_err().to_string();
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn the_largest_numbers_saturate_and_do_not_panic() {
    for algorithm in all() {
        let rule = Rule::new(algorithm, Quota::per_second(3)).unwrap();
        for now in [0, 1, u64::MAX / 2, u64::MAX] {
            let (mut state, taken) = rule.charge(State::REST, now, u64::MAX);
            assert_eq!(taken, 30, "{algorithm}");
            state = rule.charge(state, now, u64::MAX).0;
            assert_eq!(rule.slot(state, now, u64::MAX).opens_us, NEVER, "{algorithm}");
            let _ = (rule.slot(state, 0, 1), rule.remaining(state, 0), rule.reset_after_us(state, now));
            let _ = rule.refund(rule.spend(state, now, u64::MAX, 1), now, 0, u64::MAX);
        }
    }
}

#[test]
fn a_state_is_the_same_after_a_way_through_three_words() {
    const EXACT: u64 = 1 << 53;
    for algorithm in all() {
        let rule = Rule::new(algorithm, Quota::per_minute(7)).unwrap();
        for at in [1_000_000_000, 1_000_000_000 + 61_000_000] {
            let state = rule.spend(State::REST, 1_000_000_000, at, 3);
            let words = rule.words(state);
            assert!(words.iter().all(|word| *word < EXACT), "{algorithm}: {words:?}");
            assert_eq!(rule.of_words(words), state, "{algorithm}");
        }
    }
}

/// Seen on paper: two counters of 3 that each round 1.5 down to 1 count 2 of 3 units, and admit one too many.
#[test]
fn parts_of_a_counter_round_the_previous_window_up_and_open_at_the_first_moment() {
    for (limit, period, before, spent) in [(7, 10, 7, 3), (3, 7, 3, 0), (5, 9, 2, 4), (4, 12, 4, 1)] {
        let quota = Quota::new(limit, std::time::Duration::from_micros(period));
        let rule = Rule::new(Algorithm::SlidingCounter, quota).unwrap().rounding_up();
        let state = rule.spend(State::REST, 0, 0, before);
        let state = rule.spend(state, period, period, spent);
        let counted = |now: u64| (before * (2 * period - now)).div_ceil(period) + spent;
        for now in period..2 * period {
            assert_eq!(rule.used(state, now), counted(now), "{limit}/{period} us at {now}");
            assert_eq!(rule.remaining(state, now), limit.saturating_sub(counted(now)));
            for cost in 1..=limit {
                let opens = (now..2 * period).find(|at| counted(*at) + cost <= limit);
                let next =
                    || (2 * period..).find(|at| (spent * (3 * period - at)).div_ceil(period) + cost <= limit);
                assert_eq!(
                    Some(rule.slot(state, now, cost).opens_us),
                    opens.or_else(next),
                    "{cost} at {now}"
                );
            }
        }
    }
}
