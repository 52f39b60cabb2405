//! The counts of a store besides those of its policies, and their listeners: [`ObservedState`].
//!
//! The numbers here are authoritative; recorders of the `metrics` facade get the increase since the last time. So a
//! recorder that is installed late gets all earlier counts, and the look-up of a counter, which costs more than a
//! decision, happens once for each series.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use metrics::Key;
use sluicegate_core::clock::Clock;
use sluicegate_core::error::{StoreError, StoreErrorKind};
use sluicegate_core::store::{
    BreakerState, DecidedBy, Event, ForwardedFault, Listener, StoreStatus, Undecided,
};
use sluicegate_core::support::lock;
use sluicegate_core::{Decision, Outcome};
use sluicegate_in_flight::{Class, InFlight};

use crate::counts::Counted;
use crate::events::{EventReaders, RecentEvents};
use crate::lanes::{Durations, Lanes, Timing, Took};
use crate::meter::{Meters, WatchedKeys};
use crate::metrics::{
    BREAKER_OPENED, DISAGREEMENTS, EVENTS_DROPPED, ExportedTotals, FALLBACK_SECONDS, FORWARDED_FAULTS, Name,
    PERMITS_LOST, ROUTE_DURATION, ROUTE_REQUESTS, SHED, STORE_ERRORS, TABLE_EVICTIONS, UNDECIDED, series,
};
use crate::snapshot::{StoreErrors, StoreState};

/// The state of an observed store, which its handles share.
pub(super) struct ObservedState {
    pub(super) name: Name,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) since_us: u64,
    pub(super) meters: Meters,
    /// The counts of limits on requests at once, by name.
    pub(super) permit_meters: Meters,
    pub(super) events: Arc<EventReaders>,
    lately: Durations,
    /// The time of the last answer of the store that was timed; 0 before the first.
    answered_us: AtomicU64,
    pub(super) watched: WatchedKeys,
    routes: Routes,
    /// The numbers of limits in flight that were exported, by the limit's id.
    in_flight: Mutex<HashMap<u64, ExportedTotals>>,
    undecided: [AtomicU64; Undecided::ALL.len()],
    faults: [AtomicU64; ForwardedFault::ALL.len()],
    /// Calls without an answer, by kind, if no inner store counts them.
    errors: [AtomicU64; ERRORS.len()],
    /// Events that did not fit into a queue.
    pub(super) dropped: Arc<AtomicU64>,
    /// Whether the last call had no answer, so that each outage and its end are reported once.
    is_down: AtomicBool,
    told: Mutex<ExportedTotals>,
}

/// The refusals of a limit that adapts, by class, and the permits that were lost if instances share them.
fn permit_totals(limit: &InFlight) -> Vec<(Key, u64)> {
    let name = ("policy", limit.name());
    let lost = limit.sharing().map(|_| (series(PERMITS_LOST, [name]), limit.lost()));
    let shed = limit.status().into_iter().flat_map(|status| {
        let of =
            |mode, counts| Class::ALL.into_iter().zip(counts).map(move |(class, count)| (class, mode, count));
        // Enforced refusals are exported from the beginning, so that the first one is visible.
        let in_shadow = of("shadow", status.would_shed).filter(|(_, _, count)| *count > 0);
        let all = of("enforce", status.shed).chain(in_shadow);
        all.map(|(class, mode, count)| {
            (series(SHED, [name, ("class", class.as_str()), ("mode", mode)]), count)
        })
        .collect::<Vec<_>>()
    });
    lost.into_iter().chain(shed).collect()
}

const ERRORS: [&str; 3] = ["timeout", "unavailable", "protocol"];

impl ObservedState {
    pub(super) fn new(name: Name, clock: Arc<dyn Clock>, past: Arc<RecentEvents>) -> Self {
        let events = Arc::new(EventReaders::new(past));
        Self {
            since_us: clock.now_us(),
            meters: Meters::new(Counted::Policy, name.as_str(), &clock, &events),
            permit_meters: Meters::new(Counted::Permits, name.as_str(), &clock, &events),
            name,
            clock,
            events,
            lately: Durations::new(),
            answered_us: AtomicU64::new(0),
            watched: WatchedKeys::default(),
            routes: Routes::default(),
            in_flight: Mutex::default(),
            undecided: Default::default(),
            faults: Default::default(),
            errors: Default::default(),
            dropped: Arc::default(),
            is_down: AtomicBool::new(false),
            told: Mutex::default(),
        }
    }

