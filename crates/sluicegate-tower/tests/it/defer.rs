//! Requests above a limit whose bodies are read, to be kept.

use std::convert::Infallible;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use sluicegate_core::{Key, Policy};
use sluicegate_tower::Limit;
use sluicegate_tower::defer::{BeforeFuture, Defer, DeferFuture, DeferLayer, DeferredTurn};
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::{Limits, LimitsHandle};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{Body, Live, on, store};

/// The most bodies that are read at once.
const AT_ONCE: usize = 1_000;

/// Keeps every request.
struct Keeps;

impl Defer for Keeps {
    fn before(&self, _: RequestView<'_>) -> Option<BeforeFuture> {
        None
    }

    fn longest_body(&self) -> usize {
        64 * 1024
    }

    fn defer(&self, request: Request<Bytes>, _: Vec<DeferredTurn>) -> DeferFuture {
        let kept = Response::builder().status(202).body(request.into_body()).unwrap();
        Box::pin(ready(Some(kept)))
    }
}

/// A body that does not end before the sender is dropped.
fn live() -> (mpsc::Sender<Bytes>, Request<Live>) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, Request::new(Live(receiver)))
}

/// A body that has ended.
fn ended() -> Request<Live> {
    live().1
}

/// A layer that lets one request pass.
fn layer() -> DeferLayer {
    let limiter = on(&store().0, Policy::gcra("orders", "1/h"));
    let limits = Limits::new(Limit::new(limiter).key(Key::from("all")));
    DeferLayer::new(LimitsHandle::new(limits), Arc::new(Keeps))
}

/// A service behind the layer, whose limit is exceeded.
async fn exceeded(
    layer: &DeferLayer,
) -> impl Service<Request<Live>, Response = Response<Body>, Error = Infallible> + Clone + use<> {
    let service =
        layer.layer(service_fn(async |_: Request<Live>| Ok::<_, Infallible>(Response::new(Full::default()))));
    _ = service.clone().oneshot(ended()).await;
    assert_eq!(service.clone().oneshot(ended()).await.unwrap().status(), 202);
    service
}

/// A client above its limit once kept any number of requests open by bodies that came slowly.
#[tokio::test(start_paused = true)]
async fn a_body_that_comes_too_slowly_gets_the_refusal_after_five_seconds() {
    let service = exceeded(&layer()).await;
    for trickles in [false, true] {
        let (began, (sender, request)) = (Instant::now(), live());
        let trickle = async {
            let mut second = interval(Duration::from_secs(1));
            for _ in 0..10 {
                second.tick().await;
                if trickles {
                    sender.send("x".into()).await.unwrap();
                }
            }
        };
        tokio::select! {
            response = service.clone().oneshot(request) => assert_eq!(response.unwrap().status(), 429),
            () = trickle => panic!("it is still being read"),
        }
        assert_eq!(began.elapsed().as_secs(), 5, "trickles: {trickles}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_bodies_are_read_at_once_in_all_services_and_the_next_request_gets_the_refusal() {
    let layer = layer();
    let (one, other) = (exceeded(&layer).await, exceeded(&layer).await);
    let mut cx = Context::from_waker(Waker::noop());
    let mut open: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (sender, request) = live();
            let mut reading = Box::pin(one.clone().oneshot(request));
            assert!(reading.as_mut().poll(&mut cx).is_pending());
            (sender, reading)
        })
        .collect();
    for service in [&one, &one.clone()] {
        assert_eq!(service.clone().oneshot(ended()).await.unwrap().status(), 429);
    }
    assert_eq!(other.clone().oneshot(ended()).await.unwrap().status(), 429, "another service of the layer");
    drop(open.pop());
    let kept = pin!(other.clone().oneshot(ended())).await.unwrap();
    assert_eq!(kept.status(), 202, "a request that was dropped has left its place");
    for (sender, reading) in open {
        drop(sender);
        assert_eq!(reading.await.unwrap().status(), 202);
    }
}
