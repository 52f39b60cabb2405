//! Requests that wait their turn, in tokio's paused time: the store's clock is the same one.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use sluicegate_core::{Policy, RateLimiter};
use sluicegate_tower::RateLimitLayer;
use tokio::task::{JoinSet, yield_now};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{Body, Handler, answer, by_header, from, number, on, paused_store, problem, send};

/// Two a second, one at once, and a wait of up to five seconds.
fn two_a_second() -> RateLimiter {
    on(&paused_store(), Policy::gcra("upload", "2/s burst 1").wait_up_to(Duration::from_secs(5)))
}

/// Notes after how many milliseconds each request came through, and answers `ok`.
#[derive(Clone)]
pub(crate) struct Departures {
    start: Instant,
    seen_ms: Arc<Mutex<Vec<u128>>>,
}

impl Departures {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), seen_ms: Arc::default() }
    }

    pub(crate) fn seen_ms(&self) -> Vec<u128> {
        self.seen_ms.lock().unwrap().clone()
    }

    pub(crate) fn behind(
        &self,
        limiter: &RateLimiter,
    ) -> impl Service<Request<()>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
    + use<> {
        RateLimitLayer::new(by_header(limiter.clone())).layer(self.service())
    }

    /// A service that notes its calls.
    pub(crate) fn service(
        &self,
    ) -> impl Service<Request<()>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
    + use<> {
        let departures = self.clone();
        service_fn(move |_: Request<()>| {
            let Self { start, seen_ms } = &departures;
            seen_ms.lock().unwrap().push(start.elapsed().as_millis());
            async { Ok(Response::new(Body::from("ok"))) }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_too_long_is_refused_at_once_and_told_when_to_come_back() {
    let departures = Departures::new();
    let service = departures.behind(&two_a_second());
    let mut uploads = JoinSet::new();
    // One goes at once and ten more wait, the last of them exactly the five seconds that are allowed.
    for _ in 0..11 {
        uploads.spawn(service.clone().oneshot(from("ada")));
        yield_now().await;
    }
    let refused = send(&service, from("ada")).await;
    assert_eq!(departures.start.elapsed(), Duration::ZERO, "refused without a wait");
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    // In half a second a turn five seconds later is free, and whole seconds are rounded up.
    assert_eq!(number(&refused, "retry-after"), Some(1));
    assert_eq!(problem(refused).await["retry_after"], 1);
    tokio::time::advance(Duration::from_millis(500)).await;
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK, "half a second was enough");
    assert_eq!(uploads.join_all().await.len(), 11);
    let expected: Vec<u128> = (0..12).map(|turn| turn * 500).collect();
    assert_eq!(departures.seen_ms(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_before_it_was_polled_gives_its_turn_back() {
    let departures = Departures::new();
    let limiter = two_a_second();
    let service = departures.behind(&limiter);
    send(&service, from("ada")).await;
    for _ in 0..100 {
        let mut service = service.clone();
        drop(service.ready().await.unwrap().call(from("ada")));
    }
    send(&service, from("ada")).await;
    assert_eq!(departures.seen_ms(), [0, 500]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_while_the_handler_works_has_spent() {
    let limiter = two_a_second();
    let never = service_fn(|_: Request<()>| pending::<Result<Response<Body>, Infallible>>());
    let service = RateLimitLayer::new(by_header(limiter.clone())).layer(never);
    let mut cx = Context::from_waker(Waker::noop());
    {
        let mut at_once = pin!(service.clone().oneshot(from("ada")));
        assert!(at_once.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(answer(limiter.peek("ada")).remaining(), 0, "dodged its limit by hanging up");
    // The same after a wait: the turn has come, the handler works, the client leaves.
    {
        let mut waited = pin!(service.clone().oneshot(from("ada")));
        assert!(tokio::time::timeout(Duration::from_millis(600), waited.as_mut()).await.is_err());
    }
    assert_eq!(
        answer(limiter.peek("ada")).remaining(),
        0,
        "dodged its limit by hanging up after its turn had come"
    );
}

#[tokio::test(start_paused = true)]
async fn those_that_wait_are_not_overtaken() {
    let departures = Departures::new();
    let service = departures.behind(&two_a_second());
    send(&service, from("ada")).await;
    let mut waits = pin!(service.clone().oneshot(from("ada")));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    // When its turn has come but its task was not scheduled yet, a newcomer still stands behind it.
    tokio::time::advance(Duration::from_millis(500)).await;
    let mut late = pin!(service.clone().oneshot(from("ada")));
    assert!(late.as_mut().poll(&mut cx).is_pending());
    assert!(matches!(waits.as_mut().poll(&mut cx), Poll::Ready(Ok(_))));
    late.await.unwrap();
    assert_eq!(departures.seen_ms(), [0, 500, 1_000]);
}

#[tokio::test(start_paused = true)]
async fn limits_that_wait_and_limits_that_refuse_are_decided_together() {
    let store = paused_store();
    let waits = on(&store, Policy::gcra("waits", "2/s burst 1").wait_up_to(Duration::from_secs(5)));
    let refuses = on(&store, Policy::sliding_log("refuses", "3/min"));
    let layer = RateLimitLayer::builder(by_header(waits.clone())).and(by_header(refuses)).build().unwrap();
    let start = Instant::now();
    let service = layer.layer(Handler::default());
    for expected_ms in [0, 500, 1_000] {
        assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
        assert_eq!(start.elapsed().as_millis(), expected_ms);
    }
    let refused = send(&service, from("ada")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(start.elapsed().as_millis(), 1_000, "refused at once");
    tokio::time::advance(Duration::from_millis(500)).await;
    assert_eq!(answer(waits.peek("ada")).remaining(), 1, "the refused one took no turn");
}

#[tokio::test(start_paused = true)]
async fn hanging_up_under_two_limits_gives_both_their_turn_back() {
    for algorithm in ["gcra", "fixed-window", "sliding-counter", "sliding-log"] {
        let store = paused_store();
        let waits = on(&store, Policy::gcra("waits", "2/s burst 1").wait_up_to(Duration::from_secs(5)));
        let refuses = on(&store, Policy::builder("refuses", algorithm.parse().unwrap(), "3/min").refunds());
        let layer =
            RateLimitLayer::builder(by_header(waits)).and(by_header(refuses.clone())).build().unwrap();
        let service = layer.layer(Handler::default());
        send(&service, from("ada")).await;
        drop(Service::<Request<()>>::call(&mut service.clone(), from("ada")));
        assert_eq!(answer(refuses.peek("ada")).remaining(), 2, "{algorithm}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_together_are_refused_by_no_other_limit_that_has_room_for_them() {
    for algorithm in ["gcra", "fixed-window", "sliding-counter", "sliding-log"] {
        let store = paused_store();
        let waits = on(&store, Policy::gcra("waits", "2/s burst 1").wait_up_to(Duration::from_secs(5)));
        let refuses = on(&store, Policy::builder("refuses", algorithm.parse().unwrap(), "100/min"));
        let layer = RateLimitLayer::builder(by_header(waits)).and(by_header(refuses)).build().unwrap();
        let service = layer.layer(Handler::default());
        let mut together = JoinSet::new();
        for _ in 0..5 {
            together.spawn(service.clone().oneshot(from("ada")));
        }
        let responses = together.join_all().await;
        let passed =
            responses.into_iter().filter(|response| response.as_ref().unwrap().status() == StatusCode::OK);
        assert_eq!(passed.count(), 5, "{algorithm}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_wait_the_fields_count_from_the_response() {
    let limiter = two_a_second();
    let start = Instant::now();
    let service = RateLimitLayer::new(by_header(limiter)).layer(Handler::default());
    // Kept, so that their turns are not given back.
    let mut before = Vec::new();
    for _ in 0..10 {
        before.push(Service::<Request<()>>::call(&mut service.clone(), from("ada")));
    }
    let last = send(&service, from("ada")).await;
    assert_eq!(start.elapsed().as_secs(), 5);
    // It went with the last turn that was taken: half a second later all is back.
    assert_eq!(number(&last, "x-ratelimit-reset"), Some(1));
}
