//! A client that makes up keys: API keys, users, tenants, cookies, tokens and addresses, others with each request. It passes no
//! more often than its address may, whichever example or recipe it meets.

#[path = "../../examples/attribute.rs"]
#[expect(dead_code, reason = "its `main` is for those who run it")]
mod attribute;
#[path = "../../examples/behind_nginx.rs"]
#[expect(dead_code, reason = "its `main` is for those who run it")]
mod behind_nginx;
#[path = "../../examples/monitoring.rs"]
#[expect(dead_code, reason = "its `main` is for those who run it")]
pub(crate) mod monitoring;
#[path = "../../examples/quickstart.rs"]
#[expect(dead_code, reason = "its `main` is for those who run it")]
mod quickstart;
#[path = "../../examples/redis.rs"]
#[expect(dead_code, reason = "its `main` is for those who run it")]
mod redis;
#[path = "../../examples/tower_stack.rs"]
#[expect(dead_code, reason = "its `main` is for those who run it")]
mod tower_stack;

use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::routing::any;
use http::{Method, Request};
use http_body_util::Full;
use metrics_exporter_prometheus::PrometheusBuilder;
use sluicegate::observed::Observed;
use sluicegate::rules::{Rules, Variables};
use sluicegate::{MemoryStore, Quota, RateLimitLayer};
use tower::ServiceBuilder;

use crate::examples::{customers, tiers_jwt, token_budget};
use crate::recipes::pasted::{cookbook, getting_started, keys, migration, tiers};
use crate::recipes::{PEER, behind, passes, request};

