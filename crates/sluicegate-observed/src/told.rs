//! The readers of events, and the log of alarms: [`EventReaders`].

use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_core::store::{Alarm, Event, Listener, Listeners};
use sluicegate_core::support::lock;

use crate::past::RecentEvents;
use crate::store::ObservedStore;
use crate::tighten;

/// The list of recent events and the listeners of a store, and the alarms that are expected.
pub(super) struct EventReaders {
    pub(super) past: Arc<RecentEvents>,
    pub(super) listeners: Listeners,
    expected: Mutex<Option<Expected>>,
    /// The store whose policies alarms may tighten.
    store: OnceLock<Weak<ObservedStore>>,
}

/// The reason why alarms are expected, and until when.
struct Expected {
    until_us: u64,
    why: String,
}

impl EventReaders {
    pub(super) fn new(past: Arc<RecentEvents>) -> Self {
        Self { past, listeners: Listeners::default(), expected: Mutex::default(), store: OnceLock::new() }
    }

    pub(super) fn expect(&self, why: String, until: SystemTime) {
        let until = until.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let until_us = u64::try_from(until.as_micros()).unwrap_or(u64::MAX);
        *lock(&self.expected) = Some(Expected { until_us, why });
    }

    /// Why an alarm at this time is expected.
    pub(super) fn expected(&self, now_us: u64) -> Option<String> {
        let expected = lock(&self.expected);
        expected.as_ref().filter(|expected| now_us < expected.until_us).map(|expected| expected.why.clone())
    }

    /// From now on alarms tighten the policies of this store that are configured for it.
    pub(super) fn tighten(&self, store: &Arc<ObservedStore>) {
        // Weak, because the store keeps this.
        _ = self.store.set(Arc::downgrade(store));
    }

    /// Reports an alarm to listeners and logs it.
    pub(super) fn alarm(&self, alarm: &Alarm) {
        let (policy, cause) = (&*alarm.policy, alarm.cause.as_str());
        if alarm.is_over || alarm.expected.is_some() {
            tracing::info!(policy, cause, "{alarm}");
        } else {
            tracing::warn!(policy, cause, "{alarm}");
        }
        self.event(&Event::Alarm(alarm));
        if let Some(store) = self.store.get().and_then(Weak::upgrade) {
            tighten::follow(&store, alarm);
        }
    }
}

impl Listener for EventReaders {
    fn event(&self, event: &Event<'_>) {
        self.past.event(event);
        self.listeners.tell(event);
    }
}
