//! Refused clients that are told to come back at different times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Response;
use serde_json::json;
use sluicegate_core::Policy;
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::rate_limit::Decided;
use sluicegate_tower::rate_limit::RateLimitLayerBuilder;
use sluicegate_tower::respond::{HeaderFields, Refusal};
use tower::Layer;

use crate::support::{Body, Handler, by_header, described, from, layer, number, on, problem, send, store};

fn one_a_minute() -> RateLimitLayerBuilder {
    RateLimitLayer::builder(by_header(on(&store().0, Policy::gcra("api", "1/min"))))
}

/// The refusal that comes after one request was let through.
async fn refused<R>(builder: RateLimitLayerBuilder<R>) -> Response<Body>
where
    R: sluicegate_tower::respond::Respond<Body>,
{
    let service = builder.build().unwrap().layer(Handler::default());
    assert_eq!(number(&send(&service, from("ada")).await, "retry-after"), None);
    send(&service, from("ada")).await
}

#[tokio::test]
async fn each_refusal_adds_what_is_drawn_for_it_and_says_it_everywhere() {
    let drawn = Arc::new(AtomicU64::new(0));
    let draws = Arc::clone(&drawn);
    let extra = move || Duration::from_secs(draws.fetch_add(7, Ordering::Relaxed));
    let service = one_a_minute().spread_retry_after_by(extra).build().unwrap().layer(Handler::default());
    send(&service, from("ada")).await;
    for expected in [60, 67, 74] {
        let refused = send(&service, from("ada")).await;
        assert_eq!(number(&refused, "retry-after"), Some(expected));
        // The truth stays where it is: when there is room again.
        assert_eq!(described(&refused, "ratelimit").unwrap()[0].1["t"], 60);
        assert_eq!(number(&refused, "x-ratelimit-reset"), Some(60));
        let wait = refused.extensions().get::<Decided>().unwrap().retry_after();
        assert_eq!(wait, Some(Duration::from_secs(60)));
        let problem = problem(refused).await;
        assert_eq!(problem["retry_after"], expected);
        assert_eq!(problem["detail"], json!(format!("too many requests: try again in {expected} s")));
    }
    assert_eq!(drawn.load(Ordering::Relaxed), 21, "nothing is drawn for a request that passes");
}

#[tokio::test]
async fn a_part_of_a_second_is_rounded_up_and_no_number_overflows() {
    for (extra, told) in
        [(Duration::from_millis(1), 61), (Duration::ZERO, 60), (Duration::MAX, 999_999_999_999_999)]
    {
        let refused = refused(one_a_minute().spread_retry_after_by(move || extra)).await;
        assert_eq!(number(&refused, "retry-after"), Some(told));
    }
}

#[tokio::test]
async fn a_random_one_is_never_below_the_true_wait_nor_beyond_the_longest() {
    for headers in [HeaderFields::All, HeaderFields::None] {
        let builder = one_a_minute().headers(headers).spread_retry_after(Duration::from_secs(30));
        let service = builder.build().unwrap().layer(Handler::default());
        send(&service, from("ada")).await;
        let mut waits = std::collections::BTreeSet::new();
        for _ in 0..200 {
            waits.insert(number(&send(&service, from("ada")).await, "retry-after").unwrap());
        }
        let (first, last) = (waits.first().unwrap(), waits.last().unwrap());
        assert!(*first >= 60 && *last <= 90 && waits.len() > 10, "{waits:?}");
    }
}

#[tokio::test]
async fn every_responder_says_the_longer_wait() {
    let builder = one_a_minute().spread_retry_after_by(|| Duration::from_secs(5));
    let words = |refusal: &Refusal<'_>| {
        assert_eq!(refusal.retry_after_seconds(), Some(65));
        Response::new(Body::from(refusal.to_string()))
    };
    let refused = refused(builder.respond(words)).await;
    assert_eq!(number(&refused, "retry-after"), Some(65));
    let body = http_body_util::BodyExt::collect(refused.into_body()).await.unwrap().to_bytes();
    assert_eq!(body, "too many requests: try again in 65 s");
}

#[tokio::test]
async fn the_longer_wait_of_an_inner_layer_is_told_through_an_outer_one() {
    let (store, _) = store();
    let inner = one_a_minute().spread_retry_after_by(|| Duration::from_secs(5)).build().unwrap();
    let service = layer(&store, "outer", "100/min").layer(inner.layer(Handler::default()));
    send(&service, from("ada")).await;
    let refused = send(&service, from("ada")).await;
    assert_eq!(number(&refused, "retry-after"), Some(65));
    assert_eq!(problem(refused).await["retry_after"], 65);
}

#[tokio::test]
async fn what_never_passes_has_no_wait_to_add_to() {
    let limit = by_header(on(&store().0, Policy::gcra("api", "1/min"))).cost_fn(|_| 2);
    let layer = RateLimitLayer::builder(limit).spread_retry_after(Duration::from_secs(30)).build().unwrap();
    assert_eq!(number(&send(&layer.layer(Handler::default()), from("ada")).await, "retry-after"), None);
}
