//! The one handle of a policy name on a store, and the policy in force there.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use arc_swap::ArcSwap;

use super::for_layers::ForLayers;
use super::given::Given;
use super::opened_at::OpenedAt;
use super::quotas::{OwnNumbers, Owned};
use crate::key::KeyRef;
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
    /// Identifies the handle within this process.
    id: u64,
    pub(super) store: Arc<dyn Store>,
    pub(super) always_answers: bool,
    pub(super) first: PreparedPolicy,
    /// The policy with everything that layers have asked it to [remember](super::ForLayers::remember), with the count of replacements at
    /// which it is current. Layers ask once, before requests arrive.
    remembered: [OnceLock<(u64, PreparedPolicy)>; 2],
    /// The place that opened the name. A policy from a file of rules takes precedence over a policy of this name in code.
    pub(super) opened_at: OpenedAt,
    /// The current policy after the first replacement. A limiter that is never replaced does not pay for the swap.
    pub(super) current: ArcSwap<InForce>,
    pub(super) replacements: AtomicU64,
    /// Locked while the policy is replaced.
    pub(super) own: Mutex<PolicyOfCode>,
    /// Limiters of keys with quotas of their own, by these quotas.
    pub(super) owned: Owned,
    #[cfg(feature = "tokio")]
    pub(super) queues: crate::wait::Queues,
    #[cfg(feature = "tokio")]
    /// Each waiting request has a clone of it.
    pub(super) waiting: Arc<()>,
}

/// The policy that decides, and the override that has changed it, if any.
pub(super) struct InForce {
    pub(super) prepared: PreparedPolicy,
    pub(super) over: Option<Arc<Override>>,
    /// Keys with quotas from operators.
    pub(super) given: Given,
    /// The earliest end of these overrides.
    pub(super) ends_us: u64,
    /// The number of times that policies were replaced [with](super::replace_all) rules before.
    pub(super) epoch: u64,
}

impl InForce {
    /// Whether overrides of the policy or of single keys change it.
    pub(super) fn is_overridden(&self) -> bool {
        self.over.is_some() || !self.given.is_empty()
    }
}

/// The policy that a limiter keeps: for requests that began under it, when it is replaced together with rules; and for keys with
/// quotas of their own.
pub(super) struct Pinned {
    /// The handle that it was made for.
    pub(super) handle: u64,
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
        static HANDLES: AtomicU64 = AtomicU64::new(0);
        Self {
            // Relaxed: it only has to be a different number each time.
            id: HANDLES.fetch_add(1, Ordering::Relaxed),
            opened_at,
            always_answers: store.always_answers(),
            store,
            current: ArcSwap::from_pointee(InForce {
                prepared: first.clone(),
                over: None,
                given: Given::default(),
                ends_us: u64::MAX,
                epoch: 0,
            }),
            own: Mutex::new(PolicyOfCode { policy: own, refused: 0 }),
            first,
            remembered: Default::default(),
            replacements: AtomicU64::new(0),
            owned: Owned::default(),
            #[cfg(feature = "tokio")]
            queues: crate::wait::Queues::default(),
            #[cfg(feature = "tokio")]
            waiting: Arc::default(),
        }
    }

    fn remembered(&self, replacements: u64) -> Option<&PreparedPolicy> {
        let mut remembered = self.remembered.iter().filter_map(OnceLock::get);
        remembered.find(|(count, _)| *count == replacements).map(|(_, prepared)| prepared)
    }

    /// Keeps the policy in force for later requests to limiters, if there is room and no override changes it for a time.
    pub(super) fn remember_prepared(&self) {
        let replacements = self.replacements.load(Ordering::Acquire);
        let in_force = self.current.load();
        let free = self.remembered.iter().find(|remembered| remembered.get().is_none());
        if let Some(free) = free.filter(|_| !in_force.is_overridden()) {
            // If another thread has filled the slot first, its value is as good.
            _ = free.set((replacements, in_force.prepared.clone()));
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
    pub(super) fn id(&self) -> u64 {
        self.0.id
    }

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

    #[inline]
    pub(super) fn with_opened<T>(&self, use_it: impl FnOnce(&PreparedPolicy) -> T) -> T {
        match self.kept() {
            Some(kept) => use_it(kept),
            None => use_it(self.late(self.in_force()).as_opened()),
        }
    }

    /// The policy that decides an ask now.
    #[inline]
    pub(super) fn opened(&self) -> Current<'_> {
        self.kept().map_or_else(|| self.late(self.in_force()), Current::Kept)
    }

    /// The policy that decides an ask of this key now.
    #[inline]
    pub(super) fn opened_for(&self, key: KeyRef<'_>) -> Current<'_> {
        self.kept().map_or_else(|| self.late_for(key, Self::late), Current::Kept)
    }

    /// The current policy of this key, whatever policy this limiter decides by: for reports of past events.
    #[inline]
    pub(super) fn newest_for(&self, key: KeyRef<'_>) -> Current<'_> {
        self.kept().map_or_else(|| self.late_for(key, Self::of_keys), Current::Kept)
    }

    /// The policy for this key after a replacement by the one in force: as `look` finds it, with the quotas that an operator has given
    /// the key if it has any.
    fn late_for(
        &self,
        key: KeyRef<'_>,
        look: fn(&Self, arc_swap::Guard<Arc<InForce>>) -> Current<'_>,
    ) -> Current<'_> {
        let in_force = self.in_force();
        match self.given_in(&in_force, key) {
            Some(own) => Current::Own(Arc::new(look(&own, in_force).as_opened().clone())),
            None => look(self, in_force),
        }
    }

    /// The policy that decides, if this limiter has kept it.
    #[inline]
    pub(super) fn kept(&self) -> Option<&PreparedPolicy> {
        let replacements = self.replacements();
        match &self.1 {
            None if replacements == 0 => Some(&self.0.first),
            None => self.0.remembered(replacements),
            Some(pinned) => (replacements == pinned.replacements).then_some(&pinned.prepared),
        }
    }

    /// The policy that decides after a replacement by this one.
    fn late(&self, in_force: arc_swap::Guard<Arc<InForce>>) -> Current<'_> {
        match &self.1 {
            Some(pinned) if pinned.epoch.is_some_and(|epoch| epoch != in_force.epoch) => {
                Current::Kept(&pinned.prepared)
            }
            _ => self.of_keys(in_force),
        }
    }

    /// The policy in force instead of the first one. The first ask after the end of an override, of the policy or of a key, ends it.
    pub(super) fn in_force(&self) -> arc_swap::Guard<Arc<InForce>> {
        let in_force = self.0.current.load();
        if in_force.ends_us == u64::MAX || self.0.store.now_us() < in_force.ends_us {
            return in_force;
        }
        self.end_override();
        self.0.current.load()
    }
}

/// The policy in force, for as long as a call takes.
pub(super) enum Current<'a> {
    Kept(&'a PreparedPolicy),
    Replaced(arc_swap::Guard<Arc<InForce>>),
    Own(Arc<PreparedPolicy>),
}

impl Current<'_> {
    #[inline]
    pub(super) fn as_opened(&self) -> &PreparedPolicy {
        match self {
            Self::Kept(opened) => opened,
            Self::Replaced(in_force) => &in_force.prepared,
            Self::Own(opened) => opened,
        }
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RateLimiter({})", self.policy())
    }
}
