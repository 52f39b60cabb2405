//! The figures of the real log are those of the slow model.

use std::collections::{HashMap, HashSet};

use sluicegate_replay::{ReplayOutcome, WithinSecond};

use crate::model;
use crate::support::{ACCESS_LOG, fields, line, of_policy, of_rules, run};

const MINUTE: u64 = 60_000_000;

/// Every algorithm, with the period, limit and burst of its quota.
const ALGORITHMS: [(&str, &str, (u64, u64, u64)); 12] = [
    ("gcra", "5/min", (5, MINUTE, 5)),
    ("gcra", "30/h burst 7", (30, 60 * MINUTE, 7)),
    ("fixed-window", "5/min", (5, MINUTE, 5)),
    ("fixed-window-from-first-hit", "5/min", (5, MINUTE, 5)),
    ("sliding-log", "5/min", (5, MINUTE, 5)),
    ("sliding-counter", "5/min", (5, MINUTE, 5)),
    ("token-bucket", "5/min", (5, MINUTE, 5)),
    ("token-bucket-interval", "5/min burst 8", (5, MINUTE, 8)),
    ("token-bucket-aligned", "5/min", (5, MINUTE, 5)),
    ("leaky-bucket", "5/min", (5, MINUTE, 5)),
    ("leaky-bucket-queue", "5/min", (5, MINUTE, 5)),
    ("leaky-bucket-queue-above-2", "5/min", (5, MINUTE, 5)),
];

fn policy(algorithm: &str, quota: &str) -> String {
    let waits = if algorithm.contains("queue") { ", on_exceeded: wait 1h" } else { "" };
    format!("{{ algorithm: {algorithm}, quota: {quota}{waits} }}")
}

#[test]
fn figures_of_the_real_log_equal_those_of_the_model_under_every_algorithm_and_both_ways_of_seconds() {
    for within in [WithinSecond::Spread, WithinSecond::Together] {
        let requests = model::requests(within);
        let other = match within {
            WithinSecond::Spread => model::requests(WithinSecond::Together),
            _ => model::requests(WithinSecond::Spread),
        };
        for (algorithm, quota, numbers) in ALGORITHMS {
            let outcome = run(&of_policy(&policy(algorithm, quota)).within_second(within), ACCESS_LOG);
            let rejected = model::rejected(&requests, algorithm, numbers, |_| 1);
            let otherwise = model::rejected(&other, algorithm, numbers, |_| 1);
            let rule = &outcome.rules[0];
            let mut by_minute: HashMap<u64, u64> = HashMap::new();
            let mut by_key = HashMap::new();
            for ((address, at_us), _) in requests.iter().zip(&rejected).filter(|(_, rejected)| **rejected) {
                *by_minute.entry(at_us / MINUTE).or_default() += 1;
                *by_key.entry(address.to_string()).or_default() += 1_u64;
            }
            let count = |rejected: &[bool]| rejected.iter().filter(|rejected| **rejected).count() as u64;
            let keys: HashSet<_> = requests.iter().map(|(address, _)| address).collect();
            assert_eq!((rule.asked, rule.keys), (5_000, keys.len() as u64));
            assert_eq!(rule.rejected, count(&rejected), "{algorithm} {quota} {within:?}");
            assert_eq!(rule.rejected_otherwise, Some(count(&otherwise)), "{algorithm} {quota} {within:?}");
            assert_eq!(rule.rejected_keys, by_key.len() as u64, "{algorithm}");
            assert_eq!(
                rule.worst.map(|worst| worst.per_minute),
                by_minute.values().max().copied(),
                "{algorithm}"
            );
            for offender in &rule.top {
                assert_eq!(by_key.get(&offender.key), Some(&offender.rejected), "{algorithm}");
            }
            assert!(rule.rejected > 50, "{algorithm}: the log tells algorithms apart");
            assert_eq!(rule.minutes.iter().map(|minute| minute.rejected).sum::<u64>(), rule.rejected);
        }
    }
}

