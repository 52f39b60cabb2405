//! One request written in several ways: paths with dots and encoded slashes, hosts with a dot at their end.

use http::StatusCode;
use sluicegate_rules::RuleExplained;
use sluicegate_tower::limits::WouldBe;

use crate::support::{request, rules};

const DOORS: &str = "
version: 1
policies:
  all: { quota: 1000/min }
deny:
  - { name: admin, only_if: { path: [/admin, \"/admin/{*rest}\"] } }
  - { name: inside, only_if: { host: Internal.example.org. }, status: 410 }
  - { name: slash, only_if: { path: /a%2Fb }, status: 451 }
rules:
  - { name: rest, limit: all, key: everybody }
";

async fn refusal(path: &str, host: &str) -> Option<StatusCode> {
    match rules(DOORS).explain(&request(path, &[("host", host)])).await.outcome {
        WouldBe::Refused { status, .. } => Some(status),
        _ => None,
    }
}

#[tokio::test]
async fn what_leads_to_a_denied_path_is_denied_whoever_resolves_the_dots() {
    for path in
        ["/admin", "//admin", "/a/../admin", "/a/%2e%2e/admin", "/a/..%2Fadmin", "/./admin/x", "/admin/../x"]
    {
        assert_eq!(refusal(path, "example.org").await, Some(StatusCode::FORBIDDEN), "{path}");
    }
    for path in ["/a/../b", "/admin.html", "/x/admin", "/a/..."] {
        assert_eq!(refusal(path, "example.org").await, None, "{path}");
    }
}

#[tokio::test]
async fn what_a_not_spares_in_one_reading_of_the_dots_is_not_spared_in_the_other() {
    let rules = rules(
        "
version: 1
policies: { all: { quota: 1000/min } }
deny:
  - { name: unknown, only_if: { not: { path: [/health, \"/api/{*rest}\"] } } }
  - { name: inside, only_if: { path: \"/api/{*rest}\", not: { path: \"/api/open/{*rest}\" } } }
  - { name: twice, only_if: { not: { not: { path: /api/open/shut } } } }
rules:
  - { name: all, limit: all, key: everybody }
",
    );
    let passes = async |path: &str| rules.limits().decide(&request(path, &[])).await.is_ok();
    for path in ["/health", "/api/open/a", "/api/open/../../health", "/api/open/../open/b"] {
        assert!(passes(path).await, "{path}");
    }
    for path in [
        "/admin",
        "/admin/../health",
        "/./health",
        "/health/../admin",
        "/api/../admin",
        "/api/%2e%2e%2fadmin",
        "/api/a",
        "/api/open/../a",
        "/api/a/../open/b",
        "/api/open/a/../shut",
    ] {
        assert!(!passes(path).await, "{path}");
    }
}

const GROUP: &str = "
version: 1
policies:
  static: { quota: 1000/min }
  api: { quota: 1/min }
  rest: { quota: 1000/min }
in_flight:
  calls: { permits: 1 }
rules:
  - { name: static, group: g, only_if: { path: \"/static/{*file}\" }, limit: static, key: everybody }
  - { name: api, group: g, only_if: { path: \"/api/{*rest}\" }, limit: api, key: everybody, in_flight: calls }
  - { name: rest, group: g, limit: rest, key: everybody }
";

#[tokio::test]
async fn of_a_group_the_first_rule_of_each_reading_of_the_dots_applies() {
    for (path, applying) in [
        ("/api/x/../../static/y", vec!["static", "api"]),
        ("/static/x/../../api/y", vec!["static", "api"]),
        ("/api/../y", vec!["api", "rest"]),
        ("/static/../y", vec!["static", "rest"]),
        ("/static/../static/y", vec!["static"]),
        ("/x/../y", vec!["rest"]),
        ("/static/y", vec!["static"]),
    ] {
        let rules = rules(GROUP);
        let explained = rules.explain(&request(path, &[])).await.rules;
        let of = |is_it: &dyn Fn(&RuleExplained) -> bool| -> Vec<String> {
            explained.iter().filter(|rule| is_it(rule)).map(|rule| rule.name.clone()).collect()
        };
        assert_eq!(of(&|rule| rule.why_not.is_none()), applying, "{path}");
        assert_eq!(of(&|rule| rule.limits.iter().any(|limit| limit.asks.is_ok())), applying, "{path}");
        let is_api = applying.contains(&"api");
        assert_eq!(of(&|rule| rule.in_flight.is_some()).len(), usize::from(is_api), "{path}");
        // The code that decides says the same.
        assert!(rules.limits().decide(&request(path, &[])).await.is_ok(), "{path}");
        let api = rules.limits().decide(&request("/api/z", &[])).await;
        assert_eq!(api.is_err(), is_api, "{path}");
    }
}

#[tokio::test]
async fn what_the_rules_of_both_readings_ask_alike_is_asked_once() {
    let text = "
version: 1
policies:
  a: { quota: 100/min }
rules:
  - { name: one, group: g, only_if: { path: \"/one/{*file}\" }, limit: a, key: everybody }
  - { name: two, group: g, only_if: { path: \"/two/{*file}\" }, limit: a, key: everybody }
  - { name: dear, group: g, limit: a, key: everybody, cost: 5 }
";
    let outcome = async |path: &str| {
        let rules = rules(text);
        let explained = rules.explain(&request(path, &[])).await;
        let applying = explained.rules.iter().filter(|rule| rule.why_not.is_none());
        let names: Vec<String> = applying.map(|rule| rule.name.clone()).collect();
        (names.join(" "), rules.limits().decide(&request(path, &[])).await.is_ok())
    };
    assert_eq!(outcome("/one/../two/x").await, ("one".to_owned(), true));
    assert_eq!(outcome("/two/../one/x").await, ("one".to_owned(), true));
}

/// They once got 500, as by a mistake of the server.
#[tokio::test]
async fn a_path_with_dots_that_would_spend_from_one_policy_in_two_ways_is_refused_with_400() {
    const TEXT: &str = "
version: 1
policies:
  a: { quota: 100/min }
  b: { quota: 100/min }
tiers:
  plan: { by: header(x-plan), tiers: { a: a, b: b }, default_tier: b }
in_flight:
  once: { permits: 1 }
deny:
  - { name: admin, only_if: { path: /admin } }
exempt:
  - { name: open, only_if: { path: /open } }
rules:
  - { name: login, group: g, only_if: { path: /login }, limit: a, key: header(x-user), in_flight: once }
  - { name: dear, group: g, only_if: { path: /dear }, limit: [b, a], key: everybody, cost: 5 }
  - { name: plan, group: g, only_if: { path: /plan }, limit: plan, key: everybody }
  - { name: part, group: g, only_if: { path: /part }, limit: a, share: 1/10, key: everybody }
  - { name: rest, group: g, limit: a, key: everybody }
";
    let rules = rules(TEXT);
    for (path, status) in [
        ("/login", None),
        ("/x/../x", None),
        ("/x/../login", Some(400)),
        ("/login/../x", None),
        ("/login/.", None),
        ("/./login", Some(400)),
        ("/x/%2e%2e%2fdear", Some(400)),
        ("/x/../plan", Some(400)),
        ("/x/../part", None),
        ("/x/../admin", Some(403)),
        ("/x/../open", None),
    ] {
        let request = request(path, &[("x-user", "ada")]);
        let decided = rules.limits().decide(&request).await.err();
        let decided = decided.map(|refused| refused.refusal(&request).status().as_u16());
        assert_eq!(decided, status, "{path}");
        let explained = rules.explain(&request).await;
        let told = match explained.outcome {
            WouldBe::Refused { status, .. } => Some(status.as_u16()),
            _ => None,
        };
        assert_eq!(told, status, "{path}");
        if status == Some(400) {
            let of_rules = explained.rules.iter().skip(2);
            for rule in of_rules {
                let why = rule.why_not.as_deref().unwrap_or_default();
                assert!(why.contains("two readings") && rule.in_flight.is_none(), "{path}: {why}");
            }
        }
    }
    // Nothing was spent by what was refused.
    assert_eq!(
        rules
            .store()
            .limiters()
            .get("b")
            .expect("it is open")
            .peek("everybody")
            .await
            .map(|at| at.remaining())
            .ok(),
        Some(100)
    );
}

/// A policy that is only tried out once refused such paths, and so did rules that both readings meet.
#[tokio::test]
async fn a_path_with_dots_is_not_refused_for_policies_that_refuse_nobody_nor_where_both_readings_meet_the_same_rules()
 {
    let status = async |rules: &sluicegate_rules::Rules, path: &str, fields: &[(&str, &str)]| {
        let request = request(path, fields);
        let decided = rules.limits().decide(&request).await.err();
        decided.map(|refused| refused.refusal(&request).status().as_u16())
    };
    let text = |mode: &str| {
        format!(
            "
version: 1
policies: {{ a: {{ quota: 100/min, mode: {mode} }} }}
rules:
  - {{ name: login, group: g, only_if: {{ path: /login }}, limit: a, key: header(x-user) }}
  - {{ name: rest, group: g, limit: a, key: everybody }}
"
        )
    };
    let ada = [("x-user", "ada")];
    for (mode, expected) in [("enforce", Some(400)), ("shadow", None), ("off", None)] {
        assert_eq!(status(&rules(&text(mode)), "/x/../login", &ada).await, expected, "{mode}");
    }
    let either = rules(
        "
version: 1
policies: { api: { quota: 100/min } }
rules:
  - { name: user, limit: api, key: header(x-user), on_missing_key: skip }
  - { name: unknown, only_if: { header: { x-unknown: '1' } }, limit: api, key: everybody }
",
    );
    for path in ["/y", "/y/.", "/x/../y"] {
        assert_eq!(status(&either, path, &[("x-unknown", "1")]).await, None, "{path}");
    }
}

#[tokio::test]
async fn an_encoded_slash_and_a_whole_host_are_found_in_each_writing() {
    for path in ["/a%2fb", "/a%2Fb"] {
        assert_eq!(refusal(path, "").await, Some(StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS), "{path}");
    }
    assert_eq!(refusal("/a/b", "").await, None);
    for host in ["internal.example.org", "INTERNAL.example.org.", "internal.example.org:8080"] {
        assert_eq!(refusal("/", host).await, Some(StatusCode::GONE), "{host}");
    }
}
