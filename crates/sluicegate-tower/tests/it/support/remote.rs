//! A store far away.

use std::sync::{Arc, Mutex};

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::{Ask, DecisionFuture, Limiters, PreparedPolicy};
use sluicegate_core::{ConfigError, MemoryStore, Policy, Store, StoreError};

/// A memory store whose answers come late, or not at all.
pub(crate) struct Remote {
    memory: Arc<dyn Store>,
    fails: Mutex<Option<StoreErrorKind>>,
    limiters: Limiters,
}

impl Remote {
    /// A store that answers late, or loses its answers.
    pub(crate) fn of(memory: &MemoryStore, fails: Option<StoreErrorKind>) -> Arc<dyn Store> {
        let remote = Self::breakable(memory);
        remote.fail(fails);
        remote
    }

    /// A store that answers late, until it is told to lose its answers.
    pub(crate) fn breakable(memory: &MemoryStore) -> Arc<Self> {
        Arc::new(Self { memory: memory.into(), fails: Mutex::default(), limiters: Limiters::default() })
    }

    pub(crate) fn fail(&self, with: Option<StoreErrorKind>) {
        *self.fails.lock().unwrap() = with;
    }
}

impl Store for Remote {
    fn limiters(&self) -> &Limiters {
        &self.limiters
    }

    fn open(
        &self,
        policy: Arc<Policy>,
        replaces: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        self.memory.open(policy, replaces)
    }

    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        let verdict = self.memory.decide(asks);
        let fails = *self.fails.lock().unwrap();
        DecisionFuture::pending(async move {
            tokio::task::yield_now().await;
            fails.map_or(verdict.await, |kind| Err(StoreError::new(kind)))
        })
    }
}
