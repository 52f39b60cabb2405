//! What all tests need: a store on a clock that stands still, a handler that remembers, and readers of what came back.

mod live;
mod server;
pub(crate) mod spans;
mod stores;
pub(crate) mod strict;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use sfv::{BareItem, List, ListEntry, Parser};
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::{MemoryStore, Policy, RateLimiter};
pub(crate) use sluicegate_tests::memory::{answer, paused_store, store};
pub(crate) use sluicegate_tests::time::Paused;
use sluicegate_tower::key::HeaderKey;
use sluicegate_tower::limits::IntoGroup;
use sluicegate_tower::rate_limit::Decided;
use sluicegate_tower::rate_limit::RateLimit;
use sluicegate_tower::rate_limit::RateLimitLayerBuilder;
use sluicegate_tower::respond::HeaderFields;
use sluicegate_tower::{KeyExtractor, Limit, RateLimitLayer};
use tower::{Layer, Service, ServiceExt};

pub(crate) use self::live::Live;
pub(crate) use self::server::{Protocol, serve};
pub(crate) use self::stores::{broken, limiter, slow};

pub(crate) type Body = Full<Bytes>;

/// The policy on a store, which must be able to keep it.
pub(crate) fn on(store: &MemoryStore, policy: PolicyBuilder) -> RateLimiter {
    policy.on(store).expect("the policy fits the store")
}

/// A limit whose key is the header `x-key`.
pub(crate) fn by_header(limiter: RateLimiter) -> Limit {
    Limit::new(limiter).key(HeaderKey::new("x-key").expect("a good name").verified_before())
}

/// A request with the header `x-key`.
pub(crate) fn from(key: &'static str) -> Request<()> {
    Request::get("/").header("x-key", key).body(()).expect("a good request")
}

/// A request whose response is asked for what was decided, as middleware around layers does.
pub(crate) fn reading(mut request: Request<()>) -> Request<()> {
    sluicegate_tower::rate_limit::Decided::ask_for(request.extensions_mut());
    request
}

/// A request that says nothing about itself.
pub(crate) fn anonymous() -> Request<()> {
    Request::new(())
}

/// A handler behind a limit that shows all fields, and tells it the decision.
pub(crate) fn service(limit: Limit) -> (RateLimit<Handler>, Handler) {
    let handler = Handler::default();
    let layer = all_fields(limit).build().expect("one limit is possible");
    (layer.decided().layer(handler.clone()), handler)
}

/// A layer whose allowed responses show all that it knows, and not only what they do by default.
pub(crate) fn all_fields(limit: impl IntoGroup) -> RateLimitLayerBuilder {
    RateLimitLayer::builder(limit).headers(HeaderFields::All)
}

/// Answers `ok` and remembers which decision each request carried.
#[derive(Clone, Default)]
pub(crate) struct Handler {
    seen: Arc<Mutex<Vec<Option<Decided>>>>,
}

impl Handler {
    pub(crate) fn calls(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// The decision that the last request carried.
    pub(crate) fn last_seen(&self) -> Option<Decided> {
        self.seen.lock().unwrap().last().cloned().flatten()
    }
}

impl<B> Service<Request<B>> for Handler {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.seen.lock().unwrap().push(request.extensions().get().cloned());
        ready(Ok(Response::new(Full::from("ok"))))
    }
}

/// The response of a fresh clone of the service.
pub(crate) async fn send<S, B>(service: &S, request: Request<()>) -> Response<B>
where
    S: Service<Request<()>, Response = Response<B>> + Clone,
    S::Error: Debug,
{
    service.clone().oneshot(request).await.expect("a limit is never an error")
}

/// All fields that a limit sets, as lines in the order of their names.
pub(crate) fn fields<B>(response: &Response<B>) -> Vec<String> {
    let ours = |name: &str| name.contains("ratelimit") || matches!(name, "retry-after" | "cache-control");
    let lines = response.headers().iter().filter(|(name, _)| ours(name.as_str()));
    let mut lines: Vec<_> =
        lines.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines
}

/// A field that is a whole number.
pub(crate) fn number<B>(response: &Response<B>, name: &str) -> Option<u64> {
    let mut values = response.headers().get_all(name).iter();
    let value = values.next()?;
    assert!(values.next().is_none(), "{name} is there twice");
    Some(value.to_str().unwrap().parse().expect("digits and nothing else"))
}

/// The body of a refusal.
pub(crate) async fn problem(response: Response<Body>) -> serde_json::Value {
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body in memory").to_bytes();
    let problem: serde_json::Value = serde_json::from_slice(&body).expect("the body is JSON");
    assert_eq!(problem["status"], status, "RFC 9457: the member is the status of the response");
    problem
}

/// A quota in a `RateLimit` or `RateLimit-Policy` field: its name and parameters.
pub(crate) type Described = (String, BTreeMap<String, u64>);

/// A field of the draft, read by a parser of structured fields that is not ours; `None` if the field is missing.
pub(crate) fn described<B>(response: &Response<B>, name: &str) -> Option<Vec<Described>> {
    let mut values = response.headers().get_all(name).iter();
    let value = values.next()?.to_str().unwrap();
    assert!(values.next().is_none(), "{name} is there twice");
    let list: List = Parser::new(value).parse().unwrap_or_else(|error| panic!("{name}: {value}: {error}"));
    let items = list.into_iter().map(|entry| {
        let ListEntry::Item(item) = entry else { panic!("{name}: {value}: an inner list") };
        let BareItem::String(quota) = item.bare_item else { panic!("{name}: {value}: not a string") };
        let parameters = item.params.into_iter().map(|(key, value)| {
            let BareItem::Integer(number) = value else { panic!("{name}: {key} is not an integer") };
            (key.to_string(), u64::try_from(i64::from(number)).expect("no number is negative"))
        });
        (quota.to_string(), parameters.collect())
    });
    Some(items.collect())
}

/// A layer with one bucket per value of the header `x-key`, and all fields.
pub(crate) fn layer(store: &MemoryStore, name: &str, quota: &str) -> RateLimitLayer {
    all_fields(by_header(on(store, Policy::gcra(name, quota)))).build().expect("one limit is possible")
}

/// No field of ours is there twice, whatever was stacked.
pub(crate) fn assert_no_duplicates<B>(response: &Response<B>) {
    let names = response.headers().keys().map(|name| (name, response.headers().get_all(name).iter().count()));
    for (name, count) in names {
        assert_eq!(count, 1, "{name} is there {count} times");
    }
    for name in ["ratelimit", "ratelimit-policy"] {
        let mut quotas: Vec<_> =
            described(response, name).unwrap().into_iter().map(|(quota, _)| quota).collect();
        let all = quotas.len();
        quotas.sort();
        quotas.dedup();
        assert_eq!(quotas.len(), all, "{name} has a quota twice");
    }
}
