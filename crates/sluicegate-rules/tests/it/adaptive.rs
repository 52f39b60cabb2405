//! A number at once that follows what the service can bear.

use sluicegate_rules::{RulesFile, Variables};

use sluicegate_tower::key::PeerAddr;

use super::sections::send;
use super::support::{error, parse, request, rules};
use super::tiers::bearer;

const ADAPTIVE: &str = "
version: 1
policies:
  free: { quota: 100/min }
in_flight:
  api: { adaptive: gradient, at_least: 1, at_most: 1, on_exceeded: deny }
rules:
  - { name: export, group: g, only_if: { path: /export }, limit: free, key: everybody, in_flight: api, class: sheddable }
  - { name: api, group: g, limit: free, key: header(x-user), in_flight: api }
";

#[tokio::test]
async fn rules_share_an_adaptive_number_and_one_more_is_shed_and_spends_nothing() {
    let rules = rules(ADAPTIVE);
    let held = send(&rules, "/", "ada").await;
    assert_eq!(held.status(), 200);
    for (path, user) in [("/export", "ada"), ("/", "bob")] {
        let shed = send(&rules, path, user).await;
        assert_eq!(shed.status(), 503, "all keys together");
        assert!(shed.headers().contains_key("retry-after"));
    }
    drop(held);
    let first = send(&rules, "/", "bob").await;
    assert_eq!(
        (first.status().as_u16(), &first.headers()["x-ratelimit-remaining"]),
        (200, &"99".parse().expect("a value"))
    );
    drop(first);
    assert_eq!(send(&rules, "/export", "ada").await.status(), 200);
}

#[tokio::test]
async fn an_explanation_says_the_class_of_a_request() {
    let rules = rules(ADAPTIVE);
    let explained = async |path: &str| {
        rules.explain(&super::support::request(path, &[("x-user", "ada")])).await.to_string()
    };
    assert!(explained("/export").await.contains("takes a permit of api as sheddable; 1 of 1 left"));
    assert!(explained("/").await.contains("takes a permit of api as critical; 1 of 1 left"));
}

