//! Deciding without a service, and what stores hear of requests that they are not asked about.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use sluicegate_core::Policy;
use sluicegate_core::store::Undecided;
use sluicegate_tests::around;
use sluicegate_tower::key::OnMissingKey;
use sluicegate_tower::limits::{Limits, Tiers, path_in};
use sluicegate_tower::respond::ProblemJson;
use sluicegate_tower::{Limit, RateLimitLayer};
use tower::Layer;

use crate::support::{
    Body, Handler, anonymous, answer, by_header, fields, from, number, on, paused_store, problem, send, store,
};

#[tokio::test]
async fn what_is_decided_is_known_at_once_and_is_what_the_layer_answers() {
    let (store, _) = store();
    let api = on(&store, Policy::gcra("api", "1/min"));
    let limits = Limits::new(by_header(api));
    let request = from("ada");
    let Poll::Ready(Ok(admitted)) =
        pin!(limits.decide(&request)).poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("memory answers at once")
    };
    let decided = admitted.decided().unwrap().clone();
    let response = admitted.leave(Response::new(Body::default()));
    assert_eq!((decided.remaining(), number(&response, "x-ratelimit-remaining")), (0, Some(0)));

    let refused = limits.decide(&from("ada")).await.unwrap_err();
    assert_eq!(refused.to_string(), "the request exceeds policy api: 1/min (gcra)");
    let by_hand: Response<Body> = refused.respond(&from("ada"), &ProblemJson::new());
    let by_layer = send(&RateLimitLayer::from(limits).layer(Handler::default()), from("ada")).await;
    assert_eq!(by_hand.status(), by_layer.status());
    assert_eq!(fields(&by_hand), fields(&by_layer));
    assert_eq!(problem(by_hand).await, problem(by_layer).await);
}

#[tokio::test]
async fn a_response_gives_back_what_its_limit_gives_back() {
    let (store, _) = store();
    let login = on(&store, Policy::sliding_log("login", "5/min"));
    let limits = Limits::new(by_header(login.clone()).refund_if(|head| head.status.is_success()));
    for (status, left) in [(StatusCode::OK, 5), (StatusCode::UNAUTHORIZED, 4)] {
        let mut admitted = limits.decide(&from("ada")).await.unwrap();
        let mut request = from("ada");
        admitted.enter(request.extensions_mut());
        assert!(request.extensions().get::<sluicegate_tower::rate_limit::Decided>().is_some());
        let response = admitted.leave(Response::builder().status(status).body(Body::default()).unwrap());
        assert_eq!(number(&response, "x-ratelimit-remaining"), Some(left));
        assert_eq!(answer(login.peek("ada")).remaining(), left);
    }
}

#[tokio::test(start_paused = true)]
async fn an_admission_that_is_dropped_while_it_waits_gives_its_turn_back() {
    let waits = on(&paused_store(), Policy::gcra("waits", "1/s").wait_up_to(Duration::from_secs(9)));
    let limits = Limits::new(by_header(waits.clone()));
    drop(limits.decide(&from("ada")).await.unwrap());
    let request = from("ada");
    let waiting = limits.decide(&request);
    assert_eq!(limits.waiting(), 1);
    drop(waiting);
    assert_eq!(limits.waiting(), 0);
    assert_eq!(answer(waits.peek("ada")).retry_after(), Some(Duration::from_secs(1)));
}

#[tokio::test(start_paused = true)]
async fn a_store_hears_once_of_each_request_that_it_is_not_asked_about() {
    let (store, events) = around::told(paused_store());
    let waits =
        Policy::gcra("waits", "1/s").wait_up_to(Duration::from_secs(9)).on(Arc::clone(&store)).unwrap();
    let plans = Policy::gcra("plans", "9/s").on(Arc::clone(&store)).unwrap();
    let peers = Policy::gcra("peers", "9/s").on(Arc::clone(&store)).unwrap();
    let tiers = Tiers::builder(&plans).tier("free", "9/s");
    let plan = Limit::tiered(tiers.reject_unknown(StatusCode::FORBIDDEN).build().unwrap(), |request| {
        request.headers.get("x-plan")?.to_str().ok()
    });
    let limit = by_header(waits).on_missing_key(OnMissingKey::Reject(StatusCode::UNAUTHORIZED));
    let layer = RateLimitLayer::builder(limit)
        .and(plan.only_if(path_in(["/plan"]).unwrap()))
        .and(Limit::new(peers).only_if(path_in(["/peer"]).unwrap()))
        .exempt(path_in(["/health"]).unwrap())
        .deny(path_in(["/admin"]).unwrap())
        .longest_queue(1)
        .build()
        .unwrap();
    let service = layer.layer(Handler::default());
    let to = |path: &str| Request::get(path).header("x-key", "bob").body(()).unwrap();
    for request in [to("/health"), to("/admin"), anonymous(), to("/plan"), to("/peer"), from("ada")] {
        send(&service, request).await;
    }
    let (waiting, full) = (send(&service, from("ada")), send(&service, from("ada")));
    {
        let mut waiting = pin!(waiting);
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(full.await.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    // One that has had its turn gives nothing up.
    send(&service, from("ada")).await;
    let expected = [
        format!("{:?} -", Undecided::Exempt),
        format!("{:?} -", Undecided::Blocked),
        format!("{:?} waits", Undecided::MissingKey),
        format!("{:?} plans", Undecided::UnknownTier),
        format!("{:?} peers", Undecided::Mistake),
        format!("{:?} waits", Undecided::QueueFull),
        "TurnGivenUp waits".to_owned(),
    ];
    assert_eq!(*events.lock().unwrap(), expected);
}
