//! Who does not come to the limits at all.

use http::{Method, Request, StatusCode};
use sluicegate_core::Policy;
use sluicegate_tower::key::{Networks, PeerAddr, RequestView};
use sluicegate_tower::limits::{method_in, path_in, preflight};
use sluicegate_tower::rate_limit::RateLimit;
use sluicegate_tower::respond::{Refusal, RefusalReason};
use sluicegate_tower::{ClientIp, RateLimitLayer};
use tower::Layer;

use crate::support::{Body, Handler, answer, by_header, fields, from, on, problem, send, store};

fn get(path: &str) -> Request<()> {
    Request::get(path).header("x-key", "ada").body(()).unwrap()
}

#[tokio::test]
async fn exempt_requests_pass_whatever_is_left_and_carry_no_fields() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "1/min"));
    let layer = RateLimitLayer::builder(by_header(limiter.clone()))
        .exempt(path_in(["/health", "/metrics", "/metrics/*"]).unwrap())
        .exempt(method_in([Method::TRACE]))
        .build()
        .unwrap();
    let service = layer.layer(Handler::default());
    send(&service, get("/")).await;
    for path in ["/health", "/health?verbose", "/metrics", "/metrics/cpu?x=%2e"] {
        let response = send(&service, get(path)).await;
        assert_eq!((response.status(), fields(&response)), (StatusCode::OK, vec![]), "{path}");
    }
    for path in [
        "/Health",
        "/health/",
        "//health",
        "/%68ealth",
        "/health;x",
        "/healthy",
        "/metricsx",
        "/metrics/../admin",
        "/metrics/%2e%2e/admin",
        "/metrics/./cpu",
    ] {
        assert_eq!(send(&service, get(path)).await.status(), StatusCode::TOO_MANY_REQUESTS, "{path}");
    }
    let trace = Request::builder().method("TRACE").header("x-key", "ada").body(()).unwrap();
    assert_eq!(send(&service, trace).await.status(), StatusCode::OK);
    assert_eq!(answer(limiter.peek("ada")).remaining(), 0);
}

#[tokio::test]
async fn a_preflight_is_what_browsers_send_and_nothing_less() {
    let (store, _) = store();
    let limit = by_header(on(&store, Policy::gcra("api", "1/min")));
    let service = RateLimitLayer::builder(limit).exempt(preflight()).build().unwrap();
    let service = service.layer(Handler::default());
    let asks = |method: &str, fields: &[&str]| {
        let request = Request::builder().method(method).header("x-key", "ada");
        let with = |request: http::request::Builder, name: &&str| request.header(*name, "x");
        fields.iter().fold(request, with).body(()).unwrap()
    };
    let (origin, method) = ("origin", "access-control-request-method");
    send(&service, from("ada")).await;
    assert_eq!(send(&service, asks("OPTIONS", &[origin, method])).await.status(), StatusCode::OK);
    for (verb, fields) in
        [("OPTIONS", &[origin][..]), ("OPTIONS", &[method]), ("OPTIONS", &[]), ("GET", &[origin, method])]
    {
        let refused = send(&service, asks(verb, fields)).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "{verb} {fields:?}");
    }
}

fn with_a_list() -> (RateLimit<Handler>, Handler, sluicegate_core::RateLimiter) {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "5/min"));
    let handler = Handler::default();
    let layer = RateLimitLayer::builder(by_header(limiter.clone()))
        .exempt(path_in(["/appeal"]).unwrap())
        .deny(|request| request.headers["x-key"] == "eve")
        .deny(|request| request.headers["x-key"] == "mallory")
        .build()
        .unwrap();
    (layer.layer(handler.clone()), handler, limiter)
}

#[tokio::test]
async fn who_is_on_the_list_is_forbidden_at_once_and_counts_nowhere() {
    let (service, handler, limiter) = with_a_list();
    for key in ["eve", "mallory"] {
        let refused = send(&service, from(key)).await;
        assert_eq!(
            (refused.status(), fields(&refused)),
            (StatusCode::FORBIDDEN, vec!["cache-control: no-store".to_owned()])
        );
        assert_eq!(
            problem(refused).await,
            serde_json::json!({
                "type": "about:blank",
                "title": "Forbidden",
                "status": 403,
                "detail": "requests like this one are not accepted",
            })
        );
        assert_eq!(answer(limiter.peek(key)).remaining(), 5);
    }
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    assert_eq!(handler.calls(), 1);
}

#[tokio::test]
async fn what_is_exempt_is_not_denied() {
    let (service, ..) = with_a_list();
    let appeal = Request::get("/appeal").header("x-key", "eve").body(()).unwrap();
    assert_eq!(send(&service, appeal).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn what_is_denied_has_the_status_of_the_first_that_says_one() {
    let (store, _) = store();
    let from_eve = |request: RequestView<'_>| request.headers.get("x-key").is_some_and(|key| key == "eve");
    let layer = RateLimitLayer::builder(by_header(on(&store, Policy::gcra("api", "5/min"))))
        .deny_with(|request| (request.uri.path() == "/gone").then_some(StatusCode::GONE))
        .deny_with(move |request| from_eve(request).then_some(StatusCode::NOT_FOUND))
        .deny(from_eve)
        .build()
        .unwrap();
    let service = layer.layer(Handler::default());
    assert_eq!(send(&service, from("eve")).await.status(), StatusCode::NOT_FOUND);
    let gone = Request::get("/gone").header("x-key", "eve").body(()).unwrap();
    assert_eq!(send(&service, gone).await.status(), StatusCode::GONE);
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_responder_is_told_that_it_was_the_list() {
    let (store, _) = store();
    let respond = |refusal: &Refusal<'_>| {
        assert!(matches!(refusal.reason(), RefusalReason::Blocked(_)));
        assert!(refusal.decided().is_none() && refusal.retry_after_seconds().is_none());
        http::Response::builder().status(404).body(Body::from("who?")).unwrap()
    };
    let limit = by_header(on(&store, Policy::gcra("api", "5/min")));
    let layer = RateLimitLayer::builder(limit).deny(|_| true).respond(respond).build().unwrap();
    assert_eq!(send(&layer.layer(Handler::default()), from("ada")).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_header_with_a_fault_neither_exempts_nor_bars_its_client() {
    // The proxy's own address stood in for the client's, and 6 of 6 such requests passed without a limit.
    let inside = || Networks::new(["10.0.0.0/8"]).unwrap();
    let client_ip = ClientIp::behind(["10.0.0.0/8"]).unwrap();
    let (store, _) = store();
    let limit = || by_header(on(&store, Policy::gcra("api", "2/min")));
    let exempting = RateLimitLayer::builder(limit()).exempt(client_ip.within(inside())).build().unwrap();
    let denying = RateLimitLayer::builder(limit()).deny(client_ip.within(inside())).build().unwrap();
    let request = |forwarded: &str| {
        let proxy = PeerAddr("10.0.0.9:4711".parse().unwrap());
        let request = Request::get("/").header("x-key", "ada").extension(proxy);
        request.header("x-forwarded-for", forwarded).body(()).unwrap()
    };
    let mut statuses = Vec::new();
    for forwarded in ["unknown", "", "198.51.100.7, _x"] {
        statuses.push(send(&exempting.layer(Handler::default()), request(forwarded)).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429]);
    let denied = send(&denying.layer(Handler::default()), request("unknown")).await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS, "the limit decides, not the list");
    let exempt = send(&exempting.layer(Handler::default()), request("10.1.2.3")).await;
    assert_eq!(exempt.status(), StatusCode::OK);
}
