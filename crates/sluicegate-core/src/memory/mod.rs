//! The embedded store: fixed tables, no background task, no unsafe code.
//!
//! It decides in tens of nanoseconds and is the right store for one process, for tests, and as the
//! fallback of a [`Resilient`](crate::Resilient) store.
//!
//! ```
//! use sluicegate_core::{MemoryStore, Policy};
//!
//! // Room for a million keys in debt in each quota of each policy: 24 MB for GCRA.
//! let store = MemoryStore::builder().keys(1_000_000).build()?;
//! let api = Policy::gcra("api", "100/min").on(&store)?;
//! assert!(api.check("ada").now().expect("memory answers at once")?.is_allowed());
//! assert_eq!(store.stats().evictions, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When not to use it
//! - Where several instances of a service share a limit of L: N instances admit N times L, unless
//!   each is given an Nth ([`Policy::share`](crate::Policy::share)). Then Redis is the store.
//! - Where a restart must not forgive: nothing survives it.
//!
//! # How it is made
//! A decision hashes the key together with a number of its quota, locks one set of 64 bytes, and
//! reads and writes two or three numbers there. A key whose state is at rest takes no room, because
//! a missing key decides the same; so nothing has to be swept, and there is no task to start or to
//! forget.
//!
//! | room | is |
//! |---|---|
//! | `table` | the sets: slots, tags, the lock, who makes room |
//! | `logs` | sliding logs, whose states are lists |
//! | `home`, `place` | one face for both |
//! | `decide` | three ways of deciding, of which the general one is right for everything |
//! | `change` | what an ask does to a state |
//! | `bucket`, `handover` | a policy's quotas, and how keys go on when it is replaced |
//! | `holds`, `ahead`, `account` | units held for waiting requests, turns that are out, what was given back |
//!
//! # Locking
//! Sets and shards of one decision are locked together, each once, in the order of their buckets'
//! numbers and then of their indices, and all are held until the states are written. What is held
//! for waiting requests has a mutex per bucket, taken under the set's lock and never before it. The
//! clock is read under the locks wherever a state is not a level, so that the times in one state
//! never go backwards.

mod account;
mod ahead;
mod bucket;
mod change;
mod decide;
mod handover;
mod holds;
mod home;
mod logs;
mod place;
mod table;

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::quality::RandomState;

use self::bucket::Buckets;
use self::logs::Logs;
use crate::algorithm::SlidingLog;
use crate::clock::{Clock, SystemClock};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::key::KeyRef;
use crate::limiter::Limiters;
use crate::policy::{MOST_KEYS, Policy};
use crate::store::Registry;
use crate::store::{Ask, DecisionFuture, Inherit, PreparedPolicy, Store, StoreStatus};

/// Keeps the state of all its policies in memory of a fixed size.
///
/// Clones are handles to the same store. Limits hold for one process; nothing survives a restart.
///
/// # Memory
/// Each quota of each policy has a table of its own, allocated whole when the policy is opened, that never grows, whatever
/// keys arrive. Its size is set in keys: by [`PolicyBuilder::keys`](crate::policy::PolicyBuilder::keys), or for all policies
/// by [`MemoryStoreBuilder::keys`]. The memory of a store is the sum:
///
/// | state | quotas | bytes per key | with [refunds](crate::policy::PolicyBuilder::refunds) |
/// |---|---|---|---|
/// | one word | GCRA, token and leaky buckets of all round quotas | 24 | 48 |
/// | two words | fixed windows, sliding counters, interval refills, awkward quotas | 48 | 96 |
/// | a list | sliding logs | at most 72, and 16 per entry | the same |
///
/// A key is held only while it is in debt: a key back at rest takes no room, and there is nothing to sweep. When
/// as many keys as there is room for are in debt at once, three to five in a hundred find their set full: then the least
/// indebted key of that set is forgotten, which admits it anew; see [`MemoryStore::stats`]. That is the key that has used
/// the smallest part of this quota. A flood of new keys therefore drives out its own kind: it cannot wash away what other
/// policies know, nor debtors that owe more than its own keys. Logs make room for a flood in the same way, among 16 keys
/// drawn at random.
///
/// Where forgetting is worse than refusing, a policy says [`OnFull::Inherit`](crate::policy::OnFull::Inherit): a key that makes
/// room leaves its debt to its set, and keys that are new there start with the heaviest debt that was left. So no flood
/// frees a debtor, and the price is that in a flood innocent keys may be refused until that debt has drained, no longer.
/// It takes 27 bytes per key for states of one word, 60 for those of two, 60 and 132 with refunds, and 2 more for logs. A
/// [reset](crate::RateLimiter::reset) takes away what a key owes, not what it inherits.
///
/// When a policy is [replaced](crate::RateLimiter::replace), a quota whose rule stays keeps its table. That of another one
/// stays until none of its keys matters any more; the first policy's as long as there is a handle. What is held for requests
/// that wait for another limit takes room of its own, for at most as many keys as the table has room for.
///
/// # Example
/// ```
/// use std::time::Duration;
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_core::clock::ManualClock;
///
/// let clock = ManualClock::new();
/// let store = MemoryStore::builder().keys(10_000).clock(clock.clone()).build()?;
/// let search = Policy::token_bucket("search", "1/s burst 2").on(&store)?;
///
/// let check = || search.check("ada").now().expect("memory answers at once");
/// assert!(check()?.is_allowed() && check()?.is_allowed());
/// assert_eq!(check()?.retry_after(), Some(Duration::from_secs(1)));
/// clock.advance(Duration::from_secs(1));
/// assert!(check()?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    settings: Settings,
    clock: Time,
    seed: RandomState,
    open: Registry<Buckets>,
    limiters: Limiters,
    salts: AtomicU64,
    buckets: AtomicU64,
    holds: AtomicU64,
    evictions: Arc<AtomicU64>,
    inherited: Arc<AtomicU64>,
}

