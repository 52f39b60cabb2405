//! Quotas of keys that are not those of their policy: by name, by claim, by a proxy's header, by the file of API keys.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use sluicegate_core::{MemoryStore, Policy, Store};
use sluicegate_rules::{Rules, RulesFile, Variables};
use sluicegate_tower::key::PeerAddr;
use sluicegate_tower::limits::WouldBe;

use crate::support::{Folder, error, parse, passed, request, rules};
use crate::tiers::{ada_digest, bearer};

const CLAIMS: &str = "
version: 1
jwt: { hs256: 0123456789abcdef0123456789abcdef }
policies:
  api: { quota: 2/min, quota_by: jwt(quota), overrides: { acme: 4/min, staff: unlimited } }
rules:
  - { name: all, limit: api, key: jwt(sub) }
";

#[tokio::test]
async fn a_verified_claim_says_the_quota_of_its_key() {
    let rules = rules(CLAIMS);
    let by = async |subject: &str, quota: serde_json::Value| {
        let token = bearer(serde_json::json!({ "sub": subject, "quota": quota }));
        passed(&rules, &[("authorization", &token)]).await
    };
    assert_eq!(by("ada", "7/min".into()).await, 7);
    assert_eq!(by("bob", serde_json::json!(["5/min"])).await, 5);
    assert_eq!(by("eve", "unlimited".into()).await, 100);
    // A token that says nothing of it, and a request without one, have the quota of the policy.
    assert_eq!(by("joe", serde_json::Value::Null).await, 2);
    assert_eq!(passed(&rules, &[]).await, 2);
    // Of a single key the file itself says it.
    assert_eq!(by("acme", "7/min".into()).await, 4);
    assert_eq!(by("staff", "1/min".into()).await, 100);
    // A plan that has grown counts what was spent.
    assert_eq!(by("ada", "9/min".into()).await, 2);
    // Nobody passes because his quota cannot be read.
    for wrong in ["7/fortnight".into(), 7.into(), "7/min, 70/d".into()] {
        assert_eq!(by("zoe", wrong).await, 0);
    }
    assert_eq!(by("zoe", "3/min".into()).await, 3);
}

#[tokio::test]
async fn a_quota_that_cannot_be_is_explained_with_the_claim_and_its_text() {
    let token = bearer(serde_json::json!({ "sub": "zoe", "quota": "7/fortnight" }));
    let explained = rules(CLAIMS).explain(&request("/", &[("authorization", &token)])).await;
    assert!(matches!(explained.outcome, WouldBe::Refused { status, .. } if status == 500), "{explained}");
    assert!(explained.to_string().contains("the claim quota: \"7/fortnight\" is not a quota"), "{explained}");
}

const PROXY: &str = "
version: 1
clients: { proxies: 10.0.0.0/8 }
policies:
  api: { quota: [2/min, 50/h], quota_by: header(x-plan) }
rules:
  - { name: all, limit: api, key: header(x-user) }
";

#[tokio::test]
async fn a_header_says_the_quota_in_requests_of_named_proxies_alone() {
    let rules = rules(PROXY);
    let from = async |peer: [u8; 4], user: &str, plans: &[&str]| {
        let mut passed = 0;
        for _ in 0..20 {
            let request = plans.iter().fold(Request::get("/").header("x-user", user), |request, plan| {
                request.header("x-plan", *plan)
            });
            let mut request = request.body(()).expect("it is a request");
            request.extensions_mut().insert(PeerAddr((peer, 443).into()));
            passed += u32::from(rules.limits().decide(&request).await.is_ok());
        }
        passed
    };
    assert_eq!(from([10, 1, 2, 3], "ada", &["7/min, 60/h"]).await, 7);
    assert_eq!(from([10, 1, 2, 3], "bob", &[]).await, 2);
    assert_eq!(from([203, 0, 113, 9], "eve", &["7/min, 60/h"]).await, 2);
    assert_eq!(from([203, 0, 113, 9], "eva", &["unlimited"]).await, 2);
    // A proxy that adds its field to that of the client would let the client choose.
    assert_eq!(from([10, 1, 2, 3], "zoe", &["999/min, 999/h", "1/min, 60/h"]).await, 0);
}

const KEYS: &str = "
version: 1
api_keys: { header: x-api-key, file: api-keys.yaml }
policies:
  api: { quota: 2/min, quota_by: api_key }
tiers:
  plan: { policy: api, by: api_key, tiers: { free: 2/min, pro: 5/min }, default_tier: free }
rules:
  - { name: all, limit: plan, key: api_key }
";

