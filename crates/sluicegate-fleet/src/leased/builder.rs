//! The settings of a [`Leased`] store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use sluicegate_core::clock::{Clock, SystemClock};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::store::Place;
use sluicegate_core::wrap::Within;
use sluicegate_core::{ConfigError, Store};

use super::refill::Batch;
use super::table::AccountTable;
use super::{LeaseState, Leased, LeasingStore};

/// Collects the settings of a [`Leased`] store.
///
/// | setting | default | too low | too high |
/// |---|---|---|---|
/// | [`batch`](Self::batch) | see there | more calls | resets elsewhere are seen late, and others lack the units held here |
/// | [`keys`](Self::keys) | 65,536 | further keys are not leased | memory, about 300 bytes a key |
///
/// ```
/// use sluicegate_core::MemoryStore;
/// use sluicegate_fleet::leased::{Batch, Leased};
///
/// # let redis = MemoryStore::new();
/// let store = Leased::builder(redis).batch(Batch::new().share(10)).keys(10_000).build()?;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct LeasedBuilder {
    store: Arc<dyn Store>,
    batch: Batch,
    keys: usize,
    clock: Arc<dyn Clock>,
}

impl LeasedBuilder {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, batch: Batch::new(), keys: 65_536, clock: Arc::new(SystemClock::new()) }
    }

    sluicegate_core::setters! {
        /// Sets how many units are leased at a time. Default: [`Batch::new`].
        batch(batch: Batch);

        /// Sets the most keys that are leased, over all policies. Default: 65,536.
        ///
        /// A key without room is decided by the inner store.
        keys(keys: usize);

        /// Sets the clock that leases end by. It must never go back, and be at most a thousandth slower than the store's clock. Default:
        /// [`SystemClock`].
        clock(clock: impl Clock) => Arc::new(clock);
    }

    /// Checks the settings and makes the store.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Store`] for 0 keys, for settings of the batch outside of their range, and around a store that already
    /// leases or has a [higher place](Place).
    pub fn build(self) -> Result<Leased, ConfigError> {
        let Self { store, batch, keys, clock } = self;
        Place::Leased.around(&*store)?;
        batch.check()?;
        if keys == 0 {
            let problem = "leases for 0 keys: use at least 1";
            return Err(ConfigError::new(ConfigErrorKind::Store, problem));
        }
        Ok(Leased(Arc::new(LeasingStore(Arc::new(LeaseState {
            within: Within::new(store),
            batch,
            table: AccountTable::new(keys),
            clock,
            numbers: AtomicU64::new(1),
            is_closed: AtomicBool::new(false),
        })))))
    }
}

sluicegate_core::debug_as!(LeasedBuilder { batch, keys });
