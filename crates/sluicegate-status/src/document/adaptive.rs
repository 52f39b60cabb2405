//! Limits that adapt, as the page shows them.

use sluicegate_in_flight::AdaptiveStatus;

use super::shape::{AdaptiveShown, ByClass, StandingShown};

/// Steps of the last hour.
const STEPS: usize = 60;
const STEP_SECONDS: u64 = 60;

/// The current state of a limit, and its state in each minute of the last hour.
pub(super) fn shown(name: &str, status: &AdaptiveStatus) -> AdaptiveShown {
    let mut minutes: Vec<Option<StandingShown>> = vec![None; STEPS];
    for moment in &status.history {
        let step = usize::try_from(moment.ago.as_secs() / STEP_SECONDS).unwrap_or(usize::MAX);
        // The oldest first; each minute has its last state.
        if let Some(place) = STEPS.checked_sub(step + 1) {
            minutes[place] = Some(StandingShown { limit: moment.limit, latency_ms: millis(moment.latency) });
        }
    }
    AdaptiveShown {
        name: name.to_owned(),
        algorithm: status.algorithm.as_str(),
        mode: status.mode.to_string(),
        at_least: status.bounds.at_least,
        at_most: status.bounds.at_most,
        limit: status.limit,
        in_flight: status.in_flight,
        latency_ms: millis(status.latency),
        waiting: ByClass::of(status.waiting.map(|waiting| u64::try_from(waiting).unwrap_or(u64::MAX))),
        shed: ByClass::of(status.shed),
        would_shed: ByClass::of(status.would_shed),
        minutes,
    }
}

/// Times are known to a tenth of a microsecond.
fn millis(time: std::time::Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 1e4
}
