//! Keys with quotas of their own: a replay decides by these, as the service does.

use sluicegate_replay::RuleFigures;

use crate::support::{line, of_rules, run};

/// Requests of this client in one minute, whose referrer and agent are these.
fn asks(count: u64, address: &str, referrer: &str, agent: &str) -> String {
    let line =
        |second| line(second, address, "/").replace("\"-\" \"-\"", &format!("\"{referrer}\" \"{agent}\""));
    (0..count).map(line).collect()
}

fn figures(rule: &RuleFigures) -> (u64, u64, u64) {
    (rule.asked, rule.rejected, rule.own_quotas)
}

/// Once all keys were decided by the quotas of the policy.
#[test]
fn single_keys_are_decided_and_told_by_their_own_quotas_under_every_algorithm() {
    for algorithm in ["fixed-window", "sliding-log", "sliding-counter"] {
        let rules = format!(
            "version: 1\npolicies: {{ p: {{ quota: 5/min, algorithm: {algorithm}, overrides: {{ 192.0.2.1: 20/min, 192.0.2.9: unlimited }} }} }}\nrules: [{{ name: r, limit: p, key: client }}]\n"
        );
        let log = ["192.0.2.1", "192.0.2.2", "192.0.2.9"].map(|address| asks(30, address, "-", "-")).concat();
        let replay = of_rules(&rules).compare().suggest("0%".parse().unwrap());
        let outcome = run(&replay, &log);
        let rule = &outcome.rules[0];
        assert_eq!(figures(rule), (60, 35, 30), "{algorithm}");
        let top: Vec<_> = rule.top.iter().map(|key| (key.rejected, key.quotas.as_deref())).collect();
        assert_eq!(top, [(25, None), (10, Some("20/min"))], "{algorithm}");
        let alone = rule.compared.iter().find(|alone| alone.algorithm.to_string() == algorithm).unwrap();
        assert_eq!(alone.rejected, Ok(35), "{algorithm}");
        let found = rule.suggestion.as_ref().expect("there is one");
        assert_eq!(
            (found.limit, found.rejected),
            (30, 0),
            "{algorithm}: of keys that have no quotas of their own"
        );
        assert!(outcome.to_string().contains("192.0.2.1: 10 of 30 rejected under 20/min"), "{outcome}");
        let object: serde_json::Value = serde_json::from_str(&outcome.to_json()).unwrap();
        assert_eq!(object["rules"][0]["top"][1]["quota"], "20/min");
    }
}

#[test]
fn a_quota_that_a_request_brings_counts_what_was_spent_under_another_one() {
    let rules = "version: 1\nclients: { proxies: 192.0.2.0/24 }\npolicies: { p: { quota: 5/min, algorithm: fixed-window, quota_by: header(referer) } }\nrules: [{ name: r, limit: p, key: header(user-agent) }]\n";
    let log = [
        asks(10, "192.0.2.1", "7/min", "ada"),
        asks(10, "192.0.2.1", "9/min", "ada"),
        asks(10, "198.51.100.7", "9/min", "bob"),
    ];
    for threads in [1, 3] {
        let outcome = run(&of_rules(rules).threads(threads), log.concat());
        assert_eq!(
            figures(&outcome.rules[0]),
            (30, 16, 20),
            "nine of ada pass, and five of bob, who is no proxy"
        );
    }
}

#[test]
fn tiers_are_rows_of_one_policy_whose_keys_keep_what_they_have_spent() {
    let rules = "version: 1\npolicies: { p: { quota: 2/min, algorithm: fixed-window, overrides: { 192.0.2.9: 1/min } } }\ntiers: { plan: { policy: p, by: header(user-agent), tiers: { free: 2/min, pro: 5/min }, default_tier: free } }\nrules: [{ name: r, limit: plan, key: client }]\n";
    let log = [
        asks(4, "192.0.2.1", "-", "free"),
        asks(8, "192.0.2.1", "-", "pro").lines().skip(4).map(|line| format!("{line}\n")).collect(),
        asks(7, "192.0.2.2", "-", "pro"),
        asks(3, "192.0.2.9", "-", "pro"),
    ];
    let outcome = run(&of_rules(rules), log.concat());
    let rows: Vec<_> = outcome.rules.iter().map(|rule| (rule.policy.to_string(), figures(rule))).collect();
    assert_eq!(
        rows,
        [
            ("p: 2/min (fixed-window)".to_owned(), (7, 4, 3)),
            ("p: 5/min (fixed-window)".to_owned(), (11, 3, 0))
        ]
    );
}