#[tokio::test]
async fn a_line_of_the_file_of_api_keys_says_tier_and_quota_and_is_read_again() {
    let folder = Folder::new();
    let [ada, bob, joe] = ["k-ada", "k-bob", "k-joe"].map(digest);
    assert_eq!(ada, ada_digest());
    let keys = |of_ada: &str| {
        let text = format!("{ada}: {of_ada}\n{bob}: {{ quota: unlimited }}\n{joe}: pro\n");
        std::fs::write(folder.0.join("api-keys.yaml"), text).expect("it can be written");
    };
    keys("{ tier: pro, quota: 7/min }");
    std::fs::write(folder.0.join("rules.yaml"), KEYS).expect("it can be written");
    let (store, _) = sluicegate_tests::memory::store();
    let rules = Rules::open(&store, folder.0.join("rules.yaml"), Variables::none()).expect("it is good");
    let by = async |key: &str| passed(&rules, &[("x-api-key", key)]).await;
    assert_eq!((by("k-ada").await, by("k-bob").await, by("k-joe").await), (7, 100, 5));
    assert_eq!((by("k-none").await, by("k-other").await), (2, 0), "both are without a key");
    // What was spent counts under the quota that the next file says.
    keys("{ tier: pro, quota: [9/min] }");
    assert!(rules.reload().expect("it is good").is_some());
    assert_eq!(by("k-ada").await, 2);
    keys("pro");
    assert!(rules.reload().expect("it is good").is_some());
    assert_eq!(by("k-ada").await, 0, "9 of 5 are spent");
}