/// The machine's clock without a call through a pointer, or another.
enum Time {
    System(SystemClock),
    Other(Box<dyn Clock>),
}

impl Time {
    #[inline]
    fn now_us(&self) -> u64 {
        match self {
            Self::System(clock) => clock.now_us(),
            Self::Other(clock) => clock.now_us(),
        }
    }
}

impl MemoryStore {
    /// A store for 100,000 keys in debt at once, on the machine's clock.
    pub fn new() -> Self {
        Self::with(Settings::default(), Time::System(SystemClock::new()))
    }

    /// Begins a store with another size or clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder { settings: Settings::default(), clock: None }
    }

    fn with(settings: Settings, clock: Time) -> Self {
        Self(Arc::new(Inner {
            settings,
            clock,
            seed: RandomState::default(),
            open: Registry::default(),
            limiters: Limiters::default(),
            salts: AtomicU64::new(0),
            buckets: AtomicU64::new(1),
            holds: AtomicU64::new(1),
            evictions: Arc::default(),
            inherited: Arc::default(),
        }))
    }

    /// How full the store is. Walks the tables, so it is for a gauge that is read now and then.
    ///
    /// It takes no lock in tables, so the numbers may be a moment apart from each other. Logs lock
    /// one shard after the other.
    pub fn stats(&self) -> MemoryStats {
        self.0.stats()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("keys", &self.0.settings.keys).finish_non_exhaustive()
    }
}

/// How full a [`MemoryStore`] is.
///
/// A flood drives out its own kind. Here is a table of one set, with room for five keys in debt,
/// and a debtor among a hundred strangers:
///
/// ```
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let store = MemoryStore::new();
/// let login = Policy::gcra("login", "5/h").keys(1).on(&store)?;
/// login.check_cost("debtor", 5).now().expect("memory answers at once")?;
/// for stranger in 0..100 {
///     login.check(stranger).now().expect("memory answers at once")?;
/// }
/// assert!(!login.check("debtor").now().expect("memory answers at once")?.is_allowed());
/// assert_eq!(store.stats().evictions, 96); // the strangers, but for the last four
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Keys in debt, counted once per quota.
    pub keys: usize,
    /// The most that fit, over the tables of all policies.
    pub slots: usize,
    /// Keys that were forgotten before they were at rest, because there was no room. Should stay near zero: if it
    /// grows, make room for more [keys](MemoryStoreBuilder::keys).
    pub evictions: u64,
    /// Keys that had to make room under policies with [`OnFull::Inherit`](crate::policy::OnFull::Inherit), and left their debt to
    /// keys that come after. If it grows, keys that have spent nothing are refused: make room for more [keys](MemoryStoreBuilder::keys).
    pub inherited: u64,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    keys: usize,
    log_entries: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { keys: 100_000, log_entries: 262_144 }
    }
}

/// Collects the settings of a [`MemoryStore`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct MemoryStoreBuilder {
    settings: Settings,
    clock: Option<Box<dyn Clock>>,
}

impl MemoryStoreBuilder {
    /// How many keys of each policy can be in debt at once, unless the policy says otherwise. Default: 100,000 (2.4 MB for each
    /// quota; 4.8 MB for those of two words). This bounds the memory of a policy; see [`MemoryStore`].
    ///
    /// A key counts while it is in debt, which for most keys is for one period after its last
    /// request. So the number to give is that of clients per period, with a margin for floods.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let store = MemoryStore::builder().keys(50_000).build()?;
    /// let api = Policy::gcra("api", "100/min").on(&store)?;
    /// // A policy of few keys needs no large table.
    /// let global = Policy::gcra("global", "10000/s").keys(1).on(&store)?;
    /// let slots = store.stats().slots;
    /// assert!((90_000..100_000).contains(&slots)); // 1.87 slots per key keep sets from filling up
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn keys(mut self, keys: usize) -> Self {
        self.settings.keys = keys;
        self
    }

