//! The counts of a store besides those of its policies, and their listeners: [`ObservedState`].
//!
//! The numbers here are authoritative; recorders of the `metrics` facade get the increase since the last time. So a
//! recorder that is installed late gets all earlier counts, and the look-up of a counter, which costs more than a
//! decision, happens once for each series.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::Key;
use sluicegate_core::clock::Clock;
use sluicegate_core::error::{StoreError, StoreErrorKind};
use sluicegate_core::store::{BreakerState, Event, ForwardedFault, Listener, StoreStatus, Undecided};
use sluicegate_in_flight::{Class, InFlight};

use crate::durations::Durations;
use crate::lock::lock;
use crate::meter::{Meters, WatchedKeys};
use crate::metrics::{
    BREAKER_OPENED, DISAGREEMENTS, EVENTS_DROPPED, ExportedTotals, FALLBACK_SECONDS, FORWARDED_FAULTS, Name,
    PERMITS_LOST, SHED, STORE_ERRORS, TABLE_EVICTIONS, UNDECIDED, series,
};
use crate::rates::RecentEvents;
use crate::routes::Routes;
use crate::snapshot::{StoreErrors, StoreState};
use crate::told::EventReaders;

/// The state of an observed store, which its handles share.
pub(super) struct ObservedState {
    pub(super) name: Name,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) since_us: u64,
    pub(super) meters: Meters,
    pub(super) events: Arc<EventReaders>,
    lately: Durations,
    pub(super) watched: WatchedKeys,
    routes: Routes,
    pub(super) in_flight: Mutex<Vec<ObservedPermits>>,
    undecided: [AtomicU64; Undecided::ALL.len()],
    faults: [AtomicU64; ForwardedFault::ALL.len()],
    /// Calls without an answer, by kind, if no inner store counts them.
    errors: [AtomicU64; ERRORS.len()],
    /// Events that did not fit into a queue.
    pub(super) dropped: Arc<AtomicU64>,
    /// Whether the last call had no answer, so that each outage and its end are reported once.
    is_down: AtomicBool,
    told: Mutex<ExportedTotals<TOTALS>>,
}

/// A counted limit in flight, with the numbers already exported: refusals by class, enforced and in shadow, and lost permits.
pub(super) struct ObservedPermits {
    pub(super) of: InFlight,
    shed: ExportedTotals<SHED_TOTALS>,
    lost: ExportedTotals<1>,
}

const SHED_TOTALS: usize = 2 * Class::ALL.len();

impl ObservedPermits {
    pub(super) fn of(of: InFlight) -> Self {
        Self { of, shed: ExportedTotals::nobody(), lost: ExportedTotals::nobody() }
    }

    /// Exports new refusals if the limit adapts, and newly lost permits if instances share them.
    fn tell(&mut self) {
        let name = self.of.name();
        if self.of.sharing().is_some() {
            self.lost.tell(&[self.of.lost()], |_| true, |_| series(PERMITS_LOST, [("policy", name)]));
        }
        let Some(status) = self.of.status() else { return };
        let mut totals = [0; SHED_TOTALS];
        totals
            .iter_mut()
            .zip(status.shed.into_iter().chain(status.would_shed))
            .for_each(|(total, shed)| *total = shed);
        let series = |total: usize| {
            let class = Class::ALL[total % Class::ALL.len()].as_str();
            let mode = if total < Class::ALL.len() { "enforce" } else { "shadow" };
            series(SHED, [("policy", name), ("class", class), ("mode", mode)])
        };
        // Enforced refusals are exported from the beginning, so that the first one is visible.
        self.shed.tell(&totals, |total| total < Class::ALL.len(), series);
    }
}

const ERRORS: [&str; 3] = ["timeout", "unavailable", "protocol"];

/// The places of totals; the reasons come first, then the kinds of faults.
const FAULT: usize = Undecided::ALL.len();
const ERROR: usize = FAULT + ForwardedFault::ALL.len();
const OPENED: usize = ERROR + ERRORS.len();
const FALLBACK: usize = OPENED + 1;
const EVICTED: usize = FALLBACK + 1;
const DROPPED: usize = EVICTED + 1;
const DISAGREED: usize = DROPPED + 1;
const TOTALS: usize = DISAGREED + 1;

impl ObservedState {
    pub(super) fn new(name: Name, clock: Arc<dyn Clock>, past: Arc<RecentEvents>) -> Self {
        let events = Arc::new(EventReaders::new(past));
        Self {
            since_us: clock.now_us(),
            meters: Meters::new(name.as_str(), Arc::clone(&clock), Arc::clone(&events)),
            name,
            clock,
            events,
            lately: Durations::new(),
            watched: WatchedKeys::default(),
            routes: Routes::default(),
            in_flight: Mutex::default(),
            undecided: Default::default(),
            faults: Default::default(),
            errors: Default::default(),
            dropped: Arc::default(),
            is_down: AtomicBool::new(false),
            told: Mutex::new(ExportedTotals::nobody()),
        }
    }

    /// Counts the duration of an answer.
    pub(super) fn took(&self, lasted: Duration) {
        // All recorded answers have the same weight.
        self.lately.record(lasted, self.clock.now_us());
    }

    /// The time within which 99 of 100 recent answers came.
    pub(super) fn p99(&self) -> Option<Duration> {
        self.lately.percentile(99, self.clock.now_us())
    }

