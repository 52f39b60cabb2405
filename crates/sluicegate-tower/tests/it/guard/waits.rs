//! While a request waits, the service inside is there for others: waiting comes first, and being ready after it.

use std::convert::Infallible;
use std::future::{Pending, Ready, pending, ready};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::Either;
use http::{Request, Response, StatusCode};
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::{Policy, RateLimiter};
use sluicegate_tower::outgoing::OutgoingLayer;
use sluicegate_tower::{Limit, RateLimitLayer};
use tokio::task::yield_now;
use tokio::time::Instant;
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::guard::gates::{Gate, KINDS, Kind, WAIT, by_host, gate, host, to, waits};
use crate::support::strict::Strict;
use crate::support::{Body, limiter, slow};

/// A service for two requests at once, which has to be polled ready each time.
fn for_two() -> ConcurrencyLimit<Strict> {
    ConcurrencyLimit::new(Strict::default(), 2)
}

/// As many requests for one key wait as the service inside takes at once. One for another key then passes at once, and
/// those that wait go when their turn comes. With one request to `a` gone, the next have to wait.
async fn others_pass(kind: Kind, limiter: fn(PolicyBuilder) -> RateLimiter) {
    let Gate { service, .. } = gate(kind, limiter, for_two()).await;
    let send = |host: &'static str| {
        let service = service.clone();
        tokio::spawn(async move { service.oneshot(to(host)).await.is_ok() })
    };
    let start = Instant::now();
    let waiting = [send("a"), send("a"), send("a")];
    for _ in 0..4 {
        yield_now().await;
    }
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "{kind:?}: nobody had to wait");
    assert!(send("b").await.unwrap());
    assert_eq!(start.elapsed(), Duration::ZERO, "{kind:?}: a call that need not wait waited");
    for waiting in waiting {
        assert!(waiting.await.unwrap(), "{kind:?}");
    }
    assert!(start.elapsed() >= WAIT, "{kind:?}");
}

/// A `ConcurrencyLimit(2)` inside once kept everybody out for as long as two requests waited.
#[tokio::test(start_paused = true)]
async fn whatever_a_call_waits_for_it_waits_without_the_service() {
    for kind in KINDS {
        for limiter in [limiter, slow] {
            others_pass(kind, limiter).await;
        }
    }
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

/// A service whose clones say that they are ready, and answer, only when the test lets them.
#[derive(Clone, Default)]
struct Gated {
    ready: Arc<Mutex<Option<Result<(), &'static str>>>>,
    hangs: Arc<AtomicBool>,
}

impl Gated {
    fn is(&self, ready: Option<Result<(), &'static str>>) {
        *self.ready.lock().unwrap() = ready;
    }

    fn hangs(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::Relaxed);
    }
}

impl Service<Request<()>> for Gated {
    type Response = Response<Body>;
    type Error = &'static str;
    type Future =
        Either<Ready<Result<Response<Body>, &'static str>>, Pending<Result<Response<Body>, &'static str>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        match *self.ready.lock().unwrap() {
            Some(ready) => Poll::Ready(ready),
            None => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        match self.hangs.load(Ordering::Relaxed) {
            true => Either::Right(pending()),
            false => Either::Left(ready(Ok(Response::new(Body::from("ok"))))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_fails_to_be_ready_after_the_wait_fails_the_call() {
    for kind in KINDS {
        let gated = Gated::default();
        let Gate { mut service, waiting } = gate(kind, limiter, gated.clone()).await;
        let start = Instant::now();
        gated.is(Some(Ok(())));
        let call = service.ready().await.unwrap().call(to("a"));
        gated.is(Some(Err("the service is gone")));
        assert_eq!((call.await.unwrap_err().as_str(), start.elapsed()), ("the service is gone", WAIT));
        assert_eq!(waiting().unwrap_or(0), 0);
    }
}

/// Where a call is dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    ItsWait,
    TheServicesReadiness,
    TheResponse,
}

async fn settle() {
    for _ in 0..8 {
        yield_now().await;
    }
}

/// What was spent stays spent once the turn has come: otherwise a client would have a turn for nothing whenever the service
/// is busy. All else is there for the next call.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_at_any_await_point_gives_back_what_it_holds() {
    for kind in KINDS {
        for limiter in [limiter, slow] {
            for at in [At::ItsWait, At::TheServicesReadiness, At::TheResponse] {
                let gated = Gated::default();
                let Gate { mut service, waiting } = gate(kind, limiter, gated.clone()).await;
                let start = Instant::now();
                gated.is(Some(Ok(())));
                let call = tokio::spawn(service.ready().await.unwrap().call(to("a")));
                gated.is(None);
                settle().await;
                assert_eq!(waiting().unwrap_or(1), 1, "{kind:?} {at:?}");
                if at != At::ItsWait {
                    tokio::time::advance(WAIT).await;
                    settle().await;
                }
                if at == At::TheResponse {
                    gated.hangs(true);
                    gated.is(Some(Ok(())));
                    settle().await;
                    assert_eq!(waiting().unwrap_or(0), 0, "{kind:?}: a call that is made waits no longer");
                }
                assert!(!call.is_finished(), "{kind:?} {at:?}");
                call.abort();
                assert!(call.await.unwrap_err().is_cancelled());
                assert_eq!(waiting().unwrap_or(0), 0, "{kind:?} {at:?}");
                gated.hangs(false);
                gated.is(Some(Ok(())));
                service.ready().await.unwrap().call(to("a")).await.unwrap();
                let expected = if at == At::ItsWait { WAIT } else { WAIT + kind.again() };
                assert_eq!(start.elapsed(), expected, "{kind:?} {at:?}");
            }
        }
    }
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
