//! A server that does not pass on who connects: a mistake that is seen at the first request.

use http::StatusCode;
use sluicegate_core::{Key, Policy};
use sluicegate_in_flight::InFlight;
use sluicegate_tests::log::Log;
use sluicegate_tower::in_flight::InFlightLayer;
use sluicegate_tower::key::{HeaderKey, OnMissingKey, key_fn};
use sluicegate_tower::{ClientIp, KeyExtractor, Limit, PeerIp, RateLimitLayer};
use tower::{Layer, ServiceExt};

use crate::support::{
    Handler, anonymous, answer, by_header, fields, from, on, problem, send, service, store,
};

/// The status of a request without a peer, by a limit with this key.
async fn status(key: impl KeyExtractor) -> u16 {
    let (store, _) = store();
    let limit = Limit::new(on(&store, Policy::gcra("api", "2/min"))).key(key);
    send(&service(limit).0, anonymous()).await.status().as_u16()
}

#[tokio::test]
async fn without_connect_info_requests_are_refused_with_500() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "2/min"));
    let (service, handler) = service(Limit::new(limiter.clone()));
    let refused = send(&service, anonymous()).await;
    assert_eq!(refused.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(fields(&refused), ["cache-control: no-store"]);
    let detail = problem(refused).await["detail"].as_str().unwrap().to_owned();
    assert_eq!(detail, "this server does not know who is asking", "the advice is in the log");
    assert_eq!((handler.calls(), answer(limiter.peek(Key::shared())).remaining()), (0, 2));
}

#[tokio::test]
async fn the_log_says_once_what_to_write() {
    let log = Log::of_this_thread();
    let (store, _) = store();
    let (service, _) = service(Limit::new(on(&store, Policy::gcra("api", "2/min"))));
    for service in [&service, &service.clone(), &service] {
        send(service, anonymous()).await;
    }
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in [
        "ERROR",
        "limit=\"api\"",
        "500",
        "into_make_service_with_connect_info",
        "ClientIp::hops(1)",
        "PeerAddr",
    ] {
        assert!(lines[0].contains(part), "{} says nothing of {part}", lines[0]);
    }
}

#[tokio::test]
async fn sharing_one_bucket_can_be_chosen() {
    let (store, _) = store();
    let limit = Limit::new(on(&store, Policy::gcra("api", "2/min"))).on_missing_key(OnMissingKey::Share);
    let (service, _) = service(limit);
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(send(&service, anonymous()).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 429]);
}

#[tokio::test]
async fn another_status_and_skipping_can_be_chosen_too() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "2/min"));
    for (action, expected) in [
        (OnMissingKey::Reject(StatusCode::FORBIDDEN), StatusCode::FORBIDDEN),
        (OnMissingKey::Skip, StatusCode::OK),
    ] {
        let (service, _) = service(Limit::new(limiter.clone()).on_missing_key(action));
        assert_eq!(send(&service, anonymous()).await.status(), expected);
    }
}

#[tokio::test]
async fn an_or_behind_the_peer_is_asked_and_a_tuple_with_it_is_not_shared() {
    let header = || HeaderKey::new("x-key").unwrap();
    let nobody = || key_fn(|_| None::<u64>);
    let behind = || ClientIp::behind(["10.0.0.0/8"]).unwrap();
    assert_eq!(status(PeerIp::new().or(Key::from("all"))).await, 200);
    assert_eq!(status(behind().or(Key::from("all"))).await, 200);
    assert_eq!(status(behind()).await, 500);
    assert_eq!(status(header().or(PeerIp::new())).await, 500, "the last one that was asked");
    assert_eq!(status((PeerIp::new(), header())).await, 500);
    assert_eq!(status((nobody(), header(), PeerIp::new())).await, 500, "wherever it stands");
    // Behind a Unix socket there is no peer, and an extractor that believes every peer needs none.
    assert_eq!(status(ClientIp::hops(1).unwrap()).await, 200);
}

#[tokio::test]
async fn what_an_outer_layer_has_spent_is_given_back() {
    let (store, _) = store();
    let outer = on(&store, Policy::gcra("outer", "5/min"));
    let inner = RateLimitLayer::new(on(&store, Policy::gcra("inner", "5/min")));
    let service = RateLimitLayer::new(by_header(outer.clone())).layer(inner.layer(Handler::default()));
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer(outer.peek("ada")).remaining(), 5);
}

#[tokio::test]
async fn a_policy_in_shadow_refuses_no_request_for_it() {
    let (store, _) = store();
    let (service, _) = service(Limit::new(on(&store, Policy::gcra("api", "2/min").shadow())));
    assert_eq!(send(&service, anonymous()).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_limit_of_requests_under_way_says_the_same() {
    let layer = InFlightLayer::new(InFlight::new("uploads", 1).unwrap());
    let refused = layer.layer(Handler::default()).oneshot(anonymous()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let shared = layer.on_missing_key(OnMissingKey::Share).layer(Handler::default());
    assert_eq!(shared.oneshot(anonymous()).await.unwrap().status(), StatusCode::OK);
}
