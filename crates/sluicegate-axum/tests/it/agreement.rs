//! A handler with the attribute beside one whose route has the same limit: whatever arrives, a client sees the same.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::routing::{MethodRouter, get};
use sluicegate_axum::{Decided, RateLimitExt, RateLimitStore, rate_limited};
use sluicegate_core::clock::ManualClock;
use sluicegate_core::{MemoryStore, OnOutage, Policy};
use sluicegate_tower::key::{HeaderKey, OnMissingKey};
use sluicegate_tower::respond::{HeaderFields, Refusal};
use sluicegate_tower::{Limit, RateLimitLayer};

use crate::support::{Seen, request, send, store_on};

/// The same answers, wherever the limit is written.
async fn answer(number: u64, decided: Option<Decided>) -> Result<String, StatusCode> {
    let left = decided.map(|decided| decided.remaining());
    if number == 13 { Err(StatusCode::IM_A_TEAPOT) } else { Ok(format!("{number}, {left:?} left")) }
}

async fn plain(Path(number): Path<u64>, decided: Option<Decided>) -> Result<String, StatusCode> {
    answer(number, decided).await
}

#[rate_limited("5/min", crate = sluicegate_axum)]
async fn simple(Path(number): Path<u64>, decided: Option<Decided>) -> Result<String, StatusCode> {
    answer(number, decided).await
}

#[rate_limited(
    "100/h",
    "10/min",
    name = "api.key",
    algorithm = "sliding-counter",
    key = HeaderKey::new("x-api-key"),
    cost = 3,
    on_missing_key = 401,
    on_outage = "deny",
    crate = sluicegate_axum
)]
async fn full(Path(number): Path<u64>, decided: Option<Decided>) -> Result<String, StatusCode> {
    answer(number, decided).await
}

#[rate_limited("4/min", name = "address", crate = sluicegate_axum)]
#[rate_limited("3/h", name = "key", key = HeaderKey::new("x-api-key"), on_missing_key = "skip")]
async fn both(Path(number): Path<u64>, decided: Option<Decided>) -> Result<String, StatusCode> {
    answer(number, decided).await
}

fn by_layer(store: &MemoryStore) -> [MethodRouter; 3] {
    let simple = Policy::gcra("it.agreement.simple", "5/min").on(store).unwrap();
    let full = Policy::sliding_counter("api.key", "100/h").and("10/min").on_outage(OnOutage::Deny);
    let full = Limit::new(full.on(store).unwrap())
        .key(HeaderKey::new("x-api-key").unwrap())
        .cost(3)
        .unwrap()
        .on_missing_key(OnMissingKey::Reject(StatusCode::UNAUTHORIZED));
    let key = Limit::new(Policy::gcra("key", "3/h").on(store).unwrap())
        .key(HeaderKey::new("x-api-key").unwrap())
        .on_missing_key(OnMissingKey::Skip);
    let both = RateLimitLayer::builder(Policy::gcra("address", "4/min").on(store).unwrap())
        .and(key)
        .build()
        .unwrap();
    let [simple, full] = [RateLimitLayer::new(simple), RateLimitLayer::new(full)];
    [simple, full, both].map(|layer| get(plain).rate_limit(layer.decided()))
}

fn routes([one, two, three]: [MethodRouter; 3]) -> Router {
    Router::new().route("/simple/{n}", one).route("/full/{n}", two).route("/both/{n}", three)
}

/// Sends both routers the same, a second apart, and returns what both answered.
async fn compare(clock: &ManualClock, apps: [&Router; 2]) -> Vec<Seen> {
    let mut seen = Vec::new();
    for round in 0..40_u32 {
        for path in ["simple", "full", "both"] {
            // One in five has no API key, one is for the teapot, and one has no number that can be extracted.
            let number = match round % 8 {
                3 => "13".to_owned(),
                5 => "none".to_owned(),
                number => number.to_string(),
            };
            let path = format!("/{path}/{number}");
            let key = (round % 5 != 2).then_some(if round % 3 == 0 { "a" } else { "b" });
            let host = if round % 4 == 0 { 1 } else { 2 };
            let answers = [
                send(apps[0], request(&path, host, key)).await,
                send(apps[1], request(&path, host, key)).await,
            ];
            let [attribute, layer] = answers;
            assert_eq!(attribute, layer, "{path} from {host} with {key:?} in round {round}");
            seen.push(attribute);
        }
        clock.advance(Duration::from_secs(1));
    }
    seen
}

fn assert_saw(seen: &[Seen], statuses: &[u16]) {
    for status in statuses {
        assert!(
            seen.iter().any(|seen| seen.status.as_u16() == *status),
            "nothing was answered with {status}"
        );
    }
}

#[tokio::test]
async fn decisions_fields_and_bodies_are_those_of_a_limit_on_the_route() {
    let clock = ManualClock::new();
    let [one, other] = [store_on(clock.clone()), store_on(clock.clone())];
    let attribute = routes([get(simple), get(full), get(both)]).with_rate_limits(&one);
    let seen = compare(&clock, [&attribute, &routes(by_layer(&other))]).await;
    assert_saw(&seen, &[200, 400, 401, 418, 429]);
    // What the handler's own extractors refuse was let through by the limit, and says so.
    let unread = seen.iter().find(|seen| seen.status == StatusCode::BAD_REQUEST).unwrap();
    assert!(unread.headers.contains_key("x-ratelimit-remaining"), "{unread:?}");
}

