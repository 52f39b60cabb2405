//! The number that an algorithm computes: [`Estimate`].

use super::aimd;
use super::gradient::Gradient;
use super::gradient2::Gradient2;
use super::vegas::Vegas;
use super::{LimitAlgorithm, SampleWindow};

/// The range in which a limit adapts, and the number that it starts with. Default: 1 to 1,000, starting with 20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a range and where to begin in it is all of it")]
pub struct LimitBounds {
    /// The smallest number, at least 1.
    pub at_least: u64,
    /// The largest number.
    pub at_most: u64,
    /// The number before the first samples.
    pub first: u64,
}

/// The number of requests that a service can handle, estimated by an algorithm from windows of samples.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    state: Estimator,
    bounds: LimitBounds,
    /// In thousandths.
    limit: u64,
}

#[derive(Clone, Copy, Debug)]
enum Estimator {
    Gradient(Gradient),
    Gradient2(Gradient2),
    Vegas(Vegas),
    Aimd,
}

/// One request, in thousandths.
pub(super) const ONE: u64 = 1_000;

impl Default for LimitBounds {
    fn default() -> Self {
        Self { at_least: 1, at_most: 1_000, first: 20 }
    }
}

impl Estimate {
    /// The first estimate of an algorithm.
    pub fn new(algorithm: LimitAlgorithm, bounds: LimitBounds) -> Self {
        let state = match algorithm {
            LimitAlgorithm::Gradient => Estimator::Gradient(Gradient::default()),
            LimitAlgorithm::Gradient2 => Estimator::Gradient2(Gradient2::default()),
            LimitAlgorithm::Vegas => Estimator::Vegas(Vegas::default()),
            LimitAlgorithm::Aimd => Estimator::Aimd,
        };
        Self { state, bounds, limit: 0 }.at(bounds.first.saturating_mul(ONE))
    }

    /// Updates the estimate by a window.
    pub fn update(&mut self, window: &SampleWindow) {
        let limit = match &mut self.state {
            Estimator::Gradient(gradient) => gradient.next(self.limit, self.bounds.at_least * ONE, window),
            Estimator::Gradient2(gradient) => gradient.next(self.limit, window),
            Estimator::Vegas(vegas) => vegas.next(self.limit, window),
            Estimator::Aimd => aimd::next(self.limit, window),
        };
        *self = self.at(limit);
    }

    /// This estimate within other bounds.
    #[must_use]
    pub fn within(mut self, bounds: LimitBounds) -> Self {
        self.bounds = bounds;
        self.at(self.limit)
    }

    /// The number of requests that may be under way at once.
    pub fn limit(&self) -> u64 {
        self.limit / ONE
    }

    fn at(self, limit: u64) -> Self {
        let LimitBounds { at_least, at_most, .. } = self.bounds;
        let [lowest, highest] = [at_least.max(1), at_most.max(1)].map(|bound| bound.saturating_mul(ONE));
        Self { limit: limit.min(highest).max(lowest), ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn window(latency_us: u64, in_flight: u64, samples: u64, faults: u64) -> SampleWindow {
        SampleWindow { latency: Duration::from_micros(latency_us), in_flight, samples, faults }
    }

    proptest! {
        #[test]
        fn no_window_whatever_it_says_leads_out_of_the_bounds(
            at_least in 1_u64..50, more in 0_u64..1_000, first in 0_u64..2_000,
            windows in prop::collection::vec((any::<u64>(), 0_u64..3_000, 1_u64..10_000, 0_u64..10_000), 1..60),
        ) {
            let bounds = LimitBounds { at_least, at_most: at_least + more, first };
            for algorithm in LimitAlgorithm::ALL {
                let mut estimate = Estimate::new(algorithm, bounds);
                for (latency, in_flight, samples, faults) in &windows {
                    estimate.update(&window(*latency, *in_flight, *samples, *faults));
                    prop_assert!((bounds.at_least..=bounds.at_most).contains(&estimate.limit()));
                }
            }
        }

        #[test]
        fn nothing_grows_while_less_than_half_of_it_is_used(
            windows in prop::collection::vec((1_u64..1_000_000, 0_u64..10), 1..60),
        ) {
            for algorithm in LimitAlgorithm::ALL {
                let mut estimate = Estimate::new(algorithm, LimitBounds::default());
                for (latency, in_flight) in &windows {
                    estimate.update(&window(*latency, *in_flight, 100, 0));
                    prop_assert!(estimate.limit() <= 20, "{} by {}", estimate.limit(), algorithm);
                }
            }
        }
    }

    #[test]
    fn faults_lower_the_number_by_all_but_gradient2_which_goes_by_latency_alone() {
        for algorithm in LimitAlgorithm::ALL {
            let mut estimate = Estimate::new(algorithm, LimitBounds::default());
            (0..5).for_each(|_| estimate.update(&window(10_000, 20, 100, 50)));
            assert_eq!(estimate.limit() < 20, algorithm != LimitAlgorithm::Gradient2, "{algorithm}");
        }
    }

    #[test]
    fn other_bounds_take_effect_at_once_and_keep_what_was_learnt() {
        let mut estimate = Estimate::new(LimitAlgorithm::Aimd, LimitBounds::default());
        estimate.update(&window(10_000, 20, 100, 0));
        assert_eq!(estimate.limit(), 21);
        assert_eq!(estimate.within(LimitBounds { at_most: 10, ..LimitBounds::default() }).limit(), 10);
        assert_eq!(estimate.within(LimitBounds { at_least: 30, ..LimitBounds::default() }).limit(), 30);
        assert_eq!(estimate.within(LimitBounds { first: 5, ..LimitBounds::default() }).limit(), 21);
    }
}
