//! Two servers on one Redis: with leases and deny caches, and behind one Envoy that asks for their health.

use std::net::SocketAddr;

use reqwest::Client;
use serde_json::{Value, json};
use sluicegate_tests::servers::Server;
use tokio::task::JoinSet;

use crate::serve::crowd::{App, client, get, statuses};
use crate::serve::processes::Sluicegate;
use crate::serve::proxies::{Around, Proxy};

/// As many hits as there are calls, of which an hour gives few back.
const QUOTA: usize = 600;

fn rules(redis: &Server, fleet: &str) -> String {
    format!(
        "version: 1\nstore: {{ redis: \"{}\", deadline: 10s{fleet} }}\npolicies: {{ hot: {{ quota: {QUOTA}/h, algorithm: fixed-window }} }}\nrules: []\n",
        redis.url()
    )
}

/// How many of these calls for one key are allowed.
async fn allowed(client: &Client, http: SocketAddr, calls: usize) -> usize {
    let mut allowed = 0;
    for _ in 0..calls {
        let call = client.post(format!("http://{http}/v1/check"));
        let answer = call.json(&json!({ "policy": "hot", "key": "k" })).send().await.unwrap();
        allowed += usize::from(answer.json::<Value>().await.unwrap()["allowed"] == true);
    }
    allowed
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_of_two_servers_never_admit_more_and_come_back_when_they_end() {
    let redis = Server::start();
    let text = rules(&redis, ", fleet: [leases, deny-cache]");
    let servers = [(); 2].map(|()| Sluicegate::serve(&text, &[]));
    let spent: usize = {
        let mut clients = JoinSet::new();
        for number in 0..10 {
            let (http, client) = (servers[number % 2].http, client(1));
            clients.spawn(async move { allowed(&client, http, 30).await });
        }
        clients.join_all().await.into_iter().sum()
    };
    assert!((1..=300).contains(&spent), "{spent} of 300 calls");
    let metrics = client(1).get(format!("http://{}/metrics", servers[0].http)).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    assert!(metrics.contains("lease"), "some were decided from leases");
    for mut server in servers {
        server.stop();
    }
    let alone = Sluicegate::serve(&rules(&redis, ""), &[]);
    let rest = allowed(&client(1), alone.http, QUOTA).await;
    assert_eq!(spent + rest, QUOTA, "what was leased and not spent has come back");
}

const RULES: &str = r#"
version: 1
policies:
  path: { quota: 12/h, algorithm: sliding-log }
deny: [{ name: inside, only_if: { descriptor: [{ path: "/internal/*" }, { remote_address: "*" }] } }]
rules:
  - { name: path, only_if: { domain: edge, descriptor: [{ path: / }, { remote_address: "*" }] }, limit: path, key: descriptor }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn while_one_of_two_servers_is_away_envoy_asks_the_other_and_counts_stay() {
    let redis = Server::start();
    let [mut one, two] = [(); 2].map(|()| Sluicegate::serve(RULES, &["--store", &redis.url()]));
    let app = App::start().await;
    let port = two.grpc.port();
    // The lines of the page.
    let second = move |text: String| {
        let (before, after) = text.split_once("              - endpoint:").unwrap();
        let health = "health_checks: [{ timeout: 0.2s, interval: 0.2s, no_traffic_interval: 0.2s, unhealthy_threshold: 1, healthy_threshold: 1, grpc_health_check: {} }]";
        let before =
            before.replace("      load_assignment:", &format!("      {health}\n      load_assignment:"));
        let endpoint = format!(
            "              - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}"
        );
        format!("{before}{endpoint}\n              - endpoint:{after}")
            .replace("failure_mode_deny: false", "failure_mode_deny: true")
    };
    let proxy = Proxy::envoy("envoy-ratelimit.yaml", Around::of(&one, &app), second);
    let client = client(1);
    let all_answer = async || {
        // What is denied spends nothing. Both are asked in turn.
        let mut in_a_row = 0;
        while in_a_row < 20 {
            let status = get(&client, proxy.address, "/internal/x").await.status();
            in_a_row = if status == 429 { in_a_row + 1 } else { 0 };
        }
    };
    let statuses = async |number| statuses(&client, proxy.address, number).await;
    all_answer().await;
    assert_eq!(statuses(5).await, [200; 5]);
    one.kill();
    all_answer().await;
    assert_eq!(statuses(4).await, [200; 4], "the other one knows what was spent");
    one.start();
    all_answer().await;
    assert_eq!(statuses(5).await, [200, 200, 200, 429, 429]);
}
