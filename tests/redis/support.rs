//! Stores of tests, and how much each test tries.

use std::time::Duration;

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

/// The seeds of random traces: that many where `SLUICEGATE_TRACES` does not say how many at most. Scripts are the same on
/// every server, so those beside the installed one need a few, of each kind.
pub(crate) fn seeds(most: u64) -> std::ops::RangeInclusive<u64> {
    let least = std::env::var("SLUICEGATE_TRACES").ok().and_then(|most| most.parse().ok());
    1..=least.unwrap_or(most).min(most)
}