    /// How many entries the sliding logs of each quota have together. Default: 262,144 (4 MB). A sixteenth of them is the
    /// highest limit that a sliding log on this store can have.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let store = MemoryStore::new(); // 262,144 entries: logs of up to 16,384
    /// assert!(Policy::sliding_log("small", "16384/h").on(&store).is_ok());
    /// assert!(Policy::sliding_log("large", "16385/h").on(&store).is_err());
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn log_entries(mut self, entries: usize) -> Self {
        self.settings.log_entries = entries;
        self
    }

    /// Where the time comes from. Default: [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// Checks the settings and makes the store.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Store`] for 0 keys or log entries, and for more than 2^31.
    pub fn build(self) -> Result<MemoryStore, ConfigError> {
        let Settings { keys, log_entries } = self.settings;
        for (what, value) in [("keys", keys), ("log entries", log_entries)] {
            if value == 0 || value > MOST_KEYS {
                return Err(ConfigError::new(
                    ConfigErrorKind::Store,
                    format!("a memory store cannot have room for {value} {what}: use 1 to {MOST_KEYS}"),
                ));
            }
        }
        let clock = self.clock.map_or_else(|| Time::System(SystemClock::new()), Time::Other);
        Ok(MemoryStore::with(self.settings, clock))
    }
}

impl fmt::Debug for MemoryStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryStoreBuilder").field(&self.settings).finish()
    }
}

impl Inner {
    fn stats(&self) -> MemoryStats {
        let now_us = self.clock.now_us();
        let open = self.open.prepared();
        let mut buckets: Vec<_> = open.iter().flat_map(|buckets| buckets.all()).collect();
        buckets.sort_unstable_by_key(|bucket| bucket.number);
        buckets.dedup_by_key(|bucket| bucket.number);
        let fills = buckets.iter().map(|bucket| bucket.fill(now_us));
        let (keys, slots) = fills.fold((0, 0), |(keys, slots), (used, all)| (keys + used, slots + all));
        // Relaxed: counts for a gauge.
        let [evictions, inherited] =
            [&self.evictions, &self.inherited].map(|count| count.load(Ordering::Relaxed));
        MemoryStats { keys, slots, evictions, inherited }
    }

    /// A number that no client can guess, different for every bucket ever opened.
    fn fresh_salt(&self) -> u64 {
        self.seed.hash_one(self.salts.fetch_add(1, Ordering::Relaxed))
    }

    /// Policy, quota and key in one: the hash is seeded at random, so nobody outside can aim at a set.
    ///
    /// Two keys whose 64 bits collide share a bucket: the low 32 bits choose the set and the high
    /// 32 are the tag in it.
    #[inline]
    fn hash(&self, salt: u64, key: KeyRef<'_>) -> u64 {
        let (tag, bytes) = key.parts();
        let mut hasher = self.seed.build_hasher();
        // Type and length in the word that is hashed anyway; the text where it lies.
        hasher.write_u64(salt ^ (u64::from(tag) << 56 | bytes.len() as u64));
        hasher.write(bytes);
        hasher.finish()
    }

    /// How many keys of a policy can be in debt at once.
    fn keys_of(&self, policy: &Policy) -> usize {
        policy.keys().unwrap_or(self.settings.keys)
    }

    fn check_log(&self, policy: &Policy, rule: &SlidingLog) -> Result<(), ConfigError> {
        let longest = Logs::longest(self.settings.log_entries);
        if usize::try_from(rule.limit()).is_ok_and(|limit| limit <= longest) {
            return Ok(());
        }
        let needed = rule.limit().saturating_mul(16);
        Err(ConfigError::new(
            ConfigErrorKind::Unsupported,
            format!(
                "it needs a log of {} entries per key, and this store has room for {longest}: build it with log_entries({needed}), or use a sliding counter",
                rule.limit()
            ),
        )
        .in_policy(policy.name()))
    }
}

impl Store for Inner {
    fn open(
        &self,
        policy: Arc<Policy>,
        replaces: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        let (replaced, inherit) = replaces.unzip();
        let predecessor = replaced.map(PreparedPolicy::replaced::<Buckets>).transpose()?.zip(inherit);
        self.open.open(policy, replaced, |policy| Buckets::new(self, policy, predecessor.as_ref()))
    }

    #[inline]
    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        self.decide_now(asks)
    }

    fn always_answers(&self) -> bool {
        true
    }

    fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    fn status(&self) -> StoreStatus {
        StoreStatus { memory: Some(self.stats()), ..StoreStatus::default() }
    }

    #[inline]
    fn is_idle(&self, policy: &PreparedPolicy) -> bool {
        policy.prepared::<Buckets>().is_some_and(|buckets| buckets.are_idle(&self.clock))
    }

    fn limiters(&self) -> &Limiters {
        &self.limiters
    }
}

impl From<&MemoryStore> for Arc<dyn Store> {
    fn from(store: &MemoryStore) -> Self {
        Arc::clone(&store.0) as Self
    }
}

impl From<MemoryStore> for Arc<dyn Store> {
    fn from(store: MemoryStore) -> Self {
        store.0
    }
}
