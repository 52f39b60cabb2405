//! A policy as a store has prepared it ([`PreparedPolicy`]), the policies that are open on a store ([`Registry`]), and their handles
//! ([`Limiters`]).
//!
//! Queues, replacements and derived header values belong to a handle, so two handles with one name
//! would be two queues for one bucket.
//!
//! # Alone
//! A process decides [alone](Alone) if its store gives no answer and no store around it decides in its place. The first outage makes the
//! tables, so a service whose store always answers has none. All keys are at rest then, because this process does not know the units that the
//! store has admitted; a `Resilient` store knows them.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, Weak};

use smallvec::SmallVec;

use crate::error::{ConfigError, ConfigErrorKind};
use crate::key::KeyRef;
use crate::memory::MemoryStore;
use crate::policy::{Board, OnExceeded, Policy, PolicyMode};
use crate::store::{Mode, ShortWay, Store};
use crate::support::{lock, read, write};

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
        let is_on = self.policy().mode() != PolicyMode::Off;
        let short_way = if is_on { store.short_way(&self) } else { None };
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
    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// The mode in which a request spends from it: at once, or at its turn if the policy waits. For stores around stores.
    #[doc(hidden)]
    pub fn spends(&self) -> Mode {
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

crate::debug_as!(WeakPolicy, weak => weak.policy[0].name());

crate::debug_as!(OwnQuotas, quotas => quotas.policy());

crate::debug_as!(PreparedPolicy, prepared => prepared.policy().name());

/// The memory in which the handles of one store decide alone. There is one, so that the policies of a request are decided together.
#[derive(Default)]
pub(super) struct Memory {
    store: OnceLock<Arc<dyn Store>>,
    opened: AtomicU64,
}

/// A policy of a process that decides alone.
pub(crate) struct Alone {
    memory: Arc<Memory>,
    policy: Arc<Policy>,
    opened: OnceLock<Option<PreparedPolicy>>,
}

impl Alone {
    /// The policy in the memory of these handles, if this process decides it in an outage.
    pub(super) fn new(limiters: &Limiters, policy: &Arc<Policy>) -> Option<Self> {
        let decides = policy.on_outage().decides_here();
        let (memory, policy) = (Arc::clone(limiters.memory()), Arc::clone(policy));
        decides.then(|| Self { memory, policy, opened: OnceLock::new() })
    }

    /// The policy as the memory has prepared it; `None` if the memory cannot keep it.
    pub(crate) fn opened(&self) -> Option<&PreparedPolicy> {
        let open = || {
            // A policy and its replacement both open here, in any order. Relaxed: it only counts.
            let number = self.memory.opened.fetch_add(1, Ordering::Relaxed);
            let policy = self.policy.in_outage().ok()??.called(format!("{}.{number}", self.policy.name()));
            self.memory.store().open(Arc::new(policy), None).ok()
        };
        self.opened.get_or_init(open).as_ref()
    }

    /// The store that the policy is open on.
    pub(crate) fn store(&self) -> &dyn Store {
        &**self.memory.store()
    }
}

impl Memory {
    fn store(&self) -> &Arc<dyn Store> {
        self.store.get_or_init(|| MemoryStore::new().into())
    }
}

crate::debug_as!(Alone, alone => alone.policy.name());

/// The policies that are open on a store, by name, each with what the store prepared for it.
///
/// Equal policies share a preparation. A different policy under a name in use is refused, because it would take over
/// another policy's buckets. A name is free again when the last limiter that used it is gone.
///
/// ```
/// use std::sync::Arc;
/// use sluicegate_core::Policy;
/// use sluicegate_core::store::Registry;
///
/// let registry = Registry::<u32>::default();
/// let policy = |quota| Ok::<_, sluicegate_core::ConfigError>(Arc::new(Policy::gcra("login", quota).build()?));
/// let first = registry.open(policy("5/min")?, None, |_| Ok(7))?;
/// assert_eq!(first.prepared::<u32>(), Some(&7));
/// // An equal policy shares the first preparation.
/// let same = registry.open(policy("5/min")?, None, |_| Ok(8))?;
/// assert_eq!(same.prepared::<u32>(), Some(&7));
/// // A different policy of that name is refused, until the last user of the first is gone.
/// assert!(registry.open(policy("6/min")?, None, |_| Ok(9)).is_err());
/// drop((first, same));
/// assert!(registry.open(policy("6/min")?, None, |_| Ok(9)).is_ok());
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
pub struct Registry<T> {
    /// The policies of each name that are still in use, the youngest last.
    open: Mutex<HashMap<String, Vec<PutPolicy<T>>>>,
}

type PutPolicy<T> = (Arc<Policy>, Weak<T>);

impl<T: Send + Sync + 'static> Registry<T> {
    /// Opens a policy, with the preparation of an equal one or a new one from `prepare`. A replacement that is dropped
    /// unused does not change the policy that it was meant to replace.
    ///
    /// # Errors
    /// The error of `prepare`; and when the name is in use for a different policy, unless it is the one `replaced`.
    pub fn open(
        &self,
        policy: Arc<Policy>,
        replaced: Option<&PreparedPolicy>,
        prepare: impl FnOnce(&Arc<Policy>) -> Result<T, ConfigError>,
    ) -> Result<PreparedPolicy, ConfigError> {
        let mut open = lock(&self.open);
        make_room(&mut open, |policies| policies.iter().any(is_in_use));
        let policies = open.entry(policy.name().to_owned()).or_default();
        policies.retain(is_in_use);
        let current =
            policies.iter().rev().find_map(|(policy, prepared)| Some((policy, prepared.upgrade()?)));
        match (current, replaced) {
            // Another limiter of the same policy may have been replaced by this one already.
            (Some((current, prepared)), replaced)
                if policy.is_like(current) && replaced.is_none_or(|old| !old.has(&prepared)) =>
            {
                return Ok(PreparedPolicy::new(Arc::clone(current), prepared));
            }
            (Some((current, _)), None) => return Err(name_taken(&policy, current)),
            (_, Some(replaced)) if replaced.policy().name() != policy.name() => {
                return Err(ConfigError::new(
                    ConfigErrorKind::OtherName,
                    format!("it cannot replace {:?}: their names must be equal", replaced.policy().name()),
                )
                .in_policy(policy.name()));
            }
            _ => {}
        }
        let prepared = Arc::new(prepare(&policy)?);
        policies.push((Arc::clone(&policy), Arc::downgrade(&prepared)));
        Ok(PreparedPolicy::new(policy, prepared))
    }

    /// The preparations of all policies that are still in use, including replaced ones: those of one name in a row.
    pub fn prepared(&self) -> Vec<Arc<T>> {
        let open = lock(&self.open);
        open.values().flatten().filter_map(|(_, prepared)| prepared.upgrade()).collect()
    }
}

