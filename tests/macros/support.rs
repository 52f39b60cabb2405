//! For the cases: a request to a router, and what it was answered.
#![allow(dead_code, missing_debug_implementations, unreachable_pub)]

use std::future::Future;
use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::connect_info::MockConnectInfo;
use axum::http::{HeaderMap, Request};
use tower::ServiceExt;

pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

pub fn run(case: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(case);
}

pub async fn send(app: &Router, request: Request<Body>) -> Answer {
    let peer = MockConnectInfo(SocketAddr::from(([192, 0, 2, 7], 1)));
    let response = app.clone().layer(peer).oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, 10_000).await.unwrap();
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        text: String::from_utf8(body.to_vec()).unwrap(),
    }
}

pub async fn get(app: &Router, path: &str) -> Answer {
    send(app, Request::get(path).body(Body::empty()).unwrap()).await
}

/// The statuses of so many requests.
pub async fn statuses(app: &Router, path: &str, requests: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..requests {
        statuses.push(get(app, path).await.status);
    }
    statuses
}
