//! The policies of the page on migration let as many requests pass as the documentation of the other systems says.

use std::time::Duration;

use http::Request;
use sluicegate_core::MemoryStore;
use sluicegate_core::clock::ManualClock;
use sluicegate_rules::Rules;

use crate::support::parse;

/// A policy, and steps of the seconds that pass, the requests that then come at once, and those that pass.
type Migrated = (&'static str, &'static [(u64, usize, usize)]);

const POLICIES: [Migrated; 10] = [
    ("{ algorithm: leaky-bucket, quota: 10/s burst 21 }", &[(0, 30, 21), (1, 30, 10), (60, 30, 21)]),
    ("{ algorithm: fixed-window, quota: 5/min }", &[(50, 9, 5), (10, 9, 5), (59, 9, 0), (1, 9, 5)]),
    ("{ algorithm: fixed-window-from-first-hit, quota: 2/min }", &[(50, 3, 2), (59, 3, 0), (1, 3, 2)]),
    ("{ algorithm: leaky-bucket, quota: 1/s burst 3 }", &[(0, 9, 3), (1, 9, 1), (2, 9, 2)]),
    ("{ algorithm: token-bucket-interval, quota: 5/min burst 10 }", &[(0, 20, 10), (59, 20, 0), (1, 20, 5)]),
    ("{ algorithm: token-bucket-interval, quota: 3/h }", &[(0, 9, 3), (3_599, 9, 0), (1, 9, 3)]),
    ("{ algorithm: fixed-window, quota: 3/min }", &[(59, 9, 3), (1, 9, 3)]),
    ("{ algorithm: token-bucket, quota: 1/s burst 3 }", &[(0, 9, 3), (1, 9, 1), (60, 9, 3)]),
    ("{ algorithm: token-bucket, quota: 5/10s }", &[(0, 9, 5), (1, 9, 0), (1, 9, 1), (8, 9, 4)]),
    ("{ algorithm: token-bucket-interval, quota: 5/10s }", &[(0, 9, 5), (9, 9, 0), (1, 9, 5)]),
];

/// What HAProxy's `http_req_rate` does, by its counter: of two periods, the second as far as it has gone, and what is refused counts.
#[tokio::test]
async fn no_policy_refuses_a_client_that_goes_on_for_as_long_as_haproxy_does() {
    let text = "version: 1
policies: { p: { algorithm: sliding-counter, quota: 100/10s, count_rejected: true } }
rules: [{ name: r, limit: p, key: everybody }]
";
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().expect("the settings are possible");
    let limits = Rules::new(&store, parse(text)).expect("memory keeps all").limits();
    let (mut before, mut now, mut theirs, mut ours) = (0_u64, 0_u64, 0, 0);
    // Twice the limit for a period, and then a little less than the limit.
    for pause_ms in [50_usize, 110] {
        for at_ms in (0..10_000_u64).step_by(pause_ms) {
            now += 1;
            theirs += usize::from(now + before * (10_000 - at_ms) / 10_000 <= 100);
            ours += usize::from(limits.decide(&Request::new(())).await.is_ok());
            clock.advance(Duration::from_millis(pause_ms as u64));
        }
        (before, now) = (now, 0);
    }
    assert!(ours > theirs + 20, "ours {ours}, theirs {theirs}");
}

#[tokio::test]
async fn policies_of_gateways_pass_as_many_requests_as_there() {
    let page = include_str!("../../../sluicegate/docs/migration.md");
    for (policy, steps) in POLICIES {
        assert!(page.contains(policy), "the page has {policy}");
        let text = format!(
            "version: 1\npolicies: {{ p: {policy} }}\nrules: [{{ name: r, limit: p, key: everybody }}]\n"
        );
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build().expect("the settings are possible");
        let limits = Rules::new(&store, parse(&text)).expect("memory keeps all").limits();
        for (seconds, requests, passes) in steps {
            clock.advance(Duration::from_secs(*seconds));
            let mut passed = 0;
            for _ in 0..*requests {
                passed += usize::from(limits.decide(&Request::new(())).await.is_ok());
            }
            assert_eq!(passed, *passes, "{policy} after {seconds} s");
        }
    }
}
