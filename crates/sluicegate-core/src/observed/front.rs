//! The way of a call through an observed store: to the store within, and its answer into the counts.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use smallvec::SmallVec;

use super::answer::{Answer, Judgement};
use super::meter::{Meter, Refusal};
use super::sample;
use super::state::State;
use super::told::Gauges;
use crate::algorithm::Inherit;
use crate::decision::Decision;
use crate::error::{ConfigError, StoreError};
use crate::key::{Key, KeyRef};
use crate::policy::{Policy, PolicyMode};
use crate::store::{Ask, DecisionFuture, Event, Listener, Mode, StoreStatus};
use crate::wrap::{Within, Wrap};

/// An observed store, as limiters hold it.
pub(super) struct Front {
    pub(super) within: Within<Watched>,
    pub(super) state: Arc<State>,
    /// Whether its answers come later, mostly: then it is known how long each of them took.
    pub(super) is_far: bool,
    pub(super) gauges: Mutex<Gauges>,
}

/// What is kept of a policy as it is open now.
#[derive(Clone)]
pub(super) struct Watched {
    policy: Arc<Policy>,
    meter: Arc<Meter>,
}

/// What was asked of one policy.
struct Asked<'a> {
    watched: &'a Watched,
    place: usize,
    key: KeyRef<'a>,
    cost: u64,
    mode: Mode,
}

/// The same, until the answer comes.
struct Awaited {
    watched: Watched,
    key: Key,
    cost: u64,
    mode: Mode,
}

impl Wrap for Front {
    type Own = Watched;

    fn within(&self) -> &Within<Watched> {
        &self.within
    }

    fn prepare(&self, policy: &Arc<Policy>, _: Option<(&Watched, Inherit)>) -> Result<Watched, ConfigError> {
        Ok(Watched { policy: Arc::clone(policy), meter: self.state.meters.open(policy.name()) })
    }

    fn ask(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        // Two readings of the clock take nearly as long as a decision in memory.
        let weight = if self.is_far { 1 } else { usize::from(sample::one_in_64()) * 64 };
        let begun = (weight > 0).then(Instant::now);
        let answer = self.within.decide(asks);
        let Some(result) = answer.known() else { return self.later(asks, answer, begun) };
        if let Some(begun) = begun {
            self.state.timing.record(begun.elapsed(), weight);
        }
        if self.is_far || result.is_err() {
            self.state.answered(result.as_ref().err());
        }
        let at_us = |decision: &Decision| decision.at_us();
        for (place, ask) in asks.iter().enumerate() {
            if let Ok(watched) = self.within.own(ask.policy()) {
                let (key, cost, mode) = (ask.key(), ask.cost(), ask.mode());
                Asked { watched, place, key, cost, mode }.note(result, at_us);
            }
        }
        answer
    }

    fn observe(&self, event: &Event<'_>) {
        self.state.event(event);
    }

    fn tell(&self, listener: &Arc<dyn Listener>) {
        self.state.listeners.add(Arc::clone(listener));
    }

    fn report(&self, status: &mut StoreStatus) {
        status.observed = Some(self.state.name.as_str().to_owned());
    }
}

impl Front {
    /// Notes the answer when it comes. One that nobody waits for any more is not counted.
    fn later(&self, asks: &[Ask<'_>], answer: DecisionFuture, begun: Option<Instant>) -> DecisionFuture {
        let awaited = asks.iter().filter_map(|ask| {
            let watched = self.within.own(ask.policy()).ok()?.clone();
            Some(Awaited { watched, key: ask.key().to_key(), cost: ask.cost(), mode: ask.mode() })
        });
        let awaited: SmallVec<[Awaited; 1]> = awaited.collect();
        let state = Arc::clone(&self.state);
        answer.map(move |result| {
            if let Some(begun) = begun {
                state.timing.record(begun.elapsed(), 1);
            }
            state.answered(result.as_ref().err());
            // The time of a store far away is another one.
            let now_us = state.clock.now_us();
            for (place, Awaited { watched, key, cost, mode }) in awaited.iter().enumerate() {
                let (key, cost, mode) = (key.as_ref(), *cost, *mode);
                Asked { watched, place, key, cost, mode }.note(&result, |_| now_us);
            }
            result
        })
    }
}

impl Asked<'_> {
    /// Counts what came of it.
    #[inline]
    fn note(&self, result: &Result<Decision, StoreError>, at_us: impl Fn(&Decision) -> u64) {
        let Watched { policy, meter } = self.watched;
        if !self.mode.spends() {
            return self.note_report(result);
        }
        let (judgement, at_us) = match result {
            Ok(decision) => (Judgement::of(decision, self.place, self.mode), at_us(decision)),
            Err(error) => (Judgement::without(error, policy), 0),
        };
        meter.request(&judgement, policy.mode() == PolicyMode::Shadow, at_us);
        if let (true, Ok(decision)) = (sample::one_in_64(), result) {
            let own = decision.quotas().iter().filter(|status| status.policy_index() == self.place);
            meter.asked(self.key, own);
        }
        if let (Answer::Delayed, Ok(decision)) = (judgement.answer, result) {
            meter.waits(decision.delay());
        }
        if judgement.answer.is_refusal() {
            let retry_after = result.as_ref().ok().and_then(Decision::retry_after);
            meter.refused(Refusal { key: self.key, answer: judgement.answer, retry_after });
        }
    }

    fn note_report(&self, result: &Result<Decision, StoreError>) {
        let Ok(decision) = result else { return };
        let counts = self.watched.meter.counts();
        match self.mode {
            Mode::Charge => counts.charged(Judgement::of(decision, self.place, self.mode).spent),
            Mode::Refund | Mode::Return if decision.is_allowed() => counts.refunded(self.cost),
            _ => {}
        }
    }
}
