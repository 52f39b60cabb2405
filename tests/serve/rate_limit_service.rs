//! Envoy with its rate limit filter, which asks by descriptors.

use sluicegate_tests::servers::Server;

use crate::serve::asking_proxies::raw;
use crate::serve::crowd::{App, CLIENTS, REQUESTS, Statuses, amid_a_crowd, client, crowd, get, statuses};
use crate::serve::processes::{Sluicegate, on_redis};
use crate::serve::proxies::{Around, Proxy};

/// Seven an hour for each client at one path, one in two seconds at another, and 14 an hour for each client everywhere.
const RULES: &str = r#"
version: 1
policies:
  address: { quota: 14/h, algorithm: sliding-log }
  path: { quota: 7/h, algorithm: sliding-log }
  slow: { quota: 30/min burst 1 }
deny: [{ name: inside, only_if: { descriptor: [{ path: "/internal/*" }, { remote_address: "*" }] } }]
rules:
  - { name: address, only_if: { domain: edge, descriptor: [{ remote_address: "*" }] }, limit: address, key: client }
  - { name: path, only_if: { domain: edge, descriptor: [{ path: / }, { remote_address: "*" }] }, limit: path, key: descriptor }
  - { name: slow, only_if: { domain: edge, descriptor: [{ path: "/slow*" }, { remote_address: "*" }] }, limit: slow, key: client }
"#;

