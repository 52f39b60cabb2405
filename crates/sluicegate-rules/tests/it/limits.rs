//! What a file limits: by the limits that a layer would decide with.

use http::{Method, Request};
use sluicegate_core::MemoryStore;
use sluicegate_core::clock::ManualClock;
use sluicegate_rules::{Rules, RulesFile, Variables};

struct Service {
    rules: Rules,
}

impl Service {
    fn of(text: &str) -> Self {
        let store =
            MemoryStore::builder().clock(ManualClock::new()).build().expect("the settings are possible");
        let rules = Rules::new(&store, file(text)).expect("memory keeps all");
        Self { rules }
    }

    /// Whether a request passes.
    async fn passes(&self, method: Method, uri: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("it is a request");
        self.rules.limits().decide(&request).await.is_ok()
    }

    /// How many of many requests pass.
    async fn passed(&self, uri: &str, headers: &[(&str, &str)]) -> usize {
        let mut passed = 0;
        for _ in 0..50 {
            passed += usize::from(self.passes(Method::GET, uri, headers).await);
        }
        passed
    }
}

fn file(text: &str) -> RulesFile {
    RulesFile::parse("rules.yaml", text, &Variables::none()).unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test]
async fn of_a_group_the_first_that_matches_applies_and_beside_it_all_others() {
    let service = Service::of(
        "
version: 1
policies:
  all: { quota: 10/min }
  a: { quota: 3/min }
  rest: { quota: 5/min }
rules:
  - { name: all, limit: all, key: everybody }
  - { name: a, group: g, only_if: { path: \"/a/{id}\" }, limit: a, key: everybody }
  - { name: rest, group: g, limit: rest, key: everybody }
",
    );
    assert_eq!(service.passed("/a/1", &[]).await, 3);
    assert_eq!(service.passed("/b", &[]).await, 5);
    assert_eq!(service.passed("//a/2", &[]).await, 0, "it is the same path");
}

#[tokio::test]
async fn what_is_denied_is_so_before_what_is_exempt() {
    let service = Service::of(
        "
version: 1
policies:
  a: { quota: 1/min }
deny:
  - { name: scraper, only_if: { header: { user-agent: scraper } } }
exempt:
  - { name: health, only_if: { path: /health } }
rules:
  - { name: all, limit: a, key: everybody }
",
    );
    assert_eq!(service.passed("/health", &[]).await, 50);
    assert_eq!(service.passed("/health", &[("user-agent", "scraper")]).await, 0);
    assert_eq!(service.passed("/x", &[]).await, 1);
}

#[tokio::test]
async fn tiers_shares_costs_and_keys_are_as_the_file_says() {
    let service = Service::of(
        "
version: 1
policies:
  free: { quota: 10/min }
  pro: { quota: 20/min }
tiers:
  plan: { by: header(x-plan), tiers: { free: free, pro: pro, all: unlimited }, default_tier: free }
rules:
  - { name: report, group: g, only_if: { path: /report }, limit: plan, share: 1/5, key: header(x-user) }
  - { name: costly, group: g, only_if: { path: /costly }, limit: plan, key: header(x-user), cost: { header: x-units, min: 2, max: 5, missing: 5 } }
  - { name: rest, group: g, limit: plan, key: header(x-user) }
",
    );
    assert_eq!(service.passed("/report", &[("x-user", "ada")]).await, 2);
    assert_eq!(service.passed("/report", &[("x-user", "ada"), ("x-plan", "pro")]).await, 4);
    assert_eq!(service.passed("/report", &[("x-user", "ada"), ("x-plan", "all")]).await, 50);
    assert_eq!(service.passed("/", &[("x-user", "bob"), ("x-plan", "none")]).await, 10);
    assert_eq!(service.passed("/costly", &[("x-user", "eve"), ("x-units", "1")]).await, 5);
    assert_eq!(service.passed("/costly", &[("x-user", "kim"), ("x-units", "many")]).await, 2);
    assert_eq!(service.passed("/costly", &[("x-user", "lee")]).await, 2);
}

#[tokio::test]
async fn a_condition_holds_when_all_of_it_does() {
    let service = Service::of(
        "
version: 1
policies:
  a: { quota: 1/min }
rules:
  - name: a
    only_if: { method: [POST, PUT], host: [shop.example.com], query: { v: \"2\" }, not: { header: { x-internal: \"1\" } } }
    limit: a
    key: everybody
",
    );
    let host = ("host", "Shop.example.com:8080");
    assert!(service.passes(Method::POST, "/?v=2", &[host]).await);
    assert!(!service.passes(Method::PUT, "/?a&v=2", &[host]).await);
    for (method, uri, headers) in [
        (Method::GET, "/?v=2", vec![host]),
        (Method::POST, "/?v=3", vec![host]),
        (Method::POST, "/?v=2", vec![]),
        (Method::POST, "/?v=2", vec![host, ("x-internal", "1")]),
    ] {
        assert!(service.passes(method, uri, &headers).await, "{uri} {headers:?}");
    }
}

#[tokio::test]
async fn another_file_takes_effect_in_one_step_and_what_was_spent_counts() {
    let text =
        "version: 1\npolicies:\n  a: { quota: 5/min }\nrules:\n  - { name: all, limit: a, key: everybody }\n";
    let service = Service::of(text);
    assert_eq!(service.passed("/", &[]).await, 5);
    service.rules.replace(file(&text.replace("5/min", "7/min"))).expect("memory keeps it");
    assert_eq!(service.passed("/", &[]).await, 2);
    // A log of this size has no room here, so nothing of the file takes effect.
    let wrong = text
        .replace("5/min", "9/min")
        .replace("rules:", "  b: { algorithm: sliding-log, quota: 999999/min }\nrules:");
    let wrong = wrong.replace("limit: a", "limit: [a, b]");
    let wrong = RulesFile::parse("rules.yaml", &wrong, &Variables::none());
    let changes = wrong.and_then(|file| service.rules.replace(file));
    assert!(changes.is_err());
    assert_eq!(service.passed("/", &[]).await, 0);
}