fn is_in_use<T>((_, prepared): &PutPolicy<T>) -> bool {
    prepared.strong_count() > 0
}

/// Makes room for one more entry. When a map is full, unused entries are removed, and then at least half of it is free, so that
/// an entry costs constant time on average. A map keeps unused entries until it is full again, so it has at most about
/// twice as many entries as were in use at once; then it shrinks to those in use.
pub(crate) fn make_room<V>(map: &mut HashMap<String, V>, is_in_use: impl Fn(&V) -> bool) {
    if map.len() == map.capacity() {
        map.retain(|_, value| is_in_use(value));
        map.shrink_to(2 * map.len() + 1);
        map.reserve(map.len() + 1);
    }
}

pub(crate) fn name_taken(policy: &Policy, current: &Policy) -> ConfigError {
    ConfigError::new(
        ConfigErrorKind::NameTaken,
        format!(
            "the name is taken on this store by another policy ({current}): give this one ({policy}) another name, or replace that one"
        ),
    )
    .in_policy(policy.name())
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { open: Mutex::default() }
    }
}

impl<T> fmt::Debug for Registry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = lock(&self.open);
        let in_use = open.values().flatten().filter(|open| is_in_use(open));
        f.debug_set().entries(in_use.map(|(policy, _)| policy.to_string())).finish()
    }
}

