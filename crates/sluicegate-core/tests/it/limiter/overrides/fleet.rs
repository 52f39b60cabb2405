//! Instances of a service that share a few bytes, as those on one Redis do, each with a memory of its own.

use std::sync::{Arc, Mutex};

use sluicegate_core::clock::ManualClock;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::{
    Ask, Capabilities, DecisionFuture, Event, Limiters, Listeners, Notice, PreparedPolicy, Shared,
    SharedFuture, Write,
};
use sluicegate_core::{ConfigError, Policy, Store, StoreError};
use sluicegate_tests::memory::store_on;

/// What is shared.
#[derive(Clone)]
pub(super) struct Fleet {
    pub(super) clock: ManualClock,
    there: Arc<Mutex<Arc<[u8]>>>,
    is_away: Arc<Mutex<bool>>,
}

impl Fleet {
    pub(super) fn new(clock: ManualClock) -> Self {
        Self { clock, there: Arc::new(Mutex::new(Arc::from([]))), is_away: Arc::default() }
    }

    /// A new instance.
    pub(super) fn instance(&self) -> Arc<Instance> {
        Arc::new(Instance {
            fleet: self.clone(),
            memory: store_on(self.clock.clone()).into(),
            limiters: Limiters::default(),
            listeners: Listeners::default(),
            told: Mutex::default(),
            known: Mutex::new(Arc::from([])),
        })
    }

    /// The store forgets everything.
    pub(super) fn flush(&self) {
        self.write(&[]);
    }

    pub(super) fn write(&self, bytes: &[u8]) {
        *self.there.lock().unwrap() = Arc::from(bytes);
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.there.lock().unwrap().to_vec()).unwrap()
    }

    pub(super) fn set_away(&self, is_away: bool) {
        *self.is_away.lock().unwrap() = is_away;
    }
}

/// One instance.
pub(super) struct Instance {
    fleet: Fleet,
    memory: Arc<dyn Store>,
    limiters: Limiters,
    listeners: Listeners,
    known: Mutex<Arc<[u8]>>,
    /// The replacements that it was told of.
    pub(super) told: Mutex<Vec<String>>,
}

impl Instance {
    pub(super) fn store(self: &Arc<Self>) -> Arc<dyn Store> {
        Arc::clone(self) as Arc<dyn Store>
    }

    /// What it does every few seconds.
    pub(super) fn look(&self) {
        drop(self.exchange(None));
    }

    /// A reading that has taken a while.
    pub(super) fn tell(&self, bytes: &[u8]) {
        self.listeners.tell(&Event::Shared(bytes));
    }

    fn now(&self, write: Option<Write<'_>>) -> Result<Arc<[u8]>, StoreError> {
        if *self.fleet.is_away.lock().unwrap() {
            return Err(StoreError::new(StoreErrorKind::Unavailable));
        }
        let there = {
            let mut there = self.fleet.there.lock().unwrap();
            if let Some(write) = write.filter(|write| write.over == &**there) {
                *there = Arc::from(write.bytes);
            }
            Arc::clone(&there)
        };
        *self.known.lock().unwrap() = Arc::clone(&there);
        self.listeners.tell(&Event::Shared(&there));
        Ok(there)
    }
}

impl Shared for Instance {
    fn exchange(&self, write: Option<Write<'_>>) -> SharedFuture {
        Box::pin(std::future::ready(self.now(write)))
    }
}

impl Store for Instance {
    fn open(
        &self,
        policy: Arc<Policy>,
        replaces: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        self.memory.open(policy, replaces)
    }

    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        self.memory.decide(asks)
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::new().clock(&self.fleet.clock).shared(self)
    }

    fn notify(&self, notice: &Notice<'_>) {
        match notice {
            Notice::Event(Event::PolicyReplaced { old, new, by, .. }) => {
                self.told.lock().unwrap().push(format!("{old} -> {new} by {}", by.unwrap_or("nobody")));
            }
            Notice::Listener(listener) => {
                let known = Arc::clone(&self.known.lock().unwrap());
                listener.event(&Event::Shared(&known));
                self.listeners.add(Arc::clone(listener));
            }
            Notice::Replaced { .. } => self.memory.notify(notice),
            _ => (),
        }
    }

    fn limiters(&self) -> &Limiters {
        &self.limiters
    }
}
