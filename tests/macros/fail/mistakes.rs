//! Mistakes of the first hour, each with a message that says what to write.

use std::sync::Arc;

use axum::Router;
use sluicegate::key::{HeaderKey, RequestView};
use sluicegate::{ClientIp, Limit, MemoryStore, Policy, RateLimitExt, RateLimitLayer, RateLimiter};

struct User(u64);

fn key_of_a_policy() {
    let _ = Policy::gcra("api", "5/min").key(HeaderKey::new("x-api-key"));
}

fn one_bucket_for_all(limit: Limit) -> Limit {
    limit.key("all")
}

fn forgotten_question_mark(limit: Limit) -> Limit {
    limit.key(ClientIp::behind("10.0.0.0/8"))
}

fn no_proxies_named() {
    let _ = ClientIp::new();
}

fn no_networks() {
    let _ = ClientIp::behind(User(7));
}

fn number_as_quota() {
    let _ = Policy::gcra("api", 5);
}

fn number_as_time() {
    let _ = Policy::gcra("api", "5/min").suspend(100, "1h", 3_600);
}

async fn user_as_key(limiter: RateLimiter) {
    let _ = limiter.check(User(7)).await;
}

fn policy_of_no_algorithm() {
    let _ = Policy::new("api", "5/min");
}

fn store_in_an_arc() {
    let _ = Policy::gcra("api", "5/min").on(Arc::new(MemoryStore::new()));
}

fn bare_closure_as_key(limit: Limit) -> Limit {
    limit.key(|request: &RequestView<'_>| Some(request.uri.path()))
}

fn limiter_as_layer(limiter: RateLimiter) -> Router {
    Router::new().layer(limiter)
}

fn builder_as_layer(limiter: RateLimiter) -> Router {
    Router::new().layer(RateLimitLayer::builder(limiter))
}

fn policy_on_no_store() -> Router {
    Router::new().rate_limit(Policy::gcra("api", "5/min"))
}

fn layer_of_a_result() {
    let _ = RateLimitLayer::new(Policy::gcra("api", "5/min").on(MemoryStore::new()));
}

fn second_limit_of_a_policy(limiter: RateLimiter) {
    let _ = RateLimitLayer::builder(limiter).and(Policy::gcra("day", "1000/d"));
}

fn main() {}
