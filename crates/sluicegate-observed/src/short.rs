//! Counts the checks of one key that the inner store decides without an ask: [`ObservedShortWay`].

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use sluicegate_core::Decision;
use sluicegate_core::key::KeyRef;
use sluicegate_core::policy::{Policy, PolicyMode};
use sluicegate_core::store::{DecisionFuture, Mode, ShortWay};

use super::answer::Judgement;
use super::ask::{AskFacts, ObservedAsk, Took};
use super::state::ObservedState;
use super::store::OpenPolicy;
use super::thread;

/// The short way of a policy, around the short way of the inner store.
pub(super) struct ObservedShortWay {
    pub(super) within: Arc<dyn ShortWay>,
    pub(super) state: Arc<ObservedState>,
    pub(super) watched: OpenPolicy,
    /// The policy with the numbers that decide, if one of its quotas is a budget.
    pub(super) budget: Option<Arc<Policy>>,
}

impl ShortWay for ObservedShortWay {
    fn spend(&self, key: &KeyRef<'_>, cost: u64, otherwise: &dyn Fn() -> DecisionFuture) -> DecisionFuture {
        let (is_asked, is_looked_at) = (Cell::new(false), thread::one_in_64());
        let begun = is_looked_at.then(Instant::now);
        let answer = self.within.spend(key, cost, &|| {
            is_asked.set(true);
            otherwise()
        });
        // An ask goes through the observed store, which counts it.
        if !is_asked.get() && (is_looked_at || !self.has_counted(key, &answer)) {
            self.note((*key, cost), &answer, begun);
        }
        answer
    }
}

impl ObservedShortWay {
    /// Counts an answer that allows the request now, as almost every answer does, unless listeners have to hear of it.
    #[inline]
    fn has_counted(&self, key: &KeyRef<'_>, answer: &DecisionFuture) -> bool {
        match (&self.watched.meter, answer.known()) {
            (Some(meter), Some(Ok(decision)))
                if decision.is_allowed()
                    && self.budget.is_none()
                    && self.state.events.listeners.is_empty() =>
            {
                let is_shadow = self.watched.mode == PolicyMode::Shadow;
                meter.request(&Judgement::allowed(decision), is_shadow, decision.at_us());
                meter.see(*key);
                true
            }
            _ => false,
        }
    }

    #[inline(never)]
    fn note(&self, (key, cost): (KeyRef<'_>, u64), answer: &DecisionFuture, begun: Option<Instant>) {
        let Some(result) = answer.known() else { return };
        let is_looked_at = begun.is_some();
        let took = begun.map(|begun| Took::since(begun, thread::ONE_IN, &self.state));
        let (watched, budget) = (&self.watched, self.budget.as_ref());
        let facts = AskFacts { place: 0, cost, mode: Mode::Spend, peeks: 0, is_looked_at };
        let asked = ObservedAsk { watched, key, budget, facts };
        asked.note(&self.state, result, took, Decision::at_us);
    }
}
