//! Charging for what is known only while a request is served.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use sluicegate_core::clock::ManualClock;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::{MemoryStore, Policy, RateLimiter};
use sluicegate_tests::around::{self, Fault};
use sluicegate_tower::rate_limit::Decided;
use sluicegate_tower::{Meter, RateLimitLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{Body, answer, by_header, from, number, on, send, store};

pub(crate) type Serving = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// A handler that does something with the meter of its request.
pub(crate) fn metered<F>(
    use_it: impl Fn(Meter) -> F + Clone,
) -> impl Service<Request<()>, Response = Response<Body>, Error = Infallible, Future = Serving> + Clone
where
    F: Future<Output = ()> + Send + 'static,
{
    service_fn(move |request: Request<()>| {
        let meter = request.extensions().get::<Meter>().cloned();
        let used = use_it(meter.expect("every request has a meter"));
        Box::pin(async move {
            used.await;
            Ok(Response::new(Body::from("ok")))
        }) as Serving
    })
}

/// A hundred tokens a minute, of which a request reserves ten.
fn tokens() -> (RateLimiter, RateLimitLayer, ManualClock) {
    let (store, clock) = store();
    let limiter = on(&store, Policy::fixed_window("tokens", "100/min"));
    let limit = by_header(limiter.clone()).cost(10).unwrap();
    (limiter, RateLimitLayer::builder(limit).meter().build().unwrap(), clock)
}

pub(crate) fn left(limiter: &RateLimiter) -> u64 {
    answer(limiter.peek("ada")).remaining()
}

/// Each once looked and changed in two steps, so that several gave the same difference back.
#[tokio::test]
async fn of_those_that_settle_at_once_one_finds_the_difference() {
    for (estimate, actual) in [(10, 4), (10, 35)] {
        for _ in 0..200 {
            let (limiter, layer, _) = tokens();
            let service = layer.layer(metered(move |meter| async move {
                assert_eq!(meter.spent(), estimate);
                let barrier = std::sync::Barrier::new(8);
                std::thread::scope(|scope| {
                    for _ in 0..8 {
                        scope.spawn(|| {
                            barrier.wait();
                            drop(meter.settle(actual));
                        });
                    }
                });
                assert_eq!(meter.spent(), actual);
            }));
            send(&service, from("ada")).await;
            assert_eq!(left(&limiter), 100 - actual);
        }
    }
}

/// Each limit was once changed in a step of its own, so that two calls came in another order in each: once in some 2,500 requests.
#[tokio::test]
async fn of_those_that_settle_at_once_the_last_is_the_same_for_all_limits() {
    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let (store, _) = store();
    let limiters = NAMES.map(|name| on(&store, Policy::fixed_window(name, "1000/min")));
    let [first, others @ ..] = limiters.clone().map(by_header);
    let layer = others.into_iter().fold(RateLimitLayer::builder(first), |layer, limit| layer.and(limit));
    let service = layer.meter().build().unwrap().layer(metered(|meter| async move {
        // Two that sleep until the other one has come would not wake at once.
        let (arrived, meter) = (&AtomicUsize::new(0), &meter);
        let meet = || {
            let both = arrived.fetch_add(1, Ordering::AcqRel) / 2 * 2 + 2;
            while arrived.load(Ordering::Acquire) < both {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            for actual in [4, 35] {
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        meet();
                        drop(meter.settle(actual));
                        meet();
                        let spent = NAMES.map(|name| meter.of(name).spent());
                        assert_eq!(spent, [spent[0]; 8]);
                    }
                });
            }
        });
    }));
    send(&service, from("ada")).await;
    assert_eq!(limiters.each_ref().map(left), [left(&limiters[0]); 8]);
}

