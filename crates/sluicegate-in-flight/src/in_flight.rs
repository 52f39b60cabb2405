//! The handle of a limit: [`InFlight`].
//!
//! A limit is observed without being registered anywhere: by the observer that it was given to, otherwise by the first one of the
//! process that still lives. References are weak, so that neither keeps the other alive.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, Weak};
use std::time::Duration;

use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::key::AsKey;
use sluicegate_core::store::{Event, Listener, Listeners};
use sluicegate_core::support::{lock, read, write};

use crate::pool::PermitPool;
use crate::service::ServicePermits;
use crate::{AdaptiveStatus, SharedStatus, Sharing};

/// Limits the work of a key at one time: uploads of a tenant, connections of an
/// address.
///
/// A rate limits how often work begins; this limits how much work runs at once, for work that
/// takes long. Each [`Permit`](crate::Permit) is one of its key's permits, held until it is dropped. It counts within
/// one process; clones are handles to the same permits.
///
/// ```
/// use sluicegate_in_flight::InFlight;
///
/// let uploads = InFlight::new("uploads", 2)?;
/// let first = uploads.try_acquire("ada")?;
/// let second = uploads.try_acquire("ada")?;
/// assert!(uploads.try_acquire("ada").is_err() && uploads.try_acquire("bob").is_ok());
/// drop(first);
/// assert!(uploads.try_acquire("ada").is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Fairness
/// First come, first served, per key: no request overtakes waiting requests, not even by
/// [`try_acquire`](Self::try_acquire). Keys do not wait for each other.
///
/// # Memory
/// Only keys with permits in use take room, about 150 bytes each, and waiting takes room only within
/// the bounds of [`InFlightBuilder::queue`](crate::InFlightBuilder::queue).
#[derive(Clone)]
pub struct InFlight(pub(crate) Arc<NamedPermits>);

pub(crate) struct NamedPermits {
    pub(crate) name: String,
    pub(crate) pool: Arc<dyn PermitPool>,
    /// The pool again, if it adapts.
    pub(crate) service: Option<Arc<ServicePermits>>,
    /// `Some` if it was put on a store.
    pub(crate) sharing: Option<Sharing>,
    pub(crate) reports: Arc<Reports>,
}

impl Drop for NamedPermits {
    fn drop(&mut self) {
        self.pool.close();
    }
}

impl InFlight {
    /// The name that headers show.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether both count the same requests: one is a clone of the other.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The number of permits that each key has; if the limit adapts, the current number of all keys together.
    pub fn permits(&self) -> u64 {
        self.0.pool.number()
    }

    /// Gives each key another number of permits, for all clones. If there are more, waiting requests get permits at once; if
    /// there are fewer, permits in use stay in use until they are dropped. Instances that [share](crate::InFlightBuilder::on) permits each
    /// have their own number: above the lowest number, only instances with a higher one get permits.
    ///
    /// # Errors
    /// As [`InFlightBuilder::build`](crate::InFlightBuilder::build); the old number then stays.
    ///
    /// ```
    /// use sluicegate_in_flight::InFlight;
    ///
    /// let jobs = InFlight::new("jobs", 3)?;
    /// let held: Vec<_> = (0..3).map(|_| jobs.try_acquire("ada")).collect::<Result<_, _>>()?;
    /// jobs.set_permits(1)?;
    /// assert_eq!((jobs.in_use("ada"), jobs.remaining("ada")), (3, 0)); // no permit is taken away
    /// drop(held);
    /// assert_eq!(jobs.remaining("ada"), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_permits(&self, permits: u64) -> Result<(), ConfigError> {
        check_permits(&self.0.name, permits)?;
        self.0.pool.set_number(permits).map_err(|problem| self.problem(problem))
    }

    pub(crate) fn problem(&self, problem: &str) -> ConfigError {
        ConfigError::new(ConfigErrorKind::Policy, format!("{:?} {problem}", self.0.name))
    }

    /// The state of a limit that adapts; `None` if the number is fixed.
    pub fn status(&self) -> Option<AdaptiveStatus> {
        self.0.service.as_deref().map(ServicePermits::status)
    }

    /// The state of permits that instances share; `None` if they belong to this process.
    pub fn shared_status(&self) -> Option<SharedStatus> {
        self.0.pool.shared()
    }

    /// Estimates the time until all current and waiting requests are done, from the rate at which permits came back in the last
    /// second: a retry makes sense after that. At most a minute; `None` if the number is fixed.
    pub fn drains_in(&self) -> Option<Duration> {
        self.0.service.as_deref().map(ServicePermits::drains_in)
    }

    /// Whether the number follows the load that a service can handle.
    pub fn is_adaptive(&self) -> bool {
        self.0.service.is_some()
    }

    /// How instances share the permits; `None` if it was not put [on a store](crate::InFlightBuilder::on).
    pub fn sharing(&self) -> Option<Sharing> {
        self.0.sharing
    }

    /// The number of permits that this instance has [lost](crate::Permit::is_lost) so far; 0 if they belong to this process.
    pub fn lost(&self) -> u64 {
        self.shared_status().map_or(0, |status| status.lost)
    }

    /// The number of the key's permits in use; of all keys, if keys make no difference. If instances share them, only the permits of this
    /// instance.
    pub fn in_use(&self, key: impl AsKey) -> u64 {
        key.with_key(|key| self.0.pool.in_use(&key.to_key()))
    }

    /// The number of permits that are left, for the key, or for all keys if the limit adapts. If instances share them, as of the store's
    /// last answer, and all of them for a key that this instance has not used recently.
    pub fn remaining(&self, key: impl AsKey) -> u64 {
        key.with_key(|key| self.0.pool.remaining(&key.to_key()))
    }

    /// The number of permits in use, for all keys together. If instances share them, only the permits of this instance.
    pub fn in_use_in_all(&self) -> u64 {
        self.0.pool.in_use_in_all()
    }

    /// Adds a listener, which gets an event from now on for each taken permit and each refused request:
    /// [`Event::PermitTaken`], [`Event::PermitRefused`]; if the limit adapts, [`Event::Shed`], and [`Event::LimitMoved`] when its number
    /// changes; and [`Event::PermitLost`] if instances share it.
    pub fn listen(&self, listener: Arc<dyn Listener>) {
        self.0.reports.listeners.add(listener);
    }

    /// The number of keys with permits in use; if keys make no difference, 1 if any is in use.
    ///
    /// Locks each of the 64 parts once: for a gauge, not for each request.
    pub fn keys(&self) -> usize {
        self.0.pool.keys()
    }
}

