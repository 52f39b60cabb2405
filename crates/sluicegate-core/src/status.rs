//! The state of stores, in numbers that do not depend on the kind of store: [`StoreStatus`].

use std::time::Duration;

/// The state of a store and of the stores within it: each adds the numbers that it knows. See
/// [`Store::status`](crate::Store::status).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStatus {
    /// The name under which the store is observed, if it is.
    pub observed: Option<String>,
    /// The state of its breaker and its fallback, if it has them.
    pub resilient: Option<ResilientStatus>,
    /// Its leases from the inner store, if it leases.
    pub leases: Option<LeaseStatus>,
    /// The use of its table in memory, or of the table of its fallback, if it has one.
    pub memory: Option<MemoryStats>,
    /// The refusals that it has made by itself, if it caches refusals.
    pub deny_cache: Option<DenyCacheStatus>,
    /// The number of different quotas that keys have [brought](crate::RateLimiter::with_quotas) and that are in use in its table in memory, or
    /// in the table of its fallback: for each such policy, by name, the highest number of any of its quotas. Each can have 65,535
    /// of them; more are refused until one of them is no longer in use.
    pub quotas: Vec<(String, usize)>,
    /// Quotas that the deciding server and this process judged differently, although both had the same numbers. The server's verdict
    /// counts. Should stay at zero: if it grows, report it as a bug.
    pub disagreements: u64,
}

/// The use of a `DenyCache`, and its refusals. Counts begin when the cache is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DenyCacheStatus {
    /// Keys that it knows as refused, or refused until a moment ago, counted once per policy.
    pub keys: usize,
    /// The most that fit.
    pub slots: usize,
    /// Keys that had to make room before their refusal was over. Should stay near zero: if it grows, make room for more keys.
    pub evictions: u64,
    /// Requests that it has refused without a call of the store.
    pub refused: u64,
    /// Requests that it has asked the store about.
    pub asked: u64,
}

/// The state of a store that decides with units leased from the inner store. Counts begin when the store is made.
///
/// For a gauge: `local` divided by all decisions is the part of the traffic without a call, and `lost` divided by `granted` the part of
/// the leased units were not used in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStatus {
    /// Keys with held units.
    pub keys: usize,
    /// Held units that can be spent now: for a policy with several quotas, the fewest of any.
    pub held: u64,
    /// Requests that were decided without a call.
    pub local: u64,
    /// Units leased from the inner store.
    pub granted: u64,
    /// Units that were given back when the process closed.
    pub returned: u64,
    /// Units that were not spent in time, or were dropped: when a key was reset, a policy was replaced, or an answer of the store
    /// did not come, although the store may have leased the units.
    pub lost: u64,
}

/// The use of a [`MemoryStore`](crate::MemoryStore).
///
/// A flood evicts lightly used keys, never one that is deep in debt. This example has a table of one set, with room for five keys in debt,
/// and one key in deep debt among a hundred others:
///
/// ```
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let store = MemoryStore::new();
/// let login = Policy::gcra("login", "5/h").table_size(1).on(&store)?;
/// login.check("debtor").cost(5).now().expect("memory answers at once")?;
/// for stranger in 0..100 {
///     login.check(stranger).now().expect("memory answers at once")?;
/// }
/// assert!(!login.check("debtor").now().expect("memory answers at once")?.is_allowed());
/// assert_eq!(store.stats().evictions, 96); // all others except the last four
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
    /// grows, make the [table](crate::memory::MemoryStoreBuilder::table_size) larger.
    pub evictions: u64,
    /// Keys that had to make room under policies with [`OnFull::Inherit`](crate::policy::OnFull::Inherit), and left their debt to
    /// keys that come after. If it grows, keys that have spent nothing are refused: make the [table](crate::memory::MemoryStoreBuilder::table_size) larger.
    pub inherited: u64,
}

/// The state of a `Resilient` store. Counts begin when the store is made.
///
/// For alarms: `breaker` other than closed for longer than a deployment takes, `debts` that do not
/// shrink while it is closed, and `timeouts` that grow while it is closed, which mean that the
/// deadline is near the store's usual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResilientStatus {
    /// The breaker; for a store in several parts, the worst of them.
    pub breaker: BreakerState,
    /// How often a breaker has opened; a trial that fails is no opening.
    pub opened: u64,
    /// Calls that were not answered in time; their units may have been spent.
    pub timeouts: u64,
    /// Calls that found no store.
    pub unavailable: u64,
    /// Invalid replies.
    pub protocol: u64,
    /// Decisions that were made without the store.
    pub fallback_decisions: u64,
    /// The total time during which a breaker was not closed.
    pub in_fallback: Duration,
    /// Keys with spends that the store does not know yet.
    pub debts: usize,
    /// The number of instances among which an outage divides each quota.
    pub replicas: u64,
}

/// Whether a store is asked.
///
/// The order is by health: the greatest of several is the worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the three states of a breaker")]
pub enum BreakerState {
    /// The store is asked.
    #[default]
    Closed,
    /// A few trial calls test whether it answers again.
    HalfOpen,
    /// The store is not asked.
    Open,
}
