//! What a request costs, found out from the request.

use http::{Request, StatusCode};
use serde_json::json;
use sluicegate_core::{Key, Policy};
use sluicegate_tower::Limit;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::method_in;

use crate::support::{
    all_fields, answer, by_header, fields, from, number, on, problem, send, service, store,
};

/// The number in the header `x-cost`, or 1.
fn written(request: RequestView<'_>) -> u64 {
    let cost = request.headers.get("x-cost").and_then(|cost| cost.to_str().ok()?.parse().ok());
    cost.unwrap_or(1)
}

fn costing(cost: &str) -> Request<()> {
    Request::get("/").header("x-key", "ada").header("x-cost", cost).body(()).unwrap()
}

#[tokio::test]
async fn a_closure_says_what_each_request_costs() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "10/min"));
    let (service, _) = service(by_header(limiter.clone()).cost_fn(written));
    for (cost, left) in [("3", 7), ("1", 6), ("6", 0)] {
        assert_eq!(number(&send(&service, costing(cost)).await, "x-ratelimit-remaining"), Some(left));
    }
    let refused = send(&service, costing("2")).await;
    assert_eq!(
        (refused.status(), number(&refused, "retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, Some(12))
    );
    assert_eq!(answer(limiter.peek("ada")).remaining(), 0);
}

#[tokio::test]
async fn a_request_that_costs_nothing_is_not_asked() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "1/min"));
    let (service, handler) = service(by_header(limiter.clone()).cost_fn(written));
    send(&service, costing("1")).await;
    for _ in 0..3 {
        let free = send(&service, costing("0")).await;
        assert_eq!((free.status(), fields(&free)), (StatusCode::OK, vec![]));
    }
    assert_eq!(handler.calls(), 4);
}

#[tokio::test]
async fn a_request_that_costs_more_than_there_ever_is_is_forbidden_and_spends_nothing() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "10/min"));
    let (service, handler) = service(by_header(limiter.clone()).cost_fn(written));
    for cost in ["11", "9223372036854775808", "18446744073709551615"] {
        let refused = send(&service, costing(cost)).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{cost}");
        assert_eq!(number(&refused, "retry-after"), None, "{cost}: no wait helps");
        assert_eq!(problem(refused).await["violated-policies"], json!(["api"]));
    }
    assert_eq!((handler.calls(), answer(limiter.peek("ada")).remaining()), (0, 10));
}

#[tokio::test]
async fn a_limit_applies_only_to_requests_that_meet_all_of_its_conditions() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("writes", "1/min"));
    let limit = Limit::new(limiter.clone())
        .key(Key::from("all"))
        .only_if(method_in([http::Method::POST, http::Method::PUT]))
        .only_if(|request| request.uri.path() != "/free");
    let (service, _) = service(limit);
    let request = |method: &str, path: &str| Request::builder().method(method).uri(path).body(()).unwrap();
    for (method, path) in [("GET", "/"), ("POST", "/free"), ("GET", "/free")] {
        assert_eq!(fields(&send(&service, request(method, path)).await), [""; 0], "{method} {path}");
    }
    assert_eq!(send(&service, request("POST", "/")).await.status(), StatusCode::OK);
    assert_eq!(send(&service, request("PUT", "/")).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer(limiter.peek("all")).remaining(), 0);
}

#[tokio::test]
async fn of_two_limits_one_may_apply_and_the_other_not() {
    let (store, _) = store();
    let [all, costly] = ["all", "costly"].map(|name| on(&store, Policy::gcra(name, "10/min")));
    let costly = by_header(costly).cost_fn(|request| if request.uri.path() == "/report" { 5 } else { 0 });
    let layer = all_fields(by_header(all)).and(costly).build().unwrap();
    let service = tower::Layer::layer(&layer, crate::support::Handler::default());
    assert_eq!(
        fields(&send(&service, from("ada")).await)[..2],
        [r#"ratelimit-policy: "all";q=10;w=60"#, r#"ratelimit: "all";r=9;t=6"#]
    );
    let report = Request::get("/report").header("x-key", "ada").body(()).unwrap();
    assert_eq!(fields(&send(&service, report).await)[1], r#"ratelimit: "all";r=8;t=6, "costly";r=5;t=6"#);
}