    /// Counts the duration of an answer of the store itself.
    pub(super) fn took(&self, lasted: Duration) {
        let now_us = self.clock.now_us();
        // Relaxed, here and below: the times and counts order nothing else.
        self.answered_us.store(now_us, Ordering::Relaxed);
        // All recorded answers have the same weight.
        self.lately.record(lasted, now_us);
    }

    /// Notes who has made a decision: the store, in this time, or whatever decides in its place.
    #[inline]
    pub(super) fn decided(&self, result: &Result<Decision, StoreError>, took: Option<Took>, spends: bool) {
        match (result.as_ref().map(Decision::decided_by), took) {
            (Ok(DecidedBy::Store), Some(Took { lasted, .. })) => self.took(lasted),
            (Ok(DecidedBy::Fallback | DecidedBy::Outage), _) if spends => self.events.past.decided_alone(),
            _ => {}
        }
    }

    /// When the store last gave an answer that was timed.
    pub(super) fn answered_at(&self) -> Option<SystemTime> {
        let at_us = self.answered_us.load(Ordering::Relaxed);
        (at_us > 0).then(|| UNIX_EPOCH + Duration::from_micros(at_us))
    }

    /// The time within which 99 of 100 recent answers of the store came.
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
    pub(super) fn tell(self: &Arc<Self>, status: &StoreStatus) {
        let (store, errors, resilient) =
            (("store", self.name.as_str()), self.errors(status), status.resilient);
        let reasons = Undecided::ALL.iter().zip(&self.undecided);
        let reasons = reasons.map(|(why, count)| (series(UNDECIDED, [("reason", why.as_str())]), count));
        let faults = ForwardedFault::ALL.iter().zip(&self.faults);
        let faults =
            faults.map(|(fault, count)| (series(FORWARDED_FAULTS, [("fault", fault.as_str())]), count));
        let rare = reasons.chain(faults).map(|(series, count)| (series, count.load(Ordering::Relaxed)));
        let errors = ERRORS.into_iter().zip([errors.timeout, errors.unavailable, errors.protocol]);
        let errors = errors.map(|(kind, count)| (series(STORE_ERRORS, [store, ("kind", kind)]), count));
        let in_fallback = resilient.map_or(Duration::ZERO, |resilient| resilient.in_fallback);
        let of_store = [
            (BREAKER_OPENED, resilient.map_or(0, |resilient| resilient.opened)),
            (FALLBACK_SECONDS, in_fallback.as_secs()),
            (TABLE_EVICTIONS, status.memory.map_or(0, |memory| memory.evictions)),
            (EVENTS_DROPPED, self.events_dropped()),
            (DISAGREEMENTS, status.disagreements),
        ];
        let of_store = of_store.map(|(name, total)| (series(name, [store]), total));
        let rare = rare.filter(|(_, count)| *count > 0);
        lock(&self.told).tell(rare.chain(errors).chain(of_store).chain(self.routes.totals()));
        self.meters.all().iter().chain(&self.permit_meters.all()).for_each(|meter| meter.tell());
        let (permits, mut exported) = (self.permits(), lock(&self.in_flight));
        exported.retain(|id, _| permits.iter().any(|limit| limit.id() == *id));
        for limit in &permits {
            exported.entry(limit.id()).or_default().tell(permit_totals(limit));
        }
    }

    /// The limits in flight that are counted here, by name.
    pub(super) fn permits(self: &Arc<Self>) -> Vec<InFlight> {
        let mut limits = InFlight::observed_by(&self.as_listener());
        limits.sort_by(|one, other| one.name().cmp(other.name()));
        limits
    }

    pub(super) fn as_listener(self: &Arc<Self>) -> Arc<dyn Listener> {
        Arc::clone(self) as Arc<dyn Listener>
    }