#[tokio::test]
async fn behind_a_limit_of_the_router_both_are_merged_alike() {
    let clock = ManualClock::new();
    let [one, other] = [store_on(clock.clone()), store_on(clock.clone())];
    let around = |app: Router, store: &MemoryStore| {
        app.rate_limit(Limit::new(Policy::gcra("api", "30/min").on(store).unwrap()))
    };
    let attribute = around(routes([get(simple), get(full), get(both)]).with_rate_limits(&one), &one);
    let seen = compare(&clock, [&attribute, &around(routes(by_layer(&other)), &other)]).await;
    assert_saw(&seen, &[200, 400, 401, 418, 429]);
    let merged = |seen: &Seen| {
        let policies = seen.headers.get("ratelimit-policy").map(|line| line.to_str().unwrap().to_owned());
        policies.is_some_and(|line| line.contains("\"api\"") && line.contains("\"it.agreement.simple\""))
    };
    let refused =
        seen.iter().find(|seen| seen.status == StatusCode::TOO_MANY_REQUESTS && merged(seen)).unwrap();
    assert!(refused.body.contains(r#""violated-policies":["it.agreement.simple"]"#), "{refused:?}");
}

#[tokio::test]
async fn settings_of_the_store_hold_for_all_handlers() {
    let clock = ManualClock::new();
    let [one, other] = [store_on(clock.clone()), store_on(clock.clone())];
    let busy = |refusal: &Refusal<'_>| {
        let mut response = axum::response::Response::new(axum::body::Body::from("busy"));
        *response.status_mut() = refusal.status();
        response
    };
    let limits = RateLimitStore::new(&one).configure(|layer| layer.headers(HeaderFields::Ietf)).respond(busy);
    let attribute = Router::new().route("/simple/{n}", get(simple)).layer(limits);
    let limiter = Policy::gcra("it.agreement.simple", "5/min").on(&other).unwrap();
    let layer = RateLimitLayer::builder(limiter).headers(HeaderFields::Ietf).respond(busy).build().unwrap();
    let layer = Router::new().route("/simple/{n}", get(plain).rate_limit(layer.decided()));
    for round in 0..8 {
        let seen = send(&attribute, request("/simple/1", 1, None)).await;
        assert_eq!(seen, send(&layer, request("/simple/1", 1, None)).await);
        assert_eq!((round < 5, seen.body == "busy"), (seen.status == StatusCode::OK, round >= 5));
        assert!(!seen.headers.contains_key("x-ratelimit-limit"));
    }
}

#[tokio::test]
async fn a_closure_without_types_responds_with_whatever_axum_takes() {
    use axum::body::Body;
    use axum::response::{Html, Response};

    let layer =
        || RateLimitLayer::builder(Policy::gcra("api", "1/h").on(store_on(ManualClock::new())).unwrap());
    let behind = |route: axum::routing::MethodRouter| Router::new().route("/simple/{n}", route);
    let by_attribute = Router::new()
        .route("/simple/{n}", get(simple))
        .layer(RateLimitStore::new(store_on(ManualClock::new())).respond(|_| "later"));
    let teapot = StatusCode::IM_A_TEAPOT;
    for (name, app, passes, status) in
        [
            ("text", behind(get(plain).rate_limit(layer().respond(|_| "later").build().unwrap())), 1, 429),
            (
                "words",
                behind(
                    get(plain)
                        .rate_limit(layer().respond(|refusal| format!("later: {refusal}")).build().unwrap()),
                ),
                1,
                429,
            ),
            (
                "html",
                behind(get(plain).rate_limit(
                    layer().respond(|refusal| (refusal.status(), Html("<p>later</p>"))).build().unwrap(),
                )),
                1,
                429,
            ),
            (
                "fields",
                behind(get(plain).rate_limit(
                    layer().respond(move |_| (teapot, [("x-own", "1")], "later")).build().unwrap(),
                )),
                1,
                418,
            ),
            (
                "response",
                behind(
                    get(plain)
                        .rate_limit(layer().respond(|_| Response::new(Body::from("later"))).build().unwrap()),
                ),
                1,
                200,
            ),
            (
                "async",
                behind(get(plain).rate_limit(layer().respond_async(|_| async { "later" }).build().unwrap())),
                1,
                429,
            ),
            ("attribute", by_attribute, 5, 429),
        ]
    {
        for _ in 0..passes {
            assert_eq!(send(&app, request("/simple/1", 1, None)).await.status, StatusCode::OK, "{name}");
        }
        let seen = send(&app, request("/simple/1", 1, None)).await;
        assert_eq!(seen.status.as_u16(), status, "{name}");
        assert!(seen.body.contains("later"), "{name}: {}", seen.body);
        assert!(seen.headers.contains_key("retry-after"), "{name}");
        assert_eq!(seen.field("cache-control"), "no-store", "{name}");
    }
}

#[tokio::test]
async fn the_handler_gets_the_request_as_it_came() {
    #[rate_limited("5/min", crate = sluicegate_axum)]
    async fn echo(request: Request) -> String {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 100).await.unwrap();
        format!("{} {} {:?}", parts.method, parts.uri, body)
    }
    let app = Router::new()
        .route("/echo", axum::routing::post(echo))
        .with_rate_limits(store_on(ManualClock::new()));
    let mut request = request("/echo?x=1", 1, None);
    *request.method_mut() = axum::http::Method::POST;
    *request.body_mut() = axum::body::Body::from("the body");
    assert_eq!(send(&app, request).await.body, "POST /echo?x=1 b\"the body\"");
}
