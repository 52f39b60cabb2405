//! Mistakes of the first hour, each with a message that says what to write.

use sluicegate::key::HeaderKey;
use sluicegate::{ClientIp, Limit, Policy, RateLimiter};

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

fn main() {}
