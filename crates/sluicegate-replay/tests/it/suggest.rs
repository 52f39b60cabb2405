//! Suggestions against an exhaustive search.

use std::net::IpAddr;

use sluicegate_replay::WithinSecond;

use crate::model;
use crate::support::{ACCESS_LOG, line, of_policy, of_rules, run};

const MINUTE: u64 = 60_000_000;

/// How many requests each limit from 0 to the highest rejects.
fn rejections(
    requests: &[(IpAddr, u64)],
    algorithm: &str,
    burst_of: impl Fn(u64) -> u64,
    cost: impl Fn(usize) -> u64 + Copy,
    highest: u64,
) -> Vec<u64> {
    let of = |limit: u64| {
        let rejected = model::rejected(requests, algorithm, (limit, MINUTE, burst_of(limit)), cost);
        rejected.iter().filter(|rejected| **rejected).count() as u64
    };
    let mut all = vec![u64::MAX];
    all.extend((1..=highest).map(of));
    assert_eq!(all.last(), Some(&0), "above the highest there is nothing to find");
    all
}

/// The least limit above which none rejects more than this many, by trying all; and what it rejects.
fn exhaustive(rejections: &[u64], most: u64) -> (u64, u64) {
    let last = rejections.iter().rposition(|rejected| *rejected > most).expect("0 rejects everything");
    (last as u64 + 1, rejections[last + 1])
}

#[test]
fn a_suggestion_for_the_real_log_is_that_of_an_exhaustive_search() {
    let requests = model::requests(WithinSecond::Spread);
    for (algorithm, quota, highest) in [
        ("gcra", "10/min burst 8", 250),
        ("fixed-window", "10/min", 150),
        ("sliding-log", "7/min", 150),
        ("sliding-counter", "7/min", 150),
    ] {
        let burst = |limit: u64| if quota.contains("burst") { (limit * 8).div_ceil(10) } else { limit };
        let rejections = rejections(&requests, algorithm, burst, |_| 1, highest);
        for (share, most) in [("0.1%", 5), ("2%", 100)] {
            let replay = of_policy(&format!("{{ algorithm: {algorithm}, quota: {quota} }}"));
            let outcome = run(&replay.suggest(share.parse().unwrap()), ACCESS_LOG);
            let found = outcome.rules[0].suggestion.as_ref().expect("there is one");
            let (limit, rejected) = exhaustive(&rejections, most);
            assert_eq!((found.limit, found.rejected), (limit, rejected), "{algorithm} {quota} {share}");
            assert_eq!((found.together, found.uncertainty, found.step), (Some(rejected), 0, 1));
            assert_eq!(found.policy.quotas()[0].quota().burst_size(), burst(limit));
        }
    }
}

#[test]
fn with_costs_no_limit_above_the_suggestion_rejects_more() {
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    let mut falls = 0;
    for seed in 1..40_u64 {
        // Large and small requests of one key.
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let (mut second, mut log, mut requests) = (0, String::new(), Vec::new());
        let mut costs = Vec::new();
        for _ in 0..40 {
            second += 1 + next(7);
            let cost = if next(3) == 0 { 5 + next(15) } else { 1 };
            log.push_str(&format!("{}.000 192.0.2.1 \"GET / HTTP/1.1\" {cost}\n", 1_431_857_100 + second));
            requests.push((address, (1_431_857_100 + second) * 1_000_000));
            costs.push(cost);
        }
        let rules = "version: 1\npolicies: { p: { quota: 20/min } }\nrules:\n  - { name: r, limit: p, key: client, cost: { header: x-cost, min: 1, max: 20, missing: 1 } }\n";
        let format = r#"$msec $remote_addr "$request" $http_x_cost"#.parse().unwrap();
        let outcome = run(&of_rules(rules).format(format).suggest("10%".parse().unwrap()), log);
        let found = outcome.rules[0].suggestion.as_ref().expect("there is one");
        let rejections = rejections(&requests, "gcra", |limit| limit, |place| costs[place], 800);
        assert_eq!((found.limit, found.rejected), exhaustive(&rejections, 4), "seed {seed}");
        falls += usize::from(rejections.is_sorted_by(|low, high| low >= high));
    }
    assert!(falls < 39, "rejections rise with the limit in some of these logs");
}

#[test]
fn a_share_of_keys_counts_keys() {
    // Ten keys of which each comes once more often than the one before it, all in one second.
    let log: String = (1..=10).map(|key| line(0, &format!("192.0.2.{key}"), "/").repeat(key)).collect();
    let replay = of_policy("{ algorithm: fixed-window, quota: 1/min }").suggest("20%/keys".parse().unwrap());
    let outcome = run(&replay, log);
    let found = outcome.rules[0].suggestion.as_ref().expect("there is one");
    assert_eq!((found.limit, found.rejected, found.rejected_keys), (8, 1 + 2, 2));
}

#[test]
fn suggestions_are_replayed_beside_each_other() {
    let rules = "version: 1\npolicies: { a: { quota: 5/min }, b: { quota: 50/min } }\nrules:\n  - { name: each, limit: a, key: client }\n  - { name: all, limit: b, key: everybody }\n";
    let outcome = run(&of_rules(rules).suggest("1%".parse().unwrap()), ACCESS_LOG);
    for rule in &outcome.rules {
        let found = rule.suggestion.as_ref().expect("there is one");
        assert!(found.rejected <= 50, "{found:?}");
        // A request that one of them refuses spends nothing of the other, so together they refuse no more than alone here.
        assert!(found.together.is_some_and(|together| together <= found.rejected), "{found:?}");
    }
}

#[test]
fn where_there_is_no_suggestion_table_object_and_page_say_why() {
    let mut outcome = run(&of_policy("{ quota: 5/min }").suggest("1%".parse().unwrap()), ACCESS_LOG);
    assert!(outcome.rules[0].suggestion.take().is_some() && outcome.rules[0].no_suggestion.is_none());
    outcome.rules[0].no_suggestion = Some("the log is too large");
    assert!(outcome.to_string().contains("\n  no suggestion: the log is too large\n"));
    let object: serde_json::Value = serde_json::from_str(&outcome.to_json()).unwrap();
    assert_eq!(object["rules"][0]["no_suggestion"], "the log is too large");
    assert!(outcome.to_html().contains("No suggestion: the log is too large."));
}

/// A suggestion for months once had periods of 31 days.
#[test]
fn a_suggestion_keeps_the_calendar_and_what_is_carried_over() {
    // Midnight of the first of June 2015 in Seoul: eight requests an hour before it, and eight after it.
    let border = 1_433_084_400;
    let log: String = [border - 3_600, border]
        .into_iter()
        .flat_map(|from| {
            (0..8).map(move |second| format!("{}.000 192.0.2.1 \"GET / HTTP/1.1\"\n", from + second))
        })
        .collect();
    for (quota, limit, suggested) in [
        ("4/month in Asia/Seoul", 8, "8/month in Asia/Seoul"),
        ("4/month in Asia/Seoul carry over 50%", 8, "8/month in Asia/Seoul carry over 4"),
    ] {
        let replay = of_policy(&format!("{{ quota: {quota} }}"));
        let replay = replay.format(r#"$msec $remote_addr "$request""#.parse().unwrap());
        let outcome = run(&replay.suggest("0%".parse().unwrap()), &log);
        let found = outcome.rules[0].suggestion.as_ref().expect("there is one");
        assert_eq!((found.limit, found.rejected), (limit, 0), "{quota}");
        let policy = found.policy.to_string();
        assert!(policy.starts_with(&format!("all: {suggested} (")), "{policy}");
    }
}
