//! What a layer does not use costs it nothing.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use sluicegate_core::{MemoryStore, Policy};
use sluicegate_tests::process::alone;
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::key::PeerAddr;
use sluicegate_tower::respond::HeaderFields;
use stats_alloc::Region;
use tower::{Layer, Service, service_fn};

type Served = Ready<Result<Response<Full<Bytes>>, Infallible>>;

#[test]
fn a_fixed_cost_by_peer_address_without_fields_allocates_nothing() {
    alone(|| {
        let layer = layer();
        let counted = allocations(layer.clone().layer(service_fn(serve)));
        // The first request may find something that is made once per thread.
        assert!(counted[1..].iter().all(|&allocations| allocations == 0), "{counted:?}");
        let counted = allocations(layer.settling().layer(service_fn(serve)));
        assert!(
            counted[1..].iter().all(|&allocations| allocations == 0),
            "{counted:?}, where nothing is settled"
        );
    });
}

fn serve(_: Request<()>) -> Served {
    ready(Ok(Response::new(Full::new(Bytes::from_static(b"ok")))))
}

fn layer() -> RateLimitLayer {
    let limiter = Policy::gcra("api", "1000/s").on(MemoryStore::new()).unwrap();
    RateLimitLayer::builder(limiter).headers(HeaderFields::None).without_extensions().build().unwrap()
}

/// The number of allocations of each of a hundred and one requests.
fn allocations<S, B>(mut service: S) -> Vec<usize>
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let request = || {
        let mut request = Request::new(());
        request.extensions_mut().insert(PeerAddr(SocketAddr::from(([192, 0, 2, 7], 1))));
        request
    };
    let requests: Vec<_> = (0..101).map(|_| request()).collect();
    let mut responses = Vec::with_capacity(requests.len());
    let mut counted = Vec::with_capacity(requests.len());
    for request in requests {
        let region = Region::new(crate::ALLOCATOR);
        {
            let mut response = pin!(service.call(request));
            let Poll::Ready(response) = response.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            else {
                panic!("memory answers at once")
            };
            responses.push(response.unwrap());
        }
        counted.push(region.change().allocations);
    }
    assert!(responses.iter().all(|response| response.status() == 200));
    counted
}
