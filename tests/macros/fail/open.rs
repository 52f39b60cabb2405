//! A handler without the attribute has no limits that could be opened.

use sluicegate::MemoryStore;
use sluicegate::attribute::RateLimitStore;

async fn login() {}

fn main() {
    let _ = RateLimitStore::new(&MemoryStore::new()).open(login);
}
