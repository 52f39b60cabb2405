//! The one handle of a policy name on a store, and the policy in force there.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

use arc_swap::ArcSwap;

use super::given::Given;
use super::opened_at::OpenedAt;
use super::owned::Owned;
use super::quotas::OwnNumbers;
use crate::policy::{Override, Policy};
use crate::store::{PreparedPolicy, Store};

/// A policy on a store, which services ask before they act.
///
/// One type for every store, cheap to clone. There is one handle per policy name and store: opening the name again gives a
/// clone, which has the same buckets and queues, and sees a [`replace`](Self::replace) at once.
///
/// It is not a layer: use `.rate_limit(limiter)` on axum's routes, and `RateLimitLayer::new(limiter)` in a tower stack.
///
/// All methods that ask the store return a [`DecisionFuture`]: a future that is ready at once on a [`MemoryStore`], where
/// [`DecisionFuture::now`] is for code that is not async.
///
/// ```
/// use sluicegate_core::{MemoryStore, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let login = Policy::sliding_counter("login", "5/min").on(&MemoryStore::new())?;
///
/// assert!(login.check("ada").await?.is_allowed());
/// login.charge("ada", 4).await?; // known only afterwards: the request was costly
/// assert!(!login.check("ada").await?.is_allowed());
/// login.refund("ada", 1).await?;
/// assert_eq!(login.peek("ada").await?.remaining(), 1);
/// # Ok(())
/// # }
/// ```
///
/// [`DecisionFuture`]: crate::store::DecisionFuture
/// [`DecisionFuture::now`]: crate::store::DecisionFuture::now
/// [`MemoryStore`]: crate::MemoryStore
#[derive(Clone)]
pub struct RateLimiter(pub(super) Arc<Handle>, pub(super) Option<Arc<Pinned>>);

/// The one handle of a name on a store. All clones of a [`RateLimiter`] share it, and the store
/// holds it weakly, so that a name is free again when the last clone is gone.
pub(super) struct Handle {
    pub(super) store: Arc<dyn Store>,
    pub(super) always_answers: bool,
    /// The policy before the first replacement.
    pub(super) first: InForce,
    /// The policy with everything that layers have asked it to [remember](super::ForLayers::remember). Layers ask once, before
    /// requests arrive.
    remembered: [OnceLock<InForce>; 2],
    /// The place that opened the name. A policy from a file of rules takes precedence over a policy of this name in code.
    pub(super) opened_at: OpenedAt,
    /// The current policy after the first replacement. A limiter that is never replaced does not pay for the swap.
    pub(super) current: ArcSwap<InForce>,
    pub(super) replacements: AtomicU64,
    /// Locked while the policy is replaced.
    pub(super) own: Mutex<PolicyOfCode>,
    #[cfg(feature = "tokio")]
    pub(super) queues: crate::wait::Queues,
    #[cfg(feature = "tokio")]
    /// Each waiting request has a clone of it.
    pub(super) waiting: Arc<()>,
}

/// The policy that decides, and the override that has changed it, if any.
pub(super) struct InForce {
    pub(super) prepared: PreparedPolicy,
    /// The count of replacements at which it is current.
    pub(super) replacements: u64,
    pub(super) over: Option<Arc<Override>>,
    /// Keys with quotas from operators.
    pub(super) given: Given,
    /// The earliest end of these overrides.
    pub(super) ends_us: u64,
    /// The number of times that policies were replaced [with](super::replace_all) rules before.
    pub(super) epoch: u64,
    /// This policy under quotas of keys, once there are any: for limiters that follow every replacement, and for limiters pinned by rules.
    pub(super) owned: [OnceLock<Box<Owned>>; 2],
}

impl InForce {
    /// A policy without overrides.
    pub(super) fn plain(prepared: PreparedPolicy, replacements: u64, epoch: u64) -> Self {
        let (over, given, owned) = (None, Given::default(), Default::default());
        Self { prepared, replacements, over, given, ends_us: u64::MAX, epoch, owned }
    }

