//! While a request waits, the service inside is there for others: waiting comes first, and being ready after it.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use sluicegate_core::Policy;
use sluicegate_core::in_flight::InFlight;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_tower::call::{CallError, CallLimitLayer};
use sluicegate_tower::in_flight::InFlightLayer;
use sluicegate_tower::key::{Extraction, RequestView, key_fn};
use sluicegate_tower::outgoing::OutgoingLayer;
use sluicegate_tower::{KeyExtractor, Limit, RateLimitLayer};
use tokio::task::yield_now;
use tokio::time::Instant;
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::strict::Strict;
use crate::support::{Body, limiter, slow};

/// A service for two requests at once, which has to be polled ready each time.
fn for_two() -> ConcurrencyLimit<Strict> {
    ConcurrencyLimit::new(Strict::default(), 2)
}

fn to(host: &str) -> Request<()> {
    Request::get(format!("https://{host}/")).body(()).unwrap()
}

fn host(request: &Request<()>) -> String {
    request.uri().host().unwrap_or_default().to_owned()
}

fn by_host() -> impl KeyExtractor {
    key_fn(|request: RequestView<'_>| Some(request.uri.host()?.to_owned()))
}

fn waits() -> PolicyBuilder {
    Policy::gcra("waits", "1/s").wait_up_to(Duration::from_secs(60))
}

/// As many requests for one key wait as the service inside takes at once. One for another key then passes at once, and
/// those that wait go when their turn comes. With one request to `a` gone, the next have to wait.
async fn others_pass<S>(service: S, name: &str)
where
    S: Service<Request<()>> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Debug + Send,
{
    let send = |host: &'static str| {
        let service = service.clone();
        tokio::spawn(async move { service.oneshot(to(host)).await.is_ok() })
    };
    let start = Instant::now();
    let waiting = [send("a"), send("a"), send("a")];
    for _ in 0..4 {
        yield_now().await;
    }
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "{name}: nobody had to wait");
    assert!(send("b").await.unwrap());
    assert_eq!(start.elapsed(), Duration::ZERO, "{name}: a request that need not wait waited");
    for waiting in waiting {
        assert!(waiting.await.unwrap(), "{name}");
    }
    assert!(start.elapsed() >= Duration::from_secs(1), "{name}");
}

/// A `ConcurrencyLimit(2)` inside once kept everybody out for as long as two requests waited.
#[tokio::test(start_paused = true)]
async fn a_turn_is_waited_for_without_the_service() {
    for (limiter, store) in [(limiter(waits()), "at once"), (slow(waits()), "after a poll")] {
        assert!(limiter.check("a").await.unwrap().is_allowed());
        let limit = Limit::new(limiter.clone()).key(by_host());
        others_pass(RateLimitLayer::new(limit).layer(for_two()), store).await;
    }
    for (limiter, store) in [(limiter(waits()), "at once"), (slow(waits()), "after a poll")] {
        assert!(limiter.check("a").await.unwrap().is_allowed());
        others_pass(CallLimitLayer::new(limiter, host).layer(for_two()), store).await;
    }
    for (limiter, store) in [(limiter(waits()), "at once"), (slow(waits()), "after a poll")] {
        assert!(limiter.check(("a", 443)).await.unwrap().is_allowed());
        others_pass(OutgoingLayer::new().limit(limiter).layer(for_two()), store).await;
    }
}

/// The host as the key, after a second for `a`.
struct SlowForA;

