//! All limits of this process, and the observers that count them: [`Reports`].
//!
//! A limit is observed without being registered anywhere: by the observer that it was given to, otherwise by the first one of the
//! process that still lives. References are weak, so that neither keeps the other alive.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use sluicegate_core::store::{Event, Listener, Listeners};

use crate::InFlight;
use crate::in_flight::NamedPermits;

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
        self.observer.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.upgrade()
    }

    fn observe(&self, observer: Weak<dyn Listener>) {
        *self.observer.write().unwrap_or_else(PoisonError::into_inner) = Some(observer);
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
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}
