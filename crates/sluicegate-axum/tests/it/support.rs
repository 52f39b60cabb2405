//! Routers that are asked directly, without a server.

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Request, StatusCode};
use sluicegate_axum::RateLimitStore;
use sluicegate_core::MemoryStore;
use sluicegate_core::clock::ManualClock;
pub(crate) use sluicegate_tests::memory::store_on;
use sluicegate_tower::respond::HeaderFields;
use tower::ServiceExt;

/// All that a client sees of a response.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }
}

/// On a clock that stands still.
pub(crate) fn store() -> MemoryStore {
    store_on(ManualClock::new())
}

/// Limits of attributes on this store, whose allowed responses show all fields.
pub(crate) fn all_fields(store: &MemoryStore) -> RateLimitStore {
    RateLimitStore::new(store).configure(|limits| limits.headers(HeaderFields::All))
}

/// A request from the peer 198.51.100.`host`, with an API key if there is one.
pub(crate) fn request(path: &str, host: u8, api_key: Option<&str>) -> Request<Body> {
    let peer = ConnectInfo(SocketAddr::from(([198, 51, 100, host], 1)));
    let mut request = Request::get(path).extension(peer);
    if let Some(key) = api_key {
        request = request.header("x-api-key", key);
    }
    request.body(Body::empty()).unwrap()
}

pub(crate) async fn send(app: &Router, request: Request<Body>) -> Seen {
    let (parts, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    let body = to_bytes(body, 10_000).await.unwrap();
    Seen { status: parts.status, headers: parts.headers, body: String::from_utf8(body.to_vec()).unwrap() }
}

pub(crate) async fn get(app: &Router, path: &str) -> Seen {
    send(app, request(path, 1, None)).await
}

/// The statuses of so many requests.
pub(crate) async fn statuses(app: &Router, path: &str, requests: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..requests {
        statuses.push(get(app, path).await.status.as_u16());
    }
    statuses
}
