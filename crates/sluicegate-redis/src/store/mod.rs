//! The store: [`RedisStore`].

mod builder;
mod client;
mod decide;
mod durable;
mod inspect;
mod key;
mod permits;
mod prepared;
mod shared;
mod slot;
mod state;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::key::AsKey;
use sluicegate_core::{ConfigError, Policy, StoreError};

pub use self::builder::RedisStoreBuilder;
pub use self::inspect::PolicyKeys;
pub use self::slot::{HashSlot, Script};
use self::state::RedisState;
use crate::connection::Target;

/// Keeps the state of its policies in Redis, where all instances of a service share it.
///
/// Clones are handles to the same connection. See the [crate](crate) for its guarantees and their
/// limits.
///
/// It can be used before there is a connection, so a service starts while Redis is down. Until
/// there is one, each policy decides as in any outage:
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::store::DecidedBy;
/// use sluicegate_core::{OnOutage, Policy};
/// use sluicegate_redis::RedisStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1:1")?; // nothing listens there
/// assert!(store.connected(Duration::from_millis(20)).await.is_err());
///
/// let search = Policy::gcra("search", "1/min").on(&store)?;
/// let login = Policy::gcra("login", "5/min").on_outage(OnOutage::Deny).on(&store)?;
/// for passes in [true, false] {
///     let search = search.check("ada").await?; // by this process alone
///     assert_eq!((search.is_allowed(), search.decided_by()), (passes, DecidedBy::Fallback));
/// }
/// let login = login.check("ada").await?;
/// assert_eq!((login.is_allowed(), login.decided_by()), (false, DecidedBy::Outage));
/// # Ok(())
/// # }
/// ```
///
/// # Runtime
/// Its connection lives on the tokio runtime on which it was made. It may be called from anywhere, also from another runtime. After that
/// runtime has ended, the store connects again on the runtime of the next caller, which waits for the connection within its deadline; so a
/// store may be in a static of tests, or be shared by a runtime for each thread. A caller outside of any runtime then gets an error that says
/// so. A runtime that is not driven has not ended: nothing works on it.
///
/// # Cancel safety
/// A call starts when the store is asked, and continues whether or not its future is polled or
/// dropped.
#[derive(Clone)]
pub struct RedisStore(Arc<RedisState>);

