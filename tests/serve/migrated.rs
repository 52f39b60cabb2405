//! The policies of the page on migration in a server: each passes as many requests at once as the gateway that it comes from.

use serde_json::json;

use crate::serve::processes::Sluicegate;

/// The policies in the tables of the page, and the requests that each passes at once.
fn policies() -> Vec<(String, usize)> {
    let page = include_str!("../../crates/sluicegate/docs/migration.md");
    let (_, page) = page.split_once("# Gateways, as policies of a rules file").unwrap();
    let cells = page.lines().filter_map(|line| line.split('|').nth(2));
    let policies = cells.filter_map(|cell| cell.trim().strip_prefix('`')?.strip_suffix('`'));
    let policies = policies.filter(|policy| policy.starts_with("{ algorithm"));
    let at_once = |policy: &str| {
        let (_, quota) = policy.split_once("quota: ").unwrap();
        let burst = quota.split_once("burst ").map_or(quota, |(_, burst)| burst);
        burst.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    policies.map(|policy| (policy.to_owned(), at_once(policy))).collect()
}

/// A policy whose units do not come back while a test runs.
fn slow(policy: &str) -> String {
    ["/s", "/min", "/10s"].iter().fold(policy.replace(", on_exceeded: wait 50ms", ""), |policy, period| {
        policy.replace(&format!("{period} "), "/d ").replace(&format!("{period},"), "/d,")
    })
}

#[tokio::test]
async fn each_policy_of_the_page_passes_as_many_requests_at_once_as_there() {
    let policies = policies();
    assert!(policies.len() >= 11, "{policies:?}");
    let named = policies.iter().enumerate();
    let named: Vec<_> =
        named.map(|(number, (policy, _))| format!("  p{number}: {}\n", slow(policy))).collect();
    let rules = format!("version: 1\npolicies:\n{}rules: []\n", named.concat());
    let serving = Sluicegate::serve(&rules, &[]);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for (number, (policy, at_once)) in policies.iter().enumerate() {
        let mut passed = 0;
        for _ in 0..at_once + 3 {
            let call = json!({ "policy": format!("p{number}"), "key": "ada" });
            let answer = client.post(format!("http://{}/v1/check", serving.http)).json(&call).send();
            passed += usize::from(answer.await.unwrap().status() == 200);
        }
        assert_eq!(passed, *at_once, "{policy}");
    }
}