#[tokio::test]
async fn an_estimate_is_settled_with_what_it_really_was() {
    for (actual, expected) in [(35, 65), (10, 90), (4, 96), (0, 100)] {
        let (limiter, layer, _) = tokens();
        let service = layer.layer(metered(move |meter| async move {
            assert_eq!(meter.spent(), 10);
            let standing = meter.settle(actual).await.unwrap();
            let policy = standing.decided().and_then(Decided::policy).map(Policy::name);
            assert_eq!((standing.remaining(), policy), (Some(expected), Some("tokens")));
            assert_eq!(meter.spent(), actual);
            // Once more changes nothing.
            let _ = meter.settle(actual).await.unwrap();
        }));
        send(&service, from("ada")).await;
        assert_eq!(left(&limiter), expected);
    }
}

#[tokio::test]
async fn charges_and_refunds_add_up_and_no_more_comes_back_than_was_spent() {
    let (limiter, layer, _) = tokens();
    let service = layer.layer(metered(|meter| async move {
        let _ = meter.charge(20).await.unwrap();
        let _ = meter.clone().refund(5).await.unwrap();
        assert_eq!(meter.spent(), 25);
        let _ = meter.refund(1_000).await.unwrap();
        assert_eq!(meter.spent(), 0);
        let _ = meter.refund(1_000).await.unwrap();
    }));
    let _ = limiter.charge("ada", 50).await.unwrap();
    send(&service, from("ada")).await;
    assert_eq!(left(&limiter), 50);
}

