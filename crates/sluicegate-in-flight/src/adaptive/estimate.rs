//! The number that an algorithm computes: [`Estimate`].

use std::time::Duration;

use sluicegate_core::clock::micros;

use super::algorithm::LimitAlgorithm;
use super::gradient::Gradient;
use super::window::{ONE, Sample, Samples, Window};

/// The range in which a limit adapts, and the number that it starts with. Default: 1 to 1,000, starting with 20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[allow(clippy::exhaustive_structs, reason = "a range and where to begin in it is all of it")]
pub struct LimitBounds {
    /// The smallest number, at least 1. After trouble, the number also stays above a quarter of what was fine before it.
    pub at_least: u64,
    /// The largest number.
    pub at_most: u64,
    /// The number before the first answers.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub first: u64,
}

/// The number of requests that a service can handle, estimated by an algorithm from its answers.
#[derive(Clone, Debug)]
pub struct Estimate {
    algorithm: LimitAlgorithm,
    gradient: Gradient,
    samples: Samples,
    bounds: LimitBounds,
    /// In thousandths, as the two after it.
    limit: u64,
    /// The number up to which demand raises it before the next window ends.
    ceiling: u64,
    /// The highest number that was fine; it falls while the service is too slow.
    fine: u64,
    /// The time at which demand has raised it.
    raised_us: u64,
}

/// The number doubles once in this time while no answer has come yet.
const DOUBLES_US: u64 = 250_000;

impl Default for LimitBounds {
    fn default() -> Self {
        Self { at_least: 1, at_most: 1_000, first: 20 }
    }
}

impl Estimate {
    /// The first estimate of an algorithm.
    pub fn new(algorithm: LimitAlgorithm, bounds: LimitBounds) -> Self {
        let first = bounds.first.saturating_mul(ONE);
        let mut estimate = Self {
            algorithm,
            gradient: Gradient::default(),
            samples: Samples::new(),
            bounds,
            limit: first,
            ceiling: if algorithm == LimitAlgorithm::Gradient { first.saturating_mul(2) } else { 0 },
            fine: 0,
            raised_us: 0,
        };
        estimate.set(first);
        estimate
    }

    /// Adds an answer that came at `now`, a time since any fixed moment; returns whether the number was computed anew.
    pub fn add(&mut self, now: Duration, sample: Sample) -> bool {
        let window = self.samples.add(micros(now), sample);
        window.iter().for_each(|window| self.update(window));
        window.is_some()
    }

    /// A request has found no permit: it would like a higher number. Returns whether the number has grown for it.
    pub fn demand(&mut self, now: Duration) -> bool {
        let now_us = micros(now);
        let is_due = now_us.saturating_sub(self.raised_us) >= DOUBLES_US;
        if self.algorithm == LimitAlgorithm::Gradient && self.gradient.is_new() && is_due {
            self.ceiling = self.limit.saturating_mul(2);
        }
        // The answers since the last window may say that it is too much already.
        let is_slow = |latency| self.gradient.is_slow(now_us, latency);
        if self.ceiling > self.limit && self.samples.so_far().is_some_and(is_slow) {
            self.ceiling = self.limit;
        }
        let before = self.limit();
        if self.limit + ONE <= self.ceiling.min(self.bounds.at_most.saturating_mul(ONE)) {
            self.raised_us = now_us;
            self.samples.is_raised = true;
            self.set(self.limit + ONE);
        } else {
            // Only from now on are as many under way as the number allows.
            if self.samples.is_raised {
                self.samples.restart(now_us);
            }
            self.samples.is_full = true;
        }
        self.limit() > before
    }

    fn update(&mut self, window: &Window) {
        let before = self.limit;
        let limit = match self.algorithm {
            LimitAlgorithm::Gradient => self.gradient.next(self.limit, &mut self.fine, window),
            LimitAlgorithm::Aimd => additive(self.limit, window),
        };
        self.set(limit.max(self.fine / 4));
        if self.limit.abs_diff(before) * 8 > before {
            self.samples.restart(window.end_us);
            self.samples.is_raised = self.limit > before;
        }
        let doubles = self.algorithm == LimitAlgorithm::Gradient
            && self.gradient.may_double(self.limit, self.fine, window);
        self.ceiling = if doubles { self.limit.saturating_mul(2) } else { self.limit };
    }

    /// Changes the bounds, and keeps what was learnt.
    pub fn set_bounds(&mut self, bounds: LimitBounds) {
        self.bounds = bounds;
        self.set(self.limit);
    }

    /// The number of requests that may be under way at once.
    pub fn limit(&self) -> u64 {
        self.limit / ONE
    }

    /// The median latency of the last window; zero before the first.
    pub fn latency(&self) -> Duration {
        Duration::from_micros(self.samples.median_us())
    }

    fn set(&mut self, limit: u64) {
        let LimitBounds { at_least, at_most, .. } = self.bounds;
        let [lowest, highest] = [at_least.max(1), at_most.max(1)].map(|bound| bound.saturating_mul(ONE));
        self.limit = limit.min(highest).max(lowest);
    }
}

