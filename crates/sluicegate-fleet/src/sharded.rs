//! Hot keys in shards: [`Sharded`] keeps one bucket in several places of a store, so that no single place decides every request.
//!
//! One core of Redis decides about 100,000 requests a second, and a key lives on one node. A limit that all requests share, such as one for
//! the whole service, is bound by that node, however many nodes there are. In N shards, each on a hash slot of its own, it is bound by N
//! nodes.
//!
//! Each shard is a policy of its own, `api.1of4` to `api.4of4`, with its part of each limit and burst: 25 a minute in two shards
//! is 12 and 13. The parts [sum exactly](sluicegate_core::Policy::split) to the whole.
//!
//! ```
//! use sluicegate_core::{MemoryStore, Policy};
//! use sluicegate_fleet::Sharded;
//!
//! # let redis = MemoryStore::new();
//! let store = Sharded::builder(redis, 2).policy("api").build()?;
//! let api = Policy::gcra("api", "25/h").on(&store)?;
//!
//! let check = |cost| api.check("everybody").cost(cost).now().expect("memory answers at once");
//! assert!(check(13)?.is_allowed()); // all of the larger shard
//! let refused = check(13)?;
//! assert!(!refused.is_allowed());
//! assert_eq!((refused.capacity(), refused.remaining()), (25, 12)); // all shards together
//! assert!(check(12)?.is_allowed()); // the other shard
//! assert_eq!(check(14)?.outcome(), sluicegate_core::Outcome::Impossible); // more than any shard has
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When not to use it
//! Leave it out for limits per user or address: their keys are already spread over the nodes. For less than about 50,000 requests a second
//! of one key, one slot is enough, and answers with all the numbers. With one node of Redis, or in memory, there is nothing to spread
//! to.
//!
//! # How a request is decided
//! | step | calls | when |
//! |---|---|---|
//! | one random shard is asked for the whole cost | 1 | always; usually it is the last step |
//! | all shards are peeked at; the shard with the most room is asked if it has room for all of it | 2 more | that shard has refused |
//! | the refusal stands, with the numbers of all shards | | no shard has room for all of it |
//!
//! A cost is spent in one shard: a cost above the burst of the largest one is impossible, and a higher cost than one may be refused while all
//! shards together have as many units left. Use shards for costs that are small beside a shard's burst.
//!
//! A peek, a reset, a charge, a refund without a receipt and a check [`up_to`](sluicegate_core::limiter::Check::up_to) a number ask all
//! shards. A check `up_to` a number gets as much as the richest shard has; a charge goes to that shard if it has room, and otherwise is a debt of
//! all shards. A refund by its receipt goes to the shard that has spent it, and is exact; without one it goes to the most used shard. A
//! request that waits for its turn waits in one shard, the one with the shortest wait, or a random one of several.
//!
//! # What it admits
//! | | at most | at least |
//! |---|---|---|
//! | any algorithm, any span | the bound in its table for the whole policy: the sum of the shards | |
//! | buckets, logs, fixed windows | | all of it at a cost of one: a refusal stands only if no shard has room |
//! | sliding counters | | up to N - 1 units less than all of it, while the window before fades: each shard rounds up |
//! | concurrent requests for the last units | | as above, unless others were faster three times in a row |
//! | an instance that dies between two calls | | its spent units stay spent |
//!
//! # The numbers
//! A refused request and a peek show the remaining units of all shards together, the shortest wait that helps, and the longest reset. A
//! request passed by one shard shows the units of that shard, because the others were not asked: at least this number is left. The
//! capacity is always that of the whole policy.
//!
//! The wait is exact: it is that of the first shard that would pass the cost.
//!
//! # Suspensions
//! The suspension of a key is kept whole, in one slot that each request is checked against: a policy that suspends keys is no faster in
//! shards.
//!
//! # Outages
//! A call needs the parts of the store that hold any shard of its key: a `Resilient` store around it decides a key by its fallback while
//! the node of one of its shards is unreachable.
//!
//! # Changes
//! A policy that is replaced, by code or by an override, keeps its shards: a replacement with a limit below the number of shards is
//! refused. Units count where they were spent: a limit that is lowered below the spent units of one shard leaves a debt of that shard, and
//! the others keep their units. Another number of shards makes another set of buckets: until all instances agree, each set admits
//! the limit, so change it as you would rename a policy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::key::KeyRef;
use sluicegate_core::policy::MAX_QUOTAS;
use sluicegate_core::store::{IntoStore, Place};
use sluicegate_core::{ConfigError, Key, Policy, Store};

use crate::divided::{Divide, Divided};

/// A store around a store that keeps the buckets of some policies in shards; see the [module](self).
///
/// Clones are cheap and share one store.
///
/// # Cancel safety
/// The runtime in which a decision was requested finishes it, even if its future is dropped.
#[derive(Clone)]
pub struct Sharded(Arc<Divided<ShardedPolicies>>);

impl Sharded {
    /// Starts building a store around `store` that keeps the chosen policies in this many shards: 2 to 16, and at most as many as the least
    /// limit or burst of such a policy has units. At most 16 buckets decide a request, so a policy with two quotas has at most 8 shards.
    pub fn builder(store: impl IntoStore, shards: u64) -> ShardedBuilder {
        ShardedBuilder { store: store.into(), shards, policies: Vec::new(), above: None }
    }
}

