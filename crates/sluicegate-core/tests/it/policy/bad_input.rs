//! What cannot work is refused where it is written, with the value and what would be accepted.

use std::error::Error;
use std::time::Duration;

use sluicegate_core::error::{ConfigErrorKind, StoreErrorKind};
use sluicegate_core::limiter::check_all;
use sluicegate_core::policy::MAX_QUOTAS;
use sluicegate_core::{Algorithm, ConfigError, Key, MemoryStore, Outcome, Policy, Quota, StoreError};

use crate::support::{ALL, answer, limiter, ms, secs, store, us};

fn refused(algorithm: Algorithm, quota: Quota) -> ConfigError {
    Policy::builder("p", algorithm, quota).build().expect_err("it cannot work")
}

/// The kind of an error, and parts of its message.
fn says(error: &ConfigError, kind: ConfigErrorKind, parts: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{error:?} does not say {part:?}");
    }
    printed_once(error);
}

/// A chain of errors prints each message once.
fn printed_once(error: &dyn Error) {
    let mut chain = vec![error.to_string()];
    let mut source = error.source();
    while let Some(error) = source {
        chain.push(error.to_string());
        source = error.source();
    }
    for (index, message) in chain.iter().enumerate() {
        assert!(!message.is_empty() && !message.ends_with('.'), "{message:?}");
        assert!(
            chain.iter().enumerate().all(|(other, text)| other == index || !text.contains(message)),
            "{chain:?}"
        );
    }
}

#[test]
fn zeros_are_refused_by_every_algorithm() {
    for algorithm in ALL {
        let limit = refused(algorithm, Quota::per_second(0));
        says(&limit, ConfigErrorKind::Quota, &["\"p\"", "limit of 0/s", "at least 1"]);
        let period = refused(algorithm, Quota::new(5, Duration::ZERO));
        says(&period, ConfigErrorKind::Quota, &["\"p\"", "quota of 5", "at least 1 microsecond"]);
        let burst = refused(algorithm, Quota::per_second(5).burst(0));
        says(&burst, ConfigErrorKind::Quota, &["burst of 5/s burst 0", "at least 1"]);
    }
}

#[test]
fn periods_that_no_clock_here_can_tell_are_refused() {
    for algorithm in ALL {
        let nanos = refused(algorithm, Quota::new(1, Duration::from_nanos(1)));
        says(&nanos, ConfigErrorKind::Quota, &["1/1ns", "at least 1 microsecond"]);
        let century = refused(algorithm, Quota::new(1, secs(100 * 365 * 86_400)));
        says(&century, ConfigErrorKind::Quota, &["1/36500d", "longer than ten years"]);
        let longest = refused(algorithm, Quota::new(1, secs(u64::MAX)));
        says(&longest, ConfigErrorKind::Quota, &["longer than ten years"]);
    }
}

#[test]
fn the_edges_of_what_is_accepted_work() {
    for algorithm in ALL {
        for quota in [Quota::new(1, us(1)), Quota::new(1, secs(10 * 365 * 86_400)), Quota::new(4_096, ms(1))]
        {
            let (store, _) = store();
            let limiter = limiter(&store, "edge", algorithm, quota);
            let burst = quota.burst_size();
            assert!(answer(limiter.check("k").cost(burst)).is_allowed(), "{algorithm} {quota}");
            let denied = answer(limiter.check("k"));
            assert_eq!((denied.outcome(), denied.remaining()), (Outcome::Denied, 0), "{algorithm} {quota}");
            assert!(denied.retry_after() > Some(us(0)) && denied.retry_after() <= Some(quota.period() * 2));
        }
    }
}

#[test]
fn what_cannot_be_exact_is_refused_with_what_can() {
    let odd = Quota::new(999_983, us(2_591_999_999_999));
    for algorithm in [Algorithm::Gcra, Algorithm::SlidingCounter] {
        let error = refused(algorithm, odd);
        says(&error, ConfigErrorKind::Inexact, &["999983/2591999999999us", "2^52", "up to 1,000,000"]);
    }
    let counter = refused(Algorithm::SlidingCounter, Quota::per_second(1 << 40));
    says(&counter, ConfigErrorKind::Inexact, &["1099511627776/s", "counts to 1073741823"]);
    let bucket =
        Policy::builder("p", "token-bucket-interval".parse().expect("a name"), Quota::per_second(1 << 53));
    says(&bucket.build().expect_err("inexact"), ConfigErrorKind::Inexact, &["9007199254740992/s", "2^52"]);
    let log = refused(Algorithm::SlidingLog, Quota::per_second(1_000_001));
    says(&log, ConfigErrorKind::Quota, &["at most 1000000", "not 1000001", "sliding counter"]);
    let slow = refused(Algorithm::Gcra, Quota::per_day(1).burst(4_000));
    says(&slow, ConfigErrorKind::Quota, &["burst of 4000", "ten years", "1/d"]);
}

