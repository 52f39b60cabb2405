//! The clock that a store decides by: [`TimeOf`].

use std::sync::{Arc, Weak};

use sluicegate_core::clock::Clock;
use sluicegate_core::store::Store;

/// The time by the clock of a store. The reference is weak, because the store owns the listeners that ask for the time.
pub(super) struct TimeOf(Weak<dyn Store>);

impl TimeOf {
    pub(super) fn store(store: &Arc<dyn Store>) -> Arc<dyn Clock> {
        Arc::new(Self(Arc::downgrade(store)))
    }
}

impl Clock for TimeOf {
    fn now_us(&self) -> u64 {
        self.0.upgrade().map_or(0, |store| store.now_us())
    }
}
