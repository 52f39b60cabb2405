//! How many calls may wait at once, and what the next one is told.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use sluicegate_core::{Key, Policy, RateLimiter};
use sluicegate_in_flight::InFlight;
use sluicegate_tests::around;
use sluicegate_tests::memory::paused_store;
use sluicegate_tower::call::{CallError, CallLimitLayer};
use sluicegate_tower::in_flight::InFlightLayer;
use sluicegate_tower::outgoing::OutgoingLayer;
use sluicegate_tower::{Limit, RateLimitLayer};
use tokio::task::{JoinSet, yield_now};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::guard::gates::to;
use crate::guard::lookups::Never;
use crate::support::{Body, limiter, slow};

fn host(_: &Request<()>) -> &'static str {
    "host"
}

fn ok(_: Request<()>) -> Ready<Result<Response<()>, Infallible>> {
    ready(Ok(Response::new(())))
}

/// One a second, and a wait of up to a minute.
fn one_a_second(limiter: fn(sluicegate_core::policy::PolicyBuilder) -> RateLimiter) -> RateLimiter {
    limiter(Policy::gcra("jobs", "1/s").wait_up_to(Duration::from_secs(60)))
}

/// One call goes, two wait, and those that come then are told when they would have gone; when those two have gone, the
/// next one waits a second.
async fn two_wait_at_most<S>(service: S, waiting: impl Fn() -> usize)
where
    S: Service<Request<()>, Error = CallError<Infallible>> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
{
    let start = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..3 {
        calls.spawn(service.clone().oneshot(to("a")));
    }
    for _ in 0..4 {
        yield_now().await;
    }
    assert_eq!(waiting(), 2);
    for _ in 0..50 {
        let Err(refused) = service.clone().oneshot(to("a")).await else { panic!("the third one waits") };
        assert!(refused.is_refusal() && refused.source().is_none() && refused.decision().is_none());
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(3)));
        assert_eq!(
            refused.to_string(),
            "too many calls are waiting for their turn, which would come in 3s: try again then, or raise longest_queue"
        );
        let boxed = refused.into_box().downcast::<CallError<Infallible>>().unwrap();
        assert!(matches!(*boxed, CallError::QueueFull(_)));
    }
    assert_eq!(start.elapsed(), Duration::ZERO, "refused at once");
    assert!(calls.join_all().await.iter().all(Result::is_ok));
    assert_eq!((start.elapsed().as_secs(), waiting()), (2, 0));
    assert!(service.oneshot(to("a")).await.is_ok());
    assert_eq!(start.elapsed().as_secs(), 3, "those that were refused took no turn");
}

