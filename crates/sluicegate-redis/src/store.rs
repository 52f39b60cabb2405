//! The store: [`RedisStore`].

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use redis::aio::ConnectionLike;
use sluicegate_core::{
    Ask, Clock, ConfigError, ConfigErrorKind, Inherit, Key, MAX_BUCKETS, Opened, Policy, Registry, Store,
    StoreError, StoreErrorKind, Verdict,
};

use tokio::runtime::Handle;

use crate::apart;
use crate::call::{Answer, Caller};
use crate::cell::{self, Bucket, Cell, Tags};
use crate::link::{self, Link};
use crate::script::{self, Call};
use crate::target::Target;
use crate::tls::Tls;
use crate::together::Together;

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
        RedisStoreBuilder {
            prefix: "rl".to_owned(),
            secret: Vec::new(),
            deadline: Duration::from_millis(50),
            clock: None,
            tls: Tls::default(),
        }
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

/// Collects the settings of a [`RedisStore`].
#[must_use = "a builder does nothing until it connects"]
pub struct RedisStoreBuilder {
    prefix: String,
    secret: Vec<u8>,
    deadline: Duration,
    clock: Option<Box<dyn Clock>>,
    tls: Tls,
}

impl RedisStoreBuilder {
    /// What the names of all keys begin with; `~rl:*` is then the ACL rule. Default: `rl`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// What all instances of the service know and nobody else: with it, who can read Redis cannot test guesses at the
    /// keys (addresses, user names) that are in it. With another secret, all counters start anew. Default: none.
    pub fn secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = secret.as_ref().to_vec();
        self
    }

    /// How long a decision may take. What was sent may be spent although the answer came too late. Default: 50 ms.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Where the time comes from. Default: the server's own `TIME`, so that the clocks of the instances do not matter;
    /// another clock is for tests.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// The CA that has signed the servers' certificates, in PEM, for `rediss://` URLs: that one, and none of the system's.
    /// Certificates of our own for the servers to check go by [`connect_with`](Self::connect_with) and
    /// `redis::Client::build_with_tls`. Default: the CAs that the system trusts.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn tls_ca(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.tls = Tls::with_ca(pem.as_ref());
        self
    }

    /// As [`RedisStore::connect`].
    ///
    /// # Errors
    /// When the URL cannot be read, or a setting cannot work.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn connect(self, url: &str) -> Result<RedisStore, ConfigError> {
        let target = Target::parse(url, self.tls.clone())?;
        self.start(target)
    }

    /// A store on connections that the application makes, such as a `redis::aio::ConnectionManager`: `connect` is called
    /// in the background, and again when a connection is lost.
    ///
    /// # Errors
    /// When a setting cannot work.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn connect_with<C, F>(
        self,
        connect: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<RedisStore, ConfigError>
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
        F: Future<Output = Result<C, RedisError>> + Send + 'static,
    {
        self.start(Target::given(connect))
    }

    /// A store on a pool that the application has already: `deadpool_redis::Pool`, or that of its modules `sentinel` and
    /// `cluster`. A decision takes a connection out of the pool, within the deadline.
    ///
    /// Without a pool of your own, [`connect`](Self::connect): a pool pings before it hands a connection out (on a Cluster,
    /// all primaries), so that every call is two round trips, and a connection that one request has for itself cannot
    /// carry the others at the same time. A user with the rights that the [crate](crate#rights) lists needs `+ping` and
    /// `+unwatch`, too.
    ///
    /// # Errors
    /// When a setting cannot work.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[cfg(feature = "deadpool")]
    #[cfg_attr(docsrs, doc(cfg(feature = "deadpool")))]
    pub fn pool(self, pool: impl Into<crate::DeadPool>) -> Result<RedisStore, ConfigError> {
        let (pool, is_cluster) = pool.into().into_parts();
        self.start(Target::Pool { pool, is_cluster })
    }

    fn start(self, target: Target) -> Result<RedisStore, ConfigError> {
        let fail = |problem: String| Err(ConfigError::new(ConfigErrorKind::Store, problem));
        let Self { prefix, secret, deadline, clock, tls: _ } = self;
        let plain =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-' | b':');
        if prefix.is_empty() || prefix.len() > 64 || !prefix.bytes().all(plain) {
            return fail(format!(
                "{prefix:?} cannot be a prefix: use 1 to 64 of a-z, 0-9, '.', '_', '-' and ':'"
            ));
        }
        if deadline < Duration::from_millis(1) || deadline > Duration::from_secs(60) {
            return fail(format!("a deadline of {deadline:?}: use 1 ms to 60 s"));
        }
        let is_cluster = target.is_cluster();
        let tags = Tags::new(&secret);
        let probe = script::probe(&prefix)?;
        let link = Link::start(target, move || script::command(Call::Text, &probe, None));
        let together = (!is_cluster).then(|| Together::start(Arc::clone(link.state())));
        let caller = Arc::new(Caller { link, together, clock, deadline });
        Ok(RedisStore(Arc::new(Inner {
            caller,
            runtime: Handle::current(),
            is_cluster,
            tags,
            prefix,
            open: Registry::default(),
        })))
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder").field("prefix", &self.prefix).finish_non_exhaustive()
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
                cells.push(Cell::new(bucket, &tag, ask.mode(), ask.cost_of(quota), (policy, quota)));
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
    fn open(&self, policy: Arc<Policy>, replaces: Option<(&Opened, Inherit)>) -> Result<Opened, ConfigError> {
        let (replaced, inherit) = replaces.unzip();
        if replaced.is_some_and(|opened| opened.prepared::<Vec<Bucket>>().is_none()) {
            let problem = "the replaced policy was opened on another store";
            return Err(ConfigError::new(ConfigErrorKind::Store, problem));
        }
        let generation = match inherit {
            None | Some(Inherit::AsIs) => String::new(),
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
