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
//! It goes around `Leased` and `Resilient`, and within `Observed`; another order is refused ([`Place`](sluicegate_core::store::Place)).
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
//! A key at its limit gets units back one by one, a thousand times a second under `1000/s`, and a call for each of them gains nothing. So
//! around [`Leased`](crate::Leased) a quota refuses for at least a twentieth of the time in which all of it comes back; under a sliding
//! counter, not beyond the end of its window. `retry_after` includes this, also in the answer of the store: a client that waits that long,
//! on any instance, without other requests meanwhile, passes. Once the store's own wait is over, other instances may have spent the units
//! that came back. From then on, `retry_after` is the wait of a key that has just spent its whole capacity, and its status is
//! [provisional](sluicegate_core::store::QuotaStatus::is_provisional): an estimate. One call then leases all units that have come back. No
//! units are lost, because the bucket has room for them; a request may be refused during that time although a unit is available. The
//! last unit of a lease refuses the requests after it as well, except under a sliding counter, where a lease does not know when the next
//! unit passes. Around other stores, and for policies that cannot be leased, such as logs and queues, each retry is exact.
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
//! [`longest`](DenyCacheBuilder::longest), or its retry if that is sooner, after the moment at which the store would admit it; around
//! leases, for at most its retry or a twentieth of the reset, whichever is longer. An instance asks for a refused key at most once per
//! `min(longest, retry)`, and once for each admission, not counting calls that were already sent.
//!
//! # When not to use it
//! Leave it out around a store in memory, which refuses as fast, and if a reset on another instance must be seen at once.

mod builder;
mod question;
mod refusal;
mod short;
mod store;
mod table;

use std::sync::Arc;

pub use sluicegate_core::store::DenyCacheStatus;
use sluicegate_core::store::IntoStore;

pub use self::builder::DenyCacheBuilder;
use self::store::CachedStore;

/// Repeats the store's refusals without a call, until a retry could pass; see the [module](self).
///
/// # Cancel safety
/// As for the store: a question is asked when the limiter is called, and its answer is kept even if its future is dropped, if there
/// is a tokio runtime.
#[derive(Clone)]
pub struct DenyCache(Arc<CachedStore>);

impl DenyCache {
    /// A cache around `store`, with the defaults: see [`DenyCacheBuilder`]. Around a store with a higher
    /// [`Place`](sluicegate_core::store::Place) it opens no policy.
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
