//! A policy as a store has prepared it: [`PreparedPolicy`], and [`WeakPolicy`], which does not keep it open.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, RwLock, Weak};

use smallvec::SmallVec;

use super::alone::Alone;
use crate::error::{ConfigError, ConfigErrorKind};
use crate::policy::{OnExceeded, Policy, PolicyMode};
use crate::store::{Mode, ShortWay, Store};
use crate::support::{read, write};

/// A policy that a store has prepared; only that store can decide it.
///
/// It carries the store's own preparation (tables, a compiled script) without naming its type, so
/// that asks of all stores have one type. If a store gets the policy of another store,
/// [`prepared`](Self::prepared) is `None` and it answers
/// [`ForeignPolicy`](crate::error::StoreErrorKind::ForeignPolicy).
///
/// Dropping the last clone frees the preparation: the tables in memory, and the name.
#[derive(Clone)]
pub struct PreparedPolicy {
    /// A list of one policy, shared by decisions of only this policy.
    policy: Arc<[Arc<Policy>; 1]>,
    prepared: Arc<dyn Any + Send + Sync>,
    suspension: Option<Arc<SuspensionBuckets>>,
    /// The mode in which requests spend from it.
    spends: Mode,
    is_plain: bool,
    short_way: Option<Arc<dyn ShortWay>>,
    /// The quotas of a key, instead of its policy's.
    own: Option<Arc<OwnQuotas>>,
    /// The policy for this process alone, if this process decides when the store gives no answer.
    alone: Option<Arc<Alone>>,
}

/// The quotas that a key brings, as a policy with these quotas, and the values that stores have prepared for them.
pub struct OwnQuotas {
    policy: Arc<[Arc<Policy>; 1]>,
    /// Keyed by the preparation of the policy whose quotas they replace, which lives as long.
    prepared: RwLock<SmallVec<[ByPlace; 1]>>,
}

/// The address of the policy's preparation, and the value for it.
type ByPlace = (usize, Arc<dyn Any + Send + Sync>);

impl OwnQuotas {
    /// The quotas of this policy, for asks of another policy with the same name and number of quotas.
    pub fn new(policy: Arc<Policy>) -> Self {
        Self { policy: Arc::new([policy]), prepared: RwLock::default() }
    }

    /// The policy with these quotas.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy[0]
    }

    /// The value that a store makes of these quotas for asks of this policy. It is made once.
    ///
    /// # Errors
    /// The error of `make`.
    pub fn prepared<T: Send + Sync + 'static, E>(
        &self,
        of: &PreparedPolicy,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let place = Arc::as_ptr(&of.prepared).addr();
        let find = |all: &[ByPlace]| {
            let (_, found) = all.iter().find(|(other, _)| *other == place)?;
            Arc::clone(found).downcast().ok()
        };
        if let Some(found) = find(&read(&self.prepared)) {
            return Ok(found);
        }
        let made = Arc::new(make()?);
        let mut all = write(&self.prepared);
        Ok(find(&all).unwrap_or_else(|| {
            all.push((place, Arc::clone(&made) as Arc<dyn Any + Send + Sync>));
            made
        }))
    }
}

/// The buckets that say which keys of a policy are suspended, as the policy's own store has prepared them.
pub(crate) struct SuspensionBuckets {
    /// The buckets that count a key's refusals, and its suspensions; `None` if the policy suspends no key by itself.
    pub(crate) strikes: Option<[PreparedPolicy; 2]>,
    /// The bucket whose debt is the rest of a suspension.
    pub(crate) suspended: PreparedPolicy,
    /// The bucket of suspensions across policies, if the policy takes part in them.
    pub(crate) everywhere: Option<PreparedPolicy>,
}

impl SuspensionBuckets {
    /// These buckets as an inner store has prepared them; `None` if one of them is unknown there.
    pub(crate) fn within(&self, inner: impl Fn(&PreparedPolicy) -> Option<PreparedPolicy>) -> Option<Self> {
        Some(Self {
            strikes: match &self.strikes {
                Some([strikes, suspensions]) => Some([inner(strikes)?, inner(suspensions)?]),
                None => None,
            },
            suspended: inner(&self.suspended)?,
            everywhere: match &self.everywhere {
                Some(everywhere) => Some(inner(everywhere)?),
                None => None,
            },
        })
    }
}

