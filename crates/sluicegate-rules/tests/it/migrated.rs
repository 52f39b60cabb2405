//! The policies of the page on migration let as many requests pass as the documentation of the other systems says.

use std::time::Duration;

use http::Request;
use sluicegate_core::MemoryStore;
use sluicegate_core::clock::ManualClock;
use sluicegate_rules::Rules;

use crate::support::parse;

/// A policy, and steps of the seconds that pass, the requests that then come at once, and those that pass.
type Migrated = (&'static str, &'static [(u64, usize, usize)]);

const POLICIES: [Migrated; 8] = [
    ("{ algorithm: leaky-bucket, quota: 10/s burst 21 }", &[(0, 30, 21), (1, 30, 10), (60, 30, 21)]),
    ("{ algorithm: fixed-window, quota: 5/min }", &[(50, 9, 5), (10, 9, 5), (59, 9, 0), (1, 9, 5)]),
    ("{ algorithm: fixed-window-from-first-hit, quota: 2/min }", &[(50, 3, 2), (59, 3, 0), (1, 3, 2)]),
    ("{ algorithm: leaky-bucket, quota: 1/s burst 3 }", &[(0, 9, 3), (1, 9, 1), (2, 9, 2)]),
    ("{ algorithm: token-bucket-interval, quota: 5/min burst 10 }", &[(0, 20, 10), (59, 20, 0), (1, 20, 5)]),
    ("{ algorithm: token-bucket-interval, quota: 3/h }", &[(0, 9, 3), (3_599, 9, 0), (1, 9, 3)]),
    ("{ algorithm: fixed-window, quota: 3/min }", &[(59, 9, 3), (1, 9, 3)]),
    ("{ algorithm: token-bucket, quota: 1/s burst 3 }", &[(0, 9, 3), (1, 9, 1), (60, 9, 3)]),
];

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
