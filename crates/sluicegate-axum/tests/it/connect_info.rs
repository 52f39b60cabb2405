//! Where the peer address comes from, and what a router without one answers.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use sluicegate_axum::{RateLimitExt, rate_limited};
use sluicegate_core::Policy;

use crate::support::{request, send, store};

fn app() -> Router {
    let limiter = Policy::gcra("api", "2/min").on(store()).unwrap();
    Router::new().route("/", get(|| async { "hello" }).rate_limit(limiter))
}

fn without_a_peer() -> Request<Body> {
    Request::new(Body::empty())
}

#[tokio::test]
async fn a_router_served_without_connect_info_says_so_at_its_first_request() {
    let refused = send(&app(), without_a_peer()).await;
    assert_eq!(refused.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(refused.body.contains("this server does not know who is asking"), "{}", refused.body);
}

#[tokio::test]
async fn mocked_connect_info_is_a_peer_address() {
    // The first one is the example in axum's documentation.
    for mocked in [SocketAddr::from(([0, 0, 0, 0], 1337)), SocketAddr::from(([192, 0, 2, 7], 1))] {
        let app = app().layer(MockConnectInfo(mocked));
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(send(&app, without_a_peer()).await.status.as_u16());
        }
        assert_eq!(statuses, [200, 200, 429], "{mocked}");
        // As for axum's own extractor, a real address goes first.
        assert_eq!(send(&app, request("/", 1, None)).await.status, StatusCode::OK);
    }
}

#[rate_limited("2/min", crate = sluicegate_axum)]
async fn attributed() {}

#[tokio::test]
async fn the_attribute_sees_the_same_peers() {
    let app = Router::new().route("/", get(attributed)).with_rate_limits(store());
    assert_eq!(send(&app, without_a_peer()).await.status, StatusCode::INTERNAL_SERVER_ERROR);
    let app = app.layer(MockConnectInfo(SocketAddr::from(([192, 0, 2, 7], 1))));
    assert_eq!(send(&app, without_a_peer()).await.status, StatusCode::OK);
}
