//! Limits that are swapped while a layer serves: a request keeps those that it began with.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use sluicegate_core::limiter::Inherit;
use sluicegate_core::{Policy, RateLimiter};
use sluicegate_tower::key::{Extraction, extract_fn};
use sluicegate_tower::limits::{Limits, ShadowCount};
use sluicegate_tower::respond::HeaderFields;
use sluicegate_tower::{Limit, Meter, RateLimitLayer};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tower::{Layer, Service, service_fn};

use crate::support::{
    Body, Handler, all_fields, answer, by_header, described, from, number, on, paused_store, send, store,
};

fn one(limiter: &RateLimiter) -> Limits {
    Limits::builder(by_header(limiter.clone())).headers(HeaderFields::All).build().unwrap()
}

fn names(response: &Response<Body>) -> Vec<String> {
    described(response, "ratelimit").unwrap_or_default().into_iter().map(|(name, _)| name).collect()
}

#[tokio::test]
async fn requests_that_begin_after_a_swap_meet_the_new_limits_all_at_once() {
    let (store, _) = store();
    let limiter = |name: &str| on(&store, Policy::gcra(name, "10/min"));
    let (old, first, second) = (limiter("old"), limiter("first"), limiter("second"));
    let layer = RateLimitLayer::from(one(&old));
    let service = layer.layer(Handler::default());
    assert_eq!(names(&send(&service, from("ada")).await), ["old"]);
    let both = Limits::builder(by_header(first)).and(by_header(second)).headers(HeaderFields::Ietf);
    layer.limits_handle().swap(both.build().unwrap());
    let after = send(&service, from("ada")).await;
    assert_eq!(names(&after), ["first", "second"]);
    assert_eq!(number(&after, "x-ratelimit-limit"), None, "the settings are those of the new limits");
    assert_eq!(answer(old.peek("ada")).remaining(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_has_its_turn_by_the_limits_that_it_began_with() {
    let store = paused_store();
    let waits = on(&store, Policy::gcra("waits", "1/s").wait_up_to(Duration::from_secs(60)));
    let strict = on(&store, Policy::gcra("strict", "1/h"));
    let layer = RateLimitLayer::from(one(&waits));
    let service = layer.layer(Handler::default());
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    let start = Instant::now();
    let mut waiting = service.clone();
    let mut waiting = pin!(waiting.call(from("ada")));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());

    let handle = layer.limits_handle();
    handle.swap(
        Limits::builder(by_header(strict.clone()))
            .longest_queue(1)
            .headers(HeaderFields::All)
            .build()
            .unwrap(),
    );
    assert_eq!(layer.waiting(), 1, "who waited still counts");
    assert_eq!(send(&service, from("bob")).await.status(), StatusCode::OK);
    let served = waiting.await.unwrap();
    assert_eq!((served.status(), start.elapsed()), (StatusCode::OK, Duration::from_secs(1)));
    assert_eq!(names(&served), ["waits"]);
    assert_eq!(answer(strict.peek("ada")).remaining(), 1, "the new limits know nothing of it");
    assert_eq!(layer.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_was_full_is_full_after_the_swap() {
    let store = paused_store();
    let waits = on(&store, Policy::gcra("waits", "1/s").wait_up_to(Duration::from_secs(60)));
    let limits = || Limits::builder(by_header(waits.clone())).longest_queue(1).build().unwrap();
    let layer = RateLimitLayer::from(limits());
    let service = layer.layer(Handler::default());
    send(&service, from("ada")).await;
    let waiting = service.clone().call(from("ada"));
    layer.limits_handle().swap(limits());
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(waiting);
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_body_that_is_streamed_during_a_swap_is_metered_and_refunded_by_its_own_limits() {
    let (store, _) = store();
    let (tokens, other) =
        (on(&store, Policy::gcra("tokens", "100/min")), on(&store, Policy::gcra("other", "9/min")));
    let limit =
        by_header(tokens.clone()).cost(10).unwrap().refund_if(|head| head.status == StatusCode::CREATED);
    let layer = RateLimitLayer::from(Limits::builder(limit).meter().build().unwrap());
    let (send_meter, meter) = oneshot::channel();
    let (release, released) = oneshot::channel::<()>();
    let once = Arc::new(Mutex::new(Some((send_meter, released))));
    let mut service = layer.layer(service_fn(move |request: Request<()>| {
        let meter = request.extensions().get::<Meter>().cloned().unwrap();
        let (send_meter, released) = once.lock().unwrap().take().unwrap();
        drop(send_meter.send(meter));
        async move {
            released.await.unwrap();
            Ok::<_, Infallible>(
                Response::builder().status(StatusCode::CREATED).body(Body::default()).unwrap(),
            )
        }
    }));
    let response = tokio::spawn(service.call(from("ada")));
    let meter = meter.await.unwrap();
    layer.limits_handle().swap(one(&other));
    let _ = meter.settle(30).await.unwrap();
    assert_eq!(answer(tokens.peek("ada")).remaining(), 70);
    release.send(()).unwrap();
    let response = response.await.unwrap().unwrap();
    assert_eq!(
        number(&response, "x-ratelimit-remaining"),
        Some(100),
        "its own limit gives back, though it is gone"
    );
    let _ = meter.charge(7).await.unwrap();
    assert_eq!(answer(tokens.peek("ada")).remaining(), 93, "the body is still streamed");
    assert_eq!(answer(other.peek("ada")).remaining(), 9);
}

#[tokio::test]
async fn layers_of_one_handle_are_swapped_together_and_others_are_not() {
    let (store, _) = store();
    let (old, new) = (on(&store, Policy::gcra("old", "10/min")), on(&store, Policy::gcra("new", "10/min")));
    let limits = one(&old);
    let first = RateLimitLayer::from(limits.clone());
    let second = RateLimitLayer::from(first.limits_handle());
    let apart = RateLimitLayer::from(limits);
    let before = second.limits_handle().swap(one(&new));
    assert!(format!("{before:?}").contains("old"), "{before:?}");
    for (layer, name) in [(first, "new"), (second, "new"), (apart, "old")] {
        assert_eq!(names(&send(&layer.layer(Handler::default()), from("ada")).await), [name]);
    }
}

#[tokio::test]
async fn a_policy_that_stays_keeps_its_buckets_and_one_whose_quota_was_replaced_counts_what_was_spent() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "10/min"));
    let layer = RateLimitLayer::from(one(&limiter));
    let service = layer.layer(Handler::default());
    for _ in 0..4 {
        send(&service, from("ada")).await;
    }
    let handle = layer.limits_handle();
    handle.swap(one(&limiter));
    assert_eq!(number(&send(&service, from("ada")).await, "x-ratelimit-remaining"), Some(5));
    limiter.replace(Policy::gcra("api", "20/min").build().unwrap(), Inherit::Spent).unwrap();
    handle.swap(one(&limiter));
    assert_eq!(number(&send(&service, from("ada")).await, "x-ratelimit-remaining"), Some(14));
}

#[tokio::test]
async fn the_response_of_a_request_that_is_served_during_a_swap_shows_the_limits_that_it_met() {
    let (store, _) = store();
    let limiter = |name: &str| on(&store, Policy::gcra(name, "10/min"));
    let (old, new) = (limiter("old"), limiter("new"));
    let layer = RateLimitLayer::from(one(&old));
    let handle = layer.limits_handle();
    let service = layer.layer(service_fn(move |_: Request<()>| {
        handle.swap(one(&new));
        std::future::ready(Ok::<_, Infallible>(Response::new(Body::default())))
    }));
    assert_eq!(names(&send(&service, from("ada")).await), ["old"]);
    assert_eq!(names(&send(&service, from("ada")).await), ["new"]);
}

#[tokio::test]
async fn counts_of_policies_in_shadow_go_on_after_a_swap_and_after_their_limit_is_gone() {
    let (store, _) = store();
    let tried = on(&store, Policy::gcra("tried", "1/min").shadow());
    let api = on(&store, Policy::gcra("api", "10/min"));
    let both = || Limits::builder(by_header(api.clone())).and(by_header(tried.clone())).build().unwrap();
    let layer = RateLimitLayer::from(both());
    let (service, handle) = (layer.layer(Handler::default()), layer.limits_handle());
    let numbers = |counts: Vec<ShadowCount>| {
        counts.into_iter().map(|c| (c.policy, c.passed, c.refused)).collect::<Vec<_>>()
    };
    send(&service, from("ada")).await;
    handle.swap(both());
    send(&service, from("ada")).await;
    assert_eq!(numbers(layer.shadow_counts()), [("tried".to_owned(), 1, 1)]);
    handle.swap(one(&api));
    send(&service, from("ada")).await;
    assert_eq!(numbers(layer.shadow_counts()), [("tried".to_owned(), 1, 1)]);
}

#[tokio::test]
async fn a_key_that_is_looked_up_during_a_swap_is_asked_of_the_limits_that_wanted_it() {
    let (store, _) = store();
    let (old, new) = (on(&store, Policy::gcra("old", "10/min")), on(&store, Policy::gcra("new", "10/min")));
    let (found, key) = oneshot::channel::<&'static str>();
    let key = Mutex::new(Some(key));
    let later = extract_fn(move |_| {
        let key = key.lock().unwrap().take().unwrap();
        Extraction::pending(async move { Ok(key.await.unwrap().into()) })
    });
    let layer = all_fields(Limit::new(old.clone()).key(later)).build().unwrap();
    let mut service = layer.layer(Handler::default());
    let mut call = pin!(service.call(from("ada")));
    assert!(matches!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
    layer.limits_handle().swap(one(&new));
    found.send("ada").unwrap();
    assert_eq!(names(&call.await.unwrap()), ["old"]);
}