impl PreparedPolicy {
    /// A policy with what the store prepared for it.
    pub fn new<T: Send + Sync + 'static>(policy: Arc<Policy>, prepared: Arc<T>) -> Self {
        Self::of(Arc::new([policy]), prepared)
    }

    fn of(policy: Arc<[Arc<Policy>; 1]>, prepared: Arc<dyn Any + Send + Sync>) -> Self {
        let spends = match policy[0].on_exceeded() {
            OnExceeded::Deny => Mode::Spend,
            OnExceeded::Wait { longest } => Mode::Reserve { longest },
        };
        let is_plain = policy[0].mode() != PolicyMode::Off;
        Self { policy, prepared, suspension: None, spends, is_plain, short_way: None, own: None, alone: None }
    }

    /// This policy with the buckets of its suspension.
    pub(crate) fn with_suspension(self, buckets: SuspensionBuckets) -> Self {
        Self { suspension: Some(Arc::new(buckets)), is_plain: false, ..self }
    }

    /// This policy with the short way that its store has for it.
    pub(crate) fn with_short_way_of(self, store: &dyn Store) -> Self {
        let may_take_it = self.policy().mode() != PolicyMode::Off && self.spends == Mode::Spend;
        let short_way = if may_take_it { store.short_way(&self) } else { None };
        Self { short_way, ..self }
    }

    /// This policy, decided by this process while its store gives no answer, if its `OnOutage` says so.
    pub(crate) fn with_fallback_of(self, store: &dyn Store) -> Self {
        if store.always_answers() {
            return self;
        }
        let alone = Alone::new(store.limiters(), self.policy()).map(Arc::new);
        Self { alone, ..self }
    }

    /// The policy for this process alone, if this process decides.
    pub(crate) fn alone(&self) -> Option<&Alone> {
        self.alone.as_deref()
    }

    /// The policy as it is prepared, for a key with quotas of its own.
    #[must_use]
    pub fn under(&self, own: Arc<OwnQuotas>) -> Self {
        Self { short_way: None, own: Some(own), ..self.clone() }
    }

    /// The quotas of the key, if it has its own.
    #[inline]
    pub fn own(&self) -> Option<&Arc<OwnQuotas>> {
        self.own.as_ref()
    }

    /// The policy with the numbers that decide: the key's own quotas, or those of [`policy`](Self::policy).
    #[inline]
    pub fn numbers(&self) -> &Arc<Policy> {
        &self.shared_numbers()[0]
    }

    /// [`numbers`](Self::numbers) as a list of one, shared by decisions of only this policy.
    #[inline]
    pub(crate) fn shared_numbers(&self) -> &Arc<[Arc<Policy>; 1]> {
        self.own.as_ref().map_or(&self.policy, |own| &own.policy)
    }

    /// The short way of an ask that spends, if there is one.
    #[inline]
    pub(crate) fn short_way(&self) -> Option<&dyn ShortWay> {
        self.short_way.as_deref()
    }

    /// Whether only its store decides: it is not off, and suspends no keys. Kept here, so that a decision need not read the policy.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// The mode in which a request spends from it: at once, or at its turn if the policy waits.
    #[inline]
    pub(crate) fn spends(&self) -> Mode {
        self.spends
    }

    /// The buckets of its suspension, if it has one.
    #[inline]
    pub(crate) fn suspension(&self) -> Option<&Arc<SuspensionBuckets>> {
        self.suspension.as_ref()
    }

    /// Whether this policy has this preparation.
    pub(crate) fn has<T: ?Sized>(&self, prepared: &Arc<T>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.prepared), Arc::as_ptr(prepared))
    }

    /// Whether both are one opened policy.
    pub fn is(&self, other: &Self) -> bool {
        self.has(&other.prepared)
    }

    /// A reference that does not keep this policy open, for data that a store remembers about idle keys.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use sluicegate_core::{MemoryStore, Policy, Store};
    ///
    /// let store: Arc<dyn Store> = MemoryStore::new().into();
    /// let login = store.open(Arc::new(Policy::gcra("login", "5/min").build()?), None)?;
    /// let weak = login.downgrade();
    /// assert!(weak.upgrade().is_some_and(|login| login.policy().name() == "login"));
    /// drop(login);
    /// assert!(weak.upgrade().is_none()); // the name is free again
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn downgrade(&self) -> WeakPolicy {
        WeakPolicy {
            policy: Arc::clone(&self.policy),
            prepared: Arc::downgrade(&self.prepared),
            suspension: self.suspension.as_ref().map(Arc::downgrade),
        }
    }

    /// The policy.
    #[inline]
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy[0]
    }

    /// The preparation of a policy that is replaced, to be kept; for [`Store::open`](crate::Store::open).
    ///
    /// # Errors
    /// [`ConfigErrorKind::OtherStore`] when it was opened on another store, which does not prepare a `T`.
    pub fn replaced<T: Send + Sync + 'static>(&self) -> Result<Arc<T>, ConfigError> {
        let problem = "the replaced policy was opened on another store";
        let foreign = |_| ConfigError::new(ConfigErrorKind::OtherStore, problem);
        Arc::clone(&self.prepared).downcast().map_err(foreign)
    }

    /// The store's preparation, if it was a store that prepares a `T`.
    #[inline]
    pub fn prepared<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.prepared.downcast_ref()
    }
}

/// A [`PreparedPolicy`] that does not keep its policy open: see [`PreparedPolicy::downgrade`].
#[derive(Clone)]
pub struct WeakPolicy {
    policy: Arc<[Arc<Policy>; 1]>,
    prepared: Weak<dyn Any + Send + Sync>,
    suspension: Option<Weak<SuspensionBuckets>>,
}

impl WeakPolicy {
    /// The policy as its store has prepared it; `None` if it is no longer open.
    pub fn upgrade(&self) -> Option<PreparedPolicy> {
        let prepared = self.prepared.upgrade()?;
        let plain = PreparedPolicy::of(Arc::clone(&self.policy), prepared);
        Some(match &self.suspension {
            Some(buckets) => {
                PreparedPolicy { suspension: Some(buckets.upgrade()?), is_plain: false, ..plain }
            }
            None => plain,
        })
    }
}

impl fmt::Debug for WeakPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WeakPolicy").field(&self.policy[0].name()).finish()
    }
}

impl fmt::Debug for OwnQuotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnQuotas").field(self.policy()).finish()
    }
}

impl fmt::Debug for PreparedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PreparedPolicy").field(&self.policy().name()).finish()
    }
}