#[test]
fn a_window_with_a_burst_is_refused() {
    for algorithm in ALL.into_iter().filter(|algorithm| {
        algorithm.to_string().contains("window") || algorithm.to_string().contains("sliding")
    }) {
        let error = refused(algorithm, Quota::per_minute(5).burst(9));
        says(
            &error,
            ConfigErrorKind::Burst,
            &[&algorithm.to_string(), "5/min burst 9", "token bucket or GCRA"],
        );
    }
}

#[test]
fn a_text_that_is_no_quota_is_reported_when_the_policy_is_built() {
    use ConfigErrorKind::{Quota, Unreadable};
    for (text, kind, part, problem) in [
        ("", Unreadable, "", "\"/\" or \"per\""),
        ("ten/min", Unreadable, "ten", "\"ten\" is not a whole number"),
        ("5/fortnight", Unreadable, "fortnight", "\"fortnight\" is not a unit of time"),
        ("0/min", Quota, "0", "the limit is 0"),
        ("5/min burst 0", Quota, "0", "the burst is 0"),
        ("5 / 0 s", Quota, "0", "the period is 0"),
        ("99999999999999999999/s", Quota, "99999999999999999999", "too large"),
        ("5/s/s", Unreadable, "s/s", "not a unit of time"),
        ("5/99999999999999999999999w", Quota, "99999999999999999999999", "too large"),
        ("5/18446744073709551615w", Quota, "18446744073709551615w", "too long"),
    ] {
        for (quota, build) in [
            (0, Policy::gcra("login", text)),
            (1, Policy::gcra("login", "5/min").and(text)),
            (1, Policy::gcra("login", "5/min").and(text).named("x")),
        ] {
            let error = build.build().expect_err("it is no quota");
            says(&error, kind, &["\"login\"", &format!("{text:?}"), problem, "100/min"]);
            assert_eq!((error.policy(), error.quota()), (Some("login"), Some(quota)), "{text:?}");
            assert_eq!(error.span().map(|span| &text[span]), Some(part), "{text:?}");
        }
    }
    // A client's text may be long, and is not repeated whole.
    let long = Policy::gcra("login", "x".repeat(10_000)).build().expect_err("it is no quota");
    assert!(long.to_string().len() < 400, "{long}");
}

#[test]
fn names_that_would_need_escaping_are_refused() {
    for (name, why) in [
        ("", "it is empty"),
        ("a b", "' ' would"),
        ("a\"b", "'\"' would"),
        (".a", "it begins with '.'"),
        ("login{id}", "'{' would"),
        ("é", "'é' would"),
        ("a\r\nb", "'\\r' would"),
        (&"x".repeat(65), "it has 65 characters"),
    ] {
        let error = Policy::gcra(name, "1/s").build().expect_err("it cannot be a name");
        says(&error, ConfigErrorKind::Name, &[why, "1 to 64 of a-z"]);
        let error =
            Policy::gcra("p", "1/s").and("1/min").named(name).build().expect_err("it cannot be an id");
        says(&error, ConfigErrorKind::Name, &["quota id", "1 to 64 of a-z"]);
        assert_eq!(error.quota(), Some(1));
    }
    for name in ["loginEndpoint", "API_v2", "9", "shop.users.login"] {
        assert_eq!(Policy::gcra(name, "1/s").build().expect("it can be a name").name(), name);
    }
    let error = "leaky".parse::<Algorithm>().expect_err("it is none");
    says(&error, ConfigErrorKind::Unreadable, &["\"leaky\"", "sliding-counter", "gcra", "queue-above-N"]);
}

#[test]
fn quotas_that_headers_could_not_tell_apart_are_refused() {
    let same = Policy::gcra("p", "5/min").and("9/60s").build().expect_err("both are 1min");
    says(&same, ConfigErrorKind::SameLabel, &["\"p\"", "\"p.1min\"", "named"]);
    assert_eq!(same.quota(), Some(1));
    let many = (1..=MAX_QUOTAS as u64)
        .fold(Policy::gcra("p", "5/min"), |policy, n| policy.and(Quota::new(5, secs(n))));
    let error = many.build().expect_err("they are seventeen");
    says(&error, ConfigErrorKind::TooManyQuotas, &["\"p\"", "17 quotas", "at most 16"]);
}

