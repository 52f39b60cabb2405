//! The store: [`RedisStore`].

mod builder;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::{
    Ask, ConfigError, ConfigErrorKind, Inherit, Key, Limiters, MAX_BUCKETS, Opened, Policy, Receipt,
    Registry, Store, StoreError, StoreErrorKind, Verdict,
};
use tokio::runtime::Handle;

pub use self::builder::RedisStoreBuilder;
use crate::apart;
use crate::call::{Answer, Caller};
use crate::cell::{self, Bucket, Cell, Tags};
use crate::link;

/// Keeps the state of its policies in Redis, where all instances of a service share it.
///
/// Clones are handles to the same connection. See the [crate](crate) for what is promised, and what is not.
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    caller: Arc<Caller>,
    /// Where the store was made, and its connections live.
    runtime: Handle,
    is_cluster: bool,
    tags: Tags,
    prefix: String,
    open: Registry<Vec<Bucket>>,
    limiters: Limiters,
}

impl RedisStore {
    /// A store on the Redis at `url`:
    ///
    /// - `redis://[user:password@]host[:port][/db]`, with TLS as `rediss://`;
    /// - `redis+sentinel://[user:password@]sentinel[:port],sentinel[:port]/master[/db]`;
    /// - `redis+cluster://[user:password@]node:port,node:port`.
    ///
    /// It connects in the background: the store can be used at once, and answers
    /// [`StoreErrorKind::Unavailable`] until it is connected.
    ///
    /// # Errors
    /// When the URL cannot be read. That Redis cannot be reached is no error here; see
    /// [`connected`](Self::connected).
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn connect(url: &str) -> Result<Self, ConfigError> {
        Self::builder().connect(url)
    }

    /// Begins a store with other settings.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::new()
    }

    /// Waits until there is a connection that can run the script: for services that refuse to start without.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unavailable`] when there is none `within` this time.
    pub async fn connected(&self, within: Duration) -> Result<(), StoreError> {
        let up = tokio::time::timeout(within, self.0.caller.link.up()).await;
        up.map_err(|_| {
            StoreError::with_source(StoreErrorKind::Unavailable, "there is no connection to Redis")
        })
    }

    /// Whether there is a connection now.
    pub fn is_connected(&self) -> bool {
        self.0.caller.link.is_up()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.0.prefix)
            .field("link", &self.0.caller.link)
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn cells(&self, asks: &[Ask<'_>]) -> Result<Vec<Cell>, StoreError> {
        let mut cells = Vec::with_capacity(asks.len());
        for (policy, ask) in (0_u8..).zip(asks) {
            let buckets = ask.policy().prepared::<Vec<Bucket>>();
            let buckets = buckets.ok_or_else(|| StoreError::new(StoreErrorKind::ForeignPolicy))?;
            let tag = self.tags.tag(ask.key());
            for (quota, bucket) in (0_u8..).zip(buckets) {
                if cells.len() == MAX_BUCKETS {
                    return Err(StoreError::new(StoreErrorKind::TooManyBuckets));
                }
                let mut cell = Cell::new(bucket, &tag, ask.mode(), ask.cost_of(quota), (policy, quota));
                cell.spent_us = ask.receipt().map(Receipt::at_us);
                cells.push(cell);
            }
        }
        if cells.is_empty() { Err(StoreError::new(StoreErrorKind::NothingAsked)) } else { Ok(cells) }
    }

    /// A verdict whose work goes on when it is dropped, wherever that is: a turn may be dropped by any thread.
    fn spawned(&self, answer: impl Future<Output = Answer> + Send + 'static) -> Verdict {
        let task = self.runtime.spawn(answer);
        Verdict::pending(async {
            task.await.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable)))
        })
    }
}

impl Store for Inner {
    fn limiters(&self) -> &Limiters {
        &self.limiters
    }

    fn open(&self, policy: Arc<Policy>, replaces: Option<(&Opened, Inherit)>) -> Result<Opened, ConfigError> {
        let (replaced, inherit) = replaces.unzip();
        let old = replaced.map(Opened::replaced::<Vec<Bucket>>).transpose()?;
        let generation = match inherit {
            None => String::new(),
            // Perhaps there was a reset before.
            Some(Inherit::AsIs | Inherit::Spent) => {
                old.as_ref().and_then(|old| old.first()).map_or("", |old| &old.generation).to_owned()
            }
            // Every instance that replaces by the same policy finds the same new names.
            Some(Inherit::Reset) => self.tags.tag(Key::from(policy.to_string()).as_ref())[..8].to_owned(),
            Some(other) => {
                return Err(ConfigError::new(
                    ConfigErrorKind::Store,
                    format!(
                        "the Redis store cannot replace a policy with Inherit::{other:?}: use AsIs or Reset"
                    ),
                ));
            }
        };
        self.open.open(policy, replaced, |policy| {
            policy.quotas().iter().map(|quota| Bucket::new(&self.prefix, quota, &generation)).collect()
        })
    }

    fn decide(&self, asks: &[Ask<'_>]) -> Verdict {
        let cells = match self.cells(asks) {
            Ok(cells) => cells,
            Err(error) => return Verdict::ready(Err(error)),
        };
        if self.is_cluster && !cells.iter().all(|cell| cell.lives_with(&cells[0])) {
            return self.spawned(apart::decide(Arc::clone(&self.caller), cells));
        }
        let must_happen = cells.iter().any(Cell::must_happen);
        let answer = self.caller.call(cells);
        // What gives back is carried out even if nobody waits for the answer.
        if must_happen { self.spawned(answer) } else { Verdict::pending(answer) }
    }

    fn parts(&self, asks: &[Ask<'_>]) -> u64 {
        if !self.is_cluster {
            return 1;
        }
        let bits = asks.iter().map(|ask| 1 << link::part_of(cell::slot(&self.tags.tag(ask.key()))));
        bits.fold(0, |all, bit: u64| all | bit)
    }
}

impl From<&RedisStore> for Arc<dyn Store> {
    fn from(store: &RedisStore) -> Self {
        Arc::clone(&store.0) as Self
    }
}

impl From<RedisStore> for Arc<dyn Store> {
    fn from(store: RedisStore) -> Self {
        store.0
    }
}
