//! Counts the checks of one key that the inner store decides without an ask: [`ObservedShortWay`].

use std::sync::Arc;
use std::time::Instant;

use sluicegate_core::Decision;
use sluicegate_core::key::KeyRef;
use sluicegate_core::policy::{Policy, PolicyMode};
use sluicegate_core::store::{DecisionFuture, Mode, QuotaStatus, ShortWay, judge};

use crate::answer::Judgement;
use crate::ask::{AskFacts, ObservedAsk, Took};
use crate::lanes;
use crate::state::ObservedState;
use crate::store::OpenPolicy;

/// The short way of a policy, around the short way of the inner store.
pub(super) struct ObservedShortWay {
    pub(super) within: Arc<dyn ShortWay>,
    pub(super) state: Arc<ObservedState>,
    pub(super) watched: OpenPolicy,
    /// The policy with the numbers that decide, if one of its quotas is a budget.
    pub(super) budget: Option<Arc<Policy>>,
}

impl ShortWay for ObservedShortWay {
    fn spend(
        &self,
        key: &KeyRef<'_>,
        cost: u64,
        told: Option<&dyn Fn(u64, &QuotaStatus)>,
        otherwise: &dyn Fn() -> DecisionFuture,
    ) -> DecisionFuture {
        let begun = lanes::one_in_64().then(Instant::now);
        // An ask goes through the observed store, which counts it.
        let count = |at_us: u64, status: &QuotaStatus| {
            if begun.is_some() || !self.has_counted(key, at_us, status) {
                self.note((*key, cost), at_us, status, begun);
            }
            if let Some(told) = told {
                told(at_us, status);
            }
        };
        self.within.spend(key, cost, Some(&count), otherwise)
    }

    fn is_at_rest(&self, key: &KeyRef<'_>) -> bool {
        self.within.is_at_rest(key)
    }
}

impl ObservedShortWay {
    /// Counts an answer that allows the request now, as almost every answer does, unless listeners have to hear of it.
    #[inline]
    fn has_counted(&self, key: &KeyRef<'_>, at_us: u64, status: &QuotaStatus) -> bool {
        let is_plain = status.passed() && self.budget.is_none() && self.state.events.listeners.is_empty();
        match &self.watched.meter {
            Some(meter) if is_plain => {
                let is_shadow = self.watched.mode == PolicyMode::Shadow;
                meter.request(&Judgement::allowed(status), is_shadow, at_us);
                meter.see(*key);
                true
            }
            _ => false,
        }
    }

    #[inline(never)]
    fn note(&self, (key, cost): (KeyRef<'_>, u64), at_us: u64, status: &QuotaStatus, begun: Option<Instant>) {
        let is_looked_at = begun.is_some();
        let took = begun.map(|begun| Took::since(begun, lanes::ONE_IN));
        if let Some(Took { lasted, .. }) = took {
            self.state.took(lasted);
        }
        let (watched, budget) = (&self.watched, self.budget.as_ref());
        let facts = AskFacts { place: 0, cost, mode: Mode::Spend, peeks: 0, is_looked_at };
        let asked = ObservedAsk { watched, key, budget, facts };
        asked.note(&self.state, &Ok(judge(at_us, 0, [*status])), took, Decision::at_us);
    }
}
