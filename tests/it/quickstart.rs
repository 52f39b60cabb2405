//! The routes of the quickstart, each with the limit that its users expect.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use http::{Method, StatusCode};
use serde_json::json;
use sluicegate::clock::ManualClock;
use sluicegate::key::OnMissingKey;
use sluicegate::{Decided, Limit, MemoryStore, Policy, RateLimitExt, RateLimitLayer, RateLimiter};
use sluicegate_tests::memory::store;
use tokio::task::JoinSet;

use crate::support::{Client, field, numbers, serve, serve_without_peer_address};

const OK: StatusCode = StatusCode::OK;
const REFUSED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

fn upload(store: &MemoryStore) -> RateLimiter {
    let policy = Policy::leaky_bucket("upload", "2/s burst 1").wait_up_to(Duration::from_secs(5));
    policy.on(store).unwrap()
}

fn app(store: &MemoryStore) -> Router {
    let api = Policy::sliding_counter("api", "200/min").on(store).unwrap();
    let login = Policy::sliding_counter("login", "5/min").on(store).unwrap();
    let search = Policy::token_bucket("search", "10/s burst 20").on(store).unwrap();
    let payment = Policy::sliding_counter("payment", "5/min").and("2/10s").on(store).unwrap();
    let report = Policy::token_bucket("report", "100/min").on(store).unwrap();
    let report = Limit::new(report).cost(10).unwrap();
    async fn find(decided: Decided) -> String {
        decided.remaining().to_string()
    }
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/login", post(|| async { "welcome" }).rate_limit(login))
        .route("/search", get(find).rate_limit(RateLimitLayer::new(search).decided()))
        .route("/upload", post(|| async { "stored" }).rate_limit(upload(store)))
        .route("/payment", get(|| async { "paid" }).rate_limit(payment))
        .route("/report", get(|| async { "a long report" }).rate_limit(report))
        .rate_limit(api)
        .route("/health", get(|| async { "ok" }))
}

async fn start() -> (SocketAddr, MemoryStore, ManualClock) {
    let (store, clock) = store();
    (serve(app(&store)).await, store, clock)
}

/// How many of so many clients, each on a connection of its own and all at once, are let through.
async fn admitted(server: SocketAddr, clients: usize, method: Method, path: &'static str) -> usize {
    let mut all = JoinSet::new();
    for _ in 0..clients {
        let method = method.clone();
        all.spawn(async move { Client::connect(server).await.send(method, path).await.status() });
    }
    let statuses = all.join_all().await;
    assert!(statuses.iter().all(|&status| status == OK || status == REFUSED), "{statuses:?}");
    statuses.into_iter().filter(|&status| status == OK).count()
}

