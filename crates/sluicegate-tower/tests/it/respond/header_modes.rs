//! How fields look if something else than the default is wanted, and when the service sets such fields itself.

use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use sluicegate_core::Policy;
use sluicegate_core::clock::Clock;
use sluicegate_tower::rate_limit::RateLimitLayerBuilder;
use sluicegate_tower::respond::{HeaderFields, LegacyReset, Refusal};
use tower::{Layer, Service, service_fn};

use crate::support::{Body, Handler, all_fields, by_header, fields, from, layer, number, on, send, store};

pub(crate) fn builder() -> RateLimitLayerBuilder {
    let (store, _) = store();
    all_fields(by_header(on(&store, Policy::gcra("api", "2/min"))))
}

/// The responses to three requests, the third of which is refused.
async fn three(builder: RateLimitLayerBuilder) -> [Response<Body>; 3] {
    let service = builder.build().unwrap().layer(Handler::default());
    [send(&service, from("ada")).await, send(&service, from("ada")).await, send(&service, from("ada")).await]
}

/// A service that sets these fields.
pub(crate) fn setting(
    fields: &'static [(&'static str, &'static str)],
) -> impl Service<Request<()>, Response = Response<Body>, Error = Infallible> + Clone {
    service_fn(move |_: Request<()>| {
        let response = Response::builder().status(200);
        let response = fields.iter().fold(response, |response, (name, value)| response.header(*name, *value));
        ready(Ok(response.body(Body::from("ok")).unwrap()))
    })
}

