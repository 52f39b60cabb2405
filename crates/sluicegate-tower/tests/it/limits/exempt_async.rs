//! Exemptions that have to be looked up.

use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use http::StatusCode;
use sluicegate_core::{Policy, RateLimiter};
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::rate_limit::RateLimitLayerBuilder;
use tower::{Layer, Service};

use crate::support::{Handler, answer, by_header, fields, from, on, send, store};

fn one_a_minute() -> (RateLimitLayerBuilder, RateLimiter) {
    let limiter = on(&store().0, Policy::gcra("api", "1/min"));
    (RateLimitLayer::builder(by_header(limiter.clone())), limiter)
}

/// Whether the key is this one, as a service far away says.
fn is(key: &'static str) -> impl Fn(RequestView<'_>) -> std::pin::Pin<Box<dyn Future<Output = bool> + Send>> {
    move |request| {
        let is_it = request.headers["x-key"] == key;
        Box::pin(async move {
            tokio::task::yield_now().await;
            is_it
        })
    }
}

async fn statuses(builder: RateLimitLayerBuilder, keys: &[&'static str]) -> Vec<u16> {
    let service = builder.build().unwrap().layer(Handler::default());
    let mut statuses = Vec::new();
    for key in keys {
        statuses.push(send(&service, from(key)).await.status().as_u16());
    }
    statuses
}

#[tokio::test]
async fn who_is_found_to_be_exempt_passes_without_fields_and_others_are_limited() {
    let (builder, limiter) = one_a_minute();
    let service =
        builder.exempt_async(is("ada")).exempt_async(is("bob")).build().unwrap().layer(Handler::default());
    for key in ["ada", "ada", "bob", "bob"] {
        let response = send(&service, from(key)).await;
        assert_eq!((response.status(), fields(&response)), (StatusCode::OK, vec![]), "{key}");
        assert_eq!(answer(limiter.peek(key)).remaining(), 1);
    }
    assert_eq!(send(&service, from("eve")).await.status(), StatusCode::OK);
    assert_eq!(send(&service, from("eve")).await.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn what_is_found_to_be_exempt_is_not_denied_and_what_is_exempt_anyhow_is_not_looked_up() {
    let (builder, _) = one_a_minute();
    let denying = builder.exempt_async(is("ada")).deny(|_| true);
    assert_eq!(statuses(denying, &["ada", "ada", "eve"]).await, [200, 200, 403]);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let looked_up = move |_: RequestView<'_>| {
        count.fetch_add(1, Ordering::Relaxed);
        async { true }
    };
    let (builder, _) = one_a_minute();
    let both = builder.exempt(|request| request.headers["x-key"] == "ada").exempt_async(looked_up);
    assert_eq!(statuses(both, &["ada", "ada"]).await, [200, 200]);
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_exempts_no_request() {
    let (builder, _) = one_a_minute();
    let waiting = builder.exempt_async(|_| pending()).longest_lookup(Duration::from_secs(2));
    let began = tokio::time::Instant::now();
    assert_eq!(statuses(waiting, &["ada", "ada"]).await, [200, 429]);
    assert_eq!(began.elapsed(), Duration::from_secs(4));
    // No place to wait in: the limit decides at once.
    let (builder, _) = one_a_minute();
    let full = builder.exempt_async(|_| pending()).longest_queue(0);
    let began = tokio::time::Instant::now();
    assert_eq!(statuses(full, &["ada", "ada"]).await, [200, 429]);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn a_request_that_is_dropped_while_it_is_looked_up_has_spent_nothing_and_waits_no_longer() {
    let (builder, limiter) = one_a_minute();
    let layer = builder.exempt_async(|_| pending()).build().unwrap();
    let mut service = layer.layer(Handler::default());
    let mut response = Box::pin(service.call(from("ada")));
    assert!(response.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(layer.waiting(), 1);
    drop(response);
    assert_eq!((layer.waiting(), answer(limiter.peek("ada")).remaining()), (0, 1));
}
