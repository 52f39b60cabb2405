//! The recipes of the page on tiers and costs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Query};
use axum::routing::get;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use sluicegate::RateLimitExt;
use sluicegate_tests::memory::store;
use tower::ServiceExt;

use super::pasted::tiers;
use super::{OK, PEER, REFUSED, ask, request, status, with};

#[tokio::test]
async fn a_plan_has_a_tenth_for_the_costly_endpoint_and_enterprise_has_no_limit_but_the_address() {
    let layer = tiers::plans::layer().unwrap();
    let asked = |plan: &'static str, key: &str| {
        let mut request = with(request(PEER), plan);
        request.headers_mut().insert("x-api-key", key.parse().unwrap());
        request
    };
    for (plan, passes) in [("free", 10), ("pro", 20), ("enterprise", 200)] {
        let mut passed = 0;
        for _ in 0..200 {
            passed += usize::from(status(&layer, asked(plan, plan), OK).await == OK);
        }
        // By the machine's clock, by which "pro" gains a unit in 600 ms.
        assert!((passes..passes + 10).contains(&passed), "{passed} of {plan}");
    }
    // Five pages that are not there once locked an address out of everything.
    for number in 0..8 {
        assert_eq!(status(&layer, asked("enterprise", "k"), 404).await, 404);
        let mut login = asked("enterprise", "k");
        *login.uri_mut() = "/login".parse().unwrap();
        assert_eq!(status(&layer, login, 401).await, if number < 5 { 401 } else { REFUSED });
    }
    let mut denied = asked("pro", "k");
    denied.extensions_mut().insert(ConnectInfo(SocketAddr::from(([192, 0, 2, 9], 1))));
    assert_eq!(status(&layer, denied, OK).await, 403);
}

#[tokio::test]
async fn each_customer_has_the_number_of_its_row() {
    use tiers::numbers_per_customer::{Customer, layer};
    let layer = layer().unwrap();
    for (id, per_hour) in [(1, 3), (2, 7)] {
        for number in 0..10 {
            let asked = with(request(PEER), Customer { id, per_hour });
            let expected = if number < per_hour { OK } else { REFUSED };
            assert_eq!(status(&layer, asked, OK).await, expected, "number {number} of {per_hour}");
        }
    }
}

#[tokio::test]
async fn a_response_pays_for_its_tokens_and_one_that_fails_pays_nothing() {
    let (store, clock) = store();
    let layer = tiers::costs_that_the_response_tells::layer(&store).unwrap();
    let complete = |Query(outcome): Query<BTreeMap<String, String>>| async move {
        match outcome["status"].as_str() {
            "ok" => (StatusCode::OK, r#"{"usage":{"prompt_tokens":100,"completion_tokens":225}}"#),
            _ => (StatusCode::BAD_GATEWAY, "{}"),
        }
    };
    let app = Router::new().route("/", get(complete)).rate_limit(layer);
    let asked = async |status: &str, most_tokens: &str| {
        let fields = [("x-account", "acme"), ("x-max-tokens", most_tokens)];
        let asked = ask(Method::GET, &format!("/?status={status}"), &fields);
        let response = app.clone().oneshot(asked).await.unwrap();
        let status = response.status().as_u16();
        response.into_body().collect().await.unwrap();
        status
    };
    // Each of them reserves 4,000 of 10,000, even if it asks for more, and pays 100 + 4 x 225 = 1,000.
    for most_tokens in ["4000", "4000", "4000", "4000", "4000", "4000", "1000000"] {
        assert_eq!(asked("fails", most_tokens).await, 502);
        assert_eq!(asked("ok", most_tokens).await, OK);
    }
    assert_eq!(asked("ok", "4000").await, REFUSED);
    for expected in [OK, OK, OK, REFUSED] {
        assert_eq!(asked("ok", "500").await, expected);
    }
    clock.advance(Duration::from_secs(60));
    assert_eq!(asked("ok", "4000").await, OK);
}
