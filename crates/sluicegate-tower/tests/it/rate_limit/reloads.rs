//! A policy that is replaced while layers decide by it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use sluicegate_core::algorithm::{Anchor, Refill};
use sluicegate_core::limiter::Inherit;
use sluicegate_core::{Algorithm, Policy, RateLimiter};
use sluicegate_tower::{Meter, RateLimitLayer};
use tower::{Layer, Service};

use crate::rate_limit::meter::{left, metered};
use crate::support::{Body, by_header, from, on, send, store};

const WINDOWS_AND_BUCKETS: [Algorithm; 5] = [
    Algorithm::Gcra,
    Algorithm::FixedWindow(Anchor::Epoch),
    Algorithm::SlidingCounter,
    Algorithm::SlidingLog,
    Algorithm::TokenBucket(Refill::Interval),
];

/// The meters of the requests that a service was asked.
pub(crate) type Meters = Arc<Mutex<Vec<Meter>>>;

/// A layer whose requests reserve units at this cost, and a handler that keeps their meters.
pub(crate) fn keeping_meters(
    limiter: &RateLimiter,
    cost: u64,
) -> (impl Service<Request<()>, Response = Response<Body>, Error = Infallible> + Clone + use<>, Meters) {
    let meters = Meters::default();
    let kept = Arc::clone(&meters);
    let limit = by_header(limiter.clone()).cost(cost).unwrap();
    let layer = RateLimitLayer::builder(limit).meter().build().unwrap();
    let service = layer.layer(metered(move |meter| {
        kept.lock().unwrap().push(meter);
        async {}
    }));
    (service, meters)
}

#[tokio::test]
async fn what_is_given_back_after_a_reload_comes_back_at_most_once() {
    for algorithm in WINDOWS_AND_BUCKETS {
        for (new, limit) in [("100/min", 100), ("40/min", 40), ("300/min", 300), ("100/h", 100)] {
            let (store, clock) = store();
            let limiter = on(&store, Policy::builder("tokens", algorithm, "100/min"));
            let (service, meters) = keeping_meters(&limiter, 10);
            for _ in 0..3 {
                assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
            }
            let policy = Policy::builder("tokens", algorithm, new).build().unwrap();
            limiter.replace(policy, Inherit::Spent).unwrap();
            assert_eq!(left(&limiter), limit - 30, "{algorithm}, {new}");
            clock.advance(Duration::from_millis(1));
            let meters = meters.lock().unwrap().clone();
            let [first, second, third] = <[Meter; 3]>::try_from(meters).unwrap();
            for _ in 0..2 {
                let _ = first.settle(0).await.unwrap();
                let _ = second.settle(4).await.unwrap();
            }
            let after = left(&limiter);
            assert!((limit - 30..=limit - 14).contains(&after), "{algorithm}, {new}: {after}");
            let _ = third.charge(5).await.unwrap();
            let _ = third.settle(0).await.unwrap();
            let after = left(&limiter);
            assert!((limit - 30..=limit - 4).contains(&after), "{algorithm}, {new}: {after}");
            if new == "100/min" {
                // All of it, but for what may have drained in the millisecond.
                assert!(after >= 95, "{algorithm}: the identical policy gives back {after}");
            }
        }
    }
}
