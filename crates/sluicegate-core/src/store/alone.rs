//! A process that decides alone, because its store gives no answer and no store around it decides in its place: [`Alone`].
//!
//! The first outage makes the tables, so a service whose store always answers has none. All keys are at rest
//! then, because this process does not know the units that the store has admitted; a `Resilient` store knows them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::prepared::PreparedPolicy;
use super::{Limiters, Store};
use crate::memory::MemoryStore;
use crate::policy::Policy;

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

impl fmt::Debug for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Alone").field(&self.policy.name()).finish()
    }
}
