//! The builder of [`Resilient`].

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::clock::{Clock, SystemClock};
use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::memory::MemoryStore;
use sluicegate_core::store::{IntoStore, Notice, Place, Store};
use sluicegate_core::wrap::Within;

use super::breaker::BreakerSettings;
use super::fallback::LocalFallback;
use super::parts::{OutageCounts, Parts};
use super::state::{Deadline, DebtSettlement, ResilientState};
use super::store::{Resilient, ResilientStore};

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
}

/// Collects the settings of a [`Resilient`] store.
///
/// | setting | default | too low | too high |
/// |---|---|---|---|
/// | [`replicas`](Self::replicas) | 1 | a fleet without its store admits several times the limit | clients are refused in an outage although there is room |
/// | [`fallback`](Self::fallback) | 100,000 keys | keys are forgotten during an outage | memory |
/// | [`deadline`](Self::deadline) | the store's | a slow answer counts as a failure, and its units may be spent twice | requests wait for a store that hangs |
/// | [`breaker`](Self::breaker) | see there | a brief fault counts as an outage | requests wait for failures |
///
/// ```
/// use std::time::Duration;
/// use sluicegate_resilient::BreakerSettings;
/// use sluicegate_core::MemoryStore;
/// use sluicegate_resilient::Resilient;
///
/// # let redis = MemoryStore::new();
/// let store = Resilient::builder(redis)
///     .replicas(4)
///     .fallback(MemoryStore::builder().table_size(20_000).build()?)
///     .breaker(BreakerSettings::new().consecutive(3))
///     .build()?;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct ResilientBuilder {
    store: Arc<dyn Store>,
    replicas: u64,
    fallback: MemoryStore,
    deadline: Option<Duration>,
    breaker: BreakerSettings,
    clock: Arc<dyn Clock>,
}

impl ResilientBuilder {
    fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            replicas: 1,
            fallback: MemoryStore::new(),
            deadline: None,
            breaker: BreakerSettings::new(),
            clock: Arc::new(SystemClock::new()),
        }
    }

    sluicegate_core::setters! {
        /// Sets the number of instances of the service that share the store. On its own, each decides with its part of every quota,
        /// rounded up. Default: 1, with which a fleet that is cut off from its store admits the limit once per instance.
        ///
        /// Give the number of instances that run at the same time, including those of a rolling
        /// deployment. A limit of 10 with 4 replicas is 3 on each instance, 12 together: shares are
        /// rounded up, so that a limit of 1 is never 0.
        replicas(instances: u64);

        /// Sets the store for the fallback's state, which no other limits use. Default: a new
        /// [`MemoryStore`] for 100,000 keys.
        ///
        /// Each allowed request also asks the fallback, to keep it warm. This adds some tens of nanoseconds to a
        /// network round trip.
        fallback(memory: MemoryStore);

        /// Sets the longest time that the store may take, for a store without a deadline of its own. Default: none, because the stores of
        /// this family have deadlines.
        ///
        /// A call that misses the deadline is a failure for the breaker. The units that it asked for may have been spent.
        deadline(deadline: Duration) => Some(deadline);

        /// Sets when the breaker opens, and for how long. Default: [`BreakerSettings::new`].
        breaker(settings: BreakerSettings);

        /// Sets the clock of the breaker's pauses. Default: [`SystemClock`].
        clock(clock: impl Clock) => Arc::new(clock);
    }

    /// Checks the settings and makes the store.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Store`] for 0 replicas, a deadline of 0, settings of the breaker outside of their range, and around a store
    /// that is resilient or observed already ([`Place`]).
    pub fn build(self) -> Result<Resilient, ConfigError> {
        Place::Resilient.around(&*self.store)?;
        self.build_anywhere()
    }

    /// As [`build`](Self::build), around any store: the order of stores is checked when a policy is opened.
    fn build_anywhere(self) -> Result<Resilient, ConfigError> {
        let Self { store, replicas, fallback, deadline, breaker, clock } = self;
        if replicas == 0 {
            let problem = "a store with 0 replicas: count this instance, so use at least 1";
            return Err(ConfigError::new(ConfigErrorKind::Store, problem));
        }
        let deadline = Deadline::new(deadline)?;
        breaker.check()?;
        store.notify(&Notice::Fallback);
        Ok(Resilient(Arc::new(ResilientStore(Arc::new(ResilientState {
            within: Within::new(store),
            deadline,
            parts: Arc::new(Parts::new(breaker, Arc::clone(&clock))),
            fallback: LocalFallback::new(fallback.into(), replicas),
            settlement: DebtSettlement::default(),
            counts: OutageCounts::default(),
            clock,
        })))))
    }
}

sluicegate_core::debug_as!(ResilientBuilder { replicas, deadline, breaker });