/// For observers, such as `Observed` of the crate `sluicegate-observed`.
impl InFlight {
    /// The handle of a new limit, which the first observer observes.
    pub(crate) fn registered(permits: NamedPermits) -> Self {
        let permits = Arc::new(permits);
        let mut registry = registry();
        registry.limits.push(Arc::downgrade(&permits));
        registry.adopt();
        Self(permits)
    }

    /// From now on the observer gets the events of all limits of this process that have no other observer, as soon as it is the
    /// oldest one that lives.
    #[doc(hidden)]
    pub fn observe_all(observer: &Arc<dyn Listener>) {
        let mut registry = registry();
        registry.observers.push(Arc::downgrade(observer));
        registry.adopt();
    }

    /// From now on this observer gets the events of this limit, and no other one.
    #[doc(hidden)]
    pub fn observe_by(&self, observer: &Arc<dyn Listener>) {
        self.0.reports.observe(Arc::downgrade(observer));
    }

    /// The limits that this observer observes.
    #[doc(hidden)]
    pub fn observed_by(observer: &Arc<dyn Listener>) -> Vec<Self> {
        let mut registry = registry();
        registry.adopt();
        let limits = registry.limits.iter().filter_map(Weak::upgrade);
        let own =
            limits.filter(|limit| limit.reports.observer().is_some_and(|by| Arc::ptr_eq(&by, observer)));
        own.map(Self).collect()
    }

    /// A number that no other limit of this process has, or had.
    #[doc(hidden)]
    pub fn id(&self) -> u64 {
        self.0.reports.id
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InFlight({}: {} at once)", self.0.name, self.permits())
    }
}

/// Whether a limit can have this number of permits.
pub(crate) fn check_permits(name: &str, permits: u64) -> Result<(), ConfigError> {
    const MOST: u64 = 1_000_000;
    if (1..=MOST).contains(&permits) {
        return Ok(());
    }
    let problem = format!("{name:?} cannot have {permits} permits: use 1 to {MOST}");
    Err(ConfigError::new(ConfigErrorKind::Policy, problem))
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { limits: Vec::new(), observers: Vec::new() });

/// The limits and observers, in the order in which they were made.
struct Registry {
    limits: Vec<Weak<NamedPermits>>,
    observers: Vec<Weak<dyn Listener>>,
}

/// The recipients of a limit's events: its listeners, and its observer.
pub(crate) struct Reports {
    /// Unique among all limits of the process.
    id: u64,
    pub(crate) listeners: Listeners,
    observer: RwLock<Option<Weak<dyn Listener>>>,
}

impl Default for Reports {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: a number that orders nothing else.
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { id, listeners: Listeners::default(), observer: RwLock::default() }
    }
}

impl Reports {
    /// Tells the event to all, if there is anybody to tell. Call it outside of all locks.
    pub(crate) fn tell<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        let observer = self.observer();
        if observer.is_none() && self.listeners.is_empty() {
            return;
        }
        let event = event();
        self.listeners.tell(&event);
        observer.iter().for_each(|observer| observer.event(&event));
    }

    fn observer(&self) -> Option<Arc<dyn Listener>> {
        read(&self.observer).as_ref()?.upgrade()
    }

    fn observe(&self, observer: Weak<dyn Listener>) {
        *write(&self.observer) = Some(observer);
    }
}

impl Registry {
    /// Gives limits without an observer to the oldest one, and forgets those that are gone.
    fn adopt(&mut self) {
        self.observers.retain(|observer| observer.strong_count() > 0);
        self.limits.retain(|limit| limit.strong_count() > 0);
        let Some(first) = self.observers.first() else { return };
        for limit in self.limits.iter().filter_map(Weak::upgrade) {
            if limit.reports.observer().is_none() {
                limit.reports.observe(Weak::clone(first));
            }
        }
    }
}

fn registry() -> MutexGuard<'static, Registry> {
    lock(&REGISTRY)
}