impl KeyExtractor for SlowForA {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        let host = request.uri.host().unwrap_or_default().to_owned();
        Extraction::pending(async move {
            if host == "a" {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Ok(host.into())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_waited_for_without_the_service() {
    let limit = Limit::new(limiter(Policy::gcra("free", "100/s"))).key(SlowForA);
    others_pass(RateLimitLayer::new(limit).layer(for_two()), "rate").await;
    let in_flight = InFlightLayer::new(InFlight::new("free", 100).unwrap()).key(SlowForA);
    others_pass(in_flight.layer(for_two()), "in flight").await;
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_waited_for_without_the_service() {
    let in_flight = InFlight::new("uploads", 1).unwrap();
    let held = in_flight.try_acquire("a").unwrap();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(held);
    });
    let layer = InFlightLayer::new(in_flight).key(by_host()).wait_up_to(Duration::from_secs(60));
    others_pass(layer.layer(for_two()), "in flight").await;
}

/// Answers the first request that it shall wait for three seconds, and takes two seconds for each answer.
#[derive(Clone, Default)]
struct Full {
    calls: Arc<Mutex<Vec<u64>>>,
}

impl Full {
    fn service(
        &self,
        start: Instant,
    ) -> impl Service<Request<()>, Response = Response<()>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static {
        let calls = Arc::clone(&self.calls);
        service_fn(move |request: Request<()>| {
            let mut calls = calls.lock().unwrap();
            let is_first = calls.is_empty() && host(&request) == "a";
            calls.push(start.elapsed().as_secs());
            async move {
                tokio::time::sleep(Duration::from_secs(2)).await;
                let mut response = Response::new(());
                if is_first {
                    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                    response.headers_mut().insert("retry-after", 3.into());
                }
                Ok(response)
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn the_word_of_a_server_is_waited_for_without_the_client() {
    let start = Instant::now();
    let full = Full::default();
    let client = OutgoingLayer::new().layer(ConcurrencyLimit::new(full.service(start), 2));
    client.clone().oneshot(to("a")).await.unwrap();
    let send = |host| tokio::spawn(client.clone().oneshot(to(host)));
    let calls = [send("a"), send("a"), send("b")];
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(*full.calls.lock().unwrap(), [0, 2, 5, 5], "the call to b does not wait for those to a");
}

/// Its turn comes while the client is busy with a call whose answer is to leave the server alone.
#[tokio::test(start_paused = true)]
async fn a_call_that_waited_for_the_client_heeds_what_the_server_said_meanwhile() {
    let start = Instant::now();
    let full = Full::default();
    let client = ConcurrencyLimit::new(full.service(start), 1);
    let limiter = limiter(Policy::gcra("partner", "1/s"));
    assert!(limiter.check(("a", 443)).await.unwrap().is_allowed());
    // Both heed the same word, and one has a limit.
    let layer = OutgoingLayer::new();
    let (fast, mut spaced) =
        (layer.layer(client.clone()), layer.clone().limit(limiter.clone()).layer(client));
    let second = tokio::spawn(spaced.ready().await.unwrap().call(to("a")));
    assert_eq!(fast.oneshot(to("a")).await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(second.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(*full.calls.lock().unwrap(), [0, 5]);
    assert_eq!(start.elapsed().as_secs(), 7);
}

/// A service whose clones say that they are ready only when the test lets them.
#[derive(Clone, Default)]
struct Gated(Arc<Mutex<Option<Result<(), &'static str>>>>);

impl Gated {
    fn is(&self, ready: Option<Result<(), &'static str>>) {
        *self.0.lock().unwrap() = ready;
    }
}

impl Service<Request<()>> for Gated {
    type Response = Response<Body>;
    type Error = &'static str;
    type Future = Ready<Result<Response<Body>, &'static str>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        match *self.0.lock().unwrap() {
            Some(ready) => Poll::Ready(ready),
            None => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(Body::from("ok"))))
    }
}

/// What a request comes to that waits for its turn while the service inside fails to be ready.
async fn fails_after_its_wait<S: Service<Request<()>>>(mut service: S, gated: &Gated) -> Option<S::Error> {
    gated.is(Some(Ok(())));
    let request = service.ready().await.ok().expect("the service is ready").call(to("a"));
    gated.is(Some(Err("the service is gone")));
    request.await.err()
}

#[tokio::test(start_paused = true)]
async fn a_service_that_fails_to_be_ready_after_the_wait_fails_the_request() {
    let (gated, start) = (Gated::default(), Instant::now());
    let waits = limiter(waits());
    assert!(waits.check("a").await.unwrap().is_allowed());
    let rate = RateLimitLayer::new(Limit::new(waits.clone()).key(by_host())).layer(gated.clone());
    assert_eq!(fails_after_its_wait(rate, &gated).await, Some("the service is gone"));
    assert_eq!(start.elapsed().as_secs(), 1);
    let inner = |error: Option<CallError<&'static str>>| error.and_then(CallError::into_inner);
    let calls = CallLimitLayer::new(waits.clone(), host).layer(gated.clone());
    assert_eq!(inner(fails_after_its_wait(calls, &gated).await), Some("the service is gone"));
    assert!(waits.check(("a", 443)).await.unwrap().is_allowed());
    let outgoing = OutgoingLayer::new().limit(waits).layer(gated.clone().map_response(|_| Response::new(())));
    assert_eq!(inner(fails_after_its_wait(outgoing, &gated).await), Some("the service is gone"));
    let in_flight = InFlightLayer::new(InFlight::new("free", 9).unwrap()).key(SlowForA).layer(gated.clone());
    assert_eq!(fails_after_its_wait(in_flight, &gated).await, Some("the service is gone"));
}

/// Otherwise a client would have a turn for nothing whenever the service is busy.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_when_its_turn_has_come_has_spent_whether_the_service_is_ready_or_not() {
    let gated = Gated::default();
    let waits = limiter(waits());
    assert!(waits.check("a").await.unwrap().is_allowed());
    let layer = RateLimitLayer::new(Limit::new(waits.clone()).key(by_host()));
    let mut service = layer.layer(gated.clone());
    gated.is(Some(Ok(())));
    let mut request = Box::pin(service.ready().await.unwrap().call(to("a")));
    gated.is(None);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(request);
    assert_eq!((layer.waiting(), waits.peek("a").await.unwrap().remaining()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_keeps_its_place_until_the_service_is_ready_and_no_longer() {
    let gated = Gated::default();
    let waits = limiter(waits());
    assert!(waits.check("a").await.unwrap().is_allowed());
    let builder = RateLimitLayer::builder(Limit::new(waits.clone()).key(by_host()));
    let layer = builder.longest_queue(1).build().unwrap();
    let mut service = layer.layer(gated.clone());
    gated.is(Some(Ok(())));
    let waits = tokio::spawn(service.ready().await.unwrap().call(to("a")));
    gated.is(None);
    tokio::time::advance(Duration::from_secs(1)).await;
    for _ in 0..4 {
        yield_now().await;
    }
    // Its turn has come, the service is busy.
    assert_eq!((layer.waiting(), waits.is_finished()), (1, false));
    let mut sibling =
        layer.layer(service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(Body::default())))));
    for (host, status) in [("b", 200), ("a", 503)] {
        assert_eq!(sibling.ready().await.unwrap().call(to(host)).await.unwrap().status().as_u16(), status);
    }
    gated.is(Some(Ok(())));
    assert_eq!(waits.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(layer.waiting(), 0);
}
