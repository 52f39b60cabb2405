//! Counts of requests by route: [`Routes`].

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use sluicegate_core::Outcome;

use super::exported::{ExportedTotals, series};
use super::lock::lock;
use super::metrics::{ROUTE_DURATION, ROUTE_REQUESTS};
use super::timing::Timing;

/// The most routes with counts of their own. All others count together, under [`OTHER`].
const MOST: usize = 256;
const OTHER: &str = "other";

/// The label of requests that have matched no route.
const NONE: &str = "none";

const OUTCOMES: [Outcome; 4] = [Outcome::Allowed, Outcome::Denied, Outcome::Impossible, Outcome::Suspended];

/// Decisions by route, and how long they took. Routes are counted only on demand, so one lock for all routes is enough.
#[derive(Default)]
pub(super) struct Routes(Mutex<HashMap<String, RouteCounts>>);

struct RouteCounts {
    counts: [u64; OUTCOMES.len()],
    durations: Timing,
    told: ExportedTotals<{ OUTCOMES.len() }>,
}

impl Routes {
    pub(super) fn count(&self, route: Option<&str>, outcome: Outcome, took: Duration) {
        let mut all = lock(&self.0);
        let route = route.unwrap_or(NONE);
        let route = if all.len() < MOST || all.contains_key(route) { route } else { OTHER };
        if !all.contains_key(route) {
            all.insert(route.to_owned(), RouteCounts::of(route));
        }
        if let Some(RouteCounts { counts, durations, .. }) = all.get_mut(route) {
            counts[outcome as usize] += 1;
            durations.record(took, 1);
        }
    }

    /// Exports the counts that have grown.
    pub(super) fn tell(&self) {
        let mut all = lock(&self.0);
        for (route, RouteCounts { counts, told, .. }) in &mut *all {
            let of = |outcome: usize| {
                series(ROUTE_REQUESTS, [("route", &**route), ("result", OUTCOMES[outcome].as_str())])
            };
            told.tell(counts, |outcome| OUTCOMES[outcome] <= Outcome::Denied, of);
        }
    }
}

impl RouteCounts {
    fn of(route: &str) -> Self {
        let durations = Timing::of(series(ROUTE_DURATION, [("route", route)]));
        Self { counts: [0; OUTCOMES.len()], durations, told: ExportedTotals::nobody() }
    }
}
