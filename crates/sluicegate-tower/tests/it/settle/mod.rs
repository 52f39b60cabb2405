//! Costs that a response tells.

mod aborts;
mod budget;
mod crossings;
mod sources;

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::ready;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::{MemoryStore, Policy, RateLimiter};
use sluicegate_tests::frames::Frames;
use sluicegate_tower::settle::{Settle, SettlingBody};
use sluicegate_tower::{Limit, RateLimitLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{answer, by_header, from, on, store};

/// A service that answers like this.
fn answering<F>(
    make: F,
) -> impl Service<Request<()>, Response = Response<Frames>, Error = Infallible, Future: Send> + Clone
where
    F: Fn() -> Response<Frames> + Clone,
{
    service_fn(move |_| ready(Ok(make())))
}

/// Ten thousand tokens a minute, of which a request reserves five hundred.
fn tokens(settle: Settle) -> (RateLimiter, Limit, ManualClock) {
    let (store, clock) = store();
    let (limiter, limit) = named(&store, "tokens", settle);
    (limiter, limit, clock)
}

fn named(store: &MemoryStore, name: &str, settle: Settle) -> (RateLimiter, Limit) {
    let limiter = on(store, Policy::fixed_window(name, "10000/min"));
    let limit = by_header(limiter.clone()).cost(500).unwrap().settle(settle);
    (limiter, limit)
}

/// The units that a key has spent.
fn used(limiter: &RateLimiter) -> u64 {
    10_000 - answer(limiter.peek("ada")).remaining()
}

/// The response to one request through a layer with this limit.
async fn respond(
    limit: Limit,
    make: impl Fn() -> Response<Frames> + Clone,
) -> Response<SettlingBody<Frames>> {
    sent(RateLimitLayer::new(limit).settling().layer(answering(make))).await
}

async fn sent<S, B>(service: S) -> Response<B>
where
    S: Service<Request<()>, Response = Response<B>, Error: Debug>,
{
    service.oneshot(from("ada")).await.unwrap()
}

/// The data and the trailers of a whole body.
async fn read(response: Response<SettlingBody<Frames>>) -> (Bytes, Option<HeaderMap>) {
    let collected = response.into_body().collect().await.unwrap();
    let trailers = collected.trailers().cloned();
    (collected.to_bytes(), trailers)
}
