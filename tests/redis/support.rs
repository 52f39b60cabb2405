//! Stores of tests, and how much each test tries.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisFuture, Value};
use sluicegate_core::clock::Clock;
use sluicegate_redis::{RedisStore, RedisStoreBuilder};

/// The settings of a store of which a test asks what it decides, and not how fast on a machine that does other things, too.
pub(crate) fn patient(prefix: &str) -> RedisStoreBuilder {
    RedisStore::builder().prefix(prefix).deadline(Duration::from_secs(20))
}

/// A store that is connected.
pub(crate) async fn connected(settings: RedisStoreBuilder, url: &str) -> RedisStore {
    let store = settings.connect(url).expect("the settings are possible");
    store.connected(Duration::from_secs(20)).await.expect("the servers are up");
    store
}

/// A store that is connected, and shows each command to this function before it is sent.
pub(crate) async fn overheard(
    settings: RedisStoreBuilder,
    url: &str,
    hears: impl Fn(&Cmd) + Send + Sync + 'static,
) -> RedisStore {
    let (client, hears) = (redis::Client::open(url).expect("the URL is one"), Arc::new(hears));
    let store = settings.connect_with(move || {
        let (client, hears) = (client.clone(), Arc::clone(&hears));
        async move { Ok(Overheard { connection: client.get_multiplexed_async_connection().await?, hears }) }
    });
    let store = store.expect("the settings are possible");
    store.connected(Duration::from_secs(20)).await.expect("the servers are up");
    store
}

struct Overheard<F> {
    connection: MultiplexedConnection,
    hears: Arc<F>,
}

impl<F> Clone for Overheard<F> {
    fn clone(&self) -> Self {
        Self { connection: self.connection.clone(), hears: Arc::clone(&self.hears) }
    }
}

impl<F: Fn(&Cmd) + Send + Sync> ConnectionLike for Overheard<F> {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        (self.hears)(command);
        self.connection.req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}

/// The seeds of random traces: that many where `SLUICEGATE_TRACES` does not say how many at most. Scripts are the same on
/// every server, so those beside the installed one need a few, of each kind.
pub(crate) fn seeds(most: u64) -> std::ops::RangeInclusive<u64> {
    let least = std::env::var("SLUICEGATE_TRACES").ok().and_then(|most| most.parse().ok());
    1..=least.unwrap_or(most).min(most)
}

/// A clock that goes on when it is read for the fourth time since a test has begun to ask; what happens then happens before. A request
/// in two slots reads it for each look and then for each spend, so that this is between the two.
pub(crate) struct GoesOn {
    has_begun: AtomicBool,
    reads: AtomicU64,
    from_to: [Duration; 2],
    before: Mutex<Box<dyn FnMut() + Send>>,
}

impl GoesOn {
    pub(crate) fn new(from_to: [Duration; 2], before: impl FnMut() + Send + 'static) -> Self {
        Self {
            has_begun: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            from_to,
            before: Mutex::new(Box::new(before)),
        }
    }

    /// From now on it counts: policies have read it when they were opened.
    pub(crate) fn begin(&self) {
        // Relaxed, here and below: who reads it later was told so by a channel or a task.
        self.has_begun.store(true, Ordering::Relaxed);
    }

    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

impl Clock for GoesOn {
    fn now_us(&self) -> u64 {
        let has_begun = self.has_begun.load(Ordering::Relaxed);
        let reads = if has_begun { self.reads.fetch_add(1, Ordering::Relaxed) } else { 0 };
        if reads == 3 {
            (self.before.lock().unwrap())();
        }
        u64::try_from(self.from_to[usize::from(reads > 2)].as_micros()).unwrap()
    }
}
