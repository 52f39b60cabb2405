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
//! assert!(check(20)?.is_allowed()); // more than either shard has: both spend, or neither does
//! let refused = check(6)?;
//! assert!(!refused.is_allowed());
//! assert_eq!((refused.capacity(), refused.remaining()), (25, 5)); // all shards together
//! assert!(check(5)?.is_allowed());
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
//! | several shards are asked together, all or none | | no single shard has room for all of it |
//! | the refusal stands, with the numbers of all shards | 1 more; 2 for a cost above 1 | they have no room together |
//!
//! A peek, a reset, a charge, a refund without a receipt and a check [`up_to`](sluicegate_core::limiter::Check::up_to) a number ask all
//! shards; a charge is put where there is room, and the excess is a debt of all shards. A refund by its receipt goes to the shards that
//! have spent it, and is exact. A request that waits for its turn waits in one shard, the one with the shortest wait, or a random one of
//! several: a cost above the burst of a shard has no turn, and passes only while it fits.
//!
//! # What it admits
//! | | at most | at least |
//! |---|---|---|
//! | any algorithm, any span | the bound in its table for the whole policy: the sum of the shards | |
//! | buckets, logs, fixed windows | | all of it: a refusal stands only if all shards together have no room |
//! | sliding counters | | up to N - 1 units less than all of it, while the window before fades: each shard rounds up |
//! | concurrent requests for the last units | | as above, unless others were faster three times in a row |
//! | an instance that dies between two calls | | its spent units stay spent |
//!
//! # The numbers
//! A refused request and a peek show the remaining units of all shards together, the shortest wait that helps, and the longest reset. A
//! request passed by one shard shows the units of that shard, because the others were not asked: at least this number is left. The
//! capacity is always that of the whole policy.
//!
//! The wait of a cost of one unit is exact. For a higher cost it is never too short, and too long by at most the time in which a shard gets
//! one unit.
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

mod slots;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::policy::MAX_QUOTAS;
use sluicegate_core::store::{IntoStore, Place};
use sluicegate_core::{ConfigError, Store};

use self::slots::ShardedPolicies;
use crate::divided::Divided;

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

impl fmt::Debug for Sharded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharded").finish_non_exhaustive()
    }
}

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

impl fmt::Debug for ShardedBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardedBuilder")
            .field("shards", &self.shards)
            .field("policies", &self.policies)
            .field("above", &self.above)
            .finish_non_exhaustive()
    }
}
