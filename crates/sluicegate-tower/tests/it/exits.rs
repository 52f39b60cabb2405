//! Whatever way a request leaves a stack of layers, it holds nothing afterwards, and has spent what it has cost.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use sluicegate_core::limiter::Inherit;
use sluicegate_core::{Policy, RateLimiter};
use sluicegate_in_flight::{AdaptiveBuilder, Class, InFlight};
use sluicegate_tests::around;
use sluicegate_tests::frames::{Frames, data, next};
use sluicegate_tests::random::Random;
use sluicegate_tower::bandwidth::Direction;
use sluicegate_tower::in_flight::{InFlightHandle, InFlightLayer, InFlightLimit};
use sluicegate_tower::key::HeaderKey;
use sluicegate_tower::limits::Limits;
use sluicegate_tower::settle::Settle;
use sluicegate_tower::{Meter, RateLimitLayer};
use tokio::time::Instant;
use tower::{ServiceBuilder, ServiceExt};

use crate::support::{Paused, by_header, paused_store};

/// What a service does with a request.
#[derive(Clone, Copy)]
struct Script {
    takes_ms: u64,
    charges: u64,
    end: End,
    frames: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    Answer,
    Fault,
    Error,
    Panic,
}

/// The charge of a request that the service has begun, with the reservation.
#[derive(Clone, Default)]
struct Begun(Arc<AtomicU64>);

const RESERVED: u64 = 10;

async fn serve(request: Request<()>) -> Result<Response<Frames>, &'static str> {
    let extensions = request.extensions();
    let script = *extensions.get::<Script>().unwrap();
    extensions.get::<Begun>().unwrap().0.store(RESERVED + script.charges, Ordering::Relaxed);
    let meter = extensions.get::<Meter>().cloned().unwrap();
    let charge = meter.charge(script.charges);
    if script.frames.is_multiple_of(2) {
        let _ = charge.await.unwrap();
    } else {
        drop(charge);
    }
    tokio::time::sleep(Duration::from_millis(script.takes_ms)).await;
    let mut response = Response::new(Frames::new((0..script.frames).map(|_| data("frame"))));
    match script.end {
        End::Answer => {}
        End::Fault => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
        End::Error => return Err("it failed"),
        End::Panic => std::panic::resume_unwind(Box::new("it panicked")),
    }
    Ok(response)
}

fn adaptive(at_most: u64) -> AdaptiveBuilder {
    let builder = InFlight::adaptive("service").at_least(1).at_most(at_most).first(3);
    builder.fair().queue(6).wait_up_to(Duration::from_millis(320)).clock(Paused::now())
}

