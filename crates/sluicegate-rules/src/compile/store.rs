//! The store that a file names: the section `store`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::policy::TimeSpan;
use sluicegate_core::{ConfigError, MemoryStore, Policy, Store};
#[cfg(feature = "redis")]
use sluicegate_fleet::{DenyCache, Leased};
#[cfg(feature = "redis")]
use sluicegate_redis::{RedisStore, RedisStoreBuilder};

use super::value::{is_unknown, refuse};
use crate::at::At;
use crate::error::Problems;
use crate::schema::{OneOrMany, StoreEntry, written};
use crate::variables::unset;

/// A store that a file names. It is neither open nor connected yet.
///
/// Two are equal if a reload need not open another one. The URL of Redis may hold a password, so `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum NamedStore {
    Memory { keys: usize },
    Redis(NamedRedis),
}

/// A Redis that a file names, and the stores around it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct NamedRedis {
    url: String,
    secret: Option<String>,
    deadline: Option<Duration>,
    replicas: u64,
    durable: bool,
    fleet: Fleet,
}

/// The stores around Redis that save calls to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fleet {
    leases: bool,
    deny_cache: bool,
}

impl NamedStore {
    /// The store of the section; `None` if something is wrong with it, which is reported. A URL with an unset variable is not
    /// checked: checking a file needs none of its secrets.
    pub(super) fn of(section: &At<StoreEntry>, problems: &mut Problems<'_>) -> Option<Self> {
        let StoreEntry { redis, secret, memory, deadline, replicas, durable, fleet } = &section.value;
        match (redis, memory) {
            (Some(url), None) => {
                if !is_unknown(url, "any URL", problems) {
                    NamedRedis::check(url, problems);
                }
                if let Some(secret) = secret {
                    is_unknown(secret, "a placeholder", problems);
                }
                for empty in secret.iter().filter(|secret| secret.value.is_empty()) {
                    problems.error(
                        empty.place,
                        "it is empty, so it would protect nothing: leave the word out, or name a secret",
                    );
                }
                let replicas = replicas.as_ref().map(|text| self::replicas(text, problems));
                let deadline = deadline.as_ref().map(|text| self::deadline(text, problems));
                Some(Self::Redis(NamedRedis {
                    url: url.value.clone(),
                    secret: secret.as_ref().map(|secret| secret.value.clone()),
                    deadline: deadline.flatten(),
                    replicas: replicas.flatten().unwrap_or(1),
                    durable: durable.as_ref().is_some_and(|durable| durable.value),
                    fleet: fleet.as_ref().map(|words| Fleet::of(words, problems)).unwrap_or_default(),
                }))
            }
            (None, Some(keys)) => {
                let words = written!(section.value; secret deadline replicas durable fleet);
                refuse(words, problems, |word| match word {
                    "durable" => {
                        "a store in memory keeps nothing over a restart: leave the word out".to_owned()
                    }
                    "fleet" => "a store in memory is asked without a call: leave the word out".to_owned(),
                    word => format!("a store in memory has no {word}: leave the word out"),
                });
                let keys = self::keys(keys, problems)?;
                Some(Self::Memory { keys: usize::try_from(keys).unwrap_or(usize::MAX) })
            }
            _ => {
                problems.error(
                    section.place,
                    "say either \"redis\", with its URL, or \"memory\", with a number of keys",
                );
                None
            }
        }
    }

