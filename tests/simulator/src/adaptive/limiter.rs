//! The limit in front of the server: [`Limit`], the requests that it has let in, and those that wait.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use sluicegate_in_flight::adaptive::{Estimate, LimitAlgorithm, LimitBounds, Outcome, Sample};

use crate::adaptive::Scene;
use crate::adaptive::references::{Reference, ReferenceLimit, ReferenceWindow};

/// How many requests may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// As this algorithm of ours says.
    Adaptive(LimitAlgorithm),
    /// As a reference says.
    Reference(Reference),
}

/// A limit, the requests that are under way by it, and those that wait.
pub(super) struct Limiter {
    rule: Rule,
    in_flight: u64,
    /// The requests that wait, and when each came.
    waiting: VecDeque<(usize, u64)>,
    wait_us: u64,
    /// When the queue was empty last.
    empty_us: u64,
}

enum Rule {
    Adaptive(Box<Estimate>),
    Reference(Box<ReferenceLimit>, Answers),
}

/// The answers for the next window of a reference.
#[derive(Default)]
struct Answers {
    since_us: u64,
    latencies: Vec<u64>,
    in_flight: u64,
    faults: u32,
}

/// The time at the beginning of a scene: what happens in it does not happen when ten seconds are full.
const BEGIN_US: u64 = 3_700_000;

/// What becomes of a request that comes.
pub(super) enum Entry {
    Begins,
    /// It may wait for so many microseconds.
    Waits(u64),
    Refused,
}

impl Limiter {
    pub(super) fn new(limit: Limit, scene: &Scene) -> Self {
        let Scene { first, at_most, wait_us, .. } = *scene;
        let rule = match limit {
            Limit::Adaptive(algorithm) => {
                let bounds = LimitBounds { first, at_most, ..LimitBounds::default() };
                Rule::Adaptive(Box::new(Estimate::new(algorithm, bounds)))
            }
            Limit::Reference(reference) => {
                Rule::Reference(Box::new(ReferenceLimit::new(reference, first, at_most)), Answers::default())
            }
        };
        Self { rule, in_flight: 0, waiting: VecDeque::new(), wait_us, empty_us: 0 }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a limit is a small positive number"
    )]
    pub(super) fn limit(&self) -> u64 {
        match &self.rule {
            Rule::Adaptive(estimate) => estimate.limit(),
            Rule::Reference(limit, _) => limit.limit as u64,
        }
    }

    /// A request comes. As in the product: while the queue has not been empty for the longest wait, waits are a twentieth.
    pub(super) fn enter(&mut self, now_us: u64, request: usize) -> Entry {
        if self.waiting.is_empty() && (self.in_flight < self.limit() || self.demand(now_us)) {
            self.in_flight += 1;
            return Entry::Begins;
        }
        if self.wait_us == 0 || self.waiting.len() >= 1_000 {
            return Entry::Refused;
        }
        if self.waiting.is_empty() {
            self.empty_us = now_us;
        }
        self.waiting.push_back((request, now_us));
        Entry::Waits(if self.is_standing(now_us) { self.wait_us / 20 } else { self.wait_us })
    }

    fn demand(&mut self, now_us: u64) -> bool {
        let Rule::Adaptive(estimate) = &mut self.rule else { return false };
        estimate.demand(Duration::from_micros(BEGIN_US + now_us)) && self.in_flight < estimate.limit()
    }

    fn is_standing(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.empty_us) > self.wait_us
    }

    /// A request that waits has waited for too long; whether it is still there.
    pub(super) fn expire(&mut self, request: usize) -> bool {
        let position = self.waiting.iter().position(|(waits, _)| *waits == request);
        position.is_some_and(|position| self.waiting.remove(position).is_some())
    }

    /// The next request that waits and may begin.
    pub(super) fn next(&mut self, now_us: u64) -> Option<usize> {
        if self.waiting.is_empty() || self.in_flight >= self.limit() && !self.demand(now_us) {
            return None;
        }
        let next = if self.is_standing(now_us) { self.waiting.pop_back() } else { self.waiting.pop_front() };
        let (request, _) = next?;
        self.in_flight += 1;
        Some(request)
    }

    /// A request that was let in has its answer; whether the limit may be another now.
    pub(super) fn leave(&mut self, now_us: u64, latency_us: u64, outcome: Outcome) -> bool {
        let in_flight = self.in_flight;
        self.in_flight -= 1;
        match &mut self.rule {
            Rule::Adaptive(estimate) => {
                let latency = Duration::from_micros(latency_us);
                estimate.add(Duration::from_micros(BEGIN_US + now_us), Sample { latency, in_flight, outcome })
            }
            Rule::Reference(limit, answers) => {
                // They know two kinds of answers.
                let window = answers.add(now_us, latency_us, in_flight, outcome != Outcome::Good);
                window.is_some_and(|window| {
                    limit.update(&window);
                    true
                })
            }
        }
    }
}

impl Answers {
    fn add(
        &mut self,
        now_us: u64,
        latency_us: u64,
        in_flight: u64,
        is_fault: bool,
    ) -> Option<ReferenceWindow> {
        self.latencies.push(latency_us);
        self.in_flight = self.in_flight.max(in_flight);
        self.faults += u32::from(is_fault);
        let samples = u32::try_from(self.latencies.len()).unwrap_or(u32::MAX);
        let mean_us = self.latencies.iter().sum::<u64>() / u64::from(samples);
        if samples < 10 || now_us - self.since_us < mean_us.clamp(100_000, 10_000_000) {
            return None;
        }
        self.latencies.sort_unstable();
        let median_us = self.latencies[self.latencies.len() / 2].max(1) as f64;
        let (in_flight, is_faulty) = (self.in_flight as f64, self.faults * 20 > samples);
        *self = Self { since_us: now_us, ..Self::default() };
        Some(ReferenceWindow { median_us, in_flight, samples, is_faulty })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adaptive(algorithm) => algorithm.fmt(f),
            Self::Reference(reference) => reference.fmt(f),
        }
    }
}
