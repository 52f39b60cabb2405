//! Ways of passing any store that cannot work, and a check that is not awaited.

use std::sync::Arc;

use sluicegate::{MemoryStore, Policy, RateLimiter, Store};

fn behind_a_reference(store: &dyn Store) {
    let _ = Policy::gcra("api", "5/min").on(store);
}

fn reference_to_an_arc(store: &Arc<dyn Store>) {
    let _ = Policy::gcra("api", "5/min").on(store);
}

fn generic<S: Store>(store: S) {
    let _ = Policy::gcra("api", "5/min").on(store);
}

fn some_store(store: impl Store) {
    let _ = Policy::gcra("api", "5/min").on(store);
}

fn handle_in_an_arc() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

fn check_without_await(limiter: &RateLimiter) -> bool {
    limiter.check("ada").is_allowed()
}

fn main() {}
