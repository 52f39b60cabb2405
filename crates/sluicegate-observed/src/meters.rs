//! The meters of all policies, by name: [`Meters`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use sluicegate_core::clock::Clock;

use super::lock::lock;
use super::meter::PolicyMeter;
use super::told::EventReaders;

/// The most policies with counts of their own. Policies that are opened later count together, under [`OTHER`].
const MOST: usize = 256;

/// The name of all further policies.
const OTHER: &str = "other";

/// The counts of all policies of a store. They stay when a policy is closed, because a count never decreases.
pub(super) struct Meters {
    store: String,
    clock: Arc<dyn Clock>,
    events: Arc<EventReaders>,
    other: Arc<PolicyMeter>,
    by_name: Mutex<HashMap<String, Arc<PolicyMeter>>>,
}

impl Meters {
    pub(super) fn new(store: &str, clock: Arc<dyn Clock>, events: Arc<EventReaders>) -> Self {
        let other = Arc::new(PolicyMeter::new(store, OTHER, Arc::clone(&clock), Arc::clone(&events)));
        Self { store: store.to_owned(), clock, events, other, by_name: Mutex::default() }
    }

    /// The counts of the policy of this name; its own, if there is room.
    pub(super) fn open(&self, policy: &str) -> Arc<PolicyMeter> {
        let mut all = lock(&self.by_name);
        if let Some(meter) = all.get(policy) {
            return Arc::clone(meter);
        }
        if all.len() >= MOST {
            return Arc::clone(&self.other);
        }
        let (clock, events) = (Arc::clone(&self.clock), Arc::clone(&self.events));
        let meter = Arc::new(PolicyMeter::new(&self.store, policy, clock, events));
        all.insert(policy.to_owned(), Arc::clone(&meter));
        meter
    }

    /// All meters.
    pub(super) fn all(&self) -> Vec<Arc<PolicyMeter>> {
        let all = lock(&self.by_name);
        all.values().chain([&self.other]).cloned().collect()
    }

    /// The counts of the policy of this name, or the common counts of policies without counts of their own.
    pub(super) fn known(&self, policy: &str) -> Arc<PolicyMeter> {
        self.get(policy).unwrap_or_else(|| Arc::clone(&self.other))
    }

    /// The counts of the policy of this name, if they are its own.
    pub(super) fn get(&self, policy: &str) -> Option<Arc<PolicyMeter>> {
        lock(&self.by_name).get(policy).cloned()
    }
}
