//! What is refused for other reasons than an exceeded quota, who makes the response, and what happens to bodies.

use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::{Key, Outcome, Policy};
use sluicegate_tests::log::Log;
use sluicegate_tower::key::{OnMissingKey, Route, key_from_extension};
use sluicegate_tower::limits::Limits;
use sluicegate_tower::rate_limit::Decided;
use sluicegate_tower::respond::{HeaderFields, ProblemJson, Refusal, RefusalReason};
use sluicegate_tower::{KeyExtractor, Limit, PeerIp, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{
    Body, Handler, answer, by_header, fields, from, number, on, paused_store, problem, send, store,
};

#[tokio::test]
async fn a_cost_that_no_longer_fits_is_forbidden_and_no_wait_is_named() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("report", "100/min"));
    let limit = by_header(limiter.clone()).cost(10).unwrap();
    let handler = Handler::default();
    let service = RateLimitLayer::new(limit).layer(handler.clone());
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    limiter.replace(Policy::gcra("report", "5/min").build().unwrap(), Inherit::Reset).unwrap();
    let refused = send(&service, from("ada")).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert_eq!(
        fields(&refused),
        [
            "cache-control: no-store",
            r#"ratelimit-policy: "report";q=5;w=60"#,
            r#"ratelimit: "report";r=5"#,
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 5",
            "x-ratelimit-reset: 0",
        ]
    );
    let decision: &Decided = refused.extensions().get().unwrap();
    assert_eq!((decision.outcome(), decision.retry_after()), (Outcome::Impossible, None));
    let problem = problem(refused).await;
    assert_eq!(
        problem,
        serde_json::json!({
            "type": "about:blank",
            "title": "Forbidden",
            "status": 403,
            "detail": "this request costs more than the limit ever lets pass at once: no wait will help",
            "limit": 5,
            "remaining": 5,
            "reset": 0,
            "violated-policies": ["report"],
        })
    );
    assert_eq!(handler.calls(), 1);
    assert_eq!(answer(limiter.peek("ada")).remaining(), 5, "and it spent nothing");
}

#[test]
fn a_cost_that_can_never_fit_is_refused_when_the_limit_is_made() {
    let (store, _) = store();
    let payment = on(&store, Policy::gcra("payment", "50/min").and("10/s burst 20"));
    let error = Limit::new(payment).cost(21).unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::Layer);
    for part in ["cost 21", "burst 20", "10/s burst 20", "\"payment\""] {
        assert!(error.to_string().contains(part), "{error} says nothing of {part}");
    }
}

#[test]
fn a_cost_of_nothing_is_refused_when_the_limit_is_made() {
    // It would pass however much was spent, which is no limit at all.
    let (store, _) = store();
    assert!(Limit::new(on(&store, Policy::gcra("api", "5/min"))).cost(0).is_err());
}

#[test]
fn limits_that_cannot_be_decided_together_are_refused_when_the_layer_is_made() {
    let ((here, _), (there, _)) = (store(), store());
    let api = |store| on(store, Policy::gcra("api", "5/min"));
    let error = RateLimitLayer::builder(api(&here)).and(api(&there)).build().unwrap_err();
    assert!(error.to_string().contains("different stores"), "{error}");
    let many = (0..17).map(|index| on(&here, Policy::gcra(format!("p{index}"), "5/min")));
    let builder = many.fold(RateLimitLayer::builder(api(&here)), |builder, limiter| builder.and(limiter));
    let error = builder.build().unwrap_err();
    assert!(error.to_string().contains("18 quotas, and at most 16"), "{error}");
}