/// One of its requests. Each of what it makes up is good, as far as its form goes.
fn invented(method: &Method, path: &str, number: usize) -> Request<Body> {
    let mut request = request(PEER);
    (*request.method_mut(), *request.uri_mut()) = (method.clone(), path.parse().unwrap());
    let [high, low] = u16::try_from(number).unwrap().to_be_bytes();
    let address = format!("203.0.{high}.{low}");
    for (name, value) in [
        ("x-api-key", format!("key-{number}")),
        ("authorization", format!("Bearer token-{number}")),
        ("cookie", format!("session={number}; __Host-session={number}")),
        ("x-user", format!("user-{number}")),
        ("x-tenant", format!("tenant-{number}")),
        ("x-client", format!("client-{number}")),
        ("x-forwarded-for", address.clone()),
        ("forwarded", format!("for={address}")),
        ("x-real-ip", address.clone()),
        ("cf-connecting-ip", address),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

/// Sends more requests than the quota of its address allows, of which no more may pass than the burst and what came back meanwhile
/// by the machine's clock.
async fn pass(name: &str, app: &Router, (method, path): (Method, &str), address: Quota) {
    let (began, burst) = (Instant::now(), usize::try_from(address.burst_size()).unwrap());
    let passed = passes(app, (0..burst + burst / 4 + 20).map(|number| invented(&method, path, number))).await;
    let back = began.elapsed().as_secs_f64() * address.limit() as f64 / address.period().as_secs_f64();
    assert!((passed as f64) <= burst as f64 + back.ceil(), "{name}: {passed} of {address}");
    assert!(passed >= burst, "{name}: only {passed} of {address}");
}

#[tokio::test]
async fn each_example_lets_made_up_keys_pass_as_often_as_one_address() {
    let store = MemoryStore::new;
    let observed = Observed::named("invented", store()).unwrap();
    let metrics = PrometheusBuilder::new().build_recorder().handle();
    let rules = |of: &str| {
        let rules = format!("{}/../examples/{of}.yaml", env!("CARGO_MANIFEST_DIR"));
        let rules = Rules::open(store(), rules, Variables::none()).unwrap();
        Router::new().fallback(any(|| async { "hello" })).layer(rules.layer())
    };
    // It has no addresses, and so one bucket for all of its clients.
    let tower_stack = ServiceBuilder::new()
        .map_request(|request: Request<Body>| request.map(|_| Full::default()))
        .layer(tower_stack::layer(&store()).unwrap())
        .service_fn(tower_stack::hello);
    let tower_stack = Router::new().fallback_service(tower_stack);
    let [get, post] = [Method::GET, Method::POST];
    for (name, app, at, address) in [
        ("attribute", attribute::app(), (&post, "/login"), Quota::per_minute(5)),
        ("attribute", attribute::app(), (&get, "/report/sales"), Quota::per_minute(60)),
        ("attribute", attribute::app(), (&get, "/search"), Quota::per_minute(60)),
        ("behind_nginx", behind_nginx::app().unwrap(), (&get, "/"), Quota::per_minute(5)),
        ("gateway", rules("gateway/rules"), (&get, "/"), Quota::per_second(10).burst(20)),
        ("gateway", rules("gateway/rules"), (&get, "/api/orders"), Quota::per_second(10).burst(20)),
        ("gateway", rules("gateway/openai"), (&post, "/v1/completions"), Quota::per_minute(300)),
        ("monitoring", monitoring::app(&observed, metrics).unwrap(), (&post, "/login"), Quota::per_minute(5)),
        ("quickstart", quickstart::app().unwrap(), (&get, "/"), Quota::per_minute(200)),
        ("redis", redis::instance(store().into(), 1).unwrap(), (&get, "/"), Quota::per_minute(5)),
        ("serve", rules("serve/rules"), (&get, "/"), Quota::per_minute(100).burst(20)),
        ("serve", rules("serve/rules"), (&post, "/login"), Quota::per_minute(5).burst(2)),
        ("tower_stack", tower_stack, (&get, "/"), Quota::per_second(100)),
        ("tiers_jwt", tiers_jwt::app(&store()).unwrap(), (&get, "/search"), Quota::per_minute(3_000)),
        (
            "token_budget",
            token_budget::app(&store(), Duration::ZERO).unwrap(),
            (&post, "/complete"),
            Quota::per_minute(1_000),
        ),
    ] {
        pass(name, &app, (at.0.clone(), at.1), address).await;
    }
}

#[tokio::test]
async fn each_recipe_lets_made_up_keys_pass_as_often_as_one_address() {
    let store = MemoryStore::new();
    let plain = cookbook::one_bucket_for_all::layer(&store).unwrap();
    let per_client = RateLimitLayer::new(keys::behind_a_proxy::per_client(&MemoryStore::new()).unwrap());
    let handlers = getting_started::a_limit_where_the_handler_is::router;
    let tokens = cookbook::tokens_of_a_language_model::router(&MemoryStore::new()).unwrap();
    let [get, post, put] = [Method::GET, Method::POST, Method::PUT];
    for (name, app, at, address) in [
        ("a handler", handlers(), (&post, "/login"), Quota::per_minute(5)),
        ("a handler with a key", handlers(), (&post, "/upload"), Quota::per_hour(1_000)),
        (
            "moved from axum-governor",
            migration::axum_governor::app(&store).unwrap(),
            (&get, "/"),
            Quota::per_second(50),
        ),
        (
            "moved from tower_governor",
            migration::tower_governor::app().unwrap(),
            (&get, "/"),
            Quota::per_minute(30).burst(5),
        ),
        ("one bucket for all", behind(plain), (&get, "/"), Quota::per_second(10)),
        ("per client", behind(per_client), (&get, "/"), Quota::per_minute(100)),
        ("plans", behind(tiers::plans::layer().unwrap()), (&get, "/"), Quota::per_minute(3_000)),
        ("tokens", tokens, (&post, "/complete"), Quota::per_minute(600)),
        (
            "uploads",
            cookbook::uploads::router(&store).unwrap(),
            (&put, "/files"),
            Quota::per_hour(100).burst(10),
        ),
    ] {
        pass(name, &app, (at.0.clone(), at.1), address).await;
    }
}

/// Where authentication says who asks, a client makes up nothing.
#[tokio::test]
async fn who_is_nobodys_customer_does_not_pass() {
    let store = MemoryStore::new();
    let file = std::env::temp_dir().join(format!("sluicegate-invented-{}.sqlite", std::process::id()));
    let rows = customers::Customers::create(&file).unwrap();
    for (name, app) in [
        ("customers", customers::app(&MemoryStore::new(), rows).unwrap()),
        ("customers in a database", cookbook::customers_in_a_database::router(&store).unwrap()),
    ] {
        let asked = (0..300).map(|number| invented(&Method::GET, "/", number));
        assert_eq!(passes(&app, asked).await, 0, "{name}");
    }
    std::fs::remove_file(&file).unwrap();
}

/// A tenant is what a header says, and its user what authentication has found.
#[tokio::test]
async fn made_up_tenants_have_the_limit_of_their_user() {
    use cookbook::tenants_and_the_users_within_them::{User, layer};
    let app = behind(layer(&MemoryStore::new()).unwrap());
    let asked = (0..300).map(|number| {
        let mut request = invented(&Method::GET, "/", number);
        request.extensions_mut().insert(User { id: 7 });
        request
    });
    let passed = passes(&app, asked).await;
    assert!((100..150).contains(&passed), "{passed}");
}