#[test]
fn compared_algorithms_reject_what_each_rejects_alone() {
    let outcome = run(&of_policy("{ quota: 5/min burst 3 }").compare(), ACCESS_LOG);
    let requests = model::requests(WithinSecond::Spread);
    for compared in &outcome.rules[0].compared {
        let algorithm = compared.algorithm.to_string();
        let is_window = algorithm.contains("window") || algorithm.contains("sliding");
        let burst = if is_window { 5 } else { 3 };
        let rejected = model::rejected(&requests, &algorithm, (5, MINUTE, burst), |_| 1);
        let rejected = rejected.iter().filter(|rejected| **rejected).count() as u64;
        assert_eq!(
            (compared.rejected.as_ref(), compared.drops_burst),
            (Ok(&rejected), is_window),
            "{algorithm}"
        );
    }
    assert_eq!(outcome.rules[0].compared.len(), 6);
    assert_eq!(outcome.rules[0].compared[0].rejected, Ok(outcome.rules[0].rejected));
}

const SHOP: &str = r#"
version: 1
policies:
  login: { algorithm: sliding-log, quota: [2/min, 3/h] }
  api: { quota: 4/min }
  tried: { quota: 1/min, mode: shadow }
exempt: [{ name: health, only_if: { path: /health } }]
deny: [{ name: admin, only_if: { path: /admin } }]
rules:
  - { name: login, group: endpoint, only_if: { path: /login }, limit: login, key: client, refund_if: 5xx }
  - { name: rest, group: endpoint, limit: api, key: client }
  - { name: tried, limit: tried, key: client }
  - { name: keyed, limit: keyed, key: api_key(x-api-key) }
"#;

fn shop() -> String {
    SHOP.replace("  tried: {", "  keyed: { quota: 9/min }\n  tried: {")
}

fn counts(outcome: &ReplayOutcome) -> Vec<(&str, u64, u64)> {
    outcome.rules.iter().map(|rule| (&*rule.name, rule.asked, rule.rejected)).collect()
}

#[test]
fn rules_meet_the_requests_that_they_meet_in_a_service() {
    let a = "192.0.2.1";
    let log: String = [
        line(0, a, "/login"),
        line(1, a, "/login"),
        line(2, a, "/login"), // the third in a minute
        line(3, a, "/search"),
        line(4, a, "/health"),
        line(5, a, "/admin"),
        line(200, a, "/login"),
        line(300, a, "/login"), // the fourth in an hour
        line(300, "192.0.2.2", "/login"),
    ]
    .concat();
    let outcome = run(&of_rules(&shop()), &log);
    // The policy that is tried out is asked of the six that pass: two of them come within a minute of another.
    assert_eq!(counts(&outcome), [("login", 6, 2), ("rest", 1, 0), ("tried", 5, 2), ("keyed", 0, 0)]);
    assert_eq!((outcome.lines.exempt, outcome.lines.blocked, outcome.lines.read), (1, 1, 9));
    let left: Vec<_> = outcome.left_out.iter().map(|left| (&*left.rule, left.count)).collect();
    assert_eq!(left, [("keyed", 7)], "the log does not say the header");
    assert_eq!(outcome.rules[0].longest_wait.map(|wait| wait.as_secs()), Some(3_300));
}

