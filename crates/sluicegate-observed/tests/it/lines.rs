//! The lines of an observed store in the log: one a minute and policy at `warn`, and each refusal at `debug`.

use std::net::Ipv4Addr;
use std::time::Duration;

use sluicegate_core::clock::ManualClock;
use sluicegate_core::key::AsKey;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{MemoryStore, Policy, RateLimiter};
use sluicegate_observed::Observed;
use sluicegate_tests::log::Log;

fn observed(name: &str) -> (Observed, ManualClock) {
    let clock = ManualClock::new();
    clock.set(Duration::from_secs(60_000));
    let memory = MemoryStore::builder().clock(clock.clone()).build().expect("the capacity is possible");
    (Observed::named(name, memory).expect("the name is free"), clock)
}

fn ask(limiter: &RateLimiter, key: impl AsKey, times: usize) {
    for _ in 0..times {
        assert!(limiter.check(&key).now().is_ok_and(|decision| decision.is_ok()), "memory answers at once");
    }
}

fn warnings(log: &Log) -> Vec<String> {
    log.lines().into_iter().filter(|line| line.starts_with("WARN")).collect()
}

#[tokio::test]
async fn a_minute_with_refusals_is_one_line_with_the_key_that_was_refused_most() {
    let (log, (store, clock)) = (Log::of_this_thread(), observed("log-minutes"));
    let login = Policy::fixed_window("login", "5/h").on(&store).unwrap();
    ask(&login, Ipv4Addr::new(203, 0, 113, 9), 5 + 60);
    ask(&login, "planted", 5 + 20);
    clock.advance(Duration::from_secs(59));
    ask(&login, "planted", 1);
    assert_eq!(warnings(&log), [""; 0], "the minute has not ended");
    clock.advance(Duration::from_secs(1));
    ask(&login, Ipv4Addr::LOCALHOST, 1);
    let lines = warnings(&log);
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.contains("a policy has refused requests"), "{line}");
    for field in ["policy=\"login\"", "refused=81", "key=\"203.0.113.9\"", "kind=\"address\"", "retry_after="]
    {
        assert!(line.contains(field), "{field} in {line}");
    }

    clock.advance(Duration::from_secs(300));
    ask(&login, Ipv4Addr::LOCALHOST, 1);
    assert_eq!(warnings(&log).len(), 1, "minutes without refusals are no lines");
    ask(&login, "planted", 7);
    clock.advance(Duration::from_secs(60));
    drop(store.snapshot());
    let line = warnings(&log).swap_remove(1);
    assert!(line.contains("refused=7"), "a page ends a minute as well: {line}");
    ask(&login, "planted", 3);
    clock.advance(Duration::from_secs(60));
    store.refresh().await;
    let line = warnings(&log).swap_remove(2);
    assert!(line.contains("refused=3"), "so does a scrape: {line}");
    assert!(!log.lines().concat().contains("planted"), "a secret is a digest");
}

#[test]
fn a_shadow_refuses_nobody_and_warns_of_nothing() {
    let (log, (store, clock)) = (Log::of_this_thread(), observed("log-shadow"));
    let tried = Policy::gcra("tried", "1/h").mode(PolicyMode::Shadow).on(&store).unwrap();
    ask(&tried, Ipv4Addr::LOCALHOST, 9);
    clock.advance(Duration::from_secs(60));
    ask(&tried, Ipv4Addr::LOCALHOST, 1);
    assert_eq!(warnings(&log), [""; 0]);
}

#[test]
fn each_refusal_is_a_line_for_those_who_look_for_bugs() {
    let (log, (store, _)) = (Log::of_this_thread(), observed("log-debug"));
    let login = Policy::fixed_window("login", "5/h").on(&store).unwrap();
    ask(&login, "planted", 5 + 3);
    let lines: Vec<_> = log.lines().into_iter().filter(|line| line.starts_with("DEBUG")).collect();
    assert_eq!(lines.len(), 3);
    for field in ["policy=\"login\"", "result=\"rejected\"", "key=Key(", "retry_after=Some("] {
        assert!(lines[0].contains(field), "{field} in {}", lines[0]);
    }
}
