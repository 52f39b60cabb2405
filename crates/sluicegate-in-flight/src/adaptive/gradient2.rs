//! Netflix' second gradient; see [`LimitAlgorithm::Gradient2`](super::LimitAlgorithm::Gradient2).

use super::SampleWindow;
use super::estimate::ONE;

/// The long average is over this many windows, the first ten of which count alike.
const WINDOWS: u64 = 600;
const WARM_UP: u64 = 10;
/// Parts of a microsecond in which the average is kept, so that one six-hundredth of a change is not lost.
const PARTS: u64 = 1 << 12;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gradient2 {
    /// The long average, in parts of a microsecond.
    average: u64,
    windows: u64,
}

impl Gradient2 {
    pub(super) fn next(&mut self, limit: u64, window: &SampleWindow) -> u64 {
        let latency = window.latency_us().min(u64::MAX / PARTS / 2) * PARTS;
        let average = self.averaged(latency);
        // When latency comes back to normal after a long time of overload, the average has to follow.
        self.average = if average / 2 > latency { average / 20 * 19 } else { average };
        if window.is_idle(limit / ONE) {
            return limit;
        }
        let tolerated = u128::from(average) * 3 / 2;
        let wanted = u128::from(limit) * tolerated / u128::from(latency);
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX).clamp(limit / 2, limit) + 4 * ONE;
        (limit * 4 + wanted) / 5
    }

    fn averaged(&mut self, latency: u64) -> u64 {
        let (old, weight) = if self.windows < WARM_UP {
            self.windows += 1;
            (self.windows - 1, 1)
        } else {
            (WINDOWS - 1, 2)
        };
        let sum = u128::from(self.average) * u128::from(old) + u128::from(latency) * weight;
        u64::try_from(sum / (u128::from(old) + weight)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::adaptive::model;

    proptest! {
        #[test]
        fn it_moves_as_the_formulas_of_its_source_do(
            first in 1_u64..500, windows in prop::collection::vec((100_u64..3_000_000, 0_u64..500), 1..300),
        ) {
            let (mut gradient, mut limit) = (Gradient2::default(), first * ONE);
            let mut model = model::Gradient2Reference::new(first);
            for (latency_us, in_flight) in windows {
                let latency = Duration::from_micros(latency_us);
                limit = gradient.next(limit, &SampleWindow { latency, in_flight, samples: 10, faults: 0 });
                let wanted = model.next(latency_us, in_flight);
                prop_assert!((limit as f64 / 1e3 - wanted).abs() < 0.1, "{} is not {}", limit, wanted);
                // Errors do not add up: a difference at a border of the rules is not this test's.
                model.limit = limit as f64 / 1e3;
            }
        }
    }

    #[test]
    fn an_overload_that_lasts_becomes_the_average_and_the_number_grows_on() {
        let (mut gradient, mut limit) = (Gradient2::default(), 100 * ONE);
        let mut next = |latency_ms| {
            let latency = Duration::from_millis(latency_ms);
            limit = gradient
                .next(limit, &SampleWindow { latency, in_flight: limit / ONE, samples: 10, faults: 0 });
            limit / ONE
        };
        (0..20).for_each(|_| _ = next(10));
        let lowest = (0..50).map(|_| next(40)).min();
        assert!(lowest < Some(20), "{lowest:?}");
        assert!((0..600).map(|_| next(40)).max() > Some(100));
    }
}
