//! Counts of requests by route: [`Routes`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use sluicegate_core::Outcome;
use sluicegate_core::support::lock;

use crate::durations::Timing;
use crate::lanes::Lanes;
use crate::metrics::{ExportedTotals, ROUTE_DURATION, ROUTE_REQUESTS, series};

/// The most routes with counts of their own. All others count together, under [`OTHER`].
const MOST: usize = 256;
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
    told: Mutex<ExportedTotals<{ OUTCOMES.len() }>>,
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
            let route = if all.len() < MOST { route } else { OTHER };
            all.entry(route.to_owned()).or_insert_with(|| Arc::new(RouteCounts::of(route)));
            all
        });
    }

    /// Exports the counts that have grown.
    pub(super) fn tell(&self) {
        for (route, counted) in self.0.load().iter() {
            let of = |outcome: usize| {
                series(ROUTE_REQUESTS, [("route", &**route), ("result", OUTCOMES[outcome].as_str())])
            };
            let mut told = lock(&counted.told);
            told.tell(&counted.counts.sums(), |outcome| OUTCOMES[outcome] <= Outcome::Denied, of);
        }
    }
}

impl RouteCounts {
    fn of(route: &str) -> Self {
        let durations = Timing::of(series(ROUTE_DURATION, [("route", route)]));
        Self { counts: Lanes::new(), durations, told: Mutex::new(ExportedTotals::nobody()) }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn no_count_is_lost_while_threads_begin_routes_and_those_without_room_count_together() {
        let routes = Routes::default();
        let names: Vec<_> = (0..MOST + 9).map(|route| format!("/{route}")).collect();
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
        assert_eq!((all.len(), own.len()), (MOST + 1, MOST));
        assert_eq!(own.iter().sum::<u64>() + denied(OTHER).unwrap(), 4 * names.len() as u64);
    }
}