    /// The word that names it in the section.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Memory { .. } => "memory",
            Self::Redis(_) => "redis",
        }
    }

    /// The number of instances of the service.
    pub(super) fn replicas(&self) -> u64 {
        match self {
            Self::Memory { .. } => 1,
            Self::Redis(redis) => redis.replicas,
        }
    }

    /// Whether this store supports a policy, if that is known before it is opened.
    pub(super) fn can_keep(&self, policy: &Policy) -> Result<(), ConfigError> {
        match self {
            Self::Memory { .. } => Ok(()),
            Self::Redis(_) => NamedRedis::can_keep(policy),
        }
    }

    /// Opens the store; Redis is connected in the background of a tokio runtime.
    pub(crate) fn open(&self) -> Result<(Arc<dyn Store>, Leases), ConfigError> {
        match self {
            Self::Memory { keys } => {
                let store = MemoryStore::builder().table_size(*keys).build()?;
                Ok(((&store).into(), Leases::default()))
            }
            Self::Redis(redis) => redis.open(),
        }
    }

    /// Connects only to the store, `within` this time.
    ///
    /// # Errors
    /// The reason why it cannot be asked from here.
    pub(crate) async fn connected(&self, within: Duration) -> Result<Arc<dyn Store>, String> {
        match self {
            Self::Memory { .. } => {
                Err("its store is in the memory of the service, and no other process can ask it".to_owned())
            }
            Self::Redis(redis) => match [Some(&redis.url), redis.secret.as_ref()]
                .into_iter()
                .flatten()
                .find_map(|text| unset(text))
            {
                Some(name) => {
                    Err(format!("its store needs the environment variable {name}, which is not set here"))
                }
                None => redis.connected(within).await,
            },
        }
    }
}

impl Fleet {
    fn of(words: &At<OneOrMany>, problems: &mut Problems<'_>) -> Self {
        let mut fleet = Self::default();
        let all = words.all();
        if all.is_empty() {
            problems
                .error(words.place, "an empty list says nothing: leave the word out, or write what is meant");
        }
        for word in all {
            match &*word.value {
                "leases" => fleet.leases = true,
                "deny-cache" => fleet.deny_cache = true,
                _ => problems.error(word.place, "this is not a store of a fleet: write leases or deny-cache"),
            }
        }
        fleet
    }
}

#[cfg(feature = "redis")]
impl NamedRedis {
    fn open(&self) -> Result<(Arc<dyn Store>, Leases), ConfigError> {
        let builder = RedisStore::builder();
        let redis = self.connecting(if self.durable { builder.durable() } else { builder })?;
        let store = sluicegate_resilient::Resilient::builder(&redis).replicas(self.replicas).build()?;
        let (mut store, mut held): (Arc<dyn Store>, _) = ((&store).into(), Leases::default());
        if self.fleet.leases {
            let leased = Leased::builder(store).build()?;
            (store, held) = ((&leased).into(), Leases::of(leased));
        }
        if self.fleet.deny_cache {
            store = (&DenyCache::builder(store).build()?).into();
        }
        Ok((store, held))
    }

    async fn connected(&self, within: Duration) -> Result<Arc<dyn Store>, String> {
        let redis = self.connecting(RedisStore::builder().onlooker());
        let redis = redis.map_err(|error| error.problem().to_owned())?;
        match redis.connected(within).await {
            Ok(()) => Ok(redis.into()),
            Err(error) => Err(match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            }),
        }
    }

    fn connecting(&self, mut builder: RedisStoreBuilder) -> Result<RedisStore, ConfigError> {
        if let Some(secret) = &self.secret {
            builder = builder.secret(secret);
        }
        if let Some(deadline) = self.deadline {
            builder = builder.deadline(deadline);
        }
        builder.connect(&self.url)
    }

    fn check(url: &At<String>, problems: &mut Problems<'_>) {
        if let Err(error) = RedisStore::check_url(&url.value) {
            problems.error(url.place, error.problem());
        }
    }

    fn can_keep(policy: &Policy) -> Result<(), ConfigError> {
        RedisStore::check_policy(policy)
    }
}

/// Without the feature `redis`, nothing is opened, no URL can be checked, and it is unknown which policies a Redis supports.
#[cfg(not(feature = "redis"))]
impl NamedRedis {
    const NO_REDIS: &str = "the file names a Redis, and this program has none: enable the feature `redis` of sluicegate, or of sluicegate-rules";

    fn open(&self) -> Result<(Arc<dyn Store>, Leases), ConfigError> {
        Err(ConfigError::new(sluicegate_core::error::ConfigErrorKind::Store, Self::NO_REDIS))
    }