fn envoy(around: Around, change: impl Fn(String) -> String) -> Proxy {
    Proxy::envoy("envoy-ratelimit.yaml", around, change)
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_clients_get_exactly_what_the_rules_allow_and_what_is_refused_spends_nothing() {
    let serving = Sluicegate::serve(RULES, &[]);
    let app = App::start().await;
    let proxy = envoy(Around::of(&serving, &app), |text| text);
    let expected = Statuses::from([(200, 7), (429, REQUESTS - 7)]);
    for (number, statuses) in crowd(proxy.address).await {
        assert_eq!(statuses, expected, "client {number}");
    }
    assert_eq!(app.served(), 7 * usize::from(CLIENTS), "refused requests do not reach the service");

    serving.change(&RULES.replace("7/h", "12/h"));
    let first = client(1);
    while get(&first, proxy.address, "/").await.status() != 200 {}
    for (number, statuses) in crowd(proxy.address).await {
        let allowed = if number == 1 { 4 } else { 5 };
        assert_eq!(statuses[&200], allowed, "client {number} has spent seven before");
    }
    let mut elsewhere = Vec::new();
    for _ in 0..4 {
        elsewhere.push(get(&first, proxy.address, "/free").await.status().as_u16());
    }
    assert_eq!(elsewhere, [200, 200, 429, 429], "twelve of fourteen were spent, by allowed requests alone");
}

/// Envoy took the errors that such bytes once made for an outage, and let all of these requests pass.
#[tokio::test(flavor = "multi_thread")]
async fn an_envoy_that_lets_requests_pass_in_an_outage_lets_no_client_feign_one() {
    let rules = r#"
version: 1
policies: { key: { quota: 3/h } }
rules:
  - { name: key, only_if: { domain: edge, descriptor: [{ key: "*" }] }, limit: key, key: everybody }
  - { name: twice, only_if: { domain: edge, descriptor: [{ key: "*" }, { again: "*" }] }, limit: key, key: everybody }
"#;
    let header = r#"- request_headers: { header_name: x-api-key, descriptor_key: key }"#;
    let twice = format!(
        "{header}\n                            {}",
        header.replace("descriptor_key: key", "descriptor_key: again")
    );
    for is_denied in [false, true] {
        let serving = Sluicegate::serve(rules, &[]);
        let app = App::start().await;
        let proxy = envoy(Around::of(&serving, &app), |text| {
            text.replace(
                "- actions: [{ remote_address: {} }]",
                &format!("- actions:\n                            {header}"),
            )
            .replace(r#"- request_headers: { header_name: ":path", descriptor_key: path }"#, &twice)
            .replace("\n                            - remote_address: {}", "")
            .replace("failure_mode_deny: false", &format!("failure_mode_deny: {is_denied}"))
        });
        let long = [&b"X-Api-Key: "[..], &[b'a'; 50_000], b"\r\n"].concat();
        let mut statuses = Vec::new();
        for fields in [b"X-Api-Key: \xff\r\n", &long[..], b"X-Api-Key: \xff\xfe\r\n", &long] {
            statuses.push(raw(proxy.address, fields).await);
        }
        assert_eq!(statuses, [200, 429, 429, 429], "each request spends two");
        assert_eq!(app.served(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_the_path_leads_around_the_limit_of_the_shipped_files() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/serve/rules.yaml");
    let rules = std::fs::read_to_string(file).unwrap();
    let serving = Sluicegate::serve(&rules, &[]);
    let app = App::start().await;
    let proxy = envoy(Around::of(&serving, &app), |text| text);
    let client = client(1);
    let mut passed = 0;
    for path in [
        "/login?x=1",
        "/login;x",
        "//login",
        "/%6cogin",
        "/LOGIN",
        "/login/",
        "/a/../login",
        "/login?y",
        "/Login/?y",
    ] {
        let url = format!("http://{}{path}", proxy.address);
        passed += usize::from(client.post(url).send().await.unwrap().status() != 429);
    }
    assert_eq!(passed, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_reaches_the_client_with_a_true_retry_after_and_its_problem() {
    let serving = Sluicegate::serve(RULES, &[]);
    let app = App::start().await;
    let proxy = envoy(Around::of(&serving, &app), |text| text);
    let client = client(1);
    let allowed = get(&client, proxy.address, "/slow?a=b").await;
    assert_eq!(allowed.status(), 200);
    assert_eq!(allowed.headers()["x-ratelimit-remaining"], "0");
    let refused = get(&client, proxy.address, "/slow").await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "2");
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    assert!(refused.text().await.unwrap().contains("\"violated-policies\":[\"slow\"]"));
    assert_eq!(get(&client, proxy.address, "/internal/x").await.status(), 429);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(get(&client, proxy.address, "/slow").await.status(), 200, "it told the truth");
}

#[tokio::test(flavor = "multi_thread")]
async fn amid_the_requests_of_fifty_clients_the_rules_change_and_the_server_is_killed_and_nobody_gets_more() {
    let redis = Server::start();
    let rules = on_redis(RULES, &redis);
    let mut serving = Sluicegate::serve(&rules, &[]);
    let app = App::start().await;
    let is_denied = |text: String| text.replace("failure_mode_deny: false", "failure_mode_deny: true");
    let proxy = envoy(Around::of(&serving, &app), is_denied);
    amid_a_crowd("Envoy", &mut serving, &rules, &app, &proxy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_server_is_away_requests_pass_or_are_refused_as_envoy_says_and_counts_stay() {
    let redis = Server::start();
    for is_denied in [false, true] {
        let change = move |text: String| {
            text.replace("failure_mode_deny: false", &format!("failure_mode_deny: {is_denied}"))
        };
        let mut serving = Sluicegate::serve(&on_redis(RULES, &redis), &[]);
        let app = App::start().await;
        let proxy = envoy(Around::of(&serving, &app), change);
        let client = client(if is_denied { 1 } else { 2 });
        let statuses = async |number| statuses(&client, proxy.address, number).await;
        assert_eq!(statuses(5).await, [200; 5]);
        serving.kill();
        assert_eq!(statuses(3).await, [if is_denied { 503 } else { 200 }; 3]);
        serving.start();
        // Envoy connects again after a pause of its own. What is denied spends nothing.
        while get(&client, proxy.address, "/internal/x").await.status() != 429 {}
        assert_eq!(statuses(4).await, [200, 200, 429, 429], "five of seven were spent before");
    }
}
