//! nginx, Caddy and Envoy, each of which asks over HTTP before it forwards.

use std::net::SocketAddr;

use sluicegate_tests::servers::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::serve::crowd::{App, CLIENTS, REQUESTS, Statuses, amid_a_crowd, client, crowd, get, statuses};
use crate::serve::processes::{Sluicegate, on_redis};
use crate::serve::proxies::{Around, Proxy};

/// Seven an hour for each client, and one in two seconds at another path.
const RULES: &str = "
version: 1
policies:
  client: { quota: 7/h, algorithm: sliding-log }
  slow: { quota: 30/min burst 1 }
deny: [{ name: inside, only_if: { path: /internal/* } }]
rules:
  - { name: client, group: one, only_if: { path: / }, limit: client, key: client }
  - { name: slow, group: one, only_if: { path: /slow }, limit: slow, key: client }
";
const OPTIONS: [&str; 2] = ["--proxy", "127.0.0.1"];

/// Starts a proxy whose file is changed by a function.
type Start = fn(Around, &dyn Fn(String) -> String) -> Proxy;

const PROXIES: [(&str, Start); 3] = [
    ("nginx", |around, change| Proxy::nginx(around, change)),
    ("Caddy", |around, change| Proxy::caddy(around, change)),
    ("Envoy", |around, change| Proxy::envoy("envoy-ext-authz.yaml", around, change)),
];

fn unchanged(text: String) -> String {
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_clients_get_exactly_what_the_rules_allow_and_changed_rules_hold_at_once() {
    for (name, start) in PROXIES {
        let serving = Sluicegate::serve(RULES, &OPTIONS);
        let app = App::start().await;
        let proxy = start(Around::of(&serving, &app), &unchanged);
        let expected = Statuses::from([(200, 7), (429, REQUESTS - 7)]);
        for (number, statuses) in crowd(proxy.address).await {
            assert_eq!(statuses, expected, "{name}: client {number}");
        }
        assert_eq!(
            app.served(),
            7 * usize::from(CLIENTS),
            "{name}: refused requests do not reach the service"
        );

        serving.change(&RULES.replace("7/h", "12/h"));
        let first = client(1);
        while get(&first, proxy.address, "/").await.status() != 200 {}
        for (number, statuses) in crowd(proxy.address).await {
            let allowed = if number == 1 { 4 } else { 5 };
            assert_eq!(statuses[&200], allowed, "{name}: client {number} has spent seven before");
        }
        assert_eq!(app.served(), 12 * usize::from(CLIENTS), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_reaches_the_client_as_429_with_a_true_retry_after() {
    for (name, start) in PROXIES {
        let serving = Sluicegate::serve(RULES, &OPTIONS);
        let app = App::start().await;
        let proxy = start(Around::of(&serving, &app), &unchanged);
        let client = client(1);
        let allowed = get(&client, proxy.address, "/slow?a=b").await;
        assert_eq!(allowed.status(), 200, "{name}");
        if name != "Caddy" {
            let remaining = &allowed.headers()["x-ratelimit-remaining"];
            assert_eq!(remaining, "0", "{name} passes on the fields of an allowed answer");
        }
        assert_eq!(allowed.text().await.unwrap(), "hello", "{name}");
        let refused = get(&client, proxy.address, "/slow").await;
        assert_eq!(
            (refused.status(), &refused.headers()["retry-after"]),
            (429.try_into().unwrap(), &"2".parse().unwrap()),
            "{name}"
        );
        assert_eq!(get(&client, proxy.address, "/internal/x").await.status(), 403, "{name}");
        assert_eq!(get(&client, proxy.address, "/free").await.status(), 200, "{name}: no rule is about it");
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        assert_eq!(get(&client, proxy.address, "/slow").await.status(), 200, "{name}: it told the truth");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn amid_the_requests_of_fifty_clients_the_rules_change_and_the_server_is_killed_and_nobody_gets_more() {
    let redis = Server::start();
    for (name, start) in PROXIES {
        let policy = name.to_lowercase();
        let rules = RULES
            .replace("limit: client", &format!("limit: {policy}"))
            .replace("client: {", &format!("{policy}: {{"));
        let rules = on_redis(&rules, &redis);
        let mut serving = Sluicegate::serve(&rules, &OPTIONS);
        let app = App::start().await;
        let proxy = start(Around::of(&serving, &app), &unchanged);
        amid_a_crowd(name, &mut serving, &rules, &app, &proxy).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_server_is_away_requests_are_refused_or_pass_as_the_proxy_says_and_counts_stay() {
    let redis = Server::start();
    for (name, start) in PROXIES {
        for passes in [false, true] {
            let change = move |text: String| match passes {
                true => text
                    .replace("# error_page 500", "error_page 500")
                    .replace("failure_mode_allow: false", "failure_mode_allow: true"),
                false => text,
            };
            // Caddy has no setting for it.
            if passes && name == "Caddy" {
                continue;
            }
            let rules = RULES
                .replace("client: {", &format!("{}-{passes}: {{", name.to_lowercase()))
                .replace("limit: client", &format!("limit: {}-{passes}", name.to_lowercase()));
            let mut serving = Sluicegate::serve(&on_redis(&rules, &redis), &OPTIONS);
            let app = App::start().await;
            let proxy = start(Around::of(&serving, &app), &change);
            let client = client(1);
            let statuses = async |number| statuses(&client, proxy.address, number).await;
            assert_eq!(statuses(5).await, [200; 5], "{name}");
            serving.kill();
            let away = match (name, passes) {
                (_, true) => 200,
                ("nginx", _) => 500,
                ("Caddy", _) => 502,
                _ => 503,
            };
            assert_eq!(statuses(3).await, [away; 3], "{name}");
            serving.start();
            assert_eq!(statuses(4).await, [200, 200, 429, 429], "{name}: five of seven were spent before");
        }
    }
}

/// The status of a request with these fields, which no client library would send.
pub(crate) async fn raw(proxy: SocketAddr, fields: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    let head = [b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n", fields, b"\r\n"].concat();
    stream.write_all(&head).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap().parse().unwrap()
}

/// nginx makes 500 of a 400, as of a server that is away, so that such requests once passed without limits.
#[tokio::test(flavor = "multi_thread")]
async fn an_nginx_that_lets_requests_pass_in_an_outage_lets_no_client_feign_one() {
    let serving = Sluicegate::serve(RULES, &OPTIONS);
    let app = App::start().await;
    let proxy =
        Proxy::nginx(Around::of(&serving, &app), |text| text.replace("# error_page 500", "error_page 500"));
    let mut statuses = Vec::new();
    for _ in 0..9 {
        statuses.push(raw(proxy.address, b"X-Forwarded-For: \xff\r\n").await);
    }
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 200, 429, 429], "each is counted");
    let many: String = (0..200).map(|number| format!("X-{number}: 1\r\n")).collect();
    for fields in [&b"X-Bytes: \x01\r\n"[..], many.as_bytes()] {
        assert_eq!(raw(proxy.address, fields).await, 400, "the server cannot read it");
    }
    assert_eq!(app.served(), 7);
}

/// Envoy takes each status from 500 on for a server that is away.
#[tokio::test(flavor = "multi_thread")]
async fn no_refusal_of_5xx_passes_a_proxy_that_lets_requests_pass_in_an_outage() {
    let rules = "
version: 1
policies: { key: { quota: 100/h } }
rules: [{ name: key, limit: key, key: header(x-api-key), on_missing_key: 503 }]
";
    for (name, start) in PROXIES {
        let change = |text: String| {
            text.replace("# error_page 500", "error_page 500")
                .replace("failure_mode_allow: false", "failure_mode_allow: true")
        };
        let serving = Sluicegate::serve(rules, &OPTIONS);
        let app = App::start().await;
        let proxy = start(Around::of(&serving, &app), &change);
        let asks = client(1).get(format!("http://{}/", proxy.address));
        let refused = asks.try_clone().unwrap().send().await.unwrap().status();
        assert!(refused == 503 || refused == 429, "{name}: {refused}");
        let allowed = asks.header("x-api-key", "ada").send().await.unwrap().status();
        assert_eq!(allowed, 200, "{name}");
        assert_eq!(app.served(), 1, "{name}");
    }
}

/// nginx asked once more for the page of a 404, and made 500 of each wait that was longer than a second.
#[tokio::test(flavor = "multi_thread")]
async fn behind_nginx_a_redirected_request_spends_once_and_a_rule_may_let_requests_wait() {
    let rules = "
version: 1
policies:
  once: { quota: 3/h }
  turns: { algorithm: leaky-bucket-queue, quota: 1/s burst 3, on_exceeded: wait 2s }
rules:
  - { name: turns, group: one, only_if: { path: /turns }, limit: turns, key: client }
  - { name: once, group: one, limit: once, key: client }
";
    let serving = Sluicegate::serve(rules, &OPTIONS);
    let app = App::start().await;
    let error_pages = "proxy_intercept_errors on; error_page 404 /404.html; error_page 403";
    let proxy = Proxy::nginx(Around::of(&serving, &app), |text| text.replace("error_page 403", error_pages));
    let client = client(1);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let response = get(&client, proxy.address, "/missing").await;
        let remaining = response.headers()["x-ratelimit-remaining"].to_str().unwrap().to_owned();
        seen.push((response.status().as_u16(), remaining));
    }
    assert_eq!(
        seen,
        [(404, "2"), (404, "1"), (404, "0"), (429, "0")].map(|(status, left)| (status, left.to_owned()))
    );
    let turns = (0..5).map(|_| async { get(&client, proxy.address, "/turns").await.status().as_u16() });
    let mut statuses = futures_util::future::join_all(turns).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
}
