//! Keys and tiers that have to be looked up: a request waits for them in the queue of the layer, and not for ever.

use std::future::pending;
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use sluicegate_core::Policy;
use sluicegate_tower::key::{Extraction, RequestView};
use sluicegate_tower::limits::Tiers;
use sluicegate_tower::rate_limit::Decided;
use sluicegate_tower::rate_limit::{RateLimit, RateLimitLayerBuilder};
use sluicegate_tower::respond::{Refusal, RefusalReason};
use sluicegate_tower::{KeyExtractor, Limit, RateLimitLayer};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::Instant;
use tower::Layer;

use crate::rate_limit::readiness::Slow;
use crate::support::{
    Body, Handler, answer, by_header, fields, from, layer, number, on, paused_store, problem, send,
};

/// Asks a directory that never answers.
pub(crate) struct Never;

impl KeyExtractor for Never {
    fn extract(&self, _: RequestView<'_>) -> Extraction {
        Extraction::pending(pending())
    }
}

/// A layer with a limit whose key never comes.
fn never() -> RateLimitLayerBuilder {
    RateLimitLayer::builder(Limit::new(on(&paused_store(), Policy::gcra("api", "9/h"))).key(Never))
}

/// The same, where it is the tier that never comes.
fn no_tier(tiers: Tiers) -> Limit {
    Limit::tiered_async(tiers, |_| pending::<Option<String>>())
}

fn tiers() -> Tiers {
    let api = on(&paused_store(), Policy::gcra("api", "9/h"));
    Tiers::builder(&api).tier("free", "9/h").default_tier("free").build().unwrap()
}

/// A request in a task of its own.
fn spawn(service: &RateLimit<Handler>) -> JoinHandle<StatusCode> {
    let service = service.clone();
    tokio::spawn(async move { send(&service, from("ada")).await.status() })
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_key_or_tier_does_not_come_is_answered_after_five_seconds() {
    for layer in [never().build().unwrap(), RateLimitLayer::new(no_tier(tiers()))] {
        let handler = Handler::default();
        let service = layer.layer(handler.clone());
        let start = Instant::now();
        let refused = send(&service, from("ada")).await;
        assert_eq!((start.elapsed(), layer.waiting()), (Duration::from_secs(5), 0));
        assert_eq!((refused.status(), handler.calls()), (StatusCode::SERVICE_UNAVAILABLE, 0));
        assert_eq!(fields(&refused), ["cache-control: no-store", "retry-after: 1"]);
        assert!(refused.extensions().get::<Decided>().is_none());
        assert_eq!(
            problem(refused).await,
            json!({
                "type": "about:blank",
                "title": "Service Unavailable",
                "status": 503,
                "detail": "it could not be found out in time which limit applies",
            })
        );
    }
}

#[tokio::test(start_paused = true)]
async fn how_long_is_for_the_layer_to_say_and_its_responder_is_told() {
    let respond = |refusal: &Refusal<'_>| {
        let RefusalReason::LookupTimeout(longest) = refusal.reason() else { panic!("{refusal:?}") };
        assert_eq!(longest, Duration::from_millis(20));
        http::Response::builder().status(refusal.status()).body(Body::from("late")).unwrap()
    };
    let layer = never().longest_lookup(Duration::from_millis(20)).respond(respond).build().unwrap();
    let start = Instant::now();
    let refused = send(&layer.layer(Handler::default()), from("ada")).await;
    assert_eq!((refused.status().as_u16(), start.elapsed().as_millis()), (503, 20));
}

