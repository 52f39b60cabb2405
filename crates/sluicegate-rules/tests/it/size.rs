//! Files as large as they get: all of it is there, and the last is found as the first.

use std::fmt::Write as _;

use http::Request;
use sha2::{Digest as _, Sha256};
use sluicegate_core::MemoryStore;
use sluicegate_rules::{Rules, RulesFile, Variables};

use crate::reload::Folder;

#[tokio::test]
async fn of_10_000_api_keys_each_is_found_with_its_tier() {
    let mut keys = String::new();
    for number in 0..10_000 {
        let sum = Sha256::digest(format!("k-{number}"));
        for byte in sum {
            write!(keys, "{byte:02x}").expect("it is a text");
        }
        writeln!(keys, ": {}", ["free", "pro", "team"][number % 3]).expect("it is a text");
    }
    let folder = Folder::new();
    folder.write(
        "
version: 1
api_keys: { header: x-api-key, file: api-keys.yaml }
policies:
  free: { quota: 1/min }
  pro: { quota: 2/min }
  team: { quota: 3/min }
tiers:
  plan: { by: api_key, tiers: { free: free, pro: pro, team: team }, default_tier: free }
rules: [{ name: all, limit: plan, key: api_key }]
",
    );
    std::fs::write(folder.0.join("api-keys.yaml"), keys).expect("it can be written");
    let file = RulesFile::read(folder.path(), &Variables::none()).unwrap_or_else(|error| panic!("{error}"));
    let rules = Rules::new(MemoryStore::new(), file).expect("memory keeps all");
    let tier = async |number: usize| {
        let request = Request::get("/").header("x-api-key", format!("k-{number}"));
        let explained = rules.explain(&request.body(()).expect("it is a request")).await;
        explained.rules[0].limits[0].asks.as_ref().ok().and_then(|asks| asks.tier.clone())
    };
    for number in (0..10_000).step_by(101) {
        assert_eq!(tier(number).await.as_deref(), Some(["free", "pro", "team"][number % 3]), "k-{number}");
    }
    assert_eq!(tier(10_000).await.as_deref(), Some("free"), "it is not listed");
}

#[tokio::test]
async fn of_1_000_rules_each_is_found() {
    let mut text = "version: 1\npolicies: { a: { quota: 5/min } }\nrules:\n".to_owned();
    for rule in 0..1_000 {
        let only_if = format!("path: \"/t{rule}/{{id}}\"");
        writeln!(
            text,
            "  - {{ name: r{rule}, group: g, only_if: {{ {only_if} }}, limit: a, key: everybody }}"
        )
        .expect("it is a text");
    }
    let file = RulesFile::parse("rules.yaml", &text, &Variables::none()).expect("the file is good");
    let rules = Rules::new(MemoryStore::new(), file).expect("memory keeps all");
    for rule in (0..1_000).step_by(111) {
        let request = Request::get(format!("/t{rule}/7")).body(()).expect("it is a request");
        let explained = rules.explain(&request).await;
        let applying = explained.rules.iter().filter(|rule| rule.why_not.is_none());
        let names: Vec<_> = applying.map(|rule| rule.name.clone()).collect();
        assert_eq!(names, [format!("r{rule}")]);
    }
}
