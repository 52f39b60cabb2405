//! How many requests may wait at once.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use sluicegate_core::store::Mode;
use sluicegate_core::{Policy, RateLimiter};
use sluicegate_tests::around::around;
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::rate_limit::Decided;
use sluicegate_tower::rate_limit::RateLimit;
use sluicegate_tower::respond::{Refusal, RefusalReason};
use tokio::task::{JoinSet, yield_now};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt};

use crate::support::{
    Body, Handler, answer, by_header, fields, from, layer, number, on, paused_store, problem, send,
};

/// One a second for each key, with a wait of up to a minute, and a queue of this length.
fn one_a_second(longest: usize) -> (RateLimiter, RateLimitLayer, RateLimit<Handler>) {
    let limiter = on(&paused_store(), Policy::gcra("mail", "1/s").wait_up_to(Duration::from_secs(60)));
    let builder = RateLimitLayer::builder(by_header(limiter.clone()));
    let layer = builder.longest_queue(longest).build().unwrap();
    let service = layer.layer(Handler::default());
    (limiter, layer, service)
}

fn call(service: &RateLimit<Handler>, key: &'static str) -> impl Future {
    service.clone().call(from(key))
}

#[tokio::test(start_paused = true)]
async fn when_the_queue_is_full_the_answer_is_a_503_at_once_that_names_the_wait() {
    let (_, layer, service) = one_a_second(3);
    let start = Instant::now();
    let _waiting =
        [call(&service, "ada"), call(&service, "ada"), call(&service, "ada"), call(&service, "ada")];
    assert_eq!(layer.waiting(), 3, "the first went at once");
    let refused = send(&service, from("ada")).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    // The turn that it would have had came in four seconds.
    assert_eq!(fields(&refused), ["cache-control: no-store", "retry-after: 4"]);
    assert!(refused.extensions().get::<Decided>().is_none());
    assert_eq!(
        problem(refused).await,
        json!({
            "type": "about:blank",
            "title": "Service Unavailable",
            "status": 503,
            "detail": "too many requests are waiting for their turn",
        })
    );
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_counted_over_all_keys_and_services_of_a_layer() {
    let (_, layer, service) = one_a_second(2);
    let other = layer.clone().layer(Handler::default());
    let _waiting = [call(&service, "ada"), call(&service, "ada"), call(&other, "bob"), call(&other, "bob")];
    for service in [&service, &other] {
        assert_eq!(send(service, from("ada")).await.status(), StatusCode::SERVICE_UNAVAILABLE);
        // Who does not have to wait needs no place.
        let name = if std::ptr::eq(service, &other) { "dan" } else { "eve" };
        assert_eq!(send(service, from(name)).await.status(), StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_for_which_there_was_no_place_is_given_back() {
    let (limiter, _, service) = one_a_second(1);
    let start = Instant::now();
    let _at_once = call(&service, "ada");
    let waiting = tokio::spawn(service.clone().oneshot(from("ada")));
    yield_now().await;
    for _ in 0..50 {
        assert_eq!(send(&service, from("ada")).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    waiting.await.unwrap().unwrap();
    assert_eq!(start.elapsed().as_secs(), 1);
    assert_eq!(answer(limiter.peek("ada")).retry_after(), Some(Duration::from_secs(1)));
    send(&service, from("ada")).await;
    assert_eq!(start.elapsed().as_secs(), 2, "the fifty took no turn");
}

#[tokio::test(start_paused = true)]
async fn places_are_free_again_when_turns_come_and_when_clients_hang_up() {
    let (_, layer, service) = one_a_second(2);
    let _at_once = call(&service, "ada");
    let hangs_up = call(&service, "ada");
    let stays = tokio::spawn(service.clone().oneshot(from("ada")));
    yield_now().await;
    assert_eq!(layer.waiting(), 2);
    drop(hangs_up);
    assert_eq!(layer.waiting(), 1);
    stays.await.unwrap().unwrap();
    assert_eq!(layer.waiting(), 0);
    let start = Instant::now();
    send(&service, from("ada")).await;
    assert_eq!(start.elapsed().as_secs(), 1, "the turn of the one that hung up went to the next");
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_too_long_is_over_its_quota_whether_the_queue_is_full_or_not() {
    let (_, _, service) = one_a_second(60);
    let waiting: Vec<_> = (0..61).map(|_| call(&service, "ada")).collect();
    let refused = send(&service, from("ada")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(waiting);
}

#[tokio::test(start_paused = true)]
async fn layers_around_a_full_queue_give_back_what_they_spent() {
    let store = paused_store();
    let limiter = on(&store, Policy::gcra("mail", "1/s").wait_up_to(Duration::from_secs(60)));
    let inner = RateLimitLayer::builder(by_header(limiter)).longest_queue(0).build().unwrap();
    let outermost = on(&store, Policy::gcra("outermost", "5/h"));
    let service = layer(&store, "outer", "10/h").layer(inner.layer(Handler::default()));
    let service = RateLimitLayer::new(by_header(outermost.clone())).layer(service);
    assert_eq!(number(&send(&service, from("ada")).await, "x-ratelimit-remaining"), Some(0));
    for _ in 0..3 {
        let refused = send(&service, from("ada")).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            (number(&refused, "x-ratelimit-remaining"), number(&refused, "retry-after")),
            (Some(4), Some(1))
        );
        assert_eq!(answer(outermost.peek("ada")).remaining(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_responder_is_told_how_long_the_wait_would_have_been() {
    let respond = |refusal: &Refusal<'_>| {
        let RefusalReason::QueueFull(wait) = refusal.reason() else { panic!("{refusal:?}") };
        assert_eq!((wait, refusal.retry_after_seconds()), (Duration::from_millis(1_500), Some(2)));
        http::Response::builder().status(refusal.status()).body(Body::from("full")).unwrap()
    };
    let policy = Policy::gcra("mail", "2/3s burst 1").wait_up_to(Duration::from_secs(60));
    let builder = RateLimitLayer::builder(by_header(on(&paused_store(), policy)));
    let service = builder.longest_queue(0).respond(respond).build().unwrap().layer(Handler::default());
    send(&service, from("ada")).await;
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_wait_by_default_and_all_of_them_get_through_in_order() {
    let policy = Policy::gcra("mail", "1000/s burst 1").wait_up_to(Duration::from_secs(60));
    let limiter = on(&paused_store(), policy);
    let layer = RateLimitLayer::new(by_header(limiter));
    let service = layer.layer(Handler::default());
    let start = Instant::now();
    send(&service, from("ada")).await;
    let mut waiting = JoinSet::new();
    for _ in 0..10_000 {
        waiting.spawn(service.clone().call(from("ada")));
    }
    assert_eq!(layer.waiting(), 10_000);
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    for response in waiting.join_all().await {
        assert_eq!(response.unwrap().status(), StatusCode::OK);
    }
    assert_eq!((layer.waiting(), start.elapsed()), (0, Duration::from_secs(10)));
}

/// Else the next one could take the turn, and find the queue full.
#[tokio::test(start_paused = true)]
async fn a_place_is_free_before_the_turn_that_it_waited_for_is_given_back() {
    let layer = Arc::<OnceLock<RateLimitLayer>>::default();
    let waiting = Arc::<Mutex<Vec<usize>>>::default();
    let (looks, seen) = (Arc::clone(&layer), Arc::clone(&waiting));
    let store = around(paused_store(), move |memory, asks| {
        if asks.iter().any(|ask| ask.mode() == Mode::Return) {
            seen.lock().unwrap().push(looks.get().unwrap().waiting());
        }
        memory.decide(asks)
    });
    let limiter = Policy::gcra("mail", "1/s").wait_up_to(Duration::from_secs(60)).on(store).unwrap();
    let layer = layer.get_or_init(|| RateLimitLayer::new(by_header(limiter)));
    let service = layer.layer(Handler::default());
    let _at_once = call(&service, "ada");
    drop(call(&service, "ada"));
    let limits = layer.limits_handle().current();
    let request = from("ada");
    drop(limits.decide(&request));
    assert_eq!(*waiting.lock().unwrap(), [0, 0]);
}
