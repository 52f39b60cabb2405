//! TCP Vegas for requests; see [`LimitAlgorithm::Vegas`](super::LimitAlgorithm::Vegas).

use super::SampleWindow;
use super::estimate::ONE;

/// After this many windows the shortest latency is forgotten.
const FORGET: u32 = 30;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Vegas {
    /// The shortest latency, which represents an idle service.
    shortest_us: Option<u64>,
    windows: u32,
}

impl Vegas {
    pub(super) fn next(&mut self, limit: u64, window: &SampleWindow) -> u64 {
        let latency_us = window.latency_us();
        self.windows += 1;
        let Some(shortest_us) = self.shortest_us.filter(|us| *us <= latency_us && self.windows < FORGET)
        else {
            if self.windows >= FORGET {
                self.windows = 0;
            }
            self.shortest_us = Some(latency_us);
            return limit;
        };
        let step = u64::from((limit / ONE).max(1).ilog10()).max(1) * ONE;
        if window.is_faulty() {
            return limit.saturating_sub(step);
        }
        if window.is_idle(limit / ONE) {
            return limit;
        }
        match waiting(limit, shortest_us, latency_us) {
            waiting if waiting <= step => limit + 6 * step,
            waiting if waiting < 3 * step => limit + step,
            waiting if waiting > 6 * step => limit.saturating_sub(step),
            _ => limit,
        }
    }
}

/// The number of requests of `limit` that wait inside of the service, rounded up to whole requests.
fn waiting(limit: u64, shortest_us: u64, latency_us: u64) -> u64 {
    let served = u128::from(limit) * u128::from(shortest_us) / u128::from(latency_us);
    (limit - u64::try_from(served).unwrap_or(limit)).div_ceil(ONE) * ONE
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn after(first: u64, windows: &[(u64, u64)]) -> u64 {
        let mut vegas = Vegas::default();
        windows.iter().fold(first * ONE, |limit, (latency_ms, in_flight)| {
            let latency = Duration::from_millis(*latency_ms);
            vegas.next(limit, &SampleWindow { latency, in_flight: *in_flight, samples: 1, faults: 0 })
        }) / ONE
    }

    /// The examples of `VegasLimitTest`: examples with a fixed alpha of 3 and beta of 6 use a limit with these values.
    #[test]
    fn it_moves_as_in_the_published_examples() {
        assert_eq!(after(10_000, &[(10_000, 5_000)]), 10_000, "the first is the shortest");
        assert_eq!(after(10_000, &[(10_000, 5_000), (10_000, 6_000)]), 10_024);
        assert_eq!(after(10, &[(10, 10), (10, 11)]), 16);
        assert_eq!(after(10, &[(10, 10), (50, 11)]), 9);
        assert_eq!(after(10, &[(10, 10), (14, 14)]), 10, "three wait, between alpha and beta");
    }

    #[test]
    fn the_shortest_latency_is_forgotten_after_thirty_windows() {
        let mut vegas = Vegas::default();
        let mut next = |latency_ms| {
            let latency = Duration::from_millis(latency_ms);
            vegas.next(100 * ONE, &SampleWindow { latency, in_flight: 100, samples: 1, faults: 0 }) / ONE
        };
        assert_eq!(next(10), 100);
        assert!((2..30).all(|_| next(40) == 98), "75 wait");
        assert_eq!(next(40), 100, "the shortest again");
        assert_eq!(next(40), 112, "none waits");
    }
}
