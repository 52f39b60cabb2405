//! Clients that pipeline and leave: what they keep, as the docs of `longest_queue` say, and the remedy.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use sluicegate_core::Policy;
use sluicegate_in_flight::InFlight;
use sluicegate_tower::in_flight::InFlightLayer;
use sluicegate_tower::key::{HeaderKey, RequestView, key_fn};
use sluicegate_tower::{KeyExtractor, Limit, RateLimitLayer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tower::ServiceBuilder;

use crate::support::{Body, Protocol, limiter, serve};

const CONNECTIONS: u32 = 5;

fn hello(_: Request<Incoming>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(Response::new(Body::from(Bytes::from_static(b"ok")))))
}

/// Places that a client keeps which has sent two requests over each of its connections, and has left.
async fn places_kept_by_a_client_that_left(most_in_flight: u64) -> usize {
    let limiter = limiter(Policy::gcra("mail", "1/h").wait_up_to(Duration::from_secs(86_400)));
    assert!(limiter.check("ada").await.unwrap().is_allowed());
    let key = || HeaderKey::new("x-key").unwrap();
    let waits = RateLimitLayer::new(Limit::new(limiter).key(key()));
    let in_flight = InFlightLayer::new(InFlight::new("requests", most_in_flight).unwrap());
    // Says when each request has come.
    let come = Arc::new(Semaphore::new(0));
    let (counted, inside) = (Arc::clone(&come), key());
    let in_flight = in_flight.key(key_fn(move |request: RequestView<'_>| {
        counted.add_permits(1);
        inside.extract(request).now().ok()?.ok()
    }));
    let service = ServiceBuilder::new().layer(in_flight).layer(waits.clone()).service_fn(hello);
    let address = serve(Protocol::Http1, service).await;
    let request = |key: &str| format!("GET / HTTP/1.1\r\nhost: a\r\nx-key: {key}\r\n\r\n");
    for _ in 0..CONNECTIONS {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(request("ada").repeat(2).as_bytes()).await.unwrap();
    }
    come.acquire_many(CONNECTIONS).await.unwrap().forget();
    // Another client is served meanwhile, and by then the server has had its chance to notice.
    for _ in 0..3 {
        let mut other = TcpStream::connect(address).await.unwrap();
        let key = format!("{:?}", other.local_addr().unwrap());
        other.write_all(request(&key).as_bytes()).await.unwrap();
        let mut head = [0; 15];
        other.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 OK");
    }
    waits.waiting()
}

#[tokio::test]
async fn of_a_client_that_pipelines_and_leaves_no_more_requests_wait_than_it_may_have_in_flight() {
    assert_eq!(places_kept_by_a_client_that_left(100).await, 5, "hyper notices now: say so in the docs");
    assert_eq!(places_kept_by_a_client_that_left(2).await, 2);
}