/// A directory that hangs once took a place in memory for each request that came.
#[tokio::test(start_paused = true)]
async fn those_who_wait_for_a_key_count_in_the_queue_and_when_it_is_full_the_answer_comes_at_once() {
    let limited = |limit: Limit| RateLimitLayer::builder(limit).longest_queue(2).build().unwrap();
    for layer in [never().longest_queue(2).build().unwrap(), limited(no_tier(tiers()))] {
        let service = layer.layer(Handler::default());
        let start = Instant::now();
        let waiting = [spawn(&service), spawn(&service)];
        yield_now().await;
        assert_eq!(layer.waiting(), 2);
        let refused = send(&service, from("bob")).await;
        assert_eq!((refused.status(), start.elapsed()), (StatusCode::SERVICE_UNAVAILABLE, Duration::ZERO));
        assert_eq!(number(&refused, "retry-after"), Some(1));
        // A client that leaves makes room for one.
        waiting[0].abort();
        yield_now().await;
        let [_, stays] = waiting;
        assert_eq!(layer.waiting(), 1);
        let late = send(&service, from("eve")).await;
        assert_eq!((late.status(), start.elapsed().as_secs()), (StatusCode::SERVICE_UNAVAILABLE, 5));
        assert_eq!((stays.await.unwrap().as_u16(), layer.waiting()), (503, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_keeps_its_one_place_from_its_key_to_its_turn() {
    let waits = Policy::gcra("waits", "1/s").wait_up_to(Duration::from_secs(60));
    let limit = Limit::new(on(&paused_store(), waits)).key(Slow);
    let layer = RateLimitLayer::builder(limit).longest_queue(3).build().unwrap();
    let service = layer.layer(Handler::default());
    let start = Instant::now();
    let requests: Vec<_> = (0..3).map(|_| spawn(&service)).collect();
    for _ in 0..4 {
        yield_now().await;
    }
    assert_eq!(layer.waiting(), 2, "one has gone, and two wait for their turns");
    for request in requests {
        assert_eq!(request.await.unwrap(), StatusCode::OK);
    }
    assert_eq!((layer.waiting(), start.elapsed().as_secs()), (0, 2));
}

/// A key that comes at once.
struct AtOnce;

impl KeyExtractor for AtOnce {
    fn extract(&self, _: RequestView<'_>) -> Extraction {
        Extraction::pending(async { Ok("ada".into()) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_need_not_be_waited_for_takes_no_place() {
    let limit = Limit::new(on(&paused_store(), Policy::gcra("api", "9/h"))).key(AtOnce);
    let layer = RateLimitLayer::builder(limit).longest_queue(0).build().unwrap();
    assert_eq!(send(&layer.layer(Handler::default()), from("ada")).await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_only_tried_out_refuses_nobody_for_a_key_that_does_not_come() {
    let store = paused_store();
    let enforced = on(&store, Policy::gcra("api", "9/h"));
    let tried = || Limit::new(on(&store, Policy::gcra("tried", "1/h").shadow())).key(Never);
    let tried_tiers = Tiers::builder(&on(&store, Policy::gcra("small", "5/h").shadow())).tier("small", "1/h");
    let tried_tiers = tried_tiers.default_tier("small").build().unwrap();
    for (limit, longest, waited) in [(tried(), 10, 5), (no_tier(tried_tiers), 10, 5), (tried(), 0, 0)] {
        let builder = RateLimitLayer::builder(limit).and(by_header(enforced.clone()));
        let service = builder.longest_queue(longest).build().unwrap().layer(Handler::default());
        let start = Instant::now();
        assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
        assert_eq!(start.elapsed().as_secs(), waited);
    }
    assert_eq!(answer(enforced.peek("ada")).remaining(), 6, "the limit behind it has counted all three");
}

#[tokio::test(start_paused = true)]
async fn layers_around_one_whose_key_does_not_come_give_back_what_they_spent() {
    let service =
        layer(&paused_store(), "outer", "10/h").layer(never().build().unwrap().layer(Handler::default()));
    for _ in 0..3 {
        let refused: http::Response<Body> = send(&service, from("ada")).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(number(&refused, "x-ratelimit-remaining"), Some(10));
    }
}

#[tokio::test(start_paused = true)]
async fn each_lookup_of_a_request_has_the_whole_time() {
    struct AfterFourSeconds;
    impl KeyExtractor for AfterFourSeconds {
        fn extract(&self, _: RequestView<'_>) -> Extraction {
            Extraction::pending(async {
                tokio::time::sleep(Duration::from_secs(4)).await;
                Ok("ada".into())
            })
        }
    }
    let store = paused_store();
    let limit = |name| Limit::new(on(&store, Policy::gcra(name, "9/h"))).key(AfterFourSeconds);
    let layer = RateLimitLayer::builder(limit("one")).and(limit("two")).build().unwrap();
    let start = Instant::now();
    let response = send(&layer.layer(Handler::default()), from("ada")).await;
    assert_eq!((response.status(), start.elapsed().as_secs()), (StatusCode::OK, 8));
}
