//! The store that the fleet shares: it decides as a `MemoryStore` does, and may forget everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluicegate_core::clock::Clock;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::{Inherit, Limiters};
use sluicegate_core::store::{Ask, DecisionFuture, PreparedPolicy};
use sluicegate_core::{ConfigError, MemoryStore, Policy, Store, StoreError};

use crate::time::Skewed;

/// A shared store. What it is after each loss of its state is there from the beginning: another memory.
pub(crate) struct Server {
    memories: Vec<Arc<dyn Store>>,
    losses: AtomicUsize,
    clock: Skewed,
    limiters: Limiters,
    /// Tables that are numbered before the others, more of them in each memory: no receipt of one is about a bucket of another.
    _others: Vec<PreparedPolicy>,
}

/// A policy as each of the memories has prepared it.
struct Prepared(Vec<PreparedPolicy>);

impl Server {
    /// A store with room for so many keys, that will lose its state so often.
    pub(crate) fn new(clock: Skewed, keys: usize, losses: usize) -> Arc<Self> {
        let memory = || {
            let store = MemoryStore::builder().keys(room_for(keys)).log_entries(1 << 20).clock(clock.clone());
            Arc::<dyn Store>::from(store.build().expect("the settings are possible"))
        };
        let memories: Vec<_> = (0..=losses).map(|_| memory()).collect();
        let other = |memory: &Arc<dyn Store>, index| {
            let policy = Policy::gcra(format!("other-{index}"), "1/s").keys(1).build();
            memory.open(Arc::new(policy.expect("the quota is possible")), None).expect("there is room")
        };
        let others = memories.iter().enumerate();
        let others = others.flat_map(|(tables, memory)| (0..tables).map(move |index| other(memory, index)));
        let _others = others.collect();
        Arc::new(Self {
            memories,
            losses: AtomicUsize::new(0),
            clock,
            limiters: Limiters::default(),
            _others,
        })
    }

    /// Forgets everything.
    pub(crate) fn flush(&self) {
        // Relaxed, here and below: a run has one thread.
        self.losses.fetch_add(1, Ordering::Relaxed);
    }

    /// The time by the store's clock.
    pub(crate) fn time_us(&self) -> u64 {
        self.clock.now_us()
    }
}

/// Room for so many keys, in which none has to make room for another one: which does so is drawn anew in each process.
pub(crate) fn room_for(keys: usize) -> usize {
    (keys * 64).clamp(1 << 12, (keys * 4).max(1 << 20))
}

impl Store for Server {
    fn open(
        &self,
        policy: Arc<Policy>,
        replaces: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        let replaced =
            replaces.map(|(old, how)| old.replaced::<Prepared>().map(|old| (old, how))).transpose()?;
        let open = |(index, memory): (usize, &Arc<dyn Store>)| {
            let replaces = replaced.as_ref().map(|(old, how)| (&old.0[index], *how));
            memory.open(Arc::clone(&policy), replaces)
        };
        let each = self.memories.iter().enumerate().map(open).collect::<Result<Vec<_>, _>>()?;
        Ok(PreparedPolicy::new(Arc::clone(each[0].policy()), Arc::new(Prepared(each))))
    }

    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        let now = self.losses.load(Ordering::Relaxed);
        let inner = asks.iter().map(|ask| Some(ask.on(&ask.policy().prepared::<Prepared>()?.0[now])));
        match inner.collect::<Option<Vec<_>>>() {
            Some(asks) => self.memories[now].decide(&asks),
            None => DecisionFuture::ready(Err(StoreError::new(StoreErrorKind::ForeignPolicy))),
        }
    }

    fn now_us(&self) -> u64 {
        self.time_us()
    }

    fn limiters(&self) -> &Limiters {
        &self.limiters
    }
}