/// Any number of them once waited.
#[tokio::test(start_paused = true)]
async fn calls_that_would_be_too_many_to_wait_fail_at_once() {
    for limiter in [limiter, slow] {
        let layer = CallLimitLayer::new(one_a_second(limiter), host).longest_queue(2);
        two_wait_at_most(layer.layer(service_fn(ok)), || layer.waiting()).await;
        let layer = OutgoingLayer::new().limit(one_a_second(limiter)).longest_queue(2);
        two_wait_at_most(layer.layer(service_fn(ok)), || layer.waiting()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn clones_of_a_layer_and_their_services_have_one_queue() {
    let layer = CallLimitLayer::new(one_a_second(limiter), host).longest_queue(1);
    // A cost leaves the queue as it is.
    let costly = layer.clone().cost(|_: &Request<()>| 1);
    let _gone = layer.layer(service_fn(ok)).oneshot(to("a")).await;
    let mut service = layer.layer(service_fn(ok));
    let waits = service.ready().await.unwrap().call(to("a"));
    assert_eq!((layer.waiting(), costly.waiting()), (1, 1));
    for service in [layer.clone().layer(service_fn(ok)), service] {
        assert!(matches!(service.oneshot(to("a")).await, Err(CallError::QueueFull(_))));
    }
    assert!(matches!(costly.layer(service_fn(ok)).oneshot(to("a")).await, Err(CallError::QueueFull(_))));
    drop(waits);
    assert_eq!(layer.waiting(), 0, "a call that is dropped leaves the queue");
}

/// A server that answers each call with 429 and ten seconds.
fn full(_: Request<()>) -> Ready<Result<Response<()>, Infallible>> {
    let response = Response::builder().status(429).header("retry-after", "10").body(()).unwrap();
    ready(Ok(response))
}

#[tokio::test(start_paused = true)]
async fn those_that_wait_for_a_server_count_and_keep_their_place_for_their_turn() {
    let layer = OutgoingLayer::new().limit(one_a_second(limiter)).longest_queue(2);
    layer.layer(service_fn(full)).oneshot(to("a")).await.unwrap();
    let client = layer.layer(service_fn(ok));
    let start = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..2 {
        calls.spawn(client.clone().oneshot(to("a")));
    }
    yield_now().await;
    assert_eq!(layer.waiting(), 2);
    for host in ["a", "A:443"] {
        let refused = client.clone().oneshot(to(host)).await.unwrap_err();
        assert!(matches!(refused, CallError::QueueFull(wait) if wait == Duration::from_secs(10)));
    }
    assert!(client.clone().oneshot(to("b")).await.is_ok(), "a call that need not wait needs no place");
    assert!(calls.join_all().await.iter().all(Result::is_ok));
    assert_eq!((start.elapsed().as_secs(), layer.waiting()), (11, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_in_flight_whose_key_does_not_come_is_answered_in_time() {
    let hello = || service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(Body::default()))));
    let in_flight = InFlight::new("uploads", 9).unwrap();
    for (longest, waited) in [(None, 5), (Some(Duration::from_secs(2)), 2)] {
        let mut layer = InFlightLayer::new(in_flight.clone()).key(Never).wait_up_to(Duration::from_secs(60));
        if let Some(longest) = longest {
            layer = layer.longest_lookup(longest);
        }
        // What a limit around it has spent is given back.
        let rate = limiter(Policy::gcra("api", "9/h"));
        let around = RateLimitLayer::new(Limit::new(rate.clone()).key(Key::from("all")));
        let start = Instant::now();
        let refused = around.layer(layer.layer(hello())).oneshot(Request::new(())).await.unwrap();
        assert_eq!((refused.status(), start.elapsed().as_secs()), (StatusCode::SERVICE_UNAVAILABLE, waited));
        assert_eq!(["retry-after", "cache-control"].map(|name| &refused.headers()[name]), ["1", "no-store"]);
        assert_eq!(rate.peek("all").await.unwrap().remaining(), 9);
    }
    assert_eq!(in_flight.keys(), 0);
    // And at most 10,000 wait for their keys.
    let layer = InFlightLayer::new(in_flight).key(Never);
    let mut requests: Vec<_> =
        (0..10_000).map(|_| Box::pin(layer.layer(hello()).oneshot(Request::new(())))).collect();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(requests.iter_mut().all(|request| request.as_mut().poll(&mut cx).is_pending()));
    let start = Instant::now();
    let refused = layer.layer(hello()).oneshot(Request::new(())).await.unwrap();
    assert_eq!((refused.status(), start.elapsed()), (StatusCode::SERVICE_UNAVAILABLE, Duration::ZERO));
    drop(requests);
    assert_eq!(layer.layer(hello()).oneshot(Request::new(())).await.unwrap().status(), 503);
    assert_eq!(start.elapsed().as_secs(), 5, "their places are free");
}

#[tokio::test(start_paused = true)]
async fn the_store_is_told_once_of_turns_given_up_of_a_full_queue_and_of_servers_that_ask_for_a_pause() {
    let (store, told) = around::told(paused_store());
    let jobs =
        Policy::gcra("jobs", "1/s").wait_up_to(Duration::from_secs(60)).on(Arc::clone(&store)).unwrap();
    let events = move || std::mem::take(&mut *told.lock().unwrap());
    let layer = CallLimitLayer::new(jobs.clone(), host).longest_queue(1);
    let mut service = layer.layer(service_fn(ok));
    service.call(to("a")).await.unwrap();
    let (waits, refused) = (service.call(to("a")), service.call(to("a")));
    assert!(matches!(refused.await, Err(CallError::QueueFull(_))));
    assert_eq!(events(), ["QueueFull jobs"]);
    waits.await.unwrap();
    assert_eq!(events(), [""; 0], "a turn that has come was not given up");
    drop(service.call(to("a")));
    assert_eq!(events(), ["TurnGivenUp jobs"]);
    let layer = OutgoingLayer::new().limit(jobs).longest_queue(1);
    layer.layer(service_fn(full)).oneshot(to("a")).await.unwrap();
    assert_eq!(events(), ["Paused jobs 10s"]);
    let mut client = layer.layer(service_fn(ok));
    let (waits, refused) = (client.call(to("a")), client.call(to("a")));
    assert!(matches!(refused.await, Err(CallError::QueueFull(_))));
    drop(waits);
    assert_eq!(events(), ["QueueFull jobs"], "no turn was reserved yet");
}