#[test]
fn a_name_belongs_to_one_policy_of_a_store_at_a_time() {
    let (store, _) = store();
    let first = Policy::gcra("login", "5/min").on(&store).expect("it is free");
    let _ = answer(first.check("k"));
    let taken = Policy::gcra("login", "6/min").on(&store).expect_err("it is taken");
    says(&taken, ConfigErrorKind::NameTaken, &["\"login\"", "5/min", "6/min", "another name"]);
    let equal = Policy::gcra("login", "5/min").on(&store).expect("it is the same policy");
    assert_eq!(answer(equal.peek("k")).remaining(), 4, "equal policies share their buckets");
    drop((first, equal));
    let free = Policy::gcra("login", "6/min").on(&store).expect("it is free again");
    assert_eq!(answer(free.peek("k")).remaining(), 6, "and its keys are its own");
}

#[test]
fn a_store_that_is_too_small_or_too_large_is_refused() {
    for (build, said) in [
        (MemoryStore::builder().table_size(0), "room for 0 keys"),
        (MemoryStore::builder().table_size(usize::MAX), "room for 18446744073709551615 keys"),
        (MemoryStore::builder().log_entries(0), "room for 0 log entries"),
    ] {
        let error = build.build().expect_err("it cannot be built");
        says(&error, ConfigErrorKind::Store, &[said, "1 to 2147483648"]);
    }
    let (store, _) = store();
    let error = Policy::sliding_log("log", "4097/min").on(&store).expect_err("the log is too long");
    says(
        &error,
        ConfigErrorKind::Unsupported,
        &["\"log\"", "4097", "4096", "log_entries(65552)", "sliding counter"],
    );
    let grown = MemoryStore::builder().log_entries(65_552).build().expect("it can be built");
    assert!(Policy::sliding_log("log", "4097/min").on(&grown).is_ok(), "what the message advises works");
}

fn failure(verdict: sluicegate_core::store::DecisionFuture) -> StoreError {
    let error = verdict.now().expect("memory answers at once").expect_err("it is a mistake");
    printed_once(&error);
    assert!(!error.may_succeed_later(), "no retry helps");
    error
}

#[test]
fn one_call_cannot_span_two_stores() {
    let ((here, _), (there, _)) = (store(), store());
    let a = limiter(&here, "a", Algorithm::Gcra, Quota::per_minute(5));
    let b = limiter(&there, "b", Algorithm::Gcra, Quota::per_minute(5));
    let key = Key::from("k");
    let error = failure(check_all([a.check(&key), b.check(&key)]));
    assert_eq!(error.kind(), StoreErrorKind::ForeignPolicy);
    assert_eq!(
        (answer(a.peek(&key)).remaining(), answer(b.peek(&key)).remaining()),
        (5, 5),
        "nothing is spent"
    );
}

#[test]
fn a_call_asks_for_one_to_sixteen_quotas() {
    assert_eq!(failure(check_all::<Key>([])).kind(), StoreErrorKind::NothingAsked);
    let (store, _) = store();
    let limiter = limiter(&store, "p", Algorithm::Gcra, Quota::per_minute(50));
    let keys: Vec<_> = (0..=MAX_QUOTAS as u64).map(Key::from).collect();
    let check = |count| check_all(keys.iter().take(count).map(|key| limiter.check(key)));
    assert_eq!(failure(check(MAX_QUOTAS + 1)).kind(), StoreErrorKind::TooManyQuotas);
    assert_eq!(answer(limiter.peek(&keys[0])).remaining(), 50, "nothing is spent");
    assert!(answer(check(MAX_QUOTAS)).is_allowed());
}

#[test]
fn the_largest_costs_saturate() {
    for algorithm in ALL {
        let (store, clock) = store();
        let limiter = limiter(&store, "p", algorithm, Quota::per_minute(5));
        for _ in 0..3 {
            let _ = answer(limiter.charge("k", u64::MAX));
        }
        let denied = answer(limiter.check("k").reserve(Duration::ZERO));
        assert_eq!((denied.outcome(), denied.remaining()), (Outcome::Denied, 0), "{algorithm}");
        let _ = answer(limiter.refund("k", u64::MAX));
        assert_eq!(answer(limiter.peek("k")).remaining(), 5, "{algorithm}");
        clock.set(Duration::MAX);
        let _ = (
            answer(limiter.check("k")),
            answer(limiter.charge("k", u64::MAX)),
            answer(limiter.refund("k", 1)),
        );
    }
}

#[test]
fn a_policy_keeps_at_least_one_quota() {
    let login = Policy::gcra("login", "5/min").build().expect("it is valid");
    let error = login.with_quotas(&[]).expect_err("there is none");
    assert_eq!(error.to_string(), "policy \"login\": a policy without a quota: give it one, as 5/min");
}

#[test]
fn a_queue_of_several_quotas_is_refused() {
    let queue =
        Policy::leaky_queue("upload", "2/s").and("90/min").build().expect_err("it would have two spacings");
    says(&queue, ConfigErrorKind::QueueOfSeveral, &["\"upload\"", "a queue", "policies of their own"]);
}
