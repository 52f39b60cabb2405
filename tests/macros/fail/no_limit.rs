//! A policy that is not on a store yet, and a forgotten `?`.

use axum::{Router, routing::get};
use sluicegate::{MemoryStore, Policy, RateLimitExt, RateLimitLayer};

fn main() {
    let store = MemoryStore::new();
    let router = || Router::<()>::new().route("/", get(|| async {}));
    let _ = router().rate_limit(Policy::gcra("api", "5/min"));
    let _ = router().rate_limit(Policy::gcra("api", "5/min").on(&store));
    let _ = get(|| async {}).rate_limit(Policy::gcra("api", "5/min").build());
    let _ = RateLimitLayer::new(Policy::gcra("api", "5/min"));
    let _ = RateLimitLayer::builder(Policy::gcra("api", "5/min").on(&store));
}
