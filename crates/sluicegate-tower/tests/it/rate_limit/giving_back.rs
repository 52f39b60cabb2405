//! When a layer refuses, the layers around it have let nothing through, and give back what they spent.

use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use serde_json::json;
use sluicegate_core::{Key, Policy};
use sluicegate_tower::key::{Extraction, OnMissingKey, RequestView};
use sluicegate_tower::rate_limit::Decided;
use sluicegate_tower::{KeyExtractor, Limit, RateLimitLayer};
use tokio::task::yield_now;
use tokio::time::{Instant, advance, sleep};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{
    Body, Handler, answer, assert_no_duplicates, by_header, fields, from, layer, on, paused_store, problem,
    send, store,
};

#[tokio::test]
async fn an_inner_refusal_gives_back_what_the_layers_around_it_spent() {
    let (store, _) = store();
    let [a, b] = ["a", "b"].map(|name| on(&store, Policy::sliding_log(name, "10/min")));
    let handler = Handler::default();
    let service =
        RateLimitLayer::new(by_header(b.clone())).layer(layer(&store, "c", "1/min").layer(handler.clone()));
    let service = RateLimitLayer::new(by_header(a.clone()).cost(3).unwrap()).layer(service);
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    for _ in 0..5 {
        let refused = send(&service, from("ada")).await;
        assert_no_duplicates(&refused);
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(
            fields(&refused),
            [
                "cache-control: no-store",
                r#"ratelimit-policy: "a";q=10;w=60, "b";q=10;w=60, "c";q=1;w=60"#,
                r#"ratelimit: "a";r=7;t=60, "b";r=9;t=60, "c";r=0;t=60"#,
                "retry-after: 60",
                "x-ratelimit-limit: 1",
                "x-ratelimit-remaining: 0",
                "x-ratelimit-reset: 60",
            ]
        );
        assert_eq!(problem(refused).await["violated-policies"], json!(["c"]));
    }
    assert_eq!(answer(a.peek("ada")).remaining(), 7);
    assert_eq!(answer(b.peek("ada")).remaining(), 9);
    assert_eq!(handler.calls(), 1);
}

/// Otherwise a handler could give units back that the layer gives back as well.
#[tokio::test]
async fn a_decision_that_a_handler_takes_has_no_receipt() {
    let (store, _) = store();
    let api = on(&store, Policy::sliding_log("api", "10/min"));
    let refunding = by_header(api.clone()).refund_if(|head| head.status.is_success());
    let metered = RateLimitLayer::builder(by_header(api.clone())).meter().build().unwrap();
    for layer in [RateLimitLayer::new(by_header(api.clone())), RateLimitLayer::new(refunding), metered] {
        let taking = service_fn(|mut request: Request<()>| {
            let mut decided: Decided = request.extensions_mut().remove().expect("the layer tells it");
            assert!(decided.decision.take_receipt(0).is_none());
            ready(Ok::<_, Infallible>(Response::new(Body::default())))
        });
        send(&layer.decided().layer(taking), from("ada")).await;
    }
    assert_eq!(answer(api.peek("ada")).remaining(), 8);
}

#[tokio::test]
async fn a_missing_key_inside_is_no_reason_to_give_back_outside() {
    // Otherwise those who guess keys would not be limited by the layer that counts their addresses.
    let (store, _) = store();
    let outer = on(&store, Policy::gcra("outer", "2/min"));
    let everybody = Limit::new(outer).key(Key::from("all"));
    let inner = by_header(on(&store, Policy::gcra("inner", "5/min")));
    let inner = RateLimitLayer::new(inner.on_missing_key(OnMissingKey::Reject(StatusCode::UNAUTHORIZED)));
    let service = RateLimitLayer::new(everybody).layer(inner.layer(Handler::default()));
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(send(&service, Request::new(())).await.status().as_u16());
    }
    assert_eq!(statuses, [401, 401, 429]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_waited_for_outside_is_given_back_when_the_inner_layer_refuses() {
    let store = paused_store();
    let outer = on(&store, Policy::gcra("outer", "1/s burst 1").wait_up_to(Duration::from_secs(9)));
    let service = RateLimitLayer::new(by_header(outer.clone()));
    let service = service.layer(layer(&store, "inner", "1/min").layer(Handler::default()));
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    let start = Instant::now();
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(start.elapsed().as_secs(), 1, "it waited its turn, and was refused behind it");
    assert_eq!(answer(outer.peek("ada")).remaining(), 1);
}

/// The header `x-key`, a second later: as if it were looked up in a database.
struct Slow;

impl KeyExtractor for Slow {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        let key = Key::from(request.headers["x-key"].as_bytes());
        Extraction::pending(async move {
            sleep(Duration::from_secs(1)).await;
            Ok(key)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_after_a_window_has_ended_makes_no_room_in_the_next_one() {
    let store = paused_store();
    let outer = Limit::new(on(&store, Policy::fixed_window("outer", "2/min"))).key(Key::from("all"));
    let inner = Limit::new(on(&store, Policy::gcra("inner", "1/h"))).key(Slow);
    let service = RateLimitLayer::new(outer).layer(RateLimitLayer::new(inner).layer(Handler::default()));
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    advance(Duration::from_millis(58_500)).await;
    // Half a second before the full minute; the inner layer refuses it half a second after.
    let refused = tokio::spawn(service.clone().oneshot(from("ada")));
    yield_now().await;
    advance(Duration::from_millis(600)).await;
    let (bob, eve) = tokio::join!(send(&service, from("bob")), send(&service, from("eve")));
    assert_eq!([bob.status(), eve.status()], [StatusCode::OK; 2]);
    assert_eq!(refused.await.unwrap().unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    let third = send(&service, from("dan")).await;
    assert_eq!(
        third.status(),
        StatusCode::TOO_MANY_REQUESTS,
        "a third one in this minute, and two are allowed"
    );
}