/// Additive increase, multiplicative decrease; see [`LimitAlgorithm::Aimd`].
fn additive(limit: u64, window: &Window) -> u64 {
    if window.is_faulty() {
        limit * 9 / 10 / ONE * ONE
    } else if window.in_flight * 2 * ONE < limit {
        limit
    } else {
        limit + ONE
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::adaptive::Outcome;

    fn sample(latency_us: u64, in_flight: u64, outcome: Outcome) -> Sample {
        Sample { latency: Duration::from_micros(latency_us), in_flight, outcome }
    }

    proptest! {
        #[test]
        fn no_answer_whatever_it_says_leads_out_of_the_bounds(
            at_least in 1_u64..50, more in 0_u64..1_000, first in 0_u64..2_000,
            answers in prop::collection::vec((any::<u64>(), any::<u64>(), 0_u8..4, 0_u64..30_000_000), 1..200),
        ) {
            let bounds = LimitBounds { at_least, at_most: at_least + more, first };
            for algorithm in LimitAlgorithm::ALL {
                let mut estimate = Estimate::new(algorithm, bounds);
                let mut now = Duration::ZERO;
                for (latency_us, in_flight, kind, later_us) in &answers {
                    now += Duration::from_micros(*later_us);
                    let outcome = match kind {
                        0 => Outcome::Error,
                        1 => Outcome::Overload,
                        _ => Outcome::Good,
                    };
                    estimate.add(now, sample(*latency_us, *in_flight, outcome));
                    if latency_us % 2 == 0 {
                        estimate.demand(now);
                    }
                    prop_assert!((bounds.at_least..=bounds.at_most).contains(&estimate.limit()));
                }
            }
        }
    }

    /// The examples of `AIMDLimitTest`.
    #[test]
    fn additive_increase_and_multiplicative_decrease_per_window() {
        let mut estimate = Estimate::new(LimitAlgorithm::Aimd, LimitBounds::default());
        assert!(!estimate.demand(Duration::ZERO), "only windows move it");
        let mut window = |second, in_flight, outcome| {
            (0..10).for_each(|_| {
                _ = estimate.add(Duration::from_secs(second), sample(200_000, in_flight, outcome))
            });
            estimate.limit()
        };
        assert_eq!(window(10, 10, Outcome::Good), 21);
        assert_eq!(window(20, 10, Outcome::Good), 21, "less than half of it was used");
        assert_eq!(window(30, 21, Outcome::Overload), 18);
    }

    #[test]
    fn errors_faster_than_good_answers_change_nothing() {
        let mut estimate = Estimate::new(LimitAlgorithm::Gradient, LimitBounds::default());
        let mut now = Duration::ZERO;
        for (latency_us, outcome) in [(20_000, Outcome::Good), (100, Outcome::Error), (20_000, Outcome::Good)]
        {
            for _ in 0..2_000 {
                now += Duration::from_millis(2);
                estimate.add(now, sample(latency_us, 10, outcome));
            }
            assert_eq!(estimate.limit(), 20, "{outcome:?}");
            assert!(estimate.latency().as_micros().abs_diff(20_000) < 1_500);
        }
    }

    #[test]
    fn demand_doubles_the_number_of_a_service_that_is_well_and_not_twice_before_it_has_answered() {
        let mut estimate = Estimate::new(LimitAlgorithm::Gradient, LimitBounds::default());
        let grown = (0..100).filter(|_| estimate.demand(Duration::from_secs(1))).count();
        assert_eq!((grown, estimate.limit()), (20, 40));
        let grown = (0..100).filter(|_| estimate.demand(Duration::from_millis(1_300))).count();
        assert_eq!(grown, 40, "no answer says that it is too much");
        let bounds = LimitBounds { at_most: 90, ..LimitBounds::default() };
        estimate.set_bounds(bounds);
        let grown = (0..100).filter(|_| estimate.demand(Duration::from_secs(2))).count();
        assert_eq!((grown, estimate.limit()), (10, 90));
    }

    #[test]
    fn after_trouble_the_number_stays_above_a_quarter_of_what_was_fine() {
        let mut estimate =
            Estimate::new(LimitAlgorithm::Gradient, LimitBounds { first: 200, ..LimitBounds::default() });
        let mut now = Duration::ZERO;
        for (outcome, least) in [(Outcome::Good, 200), (Outcome::Overload, 50), (Outcome::Overload, 50)] {
            for _ in 0..3_000 {
                now += Duration::from_millis(10);
                estimate.add(now, sample(20_000, 10, outcome));
            }
            assert_eq!(estimate.limit(), least);
        }
    }

    #[test]
    fn other_bounds_take_effect_at_once_and_keep_what_was_learnt() {
        let mut estimate = Estimate::new(LimitAlgorithm::Gradient, LimitBounds::default());
        estimate.demand(Duration::ZERO);
        assert_eq!(estimate.limit(), 21);
        for (bounds, limit) in [
            (LimitBounds { first: 5, ..LimitBounds::default() }, 21),
            (LimitBounds { at_most: 10, ..LimitBounds::default() }, 10),
            (LimitBounds { at_least: 30, ..LimitBounds::default() }, 30),
        ] {
            estimate.set_bounds(bounds);
            assert_eq!(estimate.limit(), limit);
        }
    }
}