#[test]
fn only_one_rule_and_only_a_time_can_be_replayed() {
    let log: String = (0..120).map(|second| line(second, "192.0.2.1", "/a")).collect();
    let replay = of_rules(&shop()).only("rest").unwrap().since("2015-05-17 10:00:30").unwrap();
    let outcome = run(&replay.until("2015-05-17T10:01:30Z").unwrap(), &log);
    assert_eq!(counts(&outcome), [("rest", 60, 56 - 3)]);
    assert_eq!(outcome.lines.outside, 60);
    let error = of_rules(&shop()).only("none").unwrap_err();
    assert_eq!(error.to_string(), "there is no rule \"none\": the rules are login, rest, tried, keyed");
    assert!(of_rules(&shop()).since("yesterday").is_err());
    // Of nothing at all, no rule rejects too much: a pipeline would have passed.
    let all = || of_rules(&shop());
    for none in [
        all().since("2015-05-18").unwrap().until("2015-05-18"),
        all().until("2015-05-17").unwrap().since("2015-05-18"),
    ] {
        let error = none.unwrap_err().to_string();
        assert!(error.contains("no time is between since 2015-05-18T00:00:00Z and until"), "{error}");
    }
}

#[test]
fn what_a_response_gave_back_is_given_back_and_a_429_counts_as_asked() {
    let status = |second, status: &str| line(second, "192.0.2.1", "/login").replace(" 200 ", status);
    let failed: String = (0..9).map(|second| status(second, " 503 ")).collect();
    assert_eq!(counts(&run(&of_rules(&shop()), &failed))[0], ("login", 9, 0));
    let refused: String = (0..9).map(|second| status(second, " 429 ")).collect();
    assert_eq!(counts(&run(&of_rules(&shop()), &refused))[0], ("login", 9, 7));
}

#[test]
fn nginx_times_of_the_end_are_turned_into_those_of_the_beginning() {
    let format = r#"$msec $request_time $remote_addr "$request" $http_x_api_key"#;
    // Each ends when the one before it began, so all of them came within 10 ms.
    let log: String = (0..5)
        .map(|place| {
            format!("{}.010 {place}.00{place} 192.0.2.1 \"GET / HTTP/1.1\" k1\n", 1_431_857_100 + place)
        })
        .collect();
    let outcome = run(&of_rules(&shop()).format(format.parse().unwrap()), &log);
    assert_eq!(outcome.span, Some((1_431_857_100_006_000, 1_431_857_100_010_000)));
    assert_eq!(counts(&outcome), [("login", 0, 0), ("rest", 5, 1), ("tried", 4, 3), ("keyed", 5, 0)]);
    assert_eq!((outcome.has_whole_seconds, outcome.rules[0].rejected_otherwise), (false, None));
    assert!(outcome.to_string().contains("finer than seconds") && outcome.left_out.is_empty());
}

/// It was once called the time that was logged.
#[test]
fn objects_that_say_the_end_and_how_long_it_took_are_replayed_at_their_beginning() {
    let object = |took: &str| {
        format!(
            "{{\"msec\":\"1431857104.500\"{took},\"remote_addr\":\"192.0.2.1\",\"request\":\"GET / HTTP/2.0\"}}\n"
        )
    };
    let times = |log: String| {
        let outcome = run(&of_policy("{ quota: 5/min }"), &log);
        let said: serde_json::Value = serde_json::from_str(&outcome.to_json()).unwrap();
        (said["time"].clone(), outcome.to_string().contains("time: as logged"))
    };
    let whole = object(",\"request_time\":\"1.250\"");
    assert_eq!(times(whole.repeat(3)), ("arrival".into(), false));
    assert_eq!(times(whole + &object("")), ("as logged".into(), true));
}

#[test]
fn header_fields_are_read_wherever_a_rule_names_them() {
    let log: String = (0..9)
        .map(|agent| line(0, "192.0.2.1", "/").replace("\"-\"\n", &format!("\"agent {agent}\"\n")))
        .collect();
    let keyed = |key: &str| {
        format!(
            "version: 1\npolicies: {{ p: {{ quota: 5/min }} }}\nrules: [{{ name: r, limit: p, key: {key} }}]\n"
        )
    };
    for (key, keys) in [
        ("client", 1),
        ("header(user-agent)", 9),
        ("'header(User-Agent)'", 9),
        ("\"header(user\\x2dagent)\"", 9),
    ] {
        assert_eq!(run(&of_rules(&keyed(key)), &log).rules[0].keys, keys, "{key}");
    }
}