    pub(super) fn events_dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Notes whether the store has answered a call.
    pub(super) fn answered(&self, error: Option<&StoreError>) {
        let error = error.filter(|error| error.may_succeed_later());
        if let Some(error) = error {
            let kind = match error.kind() {
                StoreErrorKind::Timeout => 0,
                StoreErrorKind::Protocol => 2,
                _ => 1,
            };
            // Relaxed, here and below: the counts order nothing else.
            self.errors[kind].fetch_add(1, Ordering::Relaxed);
        }
        let is_down = error.is_some();
        // Only one of the threads that see the change reports it.
        if self.is_down.load(Ordering::Relaxed) != is_down
            && self.is_down.swap(is_down, Ordering::Relaxed) != is_down
        {
            let event = error.map_or(Event::StoreAnswers, |error| Event::StoreFails { error });
            self.event(&event);
        }
    }

    pub(super) fn state(&self, status: &StoreStatus) -> StoreState {
        match &status.resilient {
            Some(resilient) if resilient.breaker != BreakerState::Closed => StoreState::Fallback,
            None if self.is_down.load(Ordering::Relaxed) => StoreState::Down,
            _ => StoreState::Ok,
        }
    }

    /// Calls without an answer. The counts of an inner store take precedence, because it hides such calls from its callers.
    pub(super) fn errors(&self, status: &StoreStatus) -> StoreErrors {
        let own = |kind: usize| self.errors[kind].load(Ordering::Relaxed);
        status.resilient.map_or_else(
            || StoreErrors { timeout: own(0), unavailable: own(1), protocol: own(2) },
            |resilient| StoreErrors {
                timeout: resilient.timeouts,
                unavailable: resilient.unavailable,
                protocol: resilient.protocol,
            },
        )
    }

    /// Exports the counts of the store and of all policies that have grown.
    pub(super) fn tell(&self, status: &StoreStatus) {
        let mut totals = [0; TOTALS];
        let counts = self.undecided.iter().chain(&self.faults);
        for (total, count) in totals.iter_mut().zip(counts) {
            *total = count.load(Ordering::Relaxed);
        }
        let errors = self.errors(status);
        totals[ERROR..OPENED].copy_from_slice(&[errors.timeout, errors.unavailable, errors.protocol]);
        let in_fallback = status.resilient.map_or(Duration::ZERO, |resilient| resilient.in_fallback);
        totals[OPENED] = status.resilient.map_or(0, |resilient| resilient.opened);
        totals[FALLBACK] = in_fallback.as_secs();
        totals[EVICTED] = status.memory.map_or(0, |memory| memory.evictions);
        totals[DROPPED] = self.events_dropped();
        totals[DISAGREED] = status.disagreements;
        let mut told = lock(&self.told);
        told.tell(&totals, |total| total >= ERROR, |total| self.series(total));
        drop(told);
        self.meters.all().iter().for_each(|meter| meter.tell());
        self.routes.tell();
        lock(&self.in_flight).iter_mut().for_each(ObservedPermits::tell);
    }

    /// The state of each limit in flight that has it, by name.
    pub(super) fn of_permits<T>(&self, status: impl Fn(&InFlight) -> Option<T>) -> Vec<(String, T)> {
        let all = lock(&self.in_flight);
        all.iter().filter_map(|permits| Some((permits.of.name().to_owned(), status(&permits.of)?))).collect()
    }

    fn series(&self, total: usize) -> Key {
        let store = ("store", self.name.as_str());
        match total {
            OPENED => series(BREAKER_OPENED, [store]),
            FALLBACK => series(FALLBACK_SECONDS, [store]),
            EVICTED => series(TABLE_EVICTIONS, [store]),
            DROPPED => series(EVENTS_DROPPED, [store]),
            DISAGREED => series(DISAGREEMENTS, [store]),
            error if error >= ERROR => series(STORE_ERRORS, [store, ("kind", ERRORS[error - ERROR])]),
            fault if fault >= FAULT => {
                series(FORWARDED_FAULTS, [("fault", ForwardedFault::ALL[fault - FAULT].as_str())])
            }
            reason => series(UNDECIDED, [("reason", Undecided::ALL[reason].as_str())]),
        }
    }
}

/// Events from outside: from layers, and from code that does not know the store.
impl Listener for ObservedState {
    fn event(&self, event: &Event<'_>) {
        match event {
            Event::Undecided(_, why) => {
                self.undecided[*why as usize].fetch_add(1, Ordering::Relaxed);
            }
            Event::Routed { route, outcome, took } => self.routes.count(*route, *outcome, *took),
            Event::ForwardedFault(fault) => {
                self.faults[*fault as usize].fetch_add(1, Ordering::Relaxed);
            }
            Event::PermitTaken(subject) | Event::PermitRefused(subject) => {
                let is_refused = matches!(event, Event::PermitRefused(_));
                if let Some(in_flight) = subject.policy {
                    self.meters.open(in_flight).permit(is_refused);
                }
            }
            Event::Shed { subject, is_enforced: true, .. } => {
                if let Some(in_flight) = subject.policy {
                    self.meters.open(in_flight).permit(true);
                }
            }
            _ => {}
        }
        self.events.event(event);
    }
}
