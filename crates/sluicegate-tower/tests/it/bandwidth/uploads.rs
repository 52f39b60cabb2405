//! The pace of requests' bodies.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use sluicegate_core::Policy;
use sluicegate_tower::bandwidth::{Direction, PacedBody, UploadLayer};
use sluicegate_tower::limits::Limits;
use sluicegate_tower::settle::Settle;
use sluicegate_tower::{Limit, RateLimitLayer};
use tokio::time::{Duration, Instant};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

use crate::bandwidth::bytes;
use crate::support::{answer, by_header, limiter, paused_store};

type Upload = Full<Bytes>;

fn up(limiter: &sluicegate_core::RateLimiter) -> Limit {
    by_header(limiter.clone()).bandwidth(Direction::Up)
}

fn request(length: usize) -> Request<Upload> {
    Request::post("/").header("x-key", "ada").body(Full::from(bytes(length))).unwrap()
}

/// Answers with what was sent.
async fn echo<B>(request: Request<B>) -> Result<Response<Upload>, Infallible>
where
    B: http_body::Body<Data = Bytes, Error = Infallible>,
{
    Ok(Response::new(Full::new(request.into_body().collect().await?.to_bytes())))
}

/// A service that has read an upload once it answers.
fn receiving(
    layer: RateLimitLayer,
) -> impl Service<Request<Upload>, Response = Response<Upload>, Error = Infallible> + Clone {
    ServiceBuilder::new()
        .layer(UploadLayer::new(&layer.limits_handle()))
        .layer(layer)
        .service_fn(echo::<PacedBody<Upload>>)
}

#[tokio::test(start_paused = true)]
async fn an_upload_comes_whole_at_the_pace_of_its_quota() {
    let limiter = limiter(Policy::gcra("uploads", "10kB/s burst 10kB"));
    let begin = Instant::now();
    let service = receiving(RateLimitLayer::new(up(&limiter)));
    let response = service.oneshot(request(100_000)).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), bytes(100_000));
    assert_eq!(begin.elapsed().as_secs(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_for_both_directions_is_spent_by_both() {
    let limiter = limiter(Policy::gcra("both", "10kB/s"));
    let layer = RateLimitLayer::new(by_header(limiter.clone()).bandwidth(Direction::Both));
    assert!(layer.reads_bodies() && layer.holds_requests());
    let service = ServiceBuilder::new()
        .layer(UploadLayer::new(&layer.limits_handle()))
        .layer(layer.settling())
        .service_fn(echo::<PacedBody<Upload>>);
    let response = service.oneshot(request(3_000)).await.unwrap();
    assert_eq!(answer(limiter.peek("ada")).remaining(), 7_000);
    response.into_body().collect().await.unwrap();
    assert_eq!(answer(limiter.peek("ada")).remaining(), 4_000);
}

#[tokio::test(start_paused = true)]
async fn limits_of_layers_around_each_other_hold_an_upload_each() {
    for (outer, inner) in [("10kB/s burst 1kB", "30kB/s burst 3kB"), ("30kB/s burst 3kB", "10kB/s burst 1kB")]
    {
        let store = paused_store();
        let [outer, inner] = [("outer", outer), ("inner", inner)]
            .map(|(name, quota)| Policy::gcra(name, quota).on(&store).unwrap());
        let service = RateLimitLayer::new(up(&inner)).layer(tower::service_fn(echo::<PacedBody<Upload>>));
        let layer = RateLimitLayer::new(up(&outer));
        let uploads = UploadLayer::new(&layer.limits_handle());
        let begin = Instant::now();
        let response = uploads.layer(layer.layer(service)).oneshot(request(100_000)).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), bytes(100_000));
        assert_eq!(begin.elapsed().as_secs(), 9);
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_layer_for_uploads_nothing_is_held() {
    let limiter = limiter(Policy::gcra("uploads", "10kB/s"));
    let layer = RateLimitLayer::new(up(&limiter));
    let begin = Instant::now();
    layer.layer(tower::service_fn(echo::<Upload>)).oneshot(request(100_000)).await.unwrap();
    assert_eq!((begin.elapsed(), answer(limiter.peek("ada")).remaining()), (Duration::ZERO, 10_000));
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_a_swap_brings_holds_uploads_from_then_on() {
    let store = paused_store();
    let requests = Policy::gcra("requests", "100/s").on(&store).unwrap();
    let uploads = Policy::gcra("uploads", "10kB/s burst 10kB").on(&store).unwrap();
    let layer = RateLimitLayer::new(by_header(requests.clone()));
    let (handle, service) = (layer.limits_handle(), receiving(layer));
    let begin = Instant::now();
    service.clone().oneshot(request(100_000)).await.unwrap();
    assert_eq!(begin.elapsed(), Duration::ZERO);
    handle.swap(Limits::builder(by_header(requests)).and(up(&uploads)).build().unwrap());
    service.oneshot(request(100_000)).await.unwrap();
    assert_eq!(begin.elapsed().as_secs(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_refused_upload_is_not_read() {
    let store = paused_store();
    let requests = by_header(Policy::gcra("requests", "1/h").on(&store).unwrap());
    let uploads = Policy::gcra("uploads", "10kB/s").on(&store).unwrap();
    let layer = RateLimitLayer::builder(requests).and(up(&uploads)).build().unwrap();
    let service = receiving(layer);
    for (status, left) in [(200, 9_000), (429, 9_000)] {
        let response = service.clone().oneshot(request(1_000)).await.unwrap();
        assert_eq!((response.status().as_u16(), answer(uploads.peek("ada")).remaining()), (status, left));
    }
}

#[tokio::test(start_paused = true)]
async fn what_settles_by_the_response_is_settled_beside_an_upload() {
    let store = paused_store();
    let bytes = Policy::fixed_window("bytes", "1MB/h").on(&store).unwrap();
    let uploads = Policy::gcra("uploads", "10kB/s").on(&store).unwrap();
    let settled = by_header(bytes.clone()).settle(Settle::bytes());
    let layer = RateLimitLayer::builder(settled).and(up(&uploads)).build().unwrap();
    let service = ServiceBuilder::new()
        .layer(UploadLayer::new(&layer.limits_handle()))
        .layer(layer.settling())
        .service_fn(echo::<PacedBody<Upload>>);
    service.oneshot(request(5_000)).await.unwrap().into_body().collect().await.unwrap();
    let left = [&bytes, &uploads].map(|limiter| answer(limiter.peek("ada")).remaining());
    assert_eq!(left, [995_000, 5_000]);
}