/// A body that nothing can be turned into.
struct Own(&'static str);

#[tokio::test]
async fn a_closure_answers_with_any_body_and_the_layer_adds_the_fields() {
    let (store, _) = store();
    let respond = |refusal: &Refusal<'_>| {
        assert_eq!(refusal.request().headers["x-key"], "ada");
        assert!(matches!(refusal.reason(), RefusalReason::Exceeded(decision) if !decision.is_allowed()));
        assert_eq!(
            (refusal.status(), refusal.retry_after_seconds()),
            (StatusCode::TOO_MANY_REQUESTS, Some(60))
        );
        let response =
            Response::builder().status(420).header("cache-control", "private").header("retry-after", "x");
        response.body(Own("calm down")).unwrap()
    };
    let limit = by_header(on(&store, Policy::gcra("api", "1/min")));
    let layer =
        RateLimitLayer::builder(limit).headers(HeaderFields::Legacy).respond(respond).build().unwrap();
    let inner = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(Own("hello")))));
    let service = layer.layer(inner);
    assert_eq!(service.clone().oneshot(from("ada")).await.unwrap().body().0, "hello");
    let refused = service.oneshot(from("ada")).await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.body().0), (420, "calm down"));
    assert_eq!(
        fields(&refused),
        [
            "cache-control: private",
            "retry-after: 60",
            "x-ratelimit-limit: 1",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 60",
        ]
    );
}

/// Two frames, and a pause before each.
struct Stream(Vec<&'static str>, bool);

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        self.1 = !self.1;
        if self.1 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.0.pop().map(|text| Ok(http_body::Frame::data(text.into()))))
    }
}

#[tokio::test(start_paused = true)]
async fn streaming_bodies_pass_through_untouched_also_after_a_wait() {
    let store = paused_store();
    let policy = Policy::gcra("api", "1/s").wait_up_to(Duration::from_secs(5));
    let echo =
        service_fn(|request: Request<Stream>| ready(Ok::<_, Infallible>(Response::new(request.into_body()))));
    let everybody = Limit::new(on(&store, policy)).key(Key::from("all"));
    let respond = |_: &Refusal<'_>| Response::new(Stream(vec![], false));
    let layer = RateLimitLayer::builder(everybody).respond(respond).build().unwrap();
    for _ in 0..2 {
        let request = Request::new(Stream(vec!["world", "hello "], false));
        let mut body = layer.layer(echo).oneshot(request).await.unwrap().into_body();
        let mut frames = Vec::new();
        while let Some(frame) = body.frame().await {
            frames.push(frame.unwrap().into_data().unwrap());
        }
        assert_eq!(frames, ["hello ", "world"]);
    }
}

#[tokio::test]
async fn fields_that_the_service_sets_itself_stay_where_ours_have_other_names() {
    let (store, _) = store();
    let inner = service_fn(|_: Request<()>| {
        let response =
            Response::builder().status(503).header("retry-after", "7").header("cache-control", "public");
        ready(Ok::<_, Infallible>(response.body(Body::from("later")).unwrap()))
    });
    let service = RateLimitLayer::new(by_header(on(&store, Policy::gcra("api", "10/min")))).layer(inner);
    let response = service.oneshot(from("ada")).await.unwrap();
    assert_eq!(number(&response, "retry-after"), Some(7));
    assert_eq!(response.headers()["cache-control"], "public");
    assert_eq!(number(&response, "x-ratelimit-remaining"), Some(9));
}

/// Bodies once named types of the program, and told clients how to set the server up.
#[tokio::test]
async fn clients_are_told_nothing_of_the_program_and_the_log_says_it() {
    let log = Log::of_this_thread();
    let user: Arc<dyn KeyExtractor> = Arc::new(key_from_extension(|user: &std::num::NonZeroU64| user.get()));
    let cases: [(Arc<dyn KeyExtractor>, OnMissingKey, &str); 3] = [
        (user, OnMissingKey::Reject(StatusCode::UNAUTHORIZED), "core::num"),
        (Arc::new(Route), OnMissingKey::Reject(StatusCode::FORBIDDEN), "put the limit on the router"),
        (Arc::new(PeerIp::new()), OnMissingKey::Reject(StatusCode::INTERNAL_SERVER_ERROR), "serve with"),
    ];
    for (key, action, said) in cases {
        let limit = Limit::new(on(&store().0, Policy::gcra("api", "2/min"))).key(key).on_missing_key(action);
        let limits = Limits::new(limit);
        let refused = limits.decide(&Request::new(())).await.unwrap_err();
        let told = refused.refusal(&Request::new(())).to_string();
        let body = refused.respond(&Request::new(()), &ProblemJson::new());
        assert_eq!(problem(body).await["detail"], told);
        assert!(!told.contains(said), "{told}");
        let lines = log.lines();
        assert!(lines.last().is_some_and(|line| line.contains(said)), "{said}: {lines:?}");
    }
}
