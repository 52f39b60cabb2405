//! A handler without the attribute has no limits that could be opened.

use sluicegate::{MemoryStore, RateLimits};

async fn login() {}

fn main() {
    let _ = RateLimits::new(&MemoryStore::new()).open(login);
}