/// They were once counted as nothing at all.
#[test]
fn requests_of_more_quotas_than_a_service_decides_together_are_left_out_and_the_reason_told() {
    let quotas: Vec<String> = (1..=6).map(|hours| format!("{hours}0/{hours}h")).collect();
    let policy = |name| format!("{name}: {{ quota: [{}] }}", quotas.join(", "));
    let rule = |name| {
        format!("{{ name: {name}, limit: {name}, key: client, only_if: {{ path: [/{name}, /all] }} }}")
    };
    let rules = format!(
        "version: 1\npolicies: {{ {}, {}, {} }}\nrules: [{}, {}, {}]\n",
        policy("a"),
        policy("b"),
        policy("c"),
        rule("a"),
        rule("b"),
        rule("c")
    );
    let log = [line(0, "192.0.2.1", "/all"), line(1, "192.0.2.1", "/a"), line(2, "192.0.2.1", "/c")].concat();
    let outcome = run(&of_rules(&rules), &log);
    assert_eq!(counts(&outcome), [("a", 1, 0), ("b", 0, 0), ("c", 1, 0)]);
    assert!(
        outcome.to_string().contains("1 request left out of rule b: the request asks more than 16 quotas")
    );
}

#[test]
fn the_outcome_is_told_as_a_table_and_as_one_object() {
    let outcome = run(&of_policy("{ quota: 5/min }").top(2).compare(), ACCESS_LOG);
    let table = outcome.to_string();
    for part in [
        "5000 lines read, 0 not understood",
        "whole seconds, spread",
        "clients do not react",
        "every/all",
        "fixed-window",
        "requests per key and minute: p50",
    ] {
        assert!(table.contains(part), "{part} is not in {table}");
    }
    let object: serde_json::Value = serde_json::from_str(&outcome.to_json()).unwrap();
    let rule = &object["rules"][0];
    assert_eq!((&object["version"], &object["within_second"]), (&1.into(), &"spread".into()));
    assert_eq!((&object["lines"]["read"], &object["lines"]["late"]), (&5_000.into(), &0.into()));
    assert_eq!(
        (&rule["name"], &rule["policy"], &rule["asked"]),
        (&"every".into(), &"all".into(), &5_000.into())
    );
    assert_eq!(rule["top"].as_array().map(Vec::len), Some(2));
    for (path, promised) in [
        ("/rules/0/top/0", "asked key quota rejected"),
        ("/rules/0/worst", "at per_minute"),
        ("/rules/0/per_key_and_minute", "max p50 p90 p99"),
    ] {
        assert_eq!(fields(&object, path), promised.split(' ').collect(), "{path}");
    }
    assert_eq!(object["span"]["from"], "2015-05-17T10:05:00Z");
    for name in [
        "rejected",
        "keys",
        "rejected_keys",
        "worst",
        "shortest_wait_seconds",
        "longest_wait_seconds",
        "suggestion",
    ] {
        assert!(rule.get(name).is_some(), "{name}");
    }
    let hidden = run(&of_policy("{ quota: 5/min }").hide_keys(), ACCESS_LOG);
    assert!(!hidden.to_string().contains("75.97.9.59") && table.contains("75.97.9.59"));
}