#[tokio::test]
async fn a_class_is_read_from_a_verified_claim_and_from_a_header_of_a_named_proxy_alone() {
    let text = ADAPTIVE
        .replace(
            "version: 1",
            "version: 1\njwt: { hs256: 0123456789abcdef0123456789abcdef }\nclients: { proxies: 10.0.0.0/8 }",
        )
        .replace("class: sheddable", "class: [jwt(class), header(x-class), sheddable-plus]");
    let rules = rules(&text);
    let class = async |peer: [u8; 4], token: serde_json::Value, header: &str| {
        let token = bearer(token);
        let mut request = request("/export", &[("authorization", &token), ("x-class", header)]);
        request.extensions_mut().insert(PeerAddr((peer, 443).into()));
        let explained = rules.explain(&request).await.to_string();
        let (_, class) = explained.split_once("takes a permit of api as ").expect("it takes one");
        class.split(';').next().expect("it has one").to_owned()
    };
    let said = |class: &str| serde_json::json!({ "sub": "ada", "class": class });
    let (proxy, client) = ([10, 0, 0, 7], [203, 0, 113, 7]);
    assert_eq!(
        class(client, said("critical-plus"), "sheddable").await,
        "critical-plus",
        "the first that says one"
    );
    assert_eq!(class(proxy, said("highest"), "sheddable").await, "sheddable", "what is no class says none");
    assert_eq!(class(proxy, serde_json::json!({ "sub": "ada" }), "critical").await, "critical");
    assert_eq!(
        class(client, said("highest"), "critical-plus").await,
        "sheddable-plus",
        "a client writes no class"
    );
    assert_eq!(class(proxy, said("highest"), "highest").await, "sheddable-plus");
    let mut twice = request("/export", &[("x-class", "critical-plus"), ("x-class", "critical")]);
    twice.extensions_mut().insert(PeerAddr((proxy, 443).into()));
    let explained = rules.explain(&twice).await.to_string();
    assert!(
        explained.contains("a permit of api as sheddable-plus"),
        "the first may be the client's: {explained}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_reload_changes_bounds_wait_and_mode_and_permits_count_on() {
    let rules = rules(ADAPTIVE);
    let held = send(&rules, "/", "ada").await;
    let reload = |from: &str, to: &str| {
        rules.replace(parse(&ADAPTIVE.replace(from, to))).expect("memory keeps it");
    };
    reload("at_most: 1,", "at_most: 2,");
    assert_eq!(send(&rules, "/", "bob").await.status(), 200, "it may be 2, which is needed now");
    reload("at_least: 1, at_most: 1", "at_least: 2, at_most: 2");
    let second = send(&rules, "/", "bob").await;
    assert_eq!(
        (second.status(), send(&rules, "/", "bob").await.status()),
        (200.try_into().expect("one"), 503.try_into().expect("one"))
    );
    reload("on_exceeded: deny", "on_exceeded: wait 3s");
    let began = tokio::time::Instant::now();
    assert_eq!(send(&rules, "/", "bob").await.status(), 503);
    assert_eq!(began.elapsed().as_secs(), 3);
    reload("on_exceeded: deny", "mode: shadow");
    assert_eq!(send(&rules, "/", "bob").await.status(), 200, "it is only counted");
    let by_key =
        ADAPTIVE.replace("adaptive: gradient, at_least: 1, at_most: 1, on_exceeded: deny", "permits: 2");
    rules.replace(parse(&by_key.replace(", class: sheddable", ""))).expect("memory keeps it");
    assert_eq!(send(&rules, "/", "bob").await.status(), 200, "another kind begins anew, and counts by key");
    drop((held, second));
}

/// A rule once needed a limit, so that a number at once had to come with a policy that nobody reaches.
#[tokio::test]
async fn a_rule_may_have_a_number_at_once_and_no_limit() {
    let text = "
version: 1
in_flight: { exports: 1 }
rules:
  - { name: exports, only_if: { path: /export }, key: header(x-user), in_flight: exports }
";
    let rules = rules(text);
    let held = send(&rules, "/export", "ada").await;
    assert_eq!(held.status(), 200);
    assert_eq!(send(&rules, "/export", "ada").await.status(), 429);
    assert_eq!(send(&rules, "/export", "bob").await.status(), 200, "each key has its own");
    drop(held);
    assert_eq!(send(&rules, "/export", "ada").await.status(), 200);
    for (from, to, expected) in [
        (", in_flight: exports }", " }", "a rule has at least one limit"),
        ("key:", "limit: [], key:", "a rule has at least one limit"),
        ("key:", "cost: 2, key:", "\"cost\" says nothing here"),
    ] {
        let wrong = error(RulesFile::parse("rules.yaml", &text.replace(from, to), &Variables::none()));
        assert!(wrong.contains(expected), "{to}: {wrong}");
    }
}

#[test]
fn what_is_wrong_with_an_adaptive_number_is_told() {
    for (from, to, expected) in [
        (
            "gradient",
            "gradient2",
            "there is no algorithm \"gradient2\" for a limit that adapts: use one of gradient, aimd",
        ),
        ("gradient", "vegas", "there is no algorithm \"vegas\""),
        ("at_most: 1", "at_most: 0", "\"0\" is not a number at once: use a whole number from 1 to 1000000"),
        ("at_least: 1", "at_least: 9", "cannot have at least 9 and at most 1 requests at once"),
        ("adaptive: gradient", "adaptive: gradient, permits: 3", "use one of them"),
        ("adaptive: gradient, ", "", "has no number"),
        ("adaptive: gradient", "permits: 2", "\"at_most\" is for numbers that adapt"),
        ("class: sheddable", "class: low", "there is no class \"low\""),
        ("class: sheddable", "class: [sheddable, critical]", "the words behind it say nothing: put it last"),
        ("class: sheddable", "class: []", "an empty list says nothing"),
        ("class: sheddable", "class: jwt(class)", "this needs the section \"jwt\""),
        (
            "class: sheddable",
            "class: header(x-class)",
            "clients would choose their class by this header: name the networks",
        ),
        ("class: sheddable", "class: header(x class)", "\"x class\" is not the name of a header field"),
        (
            "class: sheddable",
            "class: client(x)",
            "\"client(x)\" does not say where a class is read: use jwt(claim) or header(name)",
        ),
        ("class: sheddable", "class: api_key", "there is no class \"api_key\""),
        ("on_exceeded: deny", "guarantee: { sheddable: 101 }", "\"101\" is not a part in percent"),
        ("on_exceeded: deny", "guarantee: { sheddable: 60, critical: 50 }", "guarantees 110 %"),
        ("on_exceeded: deny", "timeout: soon", "\"soon\""),
        ("on_exceeded: deny", "mode: dry", "\"dry\""),
        (
            "adaptive: gradient, at_least: 1, at_most: 1, on_exceeded: deny",
            "permits: 2",
            "\"class\" is for rules whose \"in_flight\" is adaptive",
        ),
    ] {
        let wrong = error(RulesFile::parse("rules.yaml", &ADAPTIVE.replace(from, to), &Variables::none()));
        assert!(wrong.contains(expected), "{to}: {wrong}");
    }
}
