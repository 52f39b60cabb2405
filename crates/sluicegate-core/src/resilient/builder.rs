//! Putting a [`Resilient`] together.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::Duration;

use super::breaker::Breaker;
use super::debts::Debts;
use super::settings::BreakerSettings;
use super::status::Counts;
use super::{Front, PARTS, Resilient, State};
use crate::clock::{Clock, SystemClock};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::limiter::Limiters;
use crate::memory::MemoryStore;
use crate::store::Store;

/// Collects the settings of a [`Resilient`] store.
#[must_use = "a builder does nothing until `build` is called"]
pub struct ResilientBuilder {
    store: Arc<dyn Store>,
    replicas: u64,
    fallback: MemoryStore,
    deadline: Option<Duration>,
    settings: BreakerSettings,
    clock: Box<dyn Clock>,
}

impl ResilientBuilder {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            replicas: 1,
            fallback: MemoryStore::new(),
            deadline: None,
            settings: BreakerSettings::new(),
            clock: Box::new(SystemClock::new()),
        }
    }

    /// How many instances of the service share the store: on its own, each decides with that part of every quota,
    /// rounded up. Default: 1, with which a fleet that is cut off from its store admits the limit once per instance.
    pub fn replicas(mut self, instances: u64) -> Self {
        self.replicas = instances;
        self
    }

    /// Where the fallback keeps its state: a store of its own, on which no other limits are. Default: a new
    /// [`MemoryStore`] for 100,000 keys.
    pub fn fallback(mut self, memory: MemoryStore) -> Self {
        self.fallback = memory;
        self
    }

    /// How long the store may take, for one that has no deadline of its own. Default: none, for the stores of this family
    /// have one, and act on what they miss.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// When the store is left alone, and for how long. Default: [`BreakerSettings::new`].
    pub fn breaker(mut self, settings: BreakerSettings) -> Self {
        self.settings = settings;
        self
    }

    /// By what clock the breaker pauses. Default: [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Checks the settings and makes the store.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Store`] for 0 replicas, a deadline of 0, and settings of the breaker outside of their range.
    pub fn build(self) -> Result<Resilient, ConfigError> {
        let fail = |problem: &str| Err(ConfigError::new(ConfigErrorKind::Store, problem.to_owned()));
        if self.replicas == 0 {
            return fail("a store with 0 replicas: count this instance, so use at least 1");
        }
        if self.deadline.is_some_and(|deadline| deadline.is_zero()) {
            return fail("a store with a deadline of 0: no call could keep it");
        }
        self.settings.check()?;
        Ok(self.into_store())
    }

    pub(super) fn into_store(self) -> Resilient {
        let Self { store, replicas, fallback, deadline, settings, clock } = self;
        Resilient(Arc::new(Front(Arc::new(State {
            limiters: Limiters::default(),
            store,
            fallback: fallback.into(),
            replicas,
            deadline,
            settings,
            breakers: (0..PARTS).map(|_| Breaker::new()).collect(),
            clock,
            counts: Counts::default(),
            debts: Debts::default(),
            is_settling: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            reports: AtomicUsize::new(0),
            settles_from_us: AtomicU64::new(0),
        }))))
    }
}

impl fmt::Debug for ResilientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResilientBuilder")
            .field("replicas", &self.replicas)
            .field("deadline", &self.deadline)
            .field("breaker", &self.settings)
            .finish_non_exhaustive()
    }
}