sluicegate_core::debug_as!(Sharded {});

sluicegate_core::store_handle!(Sharded);

/// Collects the policies to keep in shards; all others are kept whole.
///
/// ```
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_fleet::Sharded;
///
/// # let redis = MemoryStore::new();
/// // The limit of the service, and every other limit above a million.
/// let store = Sharded::builder(redis, 8).policy("service").above(1_000_000).build()?;
///
/// // A policy that cannot be split exactly is refused, with the reason.
/// let error = Policy::gcra("service", "5/s").on(&store).unwrap_err();
/// assert!(error.to_string().contains("one of 8 parts would have none of 5 units"), "{error}");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct ShardedBuilder {
    store: Arc<dyn Store>,
    shards: u64,
    policies: Vec<String>,
    above: Option<u64>,
}

impl ShardedBuilder {
    /// Keeps the policy of this name in shards; opening it fails if that is impossible. May be called several times.
    pub fn policy(mut self, name: impl Into<String>) -> Self {
        self.policies.push(name.into());
        self
    }

    /// Keeps in shards all policies with all limits above this number of units, if possible: queues, windows that begin with a
    /// key's first unit, and bursts below the number of shards stay whole. Default: none. The number is compared when a policy is first
    /// opened, not when it is replaced.
    pub fn above(mut self, limit: u64) -> Self {
        self.above = Some(limit);
        self
    }

    /// Checks the settings and makes the store.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Store`] for less than 2 or more than 16 shards, when nothing would be in shards, and around a store that has a
    /// [place](Place) of its own, because this one is the innermost.
    pub fn build(self) -> Result<Sharded, ConfigError> {
        let Self { store, shards, policies, above } = self;
        let refused = |problem| Err(ConfigError::new(ConfigErrorKind::Store, problem));
        if !(2..=MAX_QUOTAS as u64).contains(&shards) {
            return refused(format!("a store with {shards} shards of a key: use 2 to {MAX_QUOTAS}"));
        }
        if policies.is_empty() && above.is_none() {
            let problem = "no policy would be in shards: name one with `policy`, or use `above`";
            return refused(problem.to_owned());
        }
        Place::Shard.around(&*store)?;
        let slots = ShardedPolicies { store: [store], shards, policies, above, turns: AtomicU64::new(0) };
        Ok(Sharded(Arc::new(Divided::new(slots))))
    }
}

sluicegate_core::debug_as!(ShardedBuilder { shards, policies, above });

/// Shards on one store.
struct ShardedPolicies {
    store: [Arc<dyn Store>; 1],
    /// The number of shards of each divided policy; the same on all instances.
    shards: u64,
    /// The names of policies that are always divided.
    policies: Vec<String>,
    /// Policies with all limits above this number are divided.
    above: Option<u64>,
    /// The number of shard choices so far.
    turns: AtomicU64,
}

impl ShardedPolicies {
    /// Whether it is large enough to be kept in shards if possible.
    fn is_large(&self, policy: &Policy) -> bool {
        let is_above = |above| policy.quotas().iter().all(|quota| quota.quota().limit() > above);
        let fits = policy.quotas().len() * usize::try_from(self.shards).unwrap_or(MAX_QUOTAS) <= MAX_QUOTAS;
        self.above.is_some_and(is_above) && fits && self.split(policy).is_ok()
    }

    /// The shards of a policy: parts that differ by at most one unit.
    ///
    /// # Errors
    /// When a shard would have no unit, or its rate would not be exact.
    fn split(&self, policy: &Policy) -> Result<Vec<Policy>, ConfigError> {
        let shards = self.shards;
        policy.split((1..=shards).map(|shard| (format!("{}.{shard}of{shards}", policy.name()), 1)))
    }
}

impl Divide for ShardedPolicies {
    fn stores(&self) -> &[Arc<dyn Store>] {
        &self.store
    }

    fn parts(&self, policy: &Policy, replaces: Option<bool>) -> Result<Option<Vec<Policy>>, ConfigError> {
        // A suspension is one span for the whole key.
        let is_named = || self.policies.iter().any(|name| name == policy.name());
        let is_sharded = || !policy.is_of_suspension() && (is_named() || self.is_large(policy));
        if replaces.unwrap_or_else(is_sharded) { self.split(policy).map(Some) } else { Ok(None) }
    }

    fn store_of(&self, _: usize) -> usize {
        0
    }

    fn key(&self, key: KeyRef<'_>, part: usize) -> Key {
        key.to_key().and(part as u64)
    }

    /// The choice is pseudorandom: in strict turns, alternating requests for two keys would each ask only half of the shards.
    fn first(&self, parts: usize) -> usize {
        // Relaxed: it only has to be a different number each time.
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        // SplitMix64, Steele, Lea and Flood (2014).
        let mixed = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % (parts as u64)).unwrap_or(0)
    }

    fn is_in_order(&self) -> bool {
        false
    }

    fn shared(&self) -> &Arc<dyn Store> {
        &self.store[0]
    }
}
