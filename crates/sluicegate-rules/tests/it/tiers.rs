//! Keys, tiers, and rules for some of them.

use sluicegate_core::MemoryStore;
use sluicegate_core::clock::ManualClock;
use sluicegate_rules::{Rules, RulesFile, Variables};
use sluicegate_tower::key::PeerAddr;

use crate::support::{Folder, error, parse, passed, request, rules};

const ADA: &str = "DIGEST";

const KEYS: &str = "
version: 1
api_keys: { header: x-api-key, file: tests/it/api-keys.yaml }
policies:
  api: { quota: 2/min }
tiers:
  plan: { policy: api, by: api_key, tiers: { free: 2/min, pro: 5/min, enterprise: unlimited }, default_tier: free }
rules:
  - { name: all, limit: plan, key: [api_key, header(x-address)] }
";

#[tokio::test]
async fn a_listed_api_key_has_its_tier_and_one_that_is_not_counts_as_missing() {
    let rules = rules(KEYS);
    assert_eq!(passed(&rules, &[("x-api-key", "k-ada")]).await, 5);
    assert_eq!(passed(&rules, &[("x-api-key", "k-bob")]).await, 100);
    // Inventing keys buys nothing: all of them are in the bucket of the address.
    assert_eq!(passed(&rules, &[("x-api-key", "k-1"), ("x-address", "here")]).await, 2);
    assert_eq!(passed(&rules, &[("x-api-key", "k-2"), ("x-address", "here")]).await, 0);
    let explained = rules.limits().explain(&request("/", &[("x-api-key", "k-ada")])).await.to_string();
    assert!(!explained.contains("k-ada"), "{explained}");
}

#[tokio::test]
async fn a_key_with_quotas_of_its_own_is_known_by_header_field_or_digest() {
    let overrides = format!("overrides: {{ acme: 7/min, \"{ADA}\": 9/min, Ada@x.org: 8/min }}")
        .replace(ADA, ada_digest().as_str());
    let text = KEYS.replace("quota: 2/min }", &format!("quota: 2/min, {overrides} }}"));
    let rules = rules(&text);
    assert_eq!(passed(&rules, &[("x-address", "acme")]).await, 7);
    assert_eq!(passed(&rules, &[("x-address", "Ada@x.org")]).await, 8);
    assert_eq!(passed(&rules, &[("x-api-key", "k-ada"), ("x-address", "acme")]).await, 9);
    assert_eq!(passed(&rules, &[("x-address", "other")]).await, 2);
    // The name that a client says of itself is no key of its own.
    assert_eq!(passed(&rules, &[("x-api-key", "acme"), ("x-address", "third")]).await, 2);
    // It can be changed at run time, and what was spent counts.
    let changes = rules.replace(parse(&text.replace("7/min", "10/min"))).expect("memory keeps it");
    assert!(changes.to_string().starts_with("changed api.acme 7/min -> 10/min, what was spent"), "{changes}");
    assert_eq!(passed(&rules, &[("x-address", "acme")]).await, 3);
}

pub(crate) fn ada_digest() -> String {
    let file = std::fs::read_to_string("tests/it/api-keys.yaml").expect("it is there");
    let line = file.lines().find(|line| line.ends_with(": pro")).expect("it lists her");
    line.trim_end_matches(": pro").to_owned()
}

#[tokio::test]
async fn a_key_that_changes_its_tier_keeps_what_it_has_spent_and_so_it_does_when_the_tier_changes() {
    let rules = rules(SIZES);
    let on = async |plan: &str| passed(&rules, &[("x-user", "ada"), ("x-plan", plan)]).await;
    assert_eq!((on("free").await, on("pro").await, on("free").await, on("all").await), (2, 3, 0, 100));
    assert_eq!(on("logged").await, 4, "a policy of its own has other keys");
    let changes = rules.replace(parse(&SIZES.replace("pro: 5/min", "pro: 9/min"))).expect("memory keeps it");
    assert!(changes.to_string().starts_with("changed plan.pro 5/min -> 9/min, what was spent"), "{changes}");
    assert_eq!((on("pro").await, on("logged").await), (4, 0));
}

const SIZES: &str = "
version: 1
policies:
  api: { quota: 2/min }
  logged: { algorithm: sliding-log, quota: 4/min }