    /// The count of replacements at which limiters may keep it; `u64::MAX` if they have to look it up, because an override ends at
    /// its time, and single keys have other overrides.
    pub(super) fn kept_at(&self) -> u64 {
        if self.is_overridden() { u64::MAX } else { self.replacements }
    }

    /// Whether overrides of the policy or of single keys change it.
    pub(super) fn is_overridden(&self) -> bool {
        self.over.is_some() || !self.given.is_empty()
    }
}

/// The policy that a limiter keeps: for requests that began under it, when it is replaced together with rules; and for keys with
/// quotas of their own.
pub(super) struct Pinned {
    pub(super) prepared: PreparedPolicy,
    /// The policy as written in code or in a file.
    pub(super) own: Arc<Policy>,
    /// The epoch of its rules; `None` if it follows every replacement.
    pub(super) epoch: Option<u64>,
    /// The count of replacements at which this policy is current; `u64::MAX` if an override may end, so that the policy has to be looked
    /// up.
    pub(super) replacements: u64,
    /// The quotas of its keys, if they have their own.
    pub(super) quotas: Option<OwnNumbers>,
    /// Whether an operator has given these quotas.
    pub(super) is_given: bool,
}

/// The policy that code has put in force, without overrides.
pub(super) struct PolicyOfCode {
    pub(super) policy: Arc<Policy>,
    /// The version of the last override that this store could not support.
    pub(super) refused: u64,
}

impl Handle {
    pub(super) fn new(
        store: Arc<dyn Store>,
        first: PreparedPolicy,
        own: Arc<Policy>,
        opened_at: OpenedAt,
    ) -> Self {
        Self {
            opened_at,
            always_answers: store.always_answers(),
            store,
            current: ArcSwap::from_pointee(InForce::plain(first.clone(), 0, 0)),
            own: Mutex::new(PolicyOfCode { policy: own, refused: 0 }),
            first: InForce::plain(first, 0, 0),
            remembered: Default::default(),
            replacements: AtomicU64::new(0),
            #[cfg(feature = "tokio")]
            queues: crate::wait::Queues::default(),
            #[cfg(feature = "tokio")]
            waiting: Arc::default(),
        }
    }

    /// The policy at this count of replacements, if it is kept as long as the handle.
    #[inline]
    pub(super) fn remembered(&self, replacements: u64) -> Option<&InForce> {
        if replacements == 0 {
            return Some(&self.first);
        }
        let mut remembered = self.remembered.iter().filter_map(OnceLock::get);
        remembered.find(|kept| kept.replacements == replacements)
    }

    /// Keeps the policy in force for later requests to limiters, if there is room and no override changes it for a time.
    pub(super) fn remember_prepared(&self) {
        let in_force = self.current.load();
        let free = self.remembered.iter().find(|remembered| remembered.get().is_none());
        if let Some(free) = free.filter(|_| !in_force.is_overridden()) {
            // If another thread has filled the slot first, its value is as good.
            let InForce { prepared, replacements, epoch, .. } = &**in_force;
            _ = free.set(InForce::plain(prepared.clone(), *replacements, *epoch));
        }
    }
}

/// Equal limiters are the same handle, with the same [quotas of keys](RateLimiter::with_quotas) if any. For
/// caches of values that are derived from [`policy`](RateLimiter::policy). Two limiters that were made from equal quotas at different
/// times may differ.
impl PartialEq for RateLimiter {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.is(other) && self.1.as_ref().map(Arc::as_ptr) == other.1.as_ref().map(Arc::as_ptr)
    }
}

impl RateLimiter {
    /// Whether both are the handle of the same policy on the same store.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The policy in force: the policy of the code, or as changed by an [override](super::Overrides); for a key with
    /// [quotas of its own](Self::with_quotas), with these quotas.
    pub fn policy(&self) -> Arc<Policy> {
        self.with_opened(|opened| Arc::clone(opened.numbers()))
    }

    /// The store that decides.
    ///
    /// Limiters of one store can be asked [together](super::check_all).
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn queues(&self) -> &crate::wait::Queues {
        &self.0.queues
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn identity(&self) -> crate::wait::Identity {
        crate::wait::Identity::of(&self.0)
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RateLimiter({})", self.policy())
    }
}