#[tokio::test]
async fn the_sixth_login_in_a_minute_is_refused_and_all_numbers_agree() {
    let (server, _, clock) = start().await;
    let mut client = Client::connect(server).await;
    for left in (0..5).rev() {
        let response = client.post("/login").await;
        assert_eq!((response.status(), &response.body()[..]), (OK, &b"welcome"[..]));
        assert_eq!(numbers(&response)[..2], [5, left]);
    }
    let refused = client.post("/login").await;
    assert_eq!(refused.status(), REFUSED);
    let [limit, remaining, reset] = numbers(&refused);
    let wait: u64 = field(&refused, "retry-after").parse().unwrap();
    assert_eq!((limit, remaining), (5, 0));
    assert!((1..=reset).contains(&wait), "{wait} s to the next, {reset} s to all");
    assert_eq!(field(&refused, "ratelimit-policy"), r#""api";q=200;w=60, "login";q=5;w=60"#);
    // The router's limit was given back what it had spent on the refused request.
    let api = r#""api";r=195;t=61"#;
    assert_eq!(field(&refused, "ratelimit"), format!(r#"{api}, "login";r=0;t={wait}"#));
    assert_eq!(field(&refused, "content-type"), "application/problem+json");
    assert_eq!(field(&refused, "cache-control"), "no-store");
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(refused.body()).unwrap(),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota Exceeded",
            "status": 429,
            "detail": format!("too many requests: try again in {wait} s"),
            "retry_after": wait,
            "limit": limit,
            "remaining": remaining,
            "reset": reset,
            "violated-policies": ["login"],
        })
    );
    clock.advance(Duration::from_secs(wait));
    assert_eq!(client.post("/login").await.status(), OK, "waiting as told is enough");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_64_clients_at_once_exactly_the_limit_gets_through() {
    let (server, _, clock) = start().await;
    assert_eq!(admitted(server, 64, Method::POST, "/login").await, 5);
    assert_eq!(admitted(server, 64, Method::GET, "/search").await, 20);
    clock.advance(Duration::from_secs(1));
    assert_eq!(admitted(server, 64, Method::GET, "/search").await, 10, "ten more a second later");
    // 35 were let through so far, and refused requests are not counted by the router's limit.
    assert_eq!(admitted(server, 64, Method::GET, "/").await, 64);
    assert_eq!(admitted(server, 64, Method::GET, "/").await, 64);
    assert_eq!(admitted(server, 64, Method::GET, "/").await, 200 - 35 - 128);
}

#[tokio::test]
async fn handlers_and_clients_see_the_same_number_of_searches_left() {
    let (server, _, _) = start().await;
    let mut client = Client::connect(server).await;
    for left in (0..20_u64).rev() {
        let response = client.get("/search").await;
        assert_eq!(response.body(), left.to_string().as_bytes());
        assert_eq!(numbers(&response)[..2], [20, left]);
    }
    let refused = client.get("/search").await;
    assert_eq!((refused.status(), field(&refused, "retry-after")), (REFUSED, "1"));
}

#[tokio::test]
async fn the_third_payment_in_ten_seconds_is_refused_by_the_quota_that_is_named() {
    let (server, _, clock) = start().await;
    let mut client = Client::connect(server).await;
    for _ in 0..2 {
        assert_eq!(client.get("/payment").await.status(), OK);
    }
    let refused = client.get("/payment").await;
    assert_eq!(refused.status(), REFUSED);
    let problem: serde_json::Value = serde_json::from_slice(refused.body()).unwrap();
    assert_eq!(problem["violated-policies"], json!(["payment.10s"]));
    assert_eq!(numbers(&refused)[..2], [2, 0]);
    // Far enough apart for the second quota, so that the first one refuses the sixth in the minute.
    for _ in 0..3 {
        clock.advance(Duration::from_secs(14));
        assert_eq!(client.get("/payment").await.status(), OK);
    }
    clock.advance(Duration::from_secs(14));
    let refused = client.get("/payment").await;
    let problem: serde_json::Value = serde_json::from_slice(refused.body()).unwrap();
    assert_eq!(problem["violated-policies"], json!(["payment.1min"]));
    assert_eq!(numbers(&refused)[..2], [5, 0]);
}

#[tokio::test]
async fn ten_reports_use_up_a_hundred_units_a_minute() {
    let (server, _, _) = start().await;
    let mut client = Client::connect(server).await;
    for report in 1..=10 {
        let response = client.get("/report").await;
        assert_eq!((response.status(), numbers(&response)[..2].to_vec()), (OK, vec![100, 100 - 10 * report]));
    }
    let refused = client.get("/report").await;
    // Ten units at 100 a minute.
    assert_eq!((refused.status(), field(&refused, "retry-after")), (REFUSED, "6"));
}

#[tokio::test]
async fn the_router_limit_covers_every_route_but_the_one_added_after_it() {
    let (server, _, _) = start().await;
    let mut client = Client::connect(server).await;
    for _ in 0..199 {
        assert_eq!(client.get("/").await.status(), OK);
    }
    assert_eq!(client.post("/login").await.status(), OK);
    for (method, path) in [(Method::GET, "/"), (Method::POST, "/login"), (Method::GET, "/report")] {
        let refused = client.send(method, path).await;
        assert_eq!((refused.status(), &numbers(&refused)[..2]), (REFUSED, &[200, 0][..]), "{path}");
    }
    for _ in 0..300 {
        let response = client.get("/health").await;
        assert_eq!(response.status(), OK);
        assert!(!response.headers().keys().any(|name| name.as_str().contains("ratelimit")));
    }
    let mut other = Client::connect_from([127, 0, 0, 2], server).await;
    assert_eq!(numbers(&other.get("/").await)[..2], [200, 199], "another peer has buckets of its own");
}

#[tokio::test]
async fn an_upload_waits_its_turn_and_one_that_would_wait_too_long_is_refused_at_once() {
    let (server, store, _) = start().await;
    let mut client = Client::connect(server).await;
    // The second waits half a second, in real time.
    for _ in 0..2 {
        assert_eq!(client.post("/upload").await.status(), OK);
    }
    let upload = upload(&store);
    while upload.check(Ipv4Addr::LOCALHOST).await.unwrap().is_allowed() {}
    let refused = client.post("/upload").await;
    assert_eq!((refused.status(), field(&refused, "retry-after")), (REFUSED, "1"));
}

#[tokio::test]
async fn a_server_that_forgets_the_peer_address_is_told_so_at_its_first_request() {
    let (store, _) = store();
    let server = serve_without_peer_address(app(&store)).await;
    let mut client = Client::connect_from([127, 0, 0, 1], server).await;
    assert_eq!(client.post("/login").await.status(), StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn without_the_peer_address_all_clients_share_one_bucket_if_that_is_chosen() {
    let (store, _) = store();
    let login = Limit::new(Policy::sliding_counter("login", "5/min").on(&store).unwrap());
    let login = login.on_missing_key(OnMissingKey::Share);
    let app = Router::new().route("/login", post(|| async { "welcome" }).rate_limit(login));
    let server = serve_without_peer_address(app).await;
    let mut one = Client::connect_from([127, 0, 0, 1], server).await;
    let mut other = Client::connect_from([127, 0, 0, 2], server).await;
    for _ in 0..2 {
        assert_eq!(one.post("/login").await.status(), OK);
        assert_eq!(other.post("/login").await.status(), OK);
    }
    assert_eq!(one.post("/login").await.status(), OK);
    assert_eq!(other.post("/login").await.status(), REFUSED, "the sixth of all");
}
