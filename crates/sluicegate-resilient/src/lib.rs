//! Keeps rate limits in force while their store is down: [`Resilient`], a store wrapper.
//!
//! ```
//! use sluicegate_core::{OnOutage, Policy};
//! use sluicegate_resilient::Resilient;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let redis = sluicegate_core::MemoryStore::new();
//! let store = Resilient::builder(redis).replicas(4).build()?; // four instances of this service
//! let search = Policy::gcra("search", "100/min").on(&store)?; // 25 here while the store is down
//! let payment = Policy::gcra("payment", "5/min").on_outage(OnOutage::Deny).on(&store)?;
//! assert!(search.check("ada").await?.is_allowed() && payment.check("ada").await?.is_allowed());
//! # Ok(())
//! # }
//! ```
//!
//! # When not to use it
//! Do not use it around a [`MemoryStore`](sluicegate_core::MemoryStore), which cannot fail.
//!
//! # What it guards against
//! | event | without `Resilient` | with it |
//! |---|---|---|
//! | the store refuses connections | each request asks in vain | after five failures no request asks it, for 0.2 to 1 s at a time |
//! | the store hangs | each request waits for the deadline | only the first few requests and occasional trials wait |
//! | the store is back | all callers ask it at once | a tenth of the calls at first, all after a second |
//! | the store lost a node | requests of that node fail | only requests that need that node fall back |
//! | units were spent meanwhile | no store counted them | they are charged to the store when it is back |
//!
//! # How it is made
//! A breaker for each part of the store decides whether the part is asked ([`BreakerSettings`]). If it is
//! not, each policy's `OnOutage` decides: the fallback, a memory store with a share
//! of each quota, or a fixed answer. The fallback records admitted units as debts, and one background
//! task at a time charges the debts to the store. These parts are separate files without references to
//! each other; `decide` connects them.
//!
//! # Locking
//! Breakers have no lock. Debts and the list of parts that are down have a mutex each, never held
//! together or across an await. Listeners are told when no lock is held.

mod breaker;
mod builder;
mod close;
mod counts;
mod deadline;
mod debts;
mod decide;
mod fallback;
mod parts;
mod settings;
mod settle;
mod share;
mod suspended;

use std::sync::Arc;

use sluicegate_core::clock::Clock;
use sluicegate_core::store::IntoStore;
pub use sluicegate_core::store::{BreakerState, ResilientStatus};
use sluicegate_core::wrap::Within;

pub use self::builder::ResilientBuilder;
pub use self::close::Unsettled;
use self::counts::OutageCounts;
use self::deadline::Deadline;
use self::fallback::LocalFallback;
use self::parts::Parts;
pub use self::settings::BreakerSettings;
use self::settle::DebtSettlement;
use self::share::FallbackShare;