#[test]
fn the_page_needs_nothing_else_and_shows_texts_of_the_log_as_text() {
    let script = "<script>alert(1)</script>";
    let log =
        [line(0, "192.0.2.1", "/").repeat(9), format!("{script}\n"), "\u{202e}<img src=x>\n".to_owned()]
            .concat();
    let replay = of_policy("{ quota: 2/min burst 1 }").compare().suggest("10%".parse().unwrap());
    let page = run(&replay, log).to_html();
    assert!(!run(&replay, line(0, "192.0.2.1", "/")).to_html().contains("- to -"), "nobody waits");
    assert!(!page.contains("<script") && !page.contains("<img") && !page.contains('\u{202e}'), "{page}");
    assert!(page.contains("&lt;script&gt;alert(1)"));
    for outside in ["http://", "https://", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    for part in [
        "default-src 'none'",
        "Requests over time",
        "under each algorithm",
        "Suggestion for at most 10%",
        "192.0.2.1",
        "Not understood: 2 lines",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn threads_change_no_figure() {
    let log: String = (0..9_000)
        .map(|place| match place % 1_000 {
            7 => "no line\n".to_owned(),
            _ => line(place / 20, &format!("192.0.2.{}", place % 13), "/login"),
        })
        .collect();
    let outcome = |threads| run(&of_rules(&shop()).threads(threads).compare(), &log).to_json();
    let one = outcome(1);
    assert!(one.contains("\"line\": 8008"), "{one}");
    for threads in [2, 5] {
        assert_eq!(outcome(threads), one);
    }
}

/// What a rule gives back, and what waits its turn, is so in all figures: a comparison once counted neither.
#[test]
fn comparisons_and_suggestions_give_back_and_wait_as_the_rule_does() {
    let rules = |limit: u64, options: &str, rule: &str| {
        format!(
            "version: 1\npolicies: {{ p: {{ quota: {limit}/min{options} }} }}\nrules: [{{ name: r, limit: p, key: client{rule} }}]\n"
        )
    };
    let log: String = (0..300)
        .map(|place| {
            let line = line(place / 5, &format!("192.0.2.{}", place % 3), "/");
            if place % 4 == 0 { line } else { line.replace(" 200 ", " 503 ") }
        })
        .collect();
    let (waits, refunds) = (", on_exceeded: wait 10s", ", refund_if: 5xx");
    let plain = run(&of_rules(&rules(6, "", "")), &log).rules[0].rejected;
    for (options, rule) in [("", refunds), (waits, ""), (waits, refunds)] {
        let share = "10%".parse().unwrap();
        let outcome = run(&of_rules(&rules(6, options, rule)).compare().suggest(share), &log);
        let row = &outcome.rules[0];
        assert!(row.rejected < plain, "{options}{rule}: {} and {plain}", row.rejected);
        assert_eq!(row.compared[0].rejected, Ok(row.rejected), "{options}{rule}");
        let found = row.suggestion.as_ref().expect("there is one");
        assert_eq!(found.together, Some(found.rejected), "{options}{rule}");
        let at = |limit| run(&of_rules(&rules(limit, options, rule)), &log).rules[0].rejected;
        assert_eq!(at(found.limit), found.rejected, "{options}{rule}");
        assert!(at(found.limit - 1) > 30 && found.rejected <= 30, "{options}{rule}");
    }
}

/// The service answers such a request with 500, and it was once counted as if there had been room.
#[test]
fn a_request_that_asks_one_policy_twice_is_left_out_and_the_reason_told() {
    let rules = "version: 1\npolicies: { p: { quota: 1/min } }\nrules:\n  - { name: login, only_if: { path: /login }, limit: p, key: client }\n  - { name: search, only_if: { path: [/search, /login] }, limit: p, key: client }\n";
    let log = [line(0, "192.0.2.1", "/login").repeat(3), line(1, "192.0.2.1", "/search").repeat(2)].concat();
    let outcome = run(&of_rules(rules), &log);
    assert_eq!(counts(&outcome), [("login", 0, 0), ("search", 2, 1)]);
    let left: Vec<_> = outcome.left_out.iter().map(|left| (&*left.rule, left.count)).collect();
    assert_eq!(left, [("login", 3), ("search", 3)]);
    assert!(outcome.to_string().contains("asks one policy twice, which the service answers with 500"));
    let only = run(&of_rules(rules).only("search").unwrap(), &log);
    assert_eq!(counts(&only), [("search", 2, 1)], "also where the other rule is not replayed");
}
