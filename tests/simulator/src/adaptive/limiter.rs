//! The limit in front of the server: [`Limit`], and the requests that it has let in.

use std::fmt;
use std::time::Duration;

use sluicegate_in_flight::adaptive::{Estimate, LimitAlgorithm, LimitBounds, Sample, Samples};

/// How many requests may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Always this many.
    Fixed(u64),
    /// As this algorithm says.
    Adaptive(LimitAlgorithm),
}

/// A limit, and how many requests are under way by it.
pub(super) struct Limiter {
    of: Of,
    in_flight: u64,
}

enum Of {
    Fixed(u64),
    Adaptive(Box<(Estimate, Samples)>),
}

impl Limiter {
    pub(super) fn new(limit: Limit) -> Self {
        let of = match limit {
            Limit::Fixed(number) => Of::Fixed(number),
            Limit::Adaptive(algorithm) => {
                Of::Adaptive(Box::new((Estimate::new(algorithm, LimitBounds::default()), Samples::new(10))))
            }
        };
        Self { of, in_flight: 0 }
    }

    pub(super) fn limit(&self) -> u64 {
        match &self.of {
            Of::Fixed(number) => *number,
            Of::Adaptive(adaptive) => adaptive.0.limit(),
        }
    }

    /// Whether a request is let in.
    pub(super) fn enter(&mut self) -> bool {
        let enters = self.in_flight < self.limit();
        self.in_flight += u64::from(enters);
        enters
    }

    /// A request that was let in has its answer; whether the limit may be another now.
    pub(super) fn leave(&mut self, now_us: u64, latency_us: u64, is_fault: bool) -> bool {
        let in_flight = self.in_flight;
        self.in_flight -= 1;
        let Of::Adaptive(adaptive) = &mut self.of else { return false };
        let (estimate, samples) = &mut **adaptive;
        let sample = Sample { latency: Duration::from_micros(latency_us), in_flight, is_fault };
        let window = samples.add(Duration::from_micros(now_us), sample);
        window.is_some_and(|window| {
            estimate.update(&window);
            true
        })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(number) => write!(f, "fixed at {number}"),
            Self::Adaptive(algorithm) => algorithm.fmt(f),
        }
    }
}