tiers:
  plan: { policy: api, by: header(x-plan), tiers: { free: 2/min, pro: 5/min, logged: logged, all: unlimited }, default_tier: free }
rules:
  - { name: all, limit: plan, key: header(x-user) }
";

#[test]
fn a_tier_that_cannot_be_is_told_with_its_place() {
    for (from, to, place, expected) in [
        (
            "policy: api, ",
            "",
            "7:46",
            "these are quotas of no policy: name the one whose keys have them, as policy: api",
        ),
        ("policy: api", "policy: apy", "7:19", "there is no policy \"apy\": did you mean \"api\"?"),
        ("pro: 5/min", "pro: 5/fortnight", "7:73", "\"fortnight\" is not a unit"),
        (
            "pro: 5/min",
            "pro: [5/min, 9/d]",
            "7:71",
            "a key brings 2 quotas (5/min, 9/d), and the policy has 1",
        ),
        ("pro: 5/min", "pro: 5/min by fixed-window", "7:71", "leave \"by fixed-window\" out"),
        ("pro: 5/min", "pro: prp", "7:71", "there is no policy \"prp\": there are api, logged, unlimited"),
        ("free: 2/min, pro: 5/min, ", "free: logged, ", "7:19", "no tier has quotas of this policy"),
        ("free }", "free, overrides: { acme: 7/min } }", "7:132", "overrides"),
    ] {
        let text = SIZES.replacen(from, to, 1);
        let error = error(RulesFile::parse("rules.yaml", &text, &Variables::none()));
        assert!(
            error.starts_with(&format!("rules.yaml:{place}: ")) && error.contains(expected),
            "{to}: {error}"
        );
    }
}

#[tokio::test]
async fn nobody_chooses_the_tier_of_a_single_key_and_a_share_is_one_of_its_quotas_too() {
    let rules = rules(
        "
version: 1
policies: { api: { quota: 10/min, overrides: { acme: 50/min } } }
tiers:
  plan: { policy: api, by: header(x-plan), tiers: { free: 10/min }, default_tier: free }
rules:
  - { name: part, limit: plan, share: 1/5, key: header(x-user) }
",
    );
    assert_eq!(passed(&rules, &[("x-user", "acme")]).await, 10);
    assert_eq!(passed(&rules, &[("x-user", "eve"), ("x-plan", "key acme")]).await, 2);
    assert_eq!(passed(&rules, &[("x-user", "bob"), ("x-plan", "acme")]).await, 2);
}

#[test]
fn what_is_wrong_with_the_file_of_api_keys_is_told_without_what_is_in_it() {
    let folder = Folder::new();
    let digest = ada_digest();
    for (keys, expected) in [
        ("hunter2: pro\n".to_owned(), ":1:1: error: this is not the sha256 of a key"),
        (format!("{digest}: pro\n{digest}: free\n"), ":2:1: error: a key is there twice"),
        (format!("{digest}: pro\n{}: free\n", digest.to_uppercase()), ":2:1: error: a key is there twice"),
        (format!("{digest}: [hunter2]\n"), "error: this is no line of an API key"),
        ("hunter2\n".to_owned(), "error: this is no line of an API key"),
        (String::new(), "error: "),
    ] {
        std::fs::write(folder.0.join("api-keys.yaml"), &keys).expect("it can be written");
        std::fs::write(folder.0.join("rules.yaml"), KEYS.replace("tests/it/", ""))
            .expect("it can be written");
        let error = error(RulesFile::read(folder.0.join("rules.yaml"), &Variables::none()));
        assert!(error.contains(expected), "{keys}: {error}");
        assert!(!error.contains("hunter2") && !error.contains(&digest), "{error}");
        assert!(error.lines().all(|line| !line.starts_with(' ')), "{error}");
    }
    std::fs::remove_file(folder.0.join("api-keys.yaml")).expect("it is there");
    let missing = error(RulesFile::read(folder.0.join("rules.yaml"), &Variables::none()));
    assert!(missing.contains("rules.yaml:3:38: error: the file of API keys: it cannot be read"), "{missing}");
}