    #[expect(clippy::unused_async, reason = "with Redis, it waits for the connection")]
    async fn connected(&self, _: Duration) -> Result<Arc<dyn Store>, String> {
        Err(Self::NO_REDIS.to_owned())
    }

    fn check(_: &At<String>, _: &mut Problems<'_>) {}

    fn can_keep(_: &Policy) -> Result<(), ConfigError> {
        Ok(())
    }
}

/// Reads `replicas`. No value of this section is shown: if two lines are mixed up, one of them may be a secret.
fn replicas(text: &At<String>, problems: &mut Problems<'_>) -> Option<u64> {
    let found = text.value.parse().ok().filter(|replicas| (1..=MOST_REPLICAS).contains(replicas));
    if found.is_none() {
        problems.error(
            text.place,
            format!("this is not a number of instances: write a whole number from 1 to {MOST_REPLICAS}"),
        );
    }
    found
}

const MOST_REPLICAS: u64 = 100_000;

/// Reads a deadline from 1 ms to 60 s, as a Redis store takes it.
fn deadline(text: &At<String>, problems: &mut Problems<'_>) -> Option<Duration> {
    let time: Option<TimeSpan> = text.value.parse().ok();
    let time = time.map(Duration::from);
    let found = time.filter(|time| (Duration::from_millis(1)..=Duration::from_secs(60)).contains(time));
    if found.is_none() {
        problems.error(text.place, "this is not a deadline: write a time from 1ms to 1min, as 50ms");
    }
    found
}

/// Reads `1M keys`, `100k keys`, `5000 keys` or the number alone.
fn keys(text: &At<String>, problems: &mut Problems<'_>) -> Option<u64> {
    let plain = text.value.strip_suffix("keys").unwrap_or(&text.value).trim_end();
    let (digits, times) = match plain.strip_suffix(['M', 'k']) {
        Some(digits) if plain.ends_with('M') => (digits, 1_000_000),
        Some(digits) => (digits, 1_000),
        None => (plain, 1),
    };
    let digits: String = digits.chars().filter(|&c| c != '_').collect();
    let keys = digits.parse::<u64>().ok().and_then(|keys| keys.checked_mul(times));
    let found = keys.filter(|keys| (1..=MOST_KEYS).contains(keys));
    if found.is_none() {
        problems.error(text.place, "this is not a number of keys: write 1 to 1000M, as 1M keys");
    }
    found
}

const MOST_KEYS: u64 = 1_000_000_000;

/// Leaves out possible secrets.
impl fmt::Debug for NamedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { keys } => f.debug_struct("Memory").field("keys", keys).finish(),
            Self::Redis(NamedRedis { replicas, durable, fleet, .. }) => {
                let mut debug = f.debug_struct("Redis");
                debug
                    .field("replicas", replicas)
                    .field("durable", durable)
                    .field("fleet", fleet)
                    .finish_non_exhaustive()
            }
        }
    }
}

/// Leases, if the store has any.
#[derive(Clone, Default)]
pub(crate) struct Leases {
    #[cfg(feature = "redis")]
    leased: Option<Leased>,
}

impl Leases {
    #[cfg(feature = "redis")]
    pub(crate) fn of(leased: Leased) -> Self {
        Self { leased: Some(leased) }
    }

    /// Gives the leases back, and returns the units that were not given back.
    #[cfg(feature = "redis")]
    pub(crate) async fn give_back(&self, within: Duration) -> u64 {
        let Some(leased) = &self.leased else { return 0 };
        leased.close(within).await.map_or_else(|unreturned| unreturned.units(), |()| 0)
    }

    #[cfg(not(feature = "redis"))]
    #[expect(clippy::unused_async, reason = "with Redis, it waits for answers")]
    pub(crate) async fn give_back(&self, _: Duration) -> u64 {
        0
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").finish_non_exhaustive()
    }
}
