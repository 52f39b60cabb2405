//! What a file limits: by the limits that a layer would decide with.

use sluicegate_core::clock::ManualClock;
use sluicegate_core::limiter::{Inherit, Overrides};
use sluicegate_core::policy::Override;
use sluicegate_core::{MemoryStore, Policy};
use sluicegate_rules::{Rules, RulesFile, Variables};

use crate::support::{parse, request, rules};

/// How many of many requests pass.
async fn passed(rules: &Rules, uri: &str, headers: &[(&str, &str)]) -> usize {
    let mut passed = 0;
    for _ in 0..50 {
        passed += usize::from(rules.limits().decide(&request(uri, headers)).await.is_ok());
    }
    passed
}

#[tokio::test]
async fn a_path_with_dots_is_never_exempt() {
    let rules = rules(
        "
version: 1
policies:
  a: { quota: 1/min }
exempt:
  - { name: open, only_if: { path: \"/assets/{*file}\" } }
rules:
  - { name: all, limit: a, key: everybody }
",
    );
    assert_eq!(passed(&rules, "/assets/a.b/..c", &[]).await, 50);
    assert_eq!(passed(&rules, "/assets/../login", &[]).await, 1);
    for path in ["/assets/%2e%2e/login", "/assets/..%2Flogin", "/assets/%2E./login", "/assets/./x"] {
        assert_eq!(passed(&rules, path, &[]).await, 0, "{path}");
    }
}

#[tokio::test]
async fn tiers_shares_costs_and_keys_are_as_the_file_says() {
    let rules = rules(
        "
version: 1
policies:
  api: { quota: 10/min }
tiers:
  plan: { policy: api, by: header(x-plan), tiers: { free: 10/min, pro: 20/min, all: unlimited }, default_tier: free }
rules:
  - { name: report, group: g, only_if: { path: /report }, limit: plan, share: 1/5, key: header(x-user) }
  - { name: costly, group: g, only_if: { path: /costly }, limit: plan, key: header(x-user), cost: { header: x-units, min: 2, max: 5, missing: 5 } }
  - { name: rest, group: g, limit: plan, key: header(x-user) }
",
    );
    assert_eq!(passed(&rules, "/report", &[("x-user", "ada")]).await, 2);
    assert_eq!(
        passed(&rules, "/report", &[("x-user", "ada"), ("x-plan", "pro")]).await,
        2,
        "2 of 4 are spent"
    );
    assert_eq!(passed(&rules, "/report", &[("x-user", "ada"), ("x-plan", "all")]).await, 50);
    assert_eq!(passed(&rules, "/", &[("x-user", "bob"), ("x-plan", "none")]).await, 10);
    assert_eq!(passed(&rules, "/costly", &[("x-user", "eve"), ("x-units", "1")]).await, 5);
    assert_eq!(passed(&rules, "/costly", &[("x-user", "kim"), ("x-units", "many")]).await, 2);
    assert_eq!(passed(&rules, "/costly", &[("x-user", "lee")]).await, 2);
}

#[tokio::test]
async fn another_file_takes_effect_in_one_step_and_what_was_spent_counts() {
    let text =
        "version: 1\npolicies:\n  a: { quota: 5/min }\nrules:\n  - { name: all, limit: a, key: everybody }\n";
    let rules = rules(text);
    assert_eq!(passed(&rules, "/", &[]).await, 5);
    rules.replace(parse(&text.replace("5/min", "7/min"))).expect("memory keeps it");
    assert_eq!(passed(&rules, "/", &[]).await, 2);
    // A log of this size has no room here, so nothing of the file takes effect.
    let wrong = text
        .replace("5/min", "9/min")
        .replace("rules:", "  b: { algorithm: sliding-log, quota: 999999/min }\nrules:");
    let wrong = wrong.replace("limit: a", "limit: [a, b]");
    let wrong = RulesFile::parse("rules.yaml", &wrong, &Variables::none());
    let changes = wrong.and_then(|file| rules.replace(file));
    assert!(changes.is_err());
    assert_eq!(passed(&rules, "/", &[]).await, 0);
}

const TEXT: &str = "version: 1\npolicies:\n  a: { quota: 5/min }\nrules:\n  - { name: all, limit: a, key: everybody, cost: 2 }\n";

#[tokio::test]
async fn a_policy_that_leaves_the_file_is_again_as_code_has_it() {
    let store = MemoryStore::builder().clock(ManualClock::new()).build().expect("the settings are possible");
    let code = Policy::gcra("a", "3/min").on(&store).expect("memory keeps it");
    let rules = Rules::new(&store, parse(TEXT)).expect("memory keeps all");
    assert_eq!(code.policy().to_string(), "a: 5/min (gcra)");
    rules
        .replace(parse(&TEXT.replace("a: {", "b: {").replace("limit: a", "limit: b")))
        .expect("memory keeps it");
    assert_eq!(code.policy().to_string(), "a: 3/min (gcra)");
    // What code opens only now under a name of the file follows the file.
    let late = Policy::gcra("b", "9/min").on(&store).expect("the file has it");
    assert_eq!(late.policy().to_string(), "b: 5/min (gcra)");
}

/// A policy that code, or another file, had replaced meanwhile was once put back to the one before both.
#[tokio::test]
async fn a_policy_that_leaves_the_file_stays_as_code_has_replaced_it_meanwhile() {
    let store = MemoryStore::builder().clock(ManualClock::new()).build().expect("the settings are possible");
    let code = Policy::gcra("a", "3/min").on(&store).expect("memory keeps it");
    let replace = |quota: &str| {
        let policy = Policy::gcra("a", quota).build().expect("it is possible");
        code.replace(policy, Inherit::Spent).expect("memory keeps it");
    };
    let (with, without) = (TEXT, TEXT.replace("a: {", "b: {").replace("limit: a", "limit: b"));
    let rules = Rules::new(&store, parse(with)).expect("memory keeps all");
    let put = |text: &str| rules.replace(parse(text)).map(drop).expect("memory keeps it");
    replace("9/min");
    put(&without);
    assert_eq!(code.policy().to_string(), "a: 9/min (gcra)");
    put(with);
    replace("8/min");
    put(with);
    assert_eq!(code.policy().to_string(), "a: 5/min (gcra)");
    put(&without);
    assert_eq!(code.policy().to_string(), "a: 8/min (gcra)");

    put(with);
    let other = Rules::new(&store, parse(&with.replace("5/min", "6/min"))).expect("memory keeps all");
    put(&with.replace("5/min", "7/min"));
    other.replace(parse(&without)).expect("memory keeps it");
    assert_eq!(code.policy().to_string(), "a: 7/min (gcra)", "the first file has it still");
}

#[tokio::test]
async fn an_override_of_an_operator_keeps_no_file_from_taking_effect() {
    let store = MemoryStore::builder().clock(ManualClock::new()).build().expect("the settings are possible");
    let rules = Rules::new(&store, parse(TEXT)).expect("memory keeps all");
    let overrides = Overrides::of(&store);
    overrides.put(Override::builder("a", "ada").quota("1/min")).await.expect("it can be put");
    rules.replace(parse(&TEXT.replace("5/min", "8/min"))).expect("memory keeps it");
    let limiter = Policy::gcra("a", "8/min").on(&store).expect("it is open");
    assert_eq!(
        (limiter.policy().to_string(), limiter.own_policy().to_string()),
        ("a: 1/min (gcra)".into(), "a: 8/min (gcra)".into())
    );
}

#[tokio::test]
async fn the_file_chooses_the_header_fields() {
    let text = "version: 1\nheaders: spring\npolicies:\n  a: { quota: 5/min }\nrules: [{ name: all, limit: a, key: everybody }]\n";
    let file = RulesFile::parse("rules.yaml", text, &Variables::none()).expect("it is good");
    let rules = Rules::new(MemoryStore::new(), file).expect("the store can keep it");
    let admitted = rules.limits().decide(&http::Request::new(())).await.expect("it is the first");
    let response = admitted.leave(http::Response::new(()));
    assert_eq!(response.headers()["x-ratelimit-requested-tokens"], "12");
    assert!(!response.headers().contains_key("ratelimit"));
    let wrong = RulesFile::parse("rules.yaml", &text.replace("spring", "x-ratelimit"), &Variables::none());
    assert!(wrong.is_err_and(|error| {
        error.to_string().starts_with("rules.yaml:2:10: error: \"x-ratelimit\" does not say")
    }));
}
