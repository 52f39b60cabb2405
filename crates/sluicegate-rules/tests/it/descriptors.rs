//! Rules about descriptors of Envoy's protocol: which of them a descriptor meets, and what it spends.

use http::Request;
use sluicegate_core::Quota;
use sluicegate_rules::{Descriptor, Descriptors, Rules, RulesFile, Variables};

use crate::support::{request, rules};

type Entries<'a> = &'a [(&'a str, &'a str)];

fn one(domain: &str, entries: Entries<'_>) -> Request<()> {
    call(domain, &[entries]).remove(0)
}

/// The requests of one call.
fn call(domain: &str, descriptors: &[Entries<'_>]) -> Vec<Request<()>> {
    let all = descriptors.iter().map(|entries| Descriptor::new(entries.iter().copied()));
    Descriptors::new(domain, all).requests().collect()
}

/// The names of the rules that a request meets.
async fn met(rules: &Rules, request: &Request<()>) -> Vec<String> {
    let explained = rules.explain(request).await;
    let applying = explained.rules.into_iter().filter(|rule| rule.why_not.is_none());
    applying.map(|rule| rule.name).collect()
}

/// Two doors and two rules for requests, the others for descriptors.
const RULES: &str = r#"
version: 1
policies:
  request: { quota: 5/min }
  address: { quota: 10/s }
  path: { quota: 100/min }
  pair: { quota: 7/min }
  any: { quota: 1000/min, quota_by: descriptor }
deny:
  - { name: banned, only_if: { domain: edge, descriptor: { remote_address: 192.0.2.66 } } }
exempt:
  - { name: free, only_if: { domain: edge, descriptor: { plan: [staff, "test-*"] } } }
rules:
  - { name: all, limit: request, key: everybody }
  - { name: address, only_if: { domain: edge, descriptor: { remote_address: "*", "*": { present: false } } }, limit: address, key: client, cost: 2 }
  - { name: path, only_if: { domain: edge, descriptor: { path: "/api/*/v*/action" } }, limit: path, key: "descriptor(path)" }
  - { name: pair, only_if: { domain: [edge, mesh], descriptor: [{ a: "*" }, { b: "1" }] }, limit: pair, key: descriptor }
  - { name: other, only_if: { domain: other, not: { descriptor: { a: b } } }, limit: any, key: descriptor }
"#;

#[tokio::test]
async fn a_descriptor_meets_the_rules_with_all_of_its_entries_and_no_others() {
    let rules = rules(RULES);
    for (domain, entries, expected) in [
        ("edge", &[("remote_address", "192.0.2.7")][..], &["address"][..]),
        ("mesh", &[("remote_address", "192.0.2.7")], &[]),
        ("edge", &[("remote_address", "192.0.2.7"), ("path", "/")], &[]),
        ("edge", &[("remote_address", "192.0.2.66")], &["banned"]),
        ("edge", &[("plan", "staff")], &["free"]),
        ("edge", &[("plan", "test-1")], &["free"]),
        ("edge", &[("plan", "pro")], &[]),
        ("edge", &[("path", "/api/7/v2/action")], &["path"]),
        ("edge", &[("path", "/api//v/action")], &[]),
        ("edge", &[("path", "/api/7/action")], &[]),
        ("edge", &[("a", ""), ("b", "1")], &["pair"]),
        ("mesh", &[("a", "x"), ("b", "1")], &["pair"]),
        ("mesh", &[("b", "1"), ("a", "x")], &[]),
        ("other", &[("a", "c")], &["other"]),
        ("other", &[("a", "b")], &[]),
        ("other", &[], &["other"]),
    ] {
        assert_eq!(met(&rules, &one(domain, entries)).await, expected, "{domain} {entries:?}");
    }
    assert_eq!(met(&rules, &request("/", &[])).await, ["all"], "a request is no descriptor");
}

/// A rule for this condition, in this section.
fn with_rule(paths: &str, section: &str, condition: &str, key: &str) -> Rules {
    let limit = if section == "rules" { format!(", limit: login, key: {key}") } else { String::new() };
    let others = if section == "rules" { "" } else { "rules: []" };
    rules(&format!(
        "version: 1\npaths: {{ {paths} }}\npolicies: {{ login: {{ quota: 1/h }} }}\n{section}: [{{ name: login, only_if: {{ {condition} }}{limit} }}]\n{others}\n"
    ))
}

/// `POST /login?x=1` once walked around the limit of `/login`, because Envoy's `:path` has the query.
#[tokio::test]
async fn an_entry_with_a_path_is_compared_as_the_path_of_a_request_is() {
    let paths = [
        "/login",
        "/login?x=1",
        "/login;x",
        "//login",
        "/%6cogin",
        "/a/../login",
        "/LOGIN",
        "/login/",
        "/login%2f",
        "/logins",
        "/a/login",
        "/",
    ];
    for ignored in ["", "case: ignore, trailing_slash: ignore"] {
        for section in ["rules", "deny", "exempt"] {
            for (by_path, by_entry) in [
                ("path: /login", "domain: edge, descriptor: { path: /login }"),
                ("not: { path: /login }", "domain: edge, not: { descriptor: { path: /login } }"),
            ] {
                let requests = with_rule(ignored, section, by_path, "everybody");
                let descriptors = with_rule(ignored, section, by_entry, "everybody");
                for path in paths {
                    let expected = met(&requests, &request(path, &[])).await;
                    let found = met(&descriptors, &one("edge", &[("path", path)])).await;
                    assert_eq!(found, expected, "{path} in {section}: {by_path} [{ignored}]");
                }
            }
        }
    }
    for key in ["descriptor", "\"descriptor(path)\""] {
        let rules = with_rule("", "rules", "descriptor: { path: \"*\" }", key);
        for (path, passes) in [
            ("/login?a", true),
            ("//login;x", false),
            ("/a/../login#b", false),
            ("/other", true),
            ("*", true),
        ] {
            let request = one("edge", &[("path", path)]);
            assert_eq!(rules.limits().decide(&request).await.is_ok(), passes, "{path} by {key}");
        }
    }
}

#[tokio::test]
async fn a_remote_address_that_is_none_is_refused_and_a_missing_one_is_told_in_the_words_of_descriptors() {
    let rules = rules(
        &RULES
            .replace("descriptor: { a: b }", "descriptor: { a: never }")
            .replace("limit: any, key: descriptor", "limit: any, key: client"),
    );
    for (domain, entries, status, why) in [
        ("edge", &[("remote_address", "unix:")][..], 400, "is not an address"),
        ("other", &[("a", "b")], 500, "has no entry remote_address"),
    ] {
        let request = one(domain, entries);
        let refused = rules.limits().decide(&request).await.unwrap_err();
        assert_eq!(refused.refusal(&request).status(), status, "{refused}");
        assert!(refused.to_string().contains(why), "{refused}");
    }
}

/// Limitador's limits apply to descriptors with further entries too, and its counters are of their variables alone.
#[tokio::test]
async fn a_map_is_met_among_other_entries_which_are_no_part_of_its_key() {
    let rules = rules(
        r#"
version: 1
policies: { p: { algorithm: fixed-window, quota: 5/d } }
rules:
  - { name: writes, only_if: { domain: d, descriptor: { req_method: POST, user_id: "*" } }, limit: p, key: descriptor }
"#,
    );
    let mut passed = 0;
    for host in ["a", "b", "c", "d", "e", "f", "g"] {
        let entries = [("host", host), ("user_id", "7"), ("req_method", "POST")];
        passed += usize::from(rules.limits().decide(&one("d", &entries)).await.is_ok());
    }
    assert_eq!(passed, 5);
}

#[tokio::test]
async fn a_rule_says_whether_others_may_be_there_and_in_which_order() {
    let (a, b, c) = (("a", "1"), ("b", "2"), ("c", "3"));
    let orders: [Entries<'_>; 6] = [&[a, b], &[b, a], &[a, b, c], &[c, a, b], &[a], &[a, ("a", "2"), b]];
    for (descriptor, expected) in [
        ("{ a: 1, b: 2 }", [true, true, true, true, false, true]),
        ("{ a: 1, b: 2, \"*\": \"*\" }", [true, true, true, true, false, true]),
        (
            "{ a: 1, b: { present: true }, \"*\": { present: false } }",
            [true, true, false, false, false, true],
        ),
        ("{ a: 1, c: { present: false } }", [true, true, false, false, true, true]),
        ("{ a: 2 }", [false, false, false, false, false, true]),
        ("[{ a: 1 }, { b: 2 }]", [true, false, false, false, false, false]),
        ("[{ a: 1 }, { b: 2 }, { \"*\": \"*\" }]", [true, false, true, false, false, false]),
    ] {
        let rules = with_rule("", "rules", &format!("descriptor: {descriptor}"), "everybody");
        for (entries, expected) in orders.iter().zip(expected) {
            let found = met(&rules, &one("edge", entries)).await;
            assert_eq!(!found.is_empty(), expected, "{descriptor}: {entries:?}");
        }
    }
}

#[tokio::test]
async fn an_explanation_says_why_a_descriptor_does_not_meet_a_rule_and_shows_no_value() {
    let rules = rules(RULES);
    let explained = rules.explain(&one("mesh", &[("a", "s3cret")])).await.to_string();
    for line in [
        "  all: not asked: the rule is not about descriptors",
        "  address: not asked: domain is mesh, the rule wants edge",
        "  pair: not asked: descriptor with a does not match [a: *, b: 1]",
    ] {
        assert!(explained.lines().any(|known| known == line), "{line}: {explained}");
    }
    assert!(!explained.contains("s3cret"), "{explained}");
    let explained = rules.explain(&request("/", &[])).await.to_string();
    assert!(explained.contains("pair: not asked: the rule is about descriptors"), "{explained}");
}

#[tokio::test]
async fn the_cost_is_multiplied_by_the_hits_and_the_address_is_the_client() {
    let rules = rules(RULES);
    let descriptor = Descriptor::new([("remote_address", "192.0.2.7")]).hits(4);
    let request = Descriptors::new("edge", [descriptor]).requests().next().unwrap();
    let explained = rules.explain(&request).await;
    let asks =
        explained.rules.iter().flat_map(|rule| &rule.limits).find_map(|limit| limit.asks.as_ref().ok());
    let asks = asks.unwrap();
    assert_eq!((asks.cost, asks.key.plain()), (8, "192.0.2.7".to_owned()));
    assert!(rules.limits().decide(&request).await.is_ok());
    assert!(rules.limits().decide(&request).await.is_err());
}

#[tokio::test]
async fn keys_of_whole_descriptors_differ_in_domain_and_in_each_value() {
    let rules = rules(&RULES.replace("7/min", "1/min"));
    let pair = |domain, a| one(domain, &[("a", a), ("b", "1")]);
    for request in [pair("edge", "x"), pair("edge", "y"), pair("mesh", "x")] {
        assert!(rules.limits().decide(&request).await.is_ok());
        assert!(rules.limits().decide(&request).await.is_err());
    }
}

#[tokio::test]
async fn the_limit_of_a_descriptor_is_the_quota_of_its_key_where_the_policy_takes_it() {
    let rules = rules(RULES);
    let with_limit = |domain: &str, entries: Entries<'_>| {
        let descriptor = Descriptor::new(entries.iter().copied()).limit(Quota::per_minute(2));
        Descriptors::new(domain, [descriptor]).requests().next().unwrap()
    };
    let mut passed = (0, 0);
    for _ in 0..20 {
        let taken = with_limit("other", &[("a", "c")]);
        passed.0 += usize::from(rules.limits().decide(&taken).await.is_ok());
        let ignored = with_limit("edge", &[("a", "c"), ("b", "1")]);
        passed.1 += usize::from(rules.limits().decide(&ignored).await.is_ok());
    }
    assert_eq!(passed, (2, 7));
}

#[tokio::test]
async fn a_rule_that_is_replaced_applies_only_where_no_descriptor_of_the_call_meets_the_other() {
    let rules = rules(
        r#"
version: 1
policies: { small: { quota: 5/s }, large: { quota: 10/s } }
rules:
  - { name: specific, only_if: { descriptor: [{ key_1: value_1 }, { user: bkthomps }] }, limit: small, key: descriptor }
  - { name: larger, only_if: { descriptor: [{ key_2: value_2 }, { user: bkthomps }] }, limit: large, key: descriptor, replaces: specific }
"#,
    );
    let (first, second) =
        ([("key_1", "value_1"), ("user", "bkthomps")], [("key_2", "value_2"), ("user", "bkthomps")]);
    assert_eq!(met(&rules, &call("d", &[&first])[0]).await, ["specific"]);
    let both = call("d", &[&first, &second]);
    assert_eq!(met(&rules, &both[0]).await, [""; 0]);
    assert_eq!(met(&rules, &both[1]).await, ["larger"]);
    let explained = rules.explain(&both[0]).await.to_string();
    let why = "specific: not asked: rule larger applies to a descriptor of this call, and replaces it";
    assert!(explained.contains(why), "{explained}");
    assert!(rules.limits().decide(&both[0]).await.is_ok());
}

#[test]
fn a_condition_is_about_requests_or_about_descriptors_and_a_mixture_is_told() {
    let told = |rule: &str| {
        let text = format!(
            "version: 1\npolicies: {{ api: {{ quota: 5/min }} }}\nrules:\n  - {{ name: it, limit: api, key: client, {rule} }}\n"
        );
        match RulesFile::parse("rules.yaml", &text, &Variables::none()) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    };
    for (rule, expected) in [
        ("only_if: { domain: edge, path: / }", "\"path\" says nothing of descriptors"),
        ("only_if: { domain: edge, not: { method: GET } }", "\"method\" says nothing of descriptors"),
        ("only_if: { path: /, not: { descriptor: { a: b } } }", "this is about requests"),
        ("only_if: { descriptor: {} }", "no entry is named here"),
        ("only_if: { descriptor: { a: [] } }", "an empty list says nothing"),
        ("only_if: { descriptor: { a: b, \"*\": c } }", "\"*\" stands for further entries"),
        ("only_if: { descriptor: [{ a: { present: false } }] }", "a list names the entries that are there"),
        ("only_if: { descriptor: { a: b } }, refund_if: 2xx", "\"refund_if\" says nothing of descriptors"),
        ("only_if: { descriptor: { a: b } }, replaces: its", "there is no other rule \"its\""),
        ("only_if: { path: / }, replaces: it", "\"replaces\" is about descriptors"),
        ("only_if: { descriptor: 7 }", "entries with their values"),
    ] {
        let told = told(rule);
        assert!(told.contains(expected), "{rule}: {told}");
    }
    assert_eq!(told("only_if: { domain: edge, client: 10.0.0.0/8 }"), "");
}