impl RedisStore {
    /// A store on the Redis at `url`:
    ///
    /// - `redis://[user:password@]host[:port][/db]`, with TLS as `rediss://`;
    /// - `unix:///path/to/socket[?db=1&user=NAME&pass=PASSWORD]`;
    /// - `redis+sentinel://[user:password@]sentinel[:port],sentinel[:port]/master[/db]`;
    /// - `redis+cluster://[user:password@]node:port,node:port`.
    ///
    /// It connects in the background: the store can be used at once. In its first second, decisions wait for the
    /// [first connection](RedisStoreBuilder::first_connection); after that, without one, they are errors of the kind
    /// [`StoreErrorKind::Unavailable`](sluicegate_core::error::StoreErrorKind::Unavailable), returned at once.
    ///
    /// # Errors
    /// When the URL cannot be read, or there is no tokio runtime to connect on. An unreachable Redis is not an error here;
    /// see [`connected`](Self::connected).
    ///
    /// ```
    /// use sluicegate_redis::RedisStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), sluicegate_core::ConfigError> {
    /// let one = RedisStore::connect("redis://app:secret@127.0.0.1:6379/2")?;
    /// let group = RedisStore::connect("redis+sentinel://10.0.0.1,10.0.0.2:26380/mymaster/2")?;
    /// let cluster = RedisStore::connect("redis+cluster://10.0.0.1:7000,10.0.0.2:7000")?;
    ///
    /// // A mistake shows the URL without its password.
    /// let error = RedisStore::connect("http://app:secret@127.0.0.1").unwrap_err().to_string();
    /// assert!(error.contains("its scheme is not one of") && !error.contains("secret"), "{error}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect(url: &str) -> Result<Self, ConfigError> {
        Self::builder().connect(url)
    }

    /// Checks a URL without connecting: for tools that look at a configuration. A TLS URL is accepted even if this
    /// program is built without TLS.
    ///
    /// ```
    /// use sluicegate_redis::RedisStore;
    ///
    /// assert!(RedisStore::check_url("rediss://app:secret@redis.internal/2").is_ok());
    /// let error = RedisStore::check_url("http://app:secret@127.0.0.1").unwrap_err().to_string();
    /// assert!(error.contains("its scheme is not one of") && !error.contains("127.0.0.1"), "{error}");
    /// ```
    ///
    /// # Errors
    /// When [`connect`](Self::connect) could not read the URL. The error shows no part of it, because it may hold a password, and errors
    /// are logged.
    pub fn check_url(url: &str) -> Result<(), ConfigError> {
        Target::check(url)
    }

    /// Checks whether Redis supports a policy, without connecting: for tools that look at a configuration.
    ///
    /// ```
    /// use sluicegate_core::Policy;
    /// use sluicegate_redis::RedisStore;
    ///
    /// let long = Policy::sliding_log("long", "5000/d").build()?;
    /// assert!(RedisStore::check_policy(&long).is_err(), "a log of 5,000 entries is too long to be written with every decision");
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// The error with which opening the policy on any Redis would fail.
    pub fn check_policy(policy: &Policy) -> Result<(), ConfigError> {
        prepared::check(policy)
    }

    /// Builds a store with other settings.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::new()
    }

    /// Waits until there is a connection that can run the script: for services that refuse to start without one.
    ///
    /// A service that starts without Redis does not need it: the store connects by itself, and
    /// again whenever the connection is lost.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unavailable`](sluicegate_core::error::StoreErrorKind::Unavailable) when there is no connection `within` this time;
    /// its source is the error of the last attempt.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing: the store continues to connect in the background.
    pub async fn connected(&self, within: Duration) -> Result<(), StoreError> {
        self.0.client.connected(within).await
    }

    /// The name in Redis under which this store keeps the state of a key under a policy, to inspect it or to delete it by hand.
    ///
    /// ```
    /// use sluicegate_redis::RedisStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), sluicegate_core::ConfigError> {
    /// let store = RedisStore::builder().prefix("shop").secret("of the fleet").connect("redis://127.0.0.1:1")?;
    /// let name = store.key_name("login", "ada@example.org");
    /// assert!(name.starts_with("shop:3:login:{") && !name.contains("ada"), "{name}");
    /// assert_ne!(name, store.key_name("login", "bob@example.org"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_name(&self, policy: &str, key: impl AsKey) -> String {
        key.with_key(|key| key::name(&self.0.prefix, policy, &self.0.tags.tag(key)))
    }

    /// Keys in one hash slot, for scripts of your own.
    ///
    /// # Errors
    /// When `name` is not 1 to 64 of `a-z`, `0-9`, `.`, `_`, `-` and `:`.
    ///
    /// ```
    /// use sluicegate_redis::RedisStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), sluicegate_core::ConfigError> {
    /// let store = RedisStore::connect("redis://127.0.0.1:1")?;
    /// let tickets = store.slot("tickets", "gala")?;
    /// let bucket = store.key_name("tickets", "gala");
    /// assert_eq!(tickets.key_name("drawn"), format!("{bucket}:drawn"));
    /// assert!(store.slot("{tickets}", "gala").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn slot(&self, name: &str, key: impl AsKey) -> Result<HashSlot, ConfigError> {
        if !key::is_plain(name) {
            let problem = format!(
                "{name:?} cannot be the name of a slot: use 1 to 64 of a-z, 0-9, '.', '_', '-' and ':'"
            );
            return Err(ConfigError::new(ConfigErrorKind::Name, problem));
        }
        Ok(key.with_key(|key| self.0.slot(name, key)))
    }

    /// Counts the keys in Redis under this store's prefix, by policy in the order of their names: their number, their memory,
    /// and the longest idle time. It includes policies that are no longer open, and
    /// [slots](Self::slot) by their names.
    ///
    /// It is for a tool, or a page that is rarely viewed: it takes time in proportion to all keys of the server, over connections
    /// of its own, in steps of a thousand keys (`SCAN`) so that decisions continue in between. On a Cluster it looks at each primary.
    /// A key that is created or removed meanwhile may be missed or counted twice.
    ///
    /// ```no_run
    /// use sluicegate_redis::RedisStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::connect("redis://127.0.0.1:6379")?;
    /// for policy in store.inspect().await? {
    ///     println!("{}: {} keys in {} bytes", policy.policy, policy.keys, policy.bytes);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When a server does not answer within 5 s, or refuses: the user needs the rights that the [crate](crate#rights) lists.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn inspect(&self) -> Result<Vec<PolicyKeys>, StoreError> {
        inspect::inspect(&self.0.target, &self.0.prefix).await
    }

    /// Whether there is a connection now.
    ///
    /// It is for a health page or a gauge. Do not check it before a decision: the connection may be lost in
    /// between, and a decision without a connection costs nothing.
    pub fn is_connected(&self) -> bool {
        self.0.client.is_connected()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.0.prefix)
            .field("is_connected", &self.is_connected())
            .finish_non_exhaustive()
    }
}

sluicegate_core::store_handle!(RedisStore);
