//! A store around a store that repeats its refusals without a call: [`DenyCache`].
//!
//! A limit that refuses 999 of 1,000 requests asks a shared store 1,000 times. With this cache, it asks as often as it admits, and about
//! once in two seconds for each refused key.
//!
//! ```
//! use sluicegate_core::store::DecidedBy;
//! use sluicegate_core::{MemoryStore, Policy};
//! use sluicegate_fleet::DenyCache;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let redis = MemoryStore::new();
//! let store = DenyCache::new(redis);
//! let login = Policy::gcra("login", "5/min").on(&store)?;
//! for _ in 0..1_000 {
//!     login.check("ada").now().expect("memory answers at once")?;
//! }
//! let refused = login.check("ada").now().expect("memory answers at once")?;
//! assert_eq!((refused.is_allowed(), refused.decided_by()), (false, DecidedBy::Cache));
//! let status = store.status();
//! assert_eq!((status.asked, status.refused), (5, 996));
//! # Ok(())
//! # }
//! ```
//!
//! # Place
//! It goes around `Leased` and `Resilient`, and within `Observed`; another order is refused ([`Place`]).
//! Refusals of a fallback and of an outage are not kept: they are already local, and end with the outage.
//!
//! # What is refused, and until when
//! Each quota that refused an ask refuses it again until its own retry, and no longer than [`longest`](DenyCacheBuilder::longest): a
//! refund, a reset or a replacement on another instance is seen after that. A quota that has let its last unit pass refuses the next ask
//! until a unit is back, as its answer says. An answer that is [provisional](sluicegate_core::store::QuotaStatus::is_provisional) is not
//! kept: units of the quota may be back in a moment.
//!
//! | a later ask for the same key | is |
//! |---|---|
//! | with the same or a higher cost | refused here |
//! | with a lower cost | asked |
//! | that would wait longer for its turn than the refused ask | asked |
//! | to take [the available units](sluicegate_core::limiter::Check::up_to) | refused here if one unit would be |
//! | peek | asked |
//! | after a refund, a reset, a charge or a replacement through this store | asked |
//!
//! All asks of a request are checked before any call: one refused ask saves the store the whole request, which then spends nothing from
//! the others. The decision has the quotas that are known to refuse, and no numbers of the others.
//!
//! When a refusal is over, one of the requests that ask is sent to the store. The others wait for its answer: if it is refused, they are
//! refused without a call; if not, they ask. No request waits twice.
//!
//! # The numbers
//! [`retry_after`](sluicegate_core::Decision::retry_after) is the wait in the answer, less the time since: exact for the same ask. For a
//! higher cost it is exact to the microsecond, rounded up, if units come back one by one (GCRA, the greedy token bucket, the leaky meter);
//! otherwise it lasts until the whole capacity is back, which is never too early. The remaining units come from the refusing answer.
//!
//! # Around leases
//! An instance may hold units that the store counts as spent. So around [`Leased`](crate::Leased) only refusals of the store itself are kept,
//! each until its own retry; nothing follows from an answer that has let the last units pass. A refusal of a request with several limits,
//! which uses no held units, refuses only other such requests.
//!
//! # Refusals that count
//! A request under a policy with [`count_rejected`](sluicegate_core::policy::PolicyBuilder::count_rejected) always goes to the store,
//! because its refusal spends.
//!
//! A policy with a [suspension](sluicegate_core::suspension) counts refusals in a call of its own, which still reaches the store, so no
//! strike is lost: a flood costs a call per request until the key is suspended. From then on the suspension is kept here like a refusal,
//! and no longer than [`longest`](DenyCacheBuilder::longest): a release by another instance is seen after that.
//!
//! # What it admits
//! It never admits more than the store, because it only refuses. A request is refused here for at most
//! [`longest`](DenyCacheBuilder::longest), or its retry if that is sooner, after the moment at which the store would admit it. An instance asks for a refused key at most once per
//! `min(longest, retry)`, and once for each admission, not counting calls that were already sent.
//!
//! # When not to use it
//! Leave it out around a store in memory, which refuses as fast, and if a reset on another instance must be seen at once.

mod refusal;
mod store;
mod table;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sluicegate_core::clock::{Clock, SystemClock};
use sluicegate_core::error::ConfigErrorKind;
pub use sluicegate_core::store::DenyCacheStatus;
use sluicegate_core::store::{IntoStore, Place};
use sluicegate_core::wrap::Within;
use sluicegate_core::{ConfigError, Store};

use self::refusal::{Keep, micros};
use self::store::{CacheState, CachedStore};
use self::table::RefusalTable;

