//! Responders that wait for something.

use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use sluicegate_core::Policy;
use sluicegate_tower::limits::Limits;
use sluicegate_tower::rate_limit::{Decided, RateLimitLayerBuilder};
use sluicegate_tower::respond::Refusal;
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

use crate::support::{
    Body, Handler, all_fields, assert_no_duplicates, by_header, from, number, on, problem, send, store,
};

fn one_a_minute() -> RateLimitLayerBuilder {
    all_fields(by_header(on(&store().0, Policy::gcra("api", "1/min"))))
}

fn page(refusal: &Refusal<'_>) -> Response<Body> {
    let text = format!("come back in {} s", refusal.retry_after_seconds().unwrap_or(0));
    Response::builder().status(StatusCode::IM_A_TEAPOT).body(Body::from(text)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_response_that_had_to_be_waited_for_carries_all_that_others_do() {
    let layer = one_a_minute().spread_retry_after_by(|| Duration::from_secs(3)).respond_async(|refusal| {
        let page = page(refusal);
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            page
        }
    });
    let service = layer.build().unwrap().layer(Handler::default());
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    let begun = Instant::now();
    let refused = send(&service, from("ada")).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    assert_no_duplicates(&refused);
    assert_eq!((refused.status(), number(&refused, "retry-after")), (StatusCode::IM_A_TEAPOT, Some(63)));
    assert_eq!(number(&refused, "x-ratelimit-remaining"), Some(0));
    assert_eq!(refused.headers()["cache-control"], "no-store");
    assert!(refused.extensions().get::<Decided>().is_some_and(|decided| !decided.is_allowed()));
    assert_eq!(refused.into_body().collect().await.unwrap().to_bytes(), "come back in 63 s");
}

#[tokio::test(start_paused = true)]
async fn a_responder_that_takes_too_long_or_finds_no_place_is_stood_in_for() {
    for (longest_queue, waited) in [(10, 5), (0, 0)] {
        let layer =
            one_a_minute().longest_queue(longest_queue).respond_async(|_| pending::<Response<Body>>());
        let service = layer.build().unwrap().layer(Handler::default());
        send(&service, from("ada")).await;
        let begun = Instant::now();
        let refused = send(&service, from("ada")).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(waited));
        assert_eq!(
            (refused.status(), number(&refused, "retry-after")),
            (StatusCode::TOO_MANY_REQUESTS, Some(60))
        );
        assert_eq!(problem(refused).await["retry_after"], 60);
    }
}

#[tokio::test]
async fn a_response_that_is_there_at_once_takes_no_place() {
    let layer = one_a_minute().longest_queue(0).respond_async(|refusal| ready(page(refusal)));
    let service = layer.build().unwrap().layer(Handler::default());
    send(&service, from("ada")).await;
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::IM_A_TEAPOT);
}

/// Slow responders for one client once kept others from waiting for their turns: they were refused with 503.
#[tokio::test(start_paused = true)]
async fn responders_take_no_place_from_requests_that_wait_for_their_turn() {
    let (store, _) = store();
    let waits =
        by_header(on(&store, Policy::gcra("waits", "1/s burst 1").wait_up_to(Duration::from_secs(9))));
    let refuses = by_header(on(&store, Policy::gcra("refuses", "2/h")));
    let layer = all_fields(waits).and(refuses).longest_queue(1);
    let layer = layer.respond_async(|_| pending::<Response<Body>>()).build().unwrap();
    let service = layer.layer(Handler::default());
    let call = |key| Box::pin(service.clone().oneshot(from(key)));
    for _ in 0..2 {
        send(&service, from("eve")).await;
    }
    let mut flood = call("eve");
    assert!(flood.as_mut().now_or_never().is_none(), "its responder waits");
    assert_eq!(
        call("eve").now_or_never().map(|refused| refused.unwrap().status()),
        Some(StatusCode::TOO_MANY_REQUESTS)
    );
    send(&service, from("ada")).await;
    let mut turn = call("ada");
    assert!(turn.as_mut().now_or_never().is_none(), "its turn comes in a second");
    assert_eq!(layer.waiting(), 1);
    // The place of a client that has left is free.
    drop(flood);
    assert!(call("eve").now_or_never().is_none());
}

#[tokio::test]
async fn a_swap_leaves_a_response_as_it_was_begun() {
    let written = Arc::new(Notify::new());
    let waits = Arc::clone(&written);
    let layer = one_a_minute().respond_async(move |refusal| {
        let (page, written) = (page(refusal), Arc::clone(&waits));
        async move {
            written.notified().await;
            page
        }
    });
    let layer = layer.build().unwrap();
    let service = layer.layer(Handler::default());
    send(&service, from("ada")).await;
    let mut stays = Box::pin(service.clone().oneshot(from("ada")));
    assert!(stays.as_mut().now_or_never().is_none());
    let other = Limits::new(by_header(on(&store().0, Policy::gcra("other", "9/min"))));
    layer.limits_handle().swap(other);
    written.notify_one();
    let refused = stays.await.unwrap();
    assert_eq!((refused.status(), number(&refused, "x-ratelimit-limit")), (StatusCode::IM_A_TEAPOT, Some(1)));
}
