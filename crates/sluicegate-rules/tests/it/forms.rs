//! One request written in several ways: paths with dots and encoded slashes, hosts with a dot at their end.

use http::StatusCode;
use sluicegate_tower::limits::WouldBe;

use crate::support::{request, rules};

const DOORS: &str = "
version: 1
policies:
  login: { quota: 1/min }
  all: { quota: 1000/min }
deny:
  - { name: admin, only_if: { path: [/admin, \"/admin/{*rest}\"] } }
  - { name: inside, only_if: { host: Internal.example.org. }, status: 410 }
  - { name: slash, only_if: { path: /a%2Fb }, status: 451 }
rules:
  - { name: login, group: g, only_if: { path: /login }, limit: login, key: everybody }
  - { name: assets, group: g, only_if: { path: \"/assets/{*file}\" }, limit: login, key: everybody }
  - { name: rest, group: g, limit: all, key: everybody }
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
async fn a_path_with_dots_meets_the_rules_of_both_its_forms() {
    let name = async |path: &str| {
        let explained = rules(DOORS).explain(&request(path, &[])).await;
        let first = explained.rules.iter().skip(3).find(|rule| rule.why_not.is_none());
        first.map(|rule| rule.name.clone())
    };
    for (path, rule) in [
        ("/x/../login", "login"),
        ("/assets/../x", "assets"),
        ("/assets/../login", "login"),
        ("/x/..", "rest"),
    ] {
        assert_eq!(name(path).await.as_deref(), Some(rule), "{path}");
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
