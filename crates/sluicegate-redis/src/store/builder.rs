//! The settings of a store: [`RedisStoreBuilder`].

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use redis::aio::ConnectionLike;
use sluicegate_core::ConfigError;
use sluicegate_core::clock::Clock;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::store::{KeptTask, Limiters, Registry};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::client::RedisClient;
use super::decide::{Batcher, Decider, gather, probe};
use super::key::Tags;
use super::shared::{SharedValue, read_in_turn};
use super::state::RedisState;
use super::{RedisStore, durable, key};
use crate::connection::{ConnectionState, Target, TrustedCa, supervise};

/// Collects the settings of a [`RedisStore`].
///
/// | setting | default | change it if |
/// |---|---|---|
/// | [`prefix`](Self::prefix) | `rl` | several services share a Redis |
/// | [`secret`](Self::secret) | none | keys are addresses or names, and others can read Redis |
/// | [`deadline`](Self::deadline) | 50 ms | Redis is far away, or requests are worth a longer wait |
/// | [`first_connection`](Self::first_connection) | 1 s | a service starts without Redis and must answer at once |
/// | [`clock`](Self::clock) | the server's | in tests |
/// | [`durable`](Self::durable) | no | a limit is a budget that a restart of Redis must not forget |
/// | [`onlooker`](Self::onlooker) | no | a tool looks at the keys of services |
/// | `tls_ca` (feature `tls`) | the system's CAs | the servers' certificates are of a private CA |
///
/// All instances of a service need the same prefix and secret, because both are part of the keys'
/// names.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_redis::RedisStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), sluicegate_core::ConfigError> {
/// let store = RedisStore::builder()
///     .prefix("shop")
///     .secret("the same on every instance")
///     .deadline(Duration::from_millis(20))
///     .connect("redis://127.0.0.1:6379")?;
///
/// // A setting that cannot work is found before anything connects.
/// let error = RedisStore::builder().prefix("Shop!").connect("redis://127.0.0.1:6379").unwrap_err();
/// assert!(error.to_string().contains("cannot be a prefix"), "{error}");
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until it connects"]
pub struct RedisStoreBuilder {
    prefix: String,
    secret: Vec<u8>,
    deadline: Duration,
    first_connection: Duration,
    clock: Option<Box<dyn Clock>>,
    is_onlooker: bool,
    is_durable: bool,
    tls: TrustedCa,
}

impl RedisStoreBuilder {
    pub(super) fn new() -> Self {
        Self {
            prefix: "rl".to_owned(),
            secret: Vec::new(),
            deadline: Duration::from_millis(50),
            first_connection: Duration::from_secs(1),
            clock: None,
            is_onlooker: false,
            is_durable: false,
            tls: TrustedCa::default(),
        }
    }

    sluicegate_core::setters! {
        /// Sets the prefix of all keys. Default: `rl`, for which the ACL rule is `~rl:*`.
        ///
        /// 1 to 64 of `a-z`, `0-9`, `.`, `_`, `-` and `:`.
        prefix(prefix: impl Into<String>) => prefix.into();

        /// Sets a secret that only the instances of the service share. With it, a reader of
        /// Redis cannot test guesses at the keys (addresses, user names) in it. With another
        /// secret, all counters start anew, and overrides of operators are forgotten. Default: none.
        ///
        /// Keys are hashed with or without a secret. Without one the hash protects little: there are only four
        /// billion IPv4 addresses, so a reader of Redis can try them all.
        secret(secret: impl AsRef<[u8]>) => secret.as_ref().to_vec();

        /// Sets the longest time that a decision may take. Default: 50 ms. A decision that was sent may have spent even if its answer
        /// came too late.
        ///
        /// From 1 ms to 60 s. It covers all round trips of a decision, including the wait to share a
        /// call. It is the longest delay that an outage can add to a request, so choose it by the delay that a
        /// request can afford, not by the slowest answer ever seen; with a `Resilient` store around
        /// it, only the first few requests of an outage wait that long.
        deadline(deadline: Duration);

        /// Sets how long after the creation of the store its decisions wait for the first connection. They all wait until the same moment.
        /// After it, a decision without a connection is made at once, as the policy's
        /// [`OnOutage`](sluicegate_core::OnOutage) says. Default: 1 s.
        ///
        /// At most 60 s. Without this wait, requests that come while a service starts would be decided as in an outage, although Redis
        /// is healthy. With `Duration::ZERO` no decision waits, and neither does any in a `Resilient` store, whose
        /// fallback decides meanwhile.
        first_connection(within: Duration);

        /// Sets the clock. Default: the server's own `TIME`, so that the clocks of the instances do not matter; another clock is
        /// for tests.
        ///
        /// With another clock, all requests of a shared call carry the same time, and keys live a
        /// minute longer in Redis than they have to, because the server expires them by its own clock.
        clock(clock: impl Clock) => Some(Box::new(clock));
    }

    /// Prevents peeks from writing, for tools that look at the keys of services, possibly under policies that are not in force.
    /// Default: a peek under a new policy makes Redis count the key under that policy, too, from then on. Instances of
    /// a fleet need this during a rollout.
    pub fn onlooker(mut self) -> Self {
        self.is_onlooker = true;
        self
    }