/// The first column of the file of API keys.
fn digest(key: &str) -> String {
    use sha2::{Digest as _, Sha256};
    Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_quota_in_the_file_of_api_keys_that_cannot_be_is_told_with_its_place() {
    let folder = Folder::new();
    std::fs::write(folder.0.join("rules.yaml"), KEYS).expect("it can be written");
    let digest = digest("k-ada");
    for (line, expected) in [
        (
            "{ quota: 7/fortnight }",
            ":1:78: error: \"7/fortnight\" is not a quota: \"fortnight\" is not a unit",
        ),
        (
            "{ quota: [7/min, 70/d] }",
            ":1:1: error: a key brings 2 quotas (7/min, 70/d), and the policy has 1",
        ),
        ("{ quota: [] }", ":1:76: error: a key has at least one quota, as 5/min, or is unlimited"),
        ("{}", ":1:67: error: neither a tier nor a quota is said of this key; write a line for each"),
        ("{ tiers: pro }", "error: this is no line of an API key; write a line for each"),
    ] {
        std::fs::write(folder.0.join("api-keys.yaml"), format!("{digest}: {line}\n"))
            .expect("it can be written");
        let error = error(RulesFile::read(folder.0.join("rules.yaml"), &Variables::none()));
        assert!(error.contains(expected) && !error.contains(&digest), "{line}: {error}");
    }
}

#[test]
fn quotas_of_api_keys_that_no_policy_reads_are_worth_a_warning() {
    let folder = Folder::new();
    let line = format!("{}: {{ tier: pro, quota: 7/min }}\n", digest("k-ada"));
    std::fs::write(folder.0.join("api-keys.yaml"), line).expect("it can be written");
    let text = KEYS.replace(", quota_by: api_key", "");
    std::fs::write(folder.0.join("rules.yaml"), text).expect("it can be written");
    let file = RulesFile::read(folder.0.join("rules.yaml"), &Variables::none()).expect("it is good");
    let warnings: Vec<_> = file.warnings().iter().map(|warning| warning.text()).collect();
    assert_eq!(
        warnings,
        ["the file of API keys gives quotas that no policy reads: say quota_by: api_key in one"]
    );
}

#[tokio::test]
async fn an_override_that_leaves_the_file_leaves_the_debt_of_its_key() {
    let text = |overrides: &str| {
        format!(
            "
version: 1
policies: {{ api: {{ quota: 10/h, overrides: {{ {overrides} }} }} }}
rules: [{{ name: all, limit: api, key: header(x-user) }}]
"
        )
    };
    let (store, clock) = sluicegate_tests::memory::store();
    let rules = Rules::new(&store, parse(&text("acme: 50/h"))).expect("memory keeps it");
    let acme = [("x-user", "acme")];
    assert_eq!(passed(&rules, &acme).await, 50);
    let changes = rules.replace(parse(&text(""))).expect("memory keeps it");
    assert_eq!(changes.to_string(), "removed api.acme; kept api");
    // 50 units count, and drain as they came: of 50/h half of them are left after half an hour.
    assert_eq!(passed(&rules, &acme).await, 0);
    clock.advance(Duration::from_secs(1_800));
    assert_eq!(passed(&rules, &acme).await, 0);
    clock.advance(Duration::from_secs(1_800));
    assert_eq!(passed(&rules, &acme).await, 10);
    let changes = rules.replace(parse(&text("acme: 20/h, b: 1/h"))).expect("memory keeps it");
    assert_eq!(changes.to_string(), "added api.acme, api.b; kept api");
    assert_eq!(passed(&rules, &acme).await, 10);
    let changes = rules.replace(parse(&text("acme: 30/h, b: 1/h"))).expect("memory keeps it");
    assert_eq!(changes.to_string(), "changed api.acme 20/h -> 30/h, what was spent counts; kept api, api.b");
    assert_eq!(passed(&rules, &acme).await, 10);
}

#[tokio::test]
async fn a_key_with_quotas_of_its_own_has_one_bucket_in_all_tiers() {
    let rules = rules(
        "
version: 1
policies: { api: { quota: 2/min, overrides: { acme: 7/min, staff: unlimited } } }
tiers:
  plan: { policy: api, by: header(x-plan), tiers: { big: unlimited, free: 2/min, pro: 5/min }, default_tier: big }
rules:
  - { name: all, limit: plan, key: header(x-user) }
",
    );
    let by = async |user: &str, plan: &str| passed(&rules, &[("x-user", user), ("x-plan", plan)]).await;
    assert_eq!(by("acme", "pro").await, 7);
    assert_eq!((by("acme", "free").await, by("acme", "big").await), (0, 0));
    assert_eq!((by("ada", "pro").await, by("bob", "free").await, by("ada", "big").await), (5, 2, 100));
    assert_eq!(by("staff", "free").await, 100);
    let explained = rules.explain(&request("/", &[("x-user", "acme")])).await.to_string();
    assert!(explained.contains("asks 1 of api: 7/min (gcra) for"), "{explained}");
}

#[tokio::test]
async fn a_share_is_a_part_of_the_quotas_that_keys_bring_too() {
    let text = CLAIMS
        .replace("2/min", "10/min")
        .replace("4/min", "50/min")
        .replace("limit: api,", "limit: api, share: 1/5,");
    let rules = rules(&text);
    for (subject, quota, part) in
        [("ada", "20/min", 4), ("acme", "", 10), ("bob", "", 2), ("eve", "1/min", 1)]
    {
        let token = bearer(serde_json::json!({ "sub": subject, "quota": quota }));
        assert_eq!(passed(&rules, &[("authorization", &token)]).await, part, "{subject}");
    }
}

#[tokio::test]
async fn ten_thousand_single_keys_share_one_policy() {
    let keys: Vec<String> = (0..10_000).map(|key| format!("c{key}: {}/h", 1 + key % 7)).collect();
    let text = format!(
        "
version: 1
policies: {{ api: {{ quota: 1/h, overrides: {{ {} }} }} }}
rules: [{{ name: all, limit: api, key: header(x-user) }}]
",
        keys.join(", ")
    );
    let store = MemoryStore::new();
    let rules = Rules::new(&store, parse(&text)).expect("memory keeps it");
    for key in [0, 6, 9_999] {
        assert_eq!(passed(&rules, &[("x-user", &format!("c{key}"))]).await, 1 + key % 7);
    }
    let quotas = Arc::<dyn Store>::from(&store).status().quotas;
    assert_eq!(quotas, [("api".to_owned(), 2)], "7/h and 4/h; 1/h is that of the policy");
    let open = Policy::gcra("api", "1/h").on(&store);
    assert!(open.expect("the file has it open").policy().takes_quotas());
}

#[test]
fn each_mistake_about_quotas_of_keys_names_the_value_and_what_would_do() {
    let head = "version: 1\njwt: { hs256: 0123456789abcdef0123456789abcdef }\npolicies:\n";
    let tail = "rules:\n  - { name: all, limit: a, key: jwt(sub), cost: 3 }\n";
    for (words, place, expected) in [
        (
            "quota_by: header(x-plan)",
            "4:32",
            "clients would choose their quotas by this header: name the networks of the proxies that set it",
        ),
        ("quota_by: header(x plan)", "4:32", "\"x plan\" is not the name of a header field"),
        ("quota_by: api_key", "4:32", "this needs the section \"api_keys\""),
        (
            "quota_by: client",
            "4:32",
            "\"client\" does not say where quotas are read: use jwt(claim), api_key or header(name)",
        ),
        ("quota_by: []", "4:32", "an empty list says nothing"),
        ("overrides: { acme: 7/moon }", "4:43", "\"7/moon\" is not a quota"),
        (
            "overrides: { acme: [7/min, 8/h] }",
            "4:41",
            "a key brings 2 quotas (7/min, 8/h), and the policy has 1: give one for each",
        ),
        ("overrides: { acme: [] }", "4:41", "a key has at least one quota, as 5/min, or is unlimited"),
        ("overrides: { acme: 0/min }", "4:41", "the limit is 0"),
        (
            "overrides: { acme: 2/min }",
            "6:13",
            "cost 3 is above burst 2 of 2/min, which a key has in policy \"a\": none of its requests would ever pass",
        ),
        ("algorithm: sliding-log, overrides: { acme: 9/min burst 2 }", "4:65", "burst 2"),
        ("on_exceeded: room, quota_by: jwt(quota)", "4:51", "a waiting room has no \"quota_by\""),
        ("on_exceeded: room, tighten: { to: 1/min, for: 1h }", "4:50", "a waiting room has no \"tighten\""),
    ] {
        let text = format!("{head}  a: {{ quota: 5/min, {words} }}\n{tail}");
        let error = error(RulesFile::parse("rules.yaml", &text, &Variables::none()));
        assert!(
            error.starts_with(&format!("rules.yaml:{place}: error: ")) && error.contains(expected),
            "{words}: {error}"
        );
    }
}
