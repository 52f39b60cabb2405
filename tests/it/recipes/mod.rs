//! The recipes of the pages, as they stand there, with traffic: each does what its page says. A block of code that no test runs does
//! not compile here. [`invented`](crate::invented) sends them a client that makes up keys.

mod cookbook;
mod gateway;
mod keys;
mod migration;
mod outages;
mod programs;
mod tiers;
mod waiting;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::any;
use http::{Method, Request, Response, StatusCode};
use sluicegate::{RateLimitExt, RateLimitLayer};
use tokio::task::JoinSet;
use tower::{Layer, ServiceExt, service_fn};

/// The code of the pages, which `build.rs` has put together.
#[deny(dead_code, unused_must_use)]
#[allow(
    unreachable_pub,
    clippy::module_inception,
    clippy::needless_borrows_for_generic_args,
    reason = "a recipe does not know that it is in a module of a test"
)]
pub(crate) mod pasted {
    include!(concat!(env!("OUT_DIR"), "/recipes.rs"));
}

thread_local! {
    /// Where the programs of the pages serve, in place of port 3000.
    pub(crate) static ADDRESS: Cell<&'static str> = const { Cell::new("127.0.0.1:0") };
    /// The Redis of the pages.
    pub(crate) static REDIS: Cell<&'static str> = const { Cell::new("redis://127.0.0.1:6379") };
    /// The file that the pages call `rules.yaml`.
    pub(crate) static RULES: Cell<&'static str> = const { Cell::new("rules.yaml") };
}

const OK: u16 = 200;
const REFUSED: u16 = 429;

pub(crate) const PEER: [u8; 4] = [198, 51, 100, 7];

/// The first file of rules that a page has under this heading.
fn yaml_under<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, section) = page.split_once(heading).expect("the heading is there");
    let mut blocks = section.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.find(|block| block.starts_with("version: 1")).expect("it has a file of rules")
}

/// A request as axum's server hands it over, from this address.
pub(crate) fn request(peer: [u8; 4]) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((peer, 40_000))));
    request
}

/// A request of [`PEER`] for this path, with these fields.
pub(crate) fn ask(method: Method, path: &str, fields: &[(&'static str, &str)]) -> Request<Body> {
    let mut request = request(PEER);
    (*request.method_mut(), *request.uri_mut()) = (method, path.parse().unwrap());
    for (name, value) in fields {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    request
}

fn with<T: Clone + Send + Sync + 'static>(mut request: Request<Body>, extension: T) -> Request<Body> {
    request.extensions_mut().insert(extension);
    request
}

/// The status of the layer around a service that answers with this one.
async fn status(layer: &RateLimitLayer, request: Request<Body>, inner: u16) -> u16 {
    let service = service_fn(move |_| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::from_u16(inner).unwrap();
        ready(Ok::<_, Infallible>(response))
    });
    layer.layer(service).oneshot(request).await.unwrap().status().as_u16()
}

/// An application behind this layer, which says hello at every path.
pub(crate) fn behind(layer: RateLimitLayer) -> Router {
    Router::new().fallback(any(|| async { "hello" })).rate_limit(layer)
}

/// How many of these requests one after the other an application lets pass.
pub(crate) async fn passes(app: &Router, requests: impl Iterator<Item = Request<Body>>) -> usize {
    let mut passed = 0;
    for request in requests {
        passed += usize::from(app.clone().oneshot(request).await.unwrap().status().is_success());
    }
    passed
}

/// How many of these requests, all at once, got each status.
async fn statuses(app: &Router, requests: impl Iterator<Item = Request<Body>>) -> BTreeMap<u16, usize> {
    let mut all = JoinSet::new();
    for request in requests {
        all.spawn(app.clone().oneshot(request));
    }
    let mut statuses = BTreeMap::new();
    while let Some(response) = all.join_next().await {
        *statuses.entry(response.unwrap().unwrap().status().as_u16()).or_default() += 1;
    }
    statuses
}

/// The responses to these requests; each is under way until its body is dropped.
async fn held(app: &Router, requests: impl Iterator<Item = Request<Body>>) -> Vec<Response<Body>> {
    let mut held = Vec::new();
    for request in requests {
        held.push(app.clone().oneshot(request).await.unwrap());
    }
    held
}