    /// Uses only servers that keep their counts: with `appendonly yes`, and with `maxmemory-policy noeviction` or no `maxmemory`.
    /// Default: any server.
    ///
    /// Each new connection is checked by `INFO`, on a Cluster each primary, before a request uses it. A server that lacks one of the two is
    /// not used: the log names the missing setting and its correction, [`connected`](RedisStore::connected) returns the same as an
    /// error, and policies decide as in an outage until a later attempt, at most a second later, finds it corrected. The same happens if
    /// Redis cannot be reached when the service starts. Each setting belongs to a server and not to a policy, so all policies of a store
    /// are durable, or none.
    ///
    /// With `appendfsync always`, an answered decision is on disk. With `everysec`, the default of Redis, a crash of the machine
    /// loses the decisions of about the last second; a killed process loses none. A failover loses the decisions that the replica had not
    /// yet received. A service that keeps its data without the append-only file is refused: do not use this setting there.
    pub fn durable(mut self) -> Self {
        self.is_durable = true;
        self
    }

    /// Sets the CA that has signed the servers' certificates, in PEM, for `rediss://` URLs. It replaces the system's CAs.
    /// For client certificates, use [`connect_with`](Self::connect_with) and
    /// `redis::Client::build_with_tls`. Default: the CAs that the system trusts.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn tls_ca(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.tls = TrustedCa::with_ca(pem.as_ref());
        self
    }

    /// As [`RedisStore::connect`].
    ///
    /// # Errors
    /// When the URL cannot be read, a setting cannot work, or there is no tokio runtime to connect on.
    pub fn connect(self, url: &str) -> Result<RedisStore, ConfigError> {
        let target = Target::parse(url, self.tls.clone())?;
        self.start(target)
    }

    /// A store on connections that the application makes, such as a `redis::aio::ConnectionManager`: `connect` is called
    /// in the background, and again when a connection is lost. TCP keepalive is set by `redis::ConnectionInfo::set_tcp_settings`:
    /// without it, a NAT may forget a silent connection.
    ///
    /// # Errors
    /// When a setting cannot work, or there is no tokio runtime to connect on.
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

    /// A store on an existing pool of the application: `deadpool_redis::Pool`, or the pool of its modules `sentinel` and
    /// `cluster`. A decision takes a connection from the pool, within the deadline.
    ///
    /// Without a pool of your own, use [`connect`](Self::connect): a pool pings before it returns a connection (on a Cluster,
    /// all primaries), so every call takes two round trips, and a connection that one request uses cannot
    /// carry others at the same time. A user with the rights that the [crate](crate#rights) lists needs `+ping` and
    /// `+unwatch`, too.
    ///
    /// # Errors
    /// When a setting cannot work, or there is no tokio runtime to connect on.
    #[cfg(feature = "deadpool")]
    #[cfg_attr(docsrs, doc(cfg(feature = "deadpool")))]
    pub fn pool(self, pool: impl Into<crate::DeadPool>) -> Result<RedisStore, ConfigError> {
        self.start(Target::from(pool.into()))
    }

    fn start(self, target: Target) -> Result<RedisStore, ConfigError> {
        let fail = |problem: String| Err(ConfigError::new(ConfigErrorKind::Store, problem));
        let Self { prefix, secret, deadline, first_connection, clock, is_onlooker, is_durable, tls: _ } =
            self;
        if !key::is_plain(&prefix) {
            return fail(format!(
                "{prefix:?} cannot be a prefix: use 1 to 64 of a-z, 0-9, '.', '_', '-' and ':'"
            ));
        }
        if deadline < Duration::from_millis(1) || deadline > Duration::from_secs(60) {
            return fail(format!("a deadline of {deadline:?}: use 1 ms to 60 s"));
        }
        if first_connection > Duration::from_secs(60) {
            return fail(format!(
                "a wait of {first_connection:?} for the first connection: use at most 60 s"
            ));
        }
        let mut probe = probe(&prefix)?;
        if is_durable {
            durable::check(&mut probe);
        }
        let value = SharedValue::read_by(&mut probe, &prefix, &secret);
        let starts_until = Instant::now() + first_connection;
        let connection = Arc::new(ConnectionState::new(target.is_cluster(), starts_until));
        let batcher = Batcher::new(Arc::clone(&connection));
        let background = {
            let (connection, value, batches) =
                (Arc::clone(&connection), Arc::clone(&value), batcher.sender());
            let (target, probe) = (target.clone(), Arc::new(probe));
            KeptTask::new(move || {
                connection.begin_again();
                let supervisor = supervise(Arc::clone(&connection), target.clone(), Arc::clone(&probe));
                let reader = read_in_turn(Arc::clone(&value), Arc::clone(&connection));
                let gatherer = gather(Arc::clone(&batches));
                async move {
                    let mut tasks = JoinSet::new();
                    tasks.spawn(supervisor);
                    tasks.spawn(reader);
                    tasks.spawn(gatherer);
                    tasks.join_all().await;
                }
            })
        };
        if background.keep().is_err() {
            return fail(
                "a Redis store connects in the background of a tokio runtime, and here is none: call it inside of \
                 `#[tokio::main]`, or after `let _guard = runtime.enter()`"
                    .to_owned(),
            );
        }
        let client = Arc::new(RedisClient { connection, background, clock, deadline });
        Ok(RedisStore(Arc::new(RedisState {
            decider: Arc::new(Decider::new(Arc::clone(&client), batcher)),
            shared: value,
            client,
            target,
            tags: Tags::new(&secret),
            is_onlooker,
            prefix,
            open: Registry::default(),
            limiters: Limiters::default(),
        })))
    }
}

sluicegate_core::debug_as!(RedisStoreBuilder { prefix });

#[cfg(test)]
mod tests {
    use crate::RedisStore;

    #[test]
    fn without_a_runtime_a_store_is_refused_with_where_to_make_it() {
        let error = RedisStore::connect("redis://127.0.0.1:1").unwrap_err().to_string();
        assert!(error.contains("call it inside of `#[tokio::main]`"), "{error}");
    }
}