/// The handles of a store: one per policy name, so that every caller that names a policy sees its replacements and joins
/// its queues. Authors of stores keep one and return it from [`Store::limiters`](crate::Store::limiters).
///
/// ```
/// use std::sync::Arc;
/// use sluicegate_core::{MemoryStore, Policy, Store};
///
/// let store: Arc<dyn Store> = MemoryStore::new().into();
/// let login = Policy::gcra("login", "5/min").on(Arc::clone(&store))?;
/// assert!(store.limiters().get("login").is_some_and(|found| found.is(&login)));
/// drop(login);
/// assert!(store.limiters().get("login").is_none());
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Default)]
pub struct Limiters {
    handles: Mutex<Handles>,
    overrides: Mutex<Board>,
    follows: AtomicBool,
    known_keys: OnceLock<Box<KnowsKeys>>,
    memory: Arc<Memory>,
    suspension_lines: Mutex<crate::suspension::SuspensionLines>,
}

/// Tests whether a key is known: whether it came before the requests of its policy became unusual.
pub type KnownKeys = Arc<dyn Fn(KeyRef<'_>) -> bool + Send + Sync>;

/// The currently known keys of a policy.
type KnowsKeys = dyn Fn(&Policy) -> Option<KnownKeys> + Send + Sync;

/// Handles by name. A store holds them without knowing their type, which belongs to the [`RateLimiter`](crate::RateLimiter).
type Handles = HashMap<String, Weak<dyn Any + Send + Sync>>;

impl Limiters {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Handles> {
        lock(&self.handles)
    }

    /// Sets the function that returns the known keys of a policy when an override [for new keys](crate::policy::Override::is_for_new_keys)
    /// begins; it returns `None` if all are known. For stores that remember keys; the first call wins. It is called in the middle of a
    /// replacement, so it must neither open nor replace policies.
    pub fn know_keys(&self, known: impl Fn(&Policy) -> Option<KnownKeys> + Send + Sync + 'static) {
        // The first one stays.
        _ = self.known_keys.set(Box::new(known));
    }

    /// The known keys of this policy; `None` if all are known.
    pub(crate) fn known_keys(&self, policy: &Policy) -> Option<KnownKeys> {
        self.known_keys.get()?(policy)
    }

    /// The overrides that this instance knows of. No other lock is taken while this one is held.
    pub(crate) fn overrides(&self) -> MutexGuard<'_, Board> {
        lock(&self.overrides)
    }

    /// The memory in which these handles decide while the store gives no answer.
    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The lines in the log about suspensions by refusals, of all policies together.
    pub(crate) fn suspension_lines(&self) -> MutexGuard<'_, crate::suspension::SuspensionLines> {
        lock(&self.suspension_lines)
    }

    /// True only for the first call: its caller makes these handles follow the value that the store shares.
    pub(crate) fn is_first_to_follow(&self) -> bool {
        // Relaxed: it orders nothing else. Read first, because it is written once.
        !self.follows.load(Ordering::Relaxed) && !self.follows.swap(true, Ordering::Relaxed)
    }
}

impl fmt::Debug for Limiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handles = self.lock();
        f.debug_set()
            .entries(handles.iter().filter(|(_, of)| of.strong_count() > 0).map(|(name, _)| name))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_grows_with_what_is_in_use_and_not_with_what_is_gone() {
        let (mut map, mut sweeps) = (HashMap::new(), 0);
        for number in 0..10_000 {
            sweeps += usize::from(map.len() == map.capacity());
            make_room(&mut map, |in_use| *in_use);
            map.insert(number.to_string(), number < 100);
        }
        assert!(map.len() < 500 && map.contains_key("99"), "{}", map.len());
        assert!(sweeps < 150, "{sweeps} times was all of it looked through");
    }

    #[test]
    fn a_map_shrinks_when_most_of_it_is_gone() {
        let mut map: HashMap<_, _> = (0..10_000).map(|number| (number.to_string(), false)).collect();
        for number in 10_000..20_000 {
            make_room(&mut map, |in_use| *in_use);
            map.insert(number.to_string(), number < 10_010);
        }
        assert!(map.capacity() < 500, "{}", map.capacity());
    }
}
