//! Queues of deferred jobs on servers of their own.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::Request;
use sluicegate::RedisStore;
use sluicegate_tests::servers::Server;

use crate::deferred_example::queue::{Queue, Settings};
use crate::deferred_example::seal::Seal;

pub(crate) const SECRET: &str = "a secret of sixteen bytes, or more";

pub(crate) async fn store(url: &str) -> RedisStore {
    let store = RedisStore::builder().deadline(Duration::from_secs(5)).connect(url).unwrap();
    store.connected(Duration::from_secs(20)).await.expect("the server is up");
    store
}

/// A queue with these settings, whose jobs are encrypted.
pub(crate) async fn queue(server: &Server, settings: Settings) -> Arc<Queue> {
    let seal = Seal::with_secret(SECRET).unwrap();
    Arc::new(Queue::new(&store(&server.url()).await, "orders", seal, settings).unwrap())
}

pub(crate) fn order(body: &str) -> Request<Bytes> {
    Request::post("/orders").body(Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

/// By the clock that all processes of the machine share.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}