#[tokio::test(start_paused = true)]
async fn no_exit_leaves_anything_behind() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let memory = paused_store();
        let store = || if seed.is_multiple_of(2) { (&memory).into() } else { around::late(&memory) };
        let (near, far) = (store(), store());
        let turns =
            Policy::gcra("turns", "20/s burst 2").wait_up_to(Duration::from_millis(400)).on(near).unwrap();
        let tokens = Policy::fixed_window("tokens", "1000000/h").on(Arc::clone(&far)).unwrap();
        let tried = Policy::fixed_window("tried", "1000000/h").shadow().on(Arc::clone(&far)).unwrap();
        let bytes = Policy::gcra("bytes", "200/s burst 8").on(far).unwrap();
        let limits = || {
            let settled = |limiter: &RateLimiter| {
                let limit = by_header(limiter.clone()).cost(RESERVED).unwrap().settle(Settle::bytes());
                limit.refund_if(|head| head.status.is_server_error())
            };
            let held = by_header(bytes.clone()).bandwidth(Direction::Down);
            Limits::builder(settled(&tokens)).and(settled(&tried)).and(held).meter().build().unwrap()
        };
        let (each, service) =
            (InFlight::builder("each", 2).queue(3).build().unwrap(), adaptive(6).build().unwrap());
        let key = || HeaderKey::new("x-key").unwrap();
        let permits = || {
            let each = InFlightLimit::new(each.clone()).key(key()).wait_up_to(Duration::from_millis(200));
            let service = InFlightLimit::new(service.clone()).key(key());
            [
                each,
                service
                    .class(|request| if request.path() == "/" { Class::Critical } else { Class::Sheddable }),
            ]
        };
        let inner = RateLimitLayer::from(limits());
        let (handle, in_flight) = (inner.limits_handle(), InFlightHandle::new(permits()));
        let outer = RateLimitLayer::new(by_header(turns.clone()));
        let stack = ServiceBuilder::new()
            .layer(outer.clone())
            .layer(InFlightLayer::from(in_flight.clone()))
            .layer(inner.settling())
            .service_fn(serve);
        let (begin, mut tasks) = (Instant::now(), Vec::new());
        for place in 0..40 {
            tokio::time::sleep(Duration::from_millis(2 * random.below(20))).await;
            match random.below(8) {
                0 => drop(handle.swap(limits())),
                1 => in_flight.swap(permits()),
                2 => each.set_permits(1 + random.below(4)).unwrap(),
                3 => service.set_adaptive(&adaptive(1 + random.below(6))).unwrap(),
                4 => tokens.replace(Policy::clone(&tokens.own_policy()), Inherit::Spent).unwrap(),
                _ => {}
            }
            let script = Script {
                takes_ms: 2 * random.below(60),
                charges: 1 + random.below(5),
                end: [End::Answer, End::Answer, End::Fault, End::Error, End::Panic][random.index(5)],
                frames: random.below(4),
            };
            let begun = Begun::default();
            let path = ["/", "/later"][random.index(2)];
            let request = Request::get(path).header("x-key", ["ada", "bob", "eve"][random.index(3)]);
            let request = request.extension(script).extension(begun.clone()).body(()).unwrap();
            // No other wait ends at this moment: a request that is dropped before the store has answered may have spent or not.
            let latest = u64::try_from(begin.elapsed().as_millis()).unwrap().next_multiple_of(80);
            let latest = begin + Duration::from_millis(latest + 80 * random.below(8) + 2 * place + 1);
            let reads = random.below(6);
            let call = stack.clone().oneshot(request);
            tasks.push(tokio::spawn(async move {
                let answer = tokio::time::timeout_at(latest, AssertUnwindSafe(call).catch_unwind()).await;
                let spent = begun.0.load(Ordering::Relaxed);
                let Ok(Ok(Ok(response))) = answer else { return spent };
                if spent == 0 {
                    return 0;
                }
                let is_fault = response.status().is_server_error();
                let mut body = response.into_body();
                for _ in 0..reads {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    if next(&mut body).await.is_none() {
                        return if is_fault { 0 } else { 5 * script.frames };
                    }
                }
                if is_fault { 0 } else { spent }
            }));
        }
        let mut expected = 0;
        for task in tasks {
            expected += task.await.unwrap();
        }
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert_eq!((each.in_use_in_all(), each.keys(), service.in_use_in_all()), (0, 0, 0), "{seed}");
        let status = service.status().unwrap();
        assert_eq!(
            (status.waiting, status.in_flight, outer.waiting(), turns.waiting()),
            ([0; 4], 0, 0, 0),
            "{seed}"
        );
        for limiter in [&tokens, &tried] {
            let mut used = 0;
            for key in ["ada", "bob", "eve"] {
                used += 1_000_000 - limiter.peek(key).await.unwrap().remaining();
            }
            // On a store that answers late, some are dropped before its answer at the moment at which they get a permit.
            let of_dropped = if seed.is_multiple_of(2) { 0 } else { (used - expected) / RESERVED };
            assert_eq!(used, expected + RESERVED * of_dropped, "{seed} {}", limiter.policy().name());
        }
    }
}