#[tokio::test]
async fn another_file_of_api_keys_takes_effect_with_a_reload() {
    let folder = Folder::new();
    let keys = folder.0.join("api-keys.yaml");
    std::fs::copy("tests/it/api-keys.yaml", &keys).expect("it can be written");
    std::fs::write(folder.0.join("rules.yaml"), KEYS.replace("tests/it/", "")).expect("it can be written");
    let store = MemoryStore::builder().clock(ManualClock::new()).build().expect("the settings are possible");
    let rules = Rules::open(&store, folder.0.join("rules.yaml"), Variables::none()).expect("it is good");
    assert_eq!(passed(&rules, &[("x-api-key", "k-ada")]).await, 5);
    std::fs::write(&keys, format!("{}: enterprise\n", ada_digest())).expect("it can be written");
    assert!(rules.reload().expect("it is good").is_some());
    assert_eq!(passed(&rules, &[("x-api-key", "k-ada")]).await, 100);
}

#[test]
fn a_tier_of_the_file_of_api_keys_that_nobody_knows_is_worth_a_warning() {
    let file = parse(&KEYS.replace("enterprise: unlimited", "gold: unlimited"));
    let warnings: Vec<_> = file.warnings().iter().map(ToString::to_string).collect();
    assert!(
        warnings[0].starts_with("rules.yaml:7:3: warning: the file of API keys names tier \"enterprise\""),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn a_key_with_quotas_of_its_own_is_known_by_claim_or_address() {
    let rules = rules(
        "
version: 1
jwt: { hs256: 0123456789abcdef0123456789abcdef }
policies: { api: { quota: 2/min, overrides: { acme: 7/min, 192.0.2.7: 5/min } } }
tiers:
  plan: { policy: api, by: jwt(plan), tiers: { free: 2/min }, default_tier: free }
rules:
  - { name: all, limit: plan, key: [jwt(sub), peer] }
",
    );
    let token = |subject| format!("Bearer {}", token(subject, "free"));
    assert_eq!(passed(&rules, &[("authorization", &token("acme"))]).await, 7);
    assert_eq!(passed(&rules, &[("authorization", &token("other"))]).await, 2);
    for (peer, quota) in [([192, 0, 2, 7], 5), ([192, 0, 2, 8], 2)] {
        let mut asked = request("/", &[]);
        asked.extensions_mut().insert(PeerAddr((peer, 1).into()));
        let mut passed = 0;
        for _ in 0..10 {
            passed += usize::from(rules.limits().decide(&asked).await.is_ok());
        }
        assert_eq!(passed, quota, "{peer:?}");
    }
}

/// A token of this subject on this plan.
fn token(subject: &str, plan: &str) -> String {
    sign(serde_json::json!({ "sub": subject, "plan": plan }))
}

/// The field of a request with a token of these claims.
pub(crate) fn bearer(claims: serde_json::Value) -> String {
    format!("Bearer {}", sign(claims))
}

fn sign(mut claims: serde_json::Value) -> String {
    claims["exp"] = 4_000_000_000_u64.into();
    let secret = jsonwebtoken::EncodingKey::from_secret(b"0123456789abcdef0123456789abcdef");
    jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &secret).expect("it can be signed")
}

const BY_TIER: &str = "
version: 1
jwt: { hs256: 0123456789abcdef0123456789abcdef }
policies:
  api: { quota: 50/min, overrides: { acme: 70/min } }
  search: { quota: 3/min }
  export: { quota: 4/min }
tiers:
  plan: { policy: api, by: [jwt(plan), header(x-plan)], tiers: { free: 50/min, pro: 60/min, big: unlimited }, default_tier: free }
  size: { policy: api, by: header(x-size), tiers: { s: 50/min, l: 60/min }, default_tier: s }
deny:
  - { name: small, only_if: { path: /large, tier: { size: s } }, status: 402 }
exempt:
  - { name: paid, only_if: { path: /paid, tier: { plan: [pro, big], size: l } } }
rules:
  - { name: search, only_if: { tier: { plan: free } }, limit: search, key: everybody }
  - { name: export, only_if: { path: /export, not: { tier: { plan: big } } }, limit: export, key: everybody }
  - { name: all, limit: plan, key: [jwt(sub), header(x-user)] }
";

/// How many of a hundred requests for this path pass.
async fn passed_for(rules: &Rules, path: &str, headers: &[(&str, &str)]) -> usize {
    let mut passed = 0;
    for _ in 0..100 {
        passed += usize::from(rules.limits().decide(&request(path, headers)).await.is_ok());
    }
    passed
}

#[tokio::test]
async fn a_rule_for_a_tier_applies_to_its_requests_and_to_those_without_one_if_it_is_the_default() {
    let on = || rules(BY_TIER);
    assert_eq!(passed(&on(), &[("x-plan", "free")]).await, 3);
    assert_eq!(passed(&on(), &[("x-plan", "none of these")]).await, 3);
    assert_eq!(passed(&on(), &[]).await, 3);
    assert_eq!(passed(&on(), &[("x-plan", "pro")]).await, 60);
    assert_eq!(passed(&on(), &[("x-plan", "big")]).await, 100);
    // A verified claim comes before what a client says of itself.
    let pro = format!("Bearer {}", token("ada", "pro"));
    assert_eq!(passed(&on(), &[("authorization", &pro), ("x-plan", "free")]).await, 60);
    // A key with quotas of its own is of the tier that its plan says, and cannot be named as one.
    assert_eq!(passed(&on(), &[("x-user", "acme")]).await, 3);
    assert_eq!(passed(&on(), &[("x-user", "acme"), ("x-plan", "pro")]).await, 70);
    assert_eq!(passed(&on(), &[("x-user", "acme"), ("x-plan", "big")]).await, 70);
    assert_eq!(passed(&on(), &[("x-user", "eve"), ("x-plan", "key acme")]).await, 3);
}

#[tokio::test]
async fn a_tier_is_a_condition_of_denials_exemptions_and_of_what_must_not_hold() {
    let on = || rules(BY_TIER);
    assert_eq!(passed_for(&on(), "/export", &[("x-plan", "pro")]).await, 4);
    assert_eq!(passed_for(&on(), "/export", &[("x-plan", "big")]).await, 100);
    assert_eq!(passed_for(&on(), "/paid", &[("x-plan", "pro"), ("x-size", "l")]).await, 100);
    assert_eq!(passed_for(&on(), "/paid", &[("x-plan", "pro")]).await, 60, "all that is said must hold");
    assert_eq!(passed_for(&on(), "/large", &[("x-plan", "big")]).await, 0);
    assert_eq!(passed_for(&on(), "/large", &[("x-plan", "big"), ("x-size", "l")]).await, 100);
    let explained = on().explain(&request("/export", &[("x-plan", "pro")])).await.to_string();
    for line in [
        "deny small: does not apply: path /export does not match /large",
        "  search: not asked: tier of plan is pro, the rule wants free\n",
    ] {
        assert!(explained.contains(line), "{explained}");
    }
    let explained = on().explain(&request("/large", &[("x-size", "l")])).await.to_string();
    assert!(
        explained.contains("deny small: does not apply: tier of size is l, the rule wants s"),
        "{explained}"
    );
}

#[tokio::test]
async fn tiers_of_a_condition_change_with_a_reload() {
    let rules = rules(BY_TIER);
    assert_eq!(passed(&rules, &[("x-plan", "pro")]).await, 60);
    rules
        .replace(parse(
            &BY_TIER.replace("tier: { plan: free } }, limit: search", "tier: { plan: pro } }, limit: search"),
        ))
        .expect("memory keeps it");
    assert_eq!(passed(&rules, &[("x-plan", "big")]).await, 100);
    let explained = rules.explain(&request("/", &[("x-plan", "pro")])).await;
    assert!(
        explained.rules.iter().any(|rule| rule.name == "search" && rule.why_not.is_none()),
        "{explained}"
    );
}

#[test]
fn a_tier_that_is_not_there_is_told_with_the_nearest_one() {
    for (tier, expected) in [
        ("{ plan: fre }", "\"fre\" is not a tier of \"plan\": did you mean \"free\"?"),
        ("{ plan: [free, gold] }", "\"gold\" is not a tier of \"plan\": there are free, pro, big"),
        ("{ plam: free }", "there are no tiers \"plam\": did you mean \"plan\"?"),
        ("{ other: free }", "there are no tiers \"other\": there are plan, size"),
        ("{ plan: [] }", "an empty list says nothing"),
        ("{}", "no tiers are named here: write them by their name, as { plan: free }"),
        ("free", "names with their values are expected here, as { name: value }"),
    ] {
        let text = BY_TIER.replacen("tier: { plan: free }", &format!("tier: {tier}"), 1);
        let error = error(RulesFile::parse("rules.yaml", &text, &Variables::none()));
        assert!(error.starts_with("rules.yaml:16:") && error.contains(expected), "{tier}: {error}");
    }
}
