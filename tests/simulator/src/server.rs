//! The store that the fleet shares: it decides as a `MemoryStore` does, may forget everything, and may become its replica.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sluicegate_core::clock::Clock;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::{Inherit, Limiters};
use sluicegate_core::store::{Ask, Capabilities, DecisionFuture, PreparedPolicy};
use sluicegate_core::wrap::OwnedAsk;
use sluicegate_core::{ConfigError, MemoryStore, Policy, Store, StoreError};

use crate::time::Skewed;

/// A shared store. What it is after each loss of its state is there from the beginning: another memory.
pub(crate) struct Server {
    memories: Vec<Arc<dyn Store>>,
    losses: Vec<Lost>,
    /// Losses so far: the place of the memory that decides.
    lost: AtomicUsize,
    clock: Skewed,
    /// While a memory is told what its master has decided: when that was.
    then_us: Arc<AtomicU64>,
    /// The policies in force, by their names.
    open: Mutex<BTreeMap<String, Prepared>>,
    /// What was asked since all was forgotten, if a replica will need it.
    asked: Mutex<Vec<(u64, Vec<OwnedAsk>)>>,
    limiters: Limiters,
    /// Tables that are numbered before the others, more of them after each flush: no receipt of one is about a bucket of another.
    _others: Vec<PreparedPolicy>,
}

/// What becomes of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// All is forgotten.
    All,
    /// What a replica has not heard of yet is forgotten.
    Late,
}

/// A policy as each of the memories has prepared it.
type Prepared = Arc<Vec<PreparedPolicy>>;

/// The server's clock; for a replica that is told what has happened, the time when it did.
struct Then(Skewed, Arc<AtomicU64>);

impl Clock for Then {
    fn now_us(&self) -> u64 {
        // Relaxed, here and below: a run has one thread.
        match self.1.load(Ordering::Relaxed) {
            0 => self.0.now_us(),
            then_us => then_us,
        }
    }
}

impl Server {
    /// A store with room for this many keys, that will lose its state like this.
    pub(crate) fn new(clock: Skewed, keys: usize, losses: &[Lost]) -> Arc<Self> {
        let then_us = Arc::<AtomicU64>::default();
        let memory = || {
            let store = MemoryStore::builder().table_size(room_for(keys)).log_entries(1 << 20);
            let store = store.clock(Then(clock.clone(), Arc::clone(&then_us))).build();
            Arc::<dyn Store>::from(store.expect("the settings are possible"))
        };
        let memories: Vec<_> = (0..=losses.len()).map(|_| memory()).collect();
        let other = |memory: &Arc<dyn Store>, index| {
            let policy = Policy::gcra(format!("other-{index}"), "1/s").table_size(1).build();
            memory.open(Arc::new(policy.expect("the quota is possible")), None).expect("there is room")
        };
        let flushes = |place: usize| losses[..place].iter().filter(|lost| **lost == Lost::All).count();
        let others = memories.iter().enumerate();
        let others =
            others.flat_map(|(place, memory)| (0..flushes(place)).map(move |index| other(memory, index)));
        let _others = others.collect();
        Arc::new(Self {
            memories,
            losses: losses.to_vec(),
            lost: AtomicUsize::new(0),
            clock,
            then_us,
            open: Mutex::default(),
            asked: Mutex::default(),
            limiters: Limiters::default(),
            _others,
        })
    }

    /// Forgets everything.
    pub(crate) fn flush(&self) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Becomes its replica, which is behind by this time.
    pub(crate) fn fail_over(&self, behind_us: u64) {
        let known_us = self.time_us().saturating_sub(behind_us);
        let place = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.retain(|(at_us, _)| *at_us <= known_us);
        for (at_us, asks) in &*asked {
            self.then_us.store(*at_us, Ordering::Relaxed);
            let asks: Vec<_> = asks.iter().map(OwnedAsk::ask).collect();
            // Its master has given the answer.
            drop(self.decide_by(place, &asks));
        }
        self.then_us.store(0, Ordering::Relaxed);
    }

    /// The time by the store's clock.
    pub(crate) fn time_us(&self) -> u64 {
        self.clock.now_us()
    }

    /// Keys that had to make room for others.
    pub(crate) fn forgotten(&self) -> u64 {
        self.memories.iter().filter_map(|memory| memory.status().memory).map(|memory| memory.evictions).sum()
    }

    /// Decides by the policies that are in force: what was on its way when they were replaced comes to the new ones.
    fn decide_by(&self, place: usize, asks: &[Ask<'_>]) -> DecisionFuture {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = asks.iter().map(|ask| Some(ask.on(&open.get(ask.policy().policy().name())?[place])));
        match inner.collect::<Option<Vec<_>>>() {
            Some(asks) => self.memories[place].decide(&asks),
            None => DecisionFuture::ready(Err(StoreError::new(StoreErrorKind::ForeignPolicy))),
        }
    }
}

/// Room for this many keys, in which hardly ever one has to make room for another one: where a set of the table holds two, three of them
/// fall into one set in one table of five thousand, however many there are.
pub(crate) fn room_for(keys: usize) -> usize {
    (20 * keys * keys.isqrt()).clamp(1 << 12, (keys * 4).max(1 << 20))
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
            let replaces = replaced.as_ref().map(|(old, how)| (&old[index], *how));
            memory.open(Arc::clone(&policy), replaces)
        };
        let each = self.memories.iter().enumerate().map(open).collect::<Result<Vec<_>, _>>()?;
        let (policy, each) = (Arc::clone(each[0].policy()), Arc::new(each));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(policy.name().to_owned(), Arc::clone(&each));
        Ok(PreparedPolicy::new(policy, Arc::new(each)))
    }

    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        let place = self.lost.load(Ordering::Relaxed);
        if self.losses[place..].contains(&Lost::Late) {
            let owned = asks.iter().map(OwnedAsk::new).collect();
            self.asked.lock().unwrap_or_else(PoisonError::into_inner).push((self.time_us(), owned));
        }
        self.decide_by(place, asks)
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::new().clock(&self.clock)
    }

    fn limiters(&self) -> &Limiters {
        &self.limiters
    }
}