/// Repeats the store's refusals without a call, until a retry could pass; see the [module](self).
///
/// # Cancel safety
/// As for the store: a question is asked when the limiter is called, and its answer is kept even if its future is dropped, if there
/// is a tokio runtime.
#[derive(Clone)]
pub struct DenyCache(Arc<CachedStore>);

impl DenyCache {
    /// A cache around `store`, with the defaults: see [`DenyCacheBuilder`]. Around a store with a higher
    /// [`Place`] it opens no policy.
    pub fn new(store: impl IntoStore) -> Self {
        DenyCacheBuilder::new(store.into()).build_anywhere()
    }

    /// Starts building a cache around `store` with other settings.
    pub fn builder(store: impl IntoStore) -> DenyCacheBuilder {
        DenyCacheBuilder::new(store.into())
    }

    /// The number of keys that it holds, and counts of its refusals.
    pub fn status(&self) -> DenyCacheStatus {
        self.0.0.status()
    }
}

sluicegate_core::store_handle!(DenyCache, status);

/// Collects the settings of a [`DenyCache`].
///
/// | setting | default | too low | too high |
/// |---|---|---|---|
/// | [`longest`](Self::longest) | 2 s | refused keys cost more calls | a reset elsewhere is seen late |
/// | [`keys`](Self::keys) | 50,000 | a flood from more keys reaches the store | memory |
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::MemoryStore;
/// use sluicegate_fleet::DenyCache;
///
/// # let redis = MemoryStore::new();
/// let store = DenyCache::builder(redis).longest(Duration::from_secs(3)).keys(200_000).build()?;
/// assert_eq!(store.status().slots, 200_000);
///
/// let error = DenyCache::builder(MemoryStore::new()).longest(Duration::from_secs(60)).build().unwrap_err();
/// assert_eq!(error.to_string(), "refusals kept for up to 60s: use more than 0 and at most 5s");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct DenyCacheBuilder {
    store: Arc<dyn Store>,
    longest: Duration,
    keys: usize,
    clock: Arc<dyn Clock>,
}

/// The longest time to keep a refusal: after that, a reset on another instance is seen.
const MOST: Duration = Duration::from_secs(5);
const MOST_KEYS: usize = 1 << 31;

impl DenyCacheBuilder {
    fn new(store: Arc<dyn Store>) -> Self {
        Self { store, longest: Duration::from_secs(2), keys: 50_000, clock: Arc::new(SystemClock::new()) }
    }

    sluicegate_core::setters! {
        /// Sets the longest time that a refusal is kept, however late its retry is. Default: 2 s. At most 5 s.
        ///
        /// After this time, a refund, a reset or a replacement by another instance is seen here.
        longest(longest: Duration);

        /// Sets the most keys that are kept, each counted once per policy. Default: 50,000, in at most 14 MB: up to 280 bytes for a policy of
        /// one quota, and 80 more for each further quota. When it is full, the refusal that ends soonest makes room.
        keys(keys: usize);

        /// Sets the clock that refusals end by. Default: [`SystemClock`].
        clock(clock: impl Clock) => Arc::new(clock);
    }

    /// Checks the settings and makes the store.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Store`] for a longest time of 0 or above 5 s, for 0 keys or more than 2^31, and around a store that is
    /// a `DenyCache` or observed already ([`Place`]).
    pub fn build(self) -> Result<DenyCache, ConfigError> {
        let problem = match (self.longest, self.keys) {
            (longest, _) if longest < Duration::from_micros(1) || longest > MOST => {
                format!("refusals kept for up to {longest:?}: use more than 0 and at most {MOST:?}")
            }
            (_, keys) if keys == 0 || keys > MOST_KEYS => {
                format!("a cache for {keys} keys: use at least 1 and at most {MOST_KEYS}")
            }
            _ => {
                Place::DenyCache.around(&*self.store)?;
                return Ok(self.build_anywhere());
            }
        };
        Err(ConfigError::new(ConfigErrorKind::Store, problem))
    }

    /// Builds a cache around any store; the order of stores is checked when a policy is opened.
    fn build_anywhere(self) -> DenyCache {
        let Self { store, longest, keys, clock } = self;
        let longest_us = micros(longest);
        DenyCache(Arc::new(CachedStore(Arc::new(CacheState {
            keep: Keep { longest_us, is_around_leases: store.place() == Some(Place::Leased) },
            within: Within::new(store),
            table: Arc::new(RefusalTable::new(keys, longest_us)),
            slots: keys,
            clock,
            refused: AtomicU64::new(0),
            asked: AtomicU64::new(0),
        }))))
    }
}

sluicegate_core::debug_as!(DenyCacheBuilder { longest, keys });
