//! Bytes a second of bodies.

mod crossings;
mod pacing;
mod uploads;

use std::convert::Infallible;
use std::future::ready;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use sluicegate_core::RateLimiter;
use sluicegate_tests::frames::{Frames, next};
use sluicegate_tower::bandwidth::Direction;
use sluicegate_tower::settle::SettlingBody;
use sluicegate_tower::{Limit, RateLimitLayer};
use tokio::time::{Duration, Instant};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{by_header, from};

/// A limit on downloads, by the header of [`by_header`].
fn down(limiter: &RateLimiter) -> Limit {
    by_header(limiter.clone()).bandwidth(Direction::Down)
}

/// Bytes of which each differs from the one before.
fn bytes(length: usize) -> Bytes {
    let mut bytes = (0..251).collect::<Vec<u8>>().repeat(length.div_ceil(251));
    bytes.truncate(length);
    bytes.into()
}

/// The response to a request with this key, whose body comes in one frame.
async fn download(layer: &RateLimitLayer, key: &'static str, length: usize) -> SettlingBody<Frames> {
    let body = bytes(length);
    sent(layer, key, move || Frames::from(body.clone())).await
}

/// The body of the response to a request with this key.
async fn sent(
    layer: &RateLimitLayer,
    key: &'static str,
    make: impl Fn() -> Frames + Clone,
) -> SettlingBody<Frames> {
    let answers = service_fn(move |_: Request<()>| ready(Ok::<_, Infallible>(Response::new(make()))));
    let response = layer.clone().settling().layer(answers).oneshot(from(key)).await.unwrap();
    assert_eq!(response.status(), 200);
    response.into_body()
}

/// Reads a body for this long, and returns the bytes that have come.
async fn read_for(mut body: impl Body<Data = Bytes> + Unpin, span: Duration) -> usize {
    let (until, mut read) = (Instant::now() + span, 0);
    while let Ok(Some(Ok(frame))) = tokio::time::timeout_at(until, next(&mut body)).await {
        read += frame.data_ref().map_or(0, Bytes::len);
    }
    read
}
