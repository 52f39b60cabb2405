//! Additive increase, multiplicative decrease; see [`LimitAlgorithm::Aimd`](super::LimitAlgorithm::Aimd).

use super::SampleWindow;
use super::estimate::ONE;

pub(super) fn next(limit: u64, window: &SampleWindow) -> u64 {
    if window.is_faulty() {
        limit * 9 / 10 / ONE * ONE
    } else if window.is_idle(limit / ONE) {
        limit
    } else {
        limit + ONE
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The examples of `AIMDLimitTest`.
    #[test]
    fn one_more_for_a_success_and_a_tenth_less_for_a_drop() {
        let window =
            |in_flight, faults| SampleWindow { latency: Duration::ZERO, in_flight, samples: 1, faults };
        assert_eq!(next(20 * ONE, &window(10, 0)), 21 * ONE);
        assert_eq!(next(30 * ONE, &window(0, 1)), 27 * ONE);
        assert_eq!(next(21 * ONE, &window(10, 0)), 21 * ONE, "less than half of it was used");
    }
}