/// Puts a breaker and a fallback around a store, so that an outage of the store is not an outage of the service.
///
/// While the store answers, it decides. When it fails, or is no longer asked after too many failures, each policy's
/// [`OnOutage`](sluicegate_core::OnOutage) applies: this process decides with its share of the quota ([`OnOutage::Local`](sluicegate_core::OnOutage::Local), the
/// default), requests pass uncounted, or they are refused. [`Decision::decided_by`](sluicegate_core::Decision::decided_by) says who has decided.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redis = sluicegate_core::MemoryStore::new();
/// use sluicegate_core::{OnOutage, Policy};
/// use sluicegate_resilient::Resilient;
///
/// let store = Resilient::builder(redis).replicas(4).build()?; // four instances of this service
/// let search = Policy::gcra("search", "100/min").on(&store)?; // 25 here while the store is out of reach
/// let payment = Policy::gcra("payment", "5/min").on_outage(OnOutage::Deny).on(&store)?;
/// assert!(search.check("ada").await?.is_allowed());
/// assert_eq!(store.status().fallback_decisions, 0);
/// # Ok(())
/// # }
/// ```
///
/// # What an outage admits
/// With a limit of L and N instances of `replicas(N)`, each falls back to `ceil(L/N)`: all together admit at most
/// `N * ceil(L/N)` per window on their own, in addition to the requests that the store admitted before. The fallback also counts the
/// requests that the store admits, so bringing the store down gives no client a fresh bucket on an instance that knows it. When the
/// store is back, the units that the fallback admitted are charged to it, as far as they still count; between the first answer and
/// that charge the store may admit too much. That charge is not repeated if it is not answered in time: it may
/// have arrived. A check or charge whose reply was lost on its way is counted by the store and by the fallback: such a key
/// has spent its units twice, never too few. Redis does not carry out what it gets to after the deadline.
///
/// A policy that [counts refused requests](sluicegate_core::policy::PolicyBuilder::count_rejected) counts them in an outage only with one replica.
/// With more, an instance refuses requests of clients within the limit, because its share is smaller. If such refusals
/// counted, these clients would be refused until the outage is over.
///
/// # When a part of the store is down
/// A store may have [parts](sluicegate_core::store::Parts) that fail on their own, such as the nodes of a Cluster; each has a breaker.
/// The fallback decides each request of which a limit lives in a part that is down. The parts that answer are charged at once with
/// the units that it admits.
///
/// # When a process ends
/// [`close`](Self::close) charges all debts before the process ends. A process that ends without it, or is killed during an outage,
/// loses its debts and its warm fallback: the next process does not know them, and admits `ceil(L/N)` anew.
///
/// # What is not survived
/// [`RateLimiter::reset`](sluicegate_core::RateLimiter::reset) reports an outage as an error, because a key must not come back when the
/// store does. A refund during an outage reduces the fallback's debt; units that the store counted before stay
/// spent. A turn from the store that is given up during an outage is lost; it is spent at its time.
///
/// # Example of an outage
/// Four instances share a limit of eight. On its own each has two, and admitted units are recorded
/// as a debt:
///
/// ```
/// use std::sync::Arc;
/// use sluicegate_core::error::StoreErrorKind;
/// use sluicegate_core::limiter::Inherit;
/// use sluicegate_resilient::BreakerState;
/// use sluicegate_core::store::{Ask, DecidedBy, DecisionFuture};
/// use sluicegate_core::wrap::{Within, Wrap};
/// use sluicegate_core::{ConfigError, MemoryStore, Policy, Store, StoreError};
/// use sluicegate_resilient::Resilient;
///
/// /// A store that cannot be reached.
/// struct Gone(Within);
///
/// impl Wrap for Gone {
///     type Own = ();
///
///     fn within(&self) -> &Within {
///         &self.0
///     }
///
///     fn prepare(&self, _: &Arc<Policy>, _: Option<(&(), Inherit)>) -> Result<(), ConfigError> {
///         Ok(())
///     }
///
///     fn ask(&self, _: &[Ask<'_>]) -> DecisionFuture {
///         DecisionFuture::ready(Err(StoreError::new(StoreErrorKind::Unavailable).unsent()))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gone: Arc<dyn Store> = Arc::new(Gone(Within::new(MemoryStore::new())));
/// let store = Resilient::builder(gone).replicas(4).build()?;
/// let search = Policy::gcra("search", "8/h").on(&store)?;
///
/// let mut passed = 0;
/// for _ in 0..6 {
///     let decision = search.check("ada").await?;
///     assert_eq!(decision.decided_by(), DecidedBy::Fallback);
///     passed += u32::from(decision.is_allowed());
/// }
/// assert_eq!(passed, 2);
/// let status = store.status();
/// assert_eq!(status.breaker, BreakerState::Open); // after five failures in a row
/// assert_eq!((status.fallback_decisions, status.debts), (6, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Resilient(Arc<ResilientStore>);

/// The part that limiters hold; calls that have to wait keep a reference to the state.
struct ResilientStore(Arc<ResilientState>);

/// The state: a deadline for the store, a breaker for each part of it, and a fallback with its debts.
struct ResilientState {
    within: Within<FallbackShare>,
    deadline: Deadline,
    parts: Arc<Parts>,
    fallback: LocalFallback,
    settlement: DebtSettlement,
    counts: OutageCounts,
    clock: Arc<dyn Clock>,
}

impl Resilient {
    /// A store around `store`, with the defaults: see [`ResilientBuilder`]. Around a store of a higher [`Place`](sluicegate_core::store::Place)
    /// it opens no policy.
    #[expect(
        clippy::missing_panics_doc,
        reason = "`build_anywhere` refuses settings only, and a test builds the defaults"
    )]
    pub fn new(store: impl IntoStore) -> Self {
        let store = ResilientBuilder::new(store.into()).build_anywhere();
        store.expect("the defaults are possible")
    }

    /// Begins a store around `store` with other settings.
    pub fn builder(store: impl IntoStore) -> ResilientBuilder {
        ResilientBuilder::new(store.into())
    }

    /// The current state, for a gauge, a health page, or an alert. Every change of the breaker is also logged, by
    /// `tracing`.
    ///
    /// It is cheap enough for each scrape: it takes one short lock and reads a few counters.
    ///
    /// ```
    /// use sluicegate_resilient::BreakerState;
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_resilient::Resilient;
    ///
    /// let store = Resilient::new(MemoryStore::new());
    /// let status = store.status();
    /// assert_eq!(status.breaker, BreakerState::Closed);
    /// assert!(status.in_fallback.is_zero());
    /// ```
    pub fn status(&self) -> ResilientStatus {
        self.0.0.status()
    }
}

impl ResilientState {
    fn status(&self) -> ResilientStatus {
        let mut status = self.counts.status(&self.parts.status(), self.fallback.debts.count());
        status.replicas = self.fallback.replicas;
        status
    }
}

sluicegate_core::store_handle!(Resilient, status);