    /// Requests about which no store was asked, by reason, if there were any.
    pub(super) fn undecided(&self) -> Vec<(Undecided, u64)> {
        let counts = self.undecided.iter().map(|count| count.load(Ordering::Relaxed));
        Undecided::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect()
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
                    self.permit_meters.open(in_flight).permit(is_refused);
                }
            }
            Event::Shed { subject, is_enforced: true, .. } => {
                if let Some(in_flight) = subject.policy {
                    self.permit_meters.open(in_flight).permit(true);
                }
            }
            _ => {}
        }
        self.events.event(event);
    }
}

// Counts of requests by route: [`Routes`].

/// The most routes with counts of their own. All others count together, under [`OTHER`].
const MOST_ROUTES: usize = 256;
const OTHER: &str = "other";

/// The label of requests that have matched no route.
const NONE: &str = "none";

const OUTCOMES: [Outcome; 4] = [Outcome::Allowed, Outcome::Denied, Outcome::Impossible, Outcome::Suspended];

/// Decisions by route, and how long they took. Threads share no lock and no count, because all requests come by here.
#[derive(Default)]
pub(super) struct Routes(ArcSwap<RoutesByName>);

type RoutesByName = HashMap<String, Arc<RouteCounts>, RandomState>;

struct RouteCounts {
    counts: Lanes<{ OUTCOMES.len() }>,
    durations: Timing,
}

impl Routes {
    pub(super) fn count(&self, route: Option<&str>, outcome: Outcome, took: Duration) {
        let route = route.unwrap_or(NONE);
        let has_counted = |all: &RoutesByName| {
            // There are others once there is no room for new routes.
            let counts = all.get(route).or_else(|| all.get(OTHER));
            counts.is_some_and(|counts| {
                counts.counts.add([(outcome as usize, 1)]);
                counts.durations.record(took, 1);
                true
            })
        };
        if !has_counted(&self.0.load()) {
            self.begin(route);
            has_counted(&self.0.load());
        }
    }

    #[cold]
    fn begin(&self, route: &str) {
        self.0.rcu(|all| {
            let mut all = RoutesByName::clone(all);
            let route = if all.len() < MOST_ROUTES { route } else { OTHER };
            all.entry(route.to_owned()).or_insert_with(|| Arc::new(RouteCounts::of(route)));
            all
        });
    }

    /// The counts of requests, by series.
    fn totals(&self) -> Vec<(Key, u64)> {
        let routes = self.0.load();
        let each = routes.iter().flat_map(|(route, counted)| {
            OUTCOMES.into_iter().zip(counted.counts.sums()).map(|(outcome, count)| (&**route, outcome, count))
        });
        let shown = each.filter(|(_, outcome, count)| *count > 0 || *outcome <= Outcome::Denied);
        let series_of = |route, outcome: Outcome| {
            series(ROUTE_REQUESTS, [("route", route), ("result", outcome.as_str())])
        };
        shown.map(|(route, outcome, count)| (series_of(route, outcome), count)).collect()
    }
}

impl RouteCounts {
    fn of(route: &str) -> Self {
        let durations = Timing::of(series(ROUTE_DURATION, [("route", route)]));
        Self { counts: Lanes::new(), durations }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn no_count_is_lost_while_threads_begin_routes_and_those_without_room_count_together() {
        let routes = Routes::default();
        let names: Vec<_> = (0..MOST_ROUTES + 9).map(|route| format!("/{route}")).collect();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for name in &names {
                        routes.count(Some(name), Outcome::Denied, Duration::ZERO);
                    }
                });
            }
        });
        let all = routes.0.load();
        let denied = |route: &str| all.get(route).map(|of| of.counts.sums()[Outcome::Denied as usize]);
        let own = names.iter().filter_map(|route| denied(route)).collect::<Vec<_>>();
        assert_eq!((all.len(), own.len()), (MOST_ROUTES + 1, MOST_ROUTES));
        assert_eq!(own.iter().sum::<u64>() + denied(OTHER).unwrap(), 4 * names.len() as u64);
    }
}