#[tokio::test]
async fn what_does_not_fit_is_a_debt_that_later_requests_wait_for() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("tokens", "100/min"));
    let layer = RateLimitLayer::builder(by_header(limiter)).meter().build().unwrap();
    let service = layer.layer(metered(|meter| async move { drop(meter.charge(159).await.unwrap()) }));
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    let refused = send(&service, from("ada")).await;
    assert_eq!(
        (refused.status(), number(&refused, "retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, Some(37))
    );
}

#[tokio::test]
async fn a_meter_outlives_its_handler() {
    let (limiter, layer, _) = tokens();
    let task: Arc<Mutex<Option<tokio::task::JoinHandle<()>>>> = Arc::default();
    let tasks = Arc::clone(&task);
    let service = layer.layer(metered(move |meter| {
        let streams = async move {
            tokio::task::yield_now().await;
            for _ in 0..3 {
                let _ = meter.charge(5).await.unwrap();
            }
        };
        *tasks.lock().unwrap() = Some(tokio::spawn(streams));
        async {}
    }));
    send(&service, from("ada")).await;
    assert_eq!(left(&limiter), 90);
    let task = task.lock().unwrap().take();
    task.unwrap().await.unwrap();
    assert_eq!(left(&limiter), 75);
}

#[tokio::test]
async fn units_of_a_window_that_has_ended_are_history() {
    let (limiter, layer, clock) = tokens();
    let meters: Arc<Mutex<Vec<Meter>>> = Arc::default();
    let kept = Arc::clone(&meters);
    let service = layer.layer(metered(move |meter| {
        kept.lock().unwrap().push(meter);
        async {}
    }));
    send(&service, from("ada")).await;
    clock.advance(Duration::from_secs(60));
    let _ = limiter.charge("ada", 50).await.unwrap();
    let meter = meters.lock().unwrap().remove(0);
    let _ = meter.settle(0).await.unwrap();
    assert_eq!(left(&limiter), 50);
}

#[tokio::test]
async fn what_a_response_gives_back_is_what_was_settled() {
    let (store, _) = store();
    let limiter = on(&store, Policy::fixed_window("tokens", "100/min"));
    let _ = limiter.charge("ada", 20).await.unwrap();
    let limit = by_header(limiter.clone()).cost(10).unwrap().refund_if(|head| head.status.is_success());
    let layer = RateLimitLayer::builder(limit).meter().build().unwrap();
    let service = layer.layer(metered(|meter| async move { drop(meter.settle(35).await.unwrap()) }));
    let response = send(&service, from("ada")).await;
    assert_eq!((number(&response, "x-ratelimit-remaining"), left(&limiter)), (Some(80), 80));
}

/// The receipts of all charges once went into one call, which has room for 16, so that nothing came back.
#[tokio::test]
async fn what_many_charges_have_spent_comes_back_at_once() {
    for charges in [14, 15, 16, 100] {
        let (memory, _) = store();
        let limiter = on(&memory, Policy::fixed_window("tokens", "1000/min"));
        let limit = by_header(limiter.clone()).cost(10).unwrap().refund_if(|head| head.status.is_success());
        let layer = RateLimitLayer::builder(limit).meter().build().unwrap();
        let service = layer.layer(metered(move |meter| async move {
            for _ in 0..charges {
                let _ = meter.charge(2).await.unwrap();
            }
            let standing = meter.refund(charges * 2 - 1).await.unwrap();
            assert_eq!(standing.remaining(), Some(1_000 - 10 - 1));
            for _ in 0..charges {
                let _ = meter.charge(2).await.unwrap();
            }
        }));
        let response = send(&service, from("ada")).await;
        assert_eq!((number(&response, "x-ratelimit-remaining"), left(&limiter)), (Some(1_000), 1_000));
    }
}

/// The receipt of such a charge was once lost with the answer, so that only the first spend came back.
#[tokio::test]
async fn a_charge_that_is_answered_late_and_not_waited_for_comes_back_as_well() {
    let (memory, _) = store();
    let limiter = Policy::fixed_window("tokens", "100/min").on(around::late(&memory)).unwrap();
    let limit = by_header(limiter.clone()).cost(10).unwrap().refund_if(|head| head.status.is_success());
    let layer = RateLimitLayer::builder(limit).meter().build().unwrap();
    for yields in [0, 4] {
        let service = layer.layer(metered(move |meter| async move {
            drop(meter.charge(30));
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
        }));
        service.clone().oneshot(from("ada")).await.unwrap();
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        assert_eq!(limiter.peek("ada").await.unwrap().remaining(), 100, "{yields}");
    }
}

#[tokio::test]
async fn a_charge_that_failed_may_be_repeated_and_a_refund_is_not() {
    let (memory, _): (MemoryStore, _) = store();
    let fault = Fault::default();
    let limiter = Policy::fixed_window("tokens", "100/min").on(around::remote(&memory, &fault)).unwrap();
    let layer =
        RateLimitLayer::builder(by_header(limiter.clone()).cost(10).unwrap()).meter().build().unwrap();
    let service = layer.layer(metered(move |meter| {
        let fault = fault.clone();
        async move {
            fault.set(Some(StoreErrorKind::Unavailable));
            assert!(meter.settle(30).await.is_err());
            assert_eq!(meter.spent(), 10, "as before, so that it may be repeated");
            assert!(meter.refund(4).await.is_err());
            assert_eq!(meter.spent(), 6, "it may have been given back");
            fault.set(None);
            let _ = meter.settle(30).await.unwrap();
        }
    }));
    service.clone().oneshot(from("ada")).await.unwrap();
    // The store of this test decides and then loses its answer: both charges and the refund have counted.
    assert_eq!(limiter.peek("ada").await.unwrap().remaining(), 100 - 10 - 20 + 4 - 24);
}

#[tokio::test]
async fn what_a_charge_leaves_says_whether_to_go_on() {
    let (_, layer, _) = tokens();
    let service = layer.layer(metered(|meter| async move {
        // The request has spent 10 of 100.
        for (units, left) in [(89, 1), (1, 0), (5, 0)] {
            let standing = meter.charge(units).await.unwrap();
            assert_eq!((standing.remaining(), standing.is_used_up()), (Some(left), left == 0));
        }
        let nothing = meter.of("none").charge(1).await.unwrap();
        assert!(nothing.remaining().is_none() && !nothing.is_used_up());
    }));
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
}
