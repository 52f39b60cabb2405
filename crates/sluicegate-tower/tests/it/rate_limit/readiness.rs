//! Tower's contract: only the value that was polled ready is called, and nothing of the inner service is hidden.

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};

use http::{Request, Response, StatusCode};
use sluicegate_core::{Key, Policy};
use sluicegate_tower::key::{Extraction, PeerAddr, RequestView, key_fn};
use sluicegate_tower::{KeyExtractor, Limit, RateLimitLayer};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};

use crate::support::{Body, Handler, by_header, from, on, send, store};

/// The key of the request, once the task has been polled again.
pub(crate) struct Slow;

impl KeyExtractor for Slow {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        let key = Key::from(request.headers["x-key"].as_bytes());
        Extraction::pending(async move {
            tokio::task::yield_now().await;
            Ok(key)
        })
    }
}

#[derive(Debug, PartialEq)]
struct Broken(u32);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken {}", self.0)
    }
}

impl std::error::Error for Broken {}

#[tokio::test]
async fn errors_of_the_inner_service_pass_unchanged_and_stay_spent() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "5/s"));
    let broken = service_fn(|_: Request<()>| ready(Err::<Response<Body>, _>(Broken(7))));
    let service = RateLimitLayer::new(by_header(limiter.clone())).layer(broken);
    assert_eq!(service.oneshot(from("ada")).await.unwrap_err(), Broken(7));
    assert_eq!(limiter.peek("ada").await.unwrap().remaining(), 4);
}

#[tokio::test]
async fn clones_of_service_and_layer_share_their_buckets() {
    let (store, _) = store();
    let layer = RateLimitLayer::new(by_header(on(&store, Policy::gcra("api", "3/s"))));
    let service = layer.layer(Handler::default());
    let (clone, sibling) = (service.clone(), layer.clone().layer(Handler::default()));
    for (index, service) in [&service, &clone, &sibling].into_iter().enumerate() {
        assert_eq!(
            send(service, from("ada")).await.headers()["x-ratelimit-remaining"],
            (2 - index).to_string()
        );
    }
    for service in [&service, &clone, &sibling] {
        assert_eq!(send(service, from("ada")).await.status(), StatusCode::TOO_MANY_REQUESTS);
    }
}

#[tokio::test]
async fn every_kind_of_limit_goes_into_one_service_builder_and_into_a_boxed_service() {
    fn assert_send_sync<T: Send + Sync>(_: &T) {}
    let (store, _) = store();
    let service = ServiceBuilder::new()
        .layer(RateLimitLayer::new(on(&store, Policy::gcra("peer", "9/s"))))
        .layer(RateLimitLayer::new(Limit::new(on(&store, Policy::gcra("all", "9/s"))).key(Key::from("all"))))
        .layer(RateLimitLayer::new(
            Limit::new(on(&store, Policy::gcra("path", "9/s")))
                .key(key_fn(|request| Some(request.uri.path().to_owned()))),
        ))
        .service(service_fn(|_: Request<()>| -> Ready<Result<_, Infallible>> {
            ready(Ok(Response::new(Body::from("ok"))))
        }));
    assert_send_sync(&service);
    let boxed = service.boxed_clone();
    let mut request = from("ada");
    request.extensions_mut().insert(PeerAddr("192.0.2.7:1".parse().unwrap()));
    assert_eq!(send(&boxed, request).await.status(), StatusCode::OK);
}