#[tokio::test]
async fn the_reset_is_in_seconds_from_now_unless_the_epoch_is_wanted() {
    let [_, second, _] = three(builder().legacy_reset(LegacyReset::Delta)).await;
    assert_eq!(number(&second, "x-ratelimit-reset"), Some(60));
    let [_, second, refused] = three(builder().legacy_reset(LegacyReset::Epoch)).await;
    // The clock of the store: that of this machine may be another one.
    let now = store().1.now_us() / 1_000_000;
    for response in [&second, &refused] {
        assert_eq!(number(response, "x-ratelimit-reset"), Some(now + 60));
    }
    // The other fields stay as they are.
    assert_eq!(number(&refused, "retry-after"), Some(30));
    assert!(fields(&second).contains(&r#"ratelimit: "api";r=0;t=30"#.to_owned()));
}

#[tokio::test]
async fn browsers_are_told_which_fields_scripts_may_read() {
    const EXPOSE: &str = "access-control-expose-headers";
    let all = "x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, ratelimit-policy, ratelimit";
    for (headers, allowed, refused) in [
        (HeaderFields::All, Some(all), format!("{all}, retry-after")),
        (
            HeaderFields::Legacy,
            Some("x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset"),
            "x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, retry-after".to_owned(),
        ),
        (
            HeaderFields::Ietf,
            Some("ratelimit-policy, ratelimit"),
            "ratelimit-policy, ratelimit, retry-after".to_owned(),
        ),
        (
            HeaderFields::Spring,
            Some("x-ratelimit-remaining, x-ratelimit-replenish-rate, x-ratelimit-burst-capacity, x-ratelimit-requested-tokens"),
            "x-ratelimit-remaining, x-ratelimit-replenish-rate, x-ratelimit-burst-capacity, x-ratelimit-requested-tokens, retry-after".to_owned(),
        ),
        (HeaderFields::None, None, "retry-after".to_owned()),
    ] {
        let [first, _, third] = three(builder().headers(headers).expose_headers()).await;
        assert_eq!(first.headers().get(EXPOSE).map(|value| value.to_str().unwrap()), allowed);
        assert_eq!(third.headers()[EXPOSE], refused);
    }
    let [first, ..] = three(builder()).await;
    assert!(!first.headers().contains_key(EXPOSE), "only if it is asked for");
}

#[tokio::test]
async fn what_is_exposed_already_stays_so() {
    let inner = setting(&[
        ("access-control-expose-headers", "ETag"),
        ("access-control-expose-headers", "X-RateLimit-Limit , x-request-id"),
    ]);
    let outer = builder().headers(HeaderFields::Legacy).expose_headers().build().unwrap();
    let response = send(&outer.layer(inner), from("ada")).await;
    let lines: Vec<_> = response.headers().get_all("access-control-expose-headers").iter().collect();
    assert_eq!(lines, ["ETag, X-RateLimit-Limit , x-request-id, x-ratelimit-remaining, x-ratelimit-reset"]);
}

#[tokio::test]
async fn an_envoy_is_told_not_to_try_again_if_that_is_wanted() {
    let [first, _, refused] = three(builder().tell_envoy()).await;
    assert!(!first.headers().contains_key("x-envoy-ratelimited"));
    assert_eq!(refused.headers()["x-envoy-ratelimited"], "true");
    let [.., refused] = three(builder()).await;
    assert!(!refused.headers().contains_key("x-envoy-ratelimited"));
}

#[tokio::test]
async fn lists_of_the_service_are_kept_and_ours_are_added() {
    let inner = setting(&[
        ("ratelimit-policy", r#""upstream";q=9;w=10"#),
        ("ratelimit", r#""upstream";r=3;t=7"#),
        ("ratelimit", r#""daily";r=1"#),
        ("retry-after", "9"),
    ]);
    let response = send(&builder().build().unwrap().layer(inner), from("ada")).await;
    assert_eq!(
        fields(&response),
        [
            r#"ratelimit-policy: "upstream";q=9;w=10, "api";q=2;w=60"#,
            r#"ratelimit: "upstream";r=3;t=7, "daily";r=1, "api";r=1;t=30"#,
            "retry-after: 9",
            "x-ratelimit-limit: 2",
            "x-ratelimit-remaining: 1",
            "x-ratelimit-reset: 30",
        ]
    );
}

#[tokio::test]
async fn numbers_of_the_service_that_leave_less_are_not_loosened() {
    let theirs: [&[(&str, &str)]; 4] = [
        &[("x-ratelimit-limit", "50"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "5")],
        &[("x-ratelimit-limit", "50"), ("x-ratelimit-remaining", "40"), ("x-ratelimit-reset", "5")],
        &[("x-ratelimit-limit", "50"), ("x-ratelimit-remaining", "many")],
        &[("x-ratelimit-limit", "50")],
    ];
    for (fields, limit) in theirs.into_iter().zip([50, 2, 2, 2]) {
        let service = builder().headers(HeaderFields::Legacy).build().unwrap().layer(setting(fields));
        let response = send(&service, from("ada")).await;
        assert_eq!(number(&response, "x-ratelimit-limit"), Some(limit));
        let left = if limit == 50 { 0 } else { 1 };
        assert_eq!(number(&response, "x-ratelimit-remaining"), Some(left));
    }
}

#[tokio::test]
async fn of_the_layers_and_the_responders_wait_the_longer_one_is_told() {
    for (theirs, told) in [("7", 30), ("31", 31), ("Fri, 31 Dec 1999 23:59:59 GMT", 30), ("0", 30)] {
        let respond = move |refusal: &Refusal<'_>| {
            let response = Response::builder().status(refusal.status()).header("retry-after", theirs);
            response.body(Body::from("no")).unwrap()
        };
        let service = builder().respond(respond).build().unwrap().layer(Handler::default());
        for _ in 0..2 {
            send(&service, from("ada")).await;
        }
        assert_eq!(number(&send(&service, from("ada")).await, "retry-after"), Some(told));
    }
}

#[tokio::test]
async fn a_layer_without_extensions_is_taken_for_a_service_with_fields_of_its_own() {
    let (store, clock) = store();
    let inner = all_fields(by_header(on(&store, Policy::gcra("inner", "5/min"))));
    let inner = inner.without_extensions().build().unwrap().layer(Handler::default());
    let service = layer(&store, "outer", "10/min").layer(inner);
    clock.advance(Duration::from_secs(1));
    let response = send(&service, from("ada")).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(
        fields(&response),
        [
            r#"ratelimit-policy: "inner";q=5;w=60, "outer";q=10;w=60"#,
            r#"ratelimit: "inner";r=4;t=12, "outer";r=9;t=6"#,
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 4",
            "x-ratelimit-reset: 12",
        ]
    );
}

#[tokio::test]
async fn fields_of_the_service_come_through_several_layers() {
    let (store, _) = store();
    let inner = setting(&[
        ("ratelimit-policy", r#""up,\"stream";q=9;w=10"#),
        ("ratelimit", r#""up,\"stream";r=0;t=7"#),
        ("x-ratelimit-limit", "9"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "7"),
    ]);
    let service = layer(&store, "outer", "10/min").layer(layer(&store, "inner", "5/min").layer(inner));
    let service = layer(&store, "outermost", "60/min").layer(service);
    let response = send(&service, from("ada")).await;
    assert_eq!(
        fields(&response),
        [
            r#"ratelimit-policy: "up,\"stream";q=9;w=10, "outermost";q=60;w=60, "outer";q=10;w=60, "inner";q=5;w=60"#,
            r#"ratelimit: "up,\"stream";r=0;t=7, "outermost";r=59;t=1, "outer";r=9;t=6, "inner";r=4;t=12"#,
            "x-ratelimit-limit: 9",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 7",
        ]
    );
}

#[tokio::test]
async fn what_the_service_says_is_left_is_not_loosened_where_it_names_no_limit() {
    let theirs = setting(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "5")]);
    let service = builder().headers(HeaderFields::Legacy).build().unwrap().layer(theirs);
    let response = send(&service, from("ada")).await;
    assert_eq!(fields(&response), ["x-ratelimit-remaining: 0", "x-ratelimit-reset: 5"]);
}
