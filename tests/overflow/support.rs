//! Stores on servers of tests.

use std::time::Duration;

use sluicegate::RedisStore;

pub(crate) async fn store(url: &str) -> RedisStore {
    let store = RedisStore::builder().deadline(Duration::from_secs(5)).connect(url).unwrap();
    store.connected(Duration::from_secs(20)).await.expect("the server is up");
    store
}
