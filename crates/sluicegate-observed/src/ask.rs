//! An ask of an observed policy, and how its result is counted: [`ObservedAsk`].

use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use sluicegate_core::Decision;
use sluicegate_core::error::StoreError;
use sluicegate_core::key::{Key, KeyRef};
use sluicegate_core::policy::{Policy, PolicyMode};
use sluicegate_core::store::{DecidedBy, Event, Mode, QuotaStatus, Subject};

use crate::answer::{Answer, Judgement};
use crate::budgets::{BudgetAsk, BudgetWarning, PERCENTS};
use crate::meter::{MeteredRefusal, PolicyMeter};
use crate::state::ObservedState;
use crate::store::OpenPolicy;

/// The ask of one policy.
pub(super) struct ObservedAsk<'a> {
    pub(super) watched: &'a OpenPolicy,
    pub(super) key: KeyRef<'a>,
    /// The policy with the numbers that decide, if one of its quotas is a budget.
    pub(super) budget: Option<&'a Arc<Policy>>,
    pub(super) facts: AskFacts,
}

/// An [`ObservedAsk`] that owns its parts, kept until the answer comes.
pub(super) struct AwaitedAsk {
    watched: OpenPolicy,
    key: Key,
    budget: Option<Arc<Policy>>,
    facts: AskFacts,
}

/// The parts of an ask that are numbers.
#[derive(Clone, Copy)]
pub(super) struct AskFacts {
    pub(super) place: usize,
    pub(super) cost: u64,
    pub(super) mode: Mode,
    /// A bit for each ask that says whether the key is suspended, by its index.
    pub(super) peeks: u64,
    /// Whether this is one of the few calls that are looked at more closely.
    pub(super) is_looked_at: bool,
}

/// The duration of an answer, and the number of answers that it stands for.
#[derive(Clone, Copy)]
pub(super) struct Took {
    pub(super) lasted: Duration,
    weight: usize,
}

impl AwaitedAsk {
    pub(super) fn asked(&self) -> ObservedAsk<'_> {
        let Self { watched, key, budget, facts } = self;
        ObservedAsk { watched, key: key.as_ref(), budget: budget.as_ref(), facts: *facts }
    }
}

impl ObservedAsk<'_> {
    /// A copy that owns its parts, to keep until the answer comes.
    pub(super) fn awaited(&self) -> AwaitedAsk {
        let Self { watched, key, budget, facts } = *self;
        AwaitedAsk { watched: watched.clone(), key: key.to_key(), budget: budget.cloned(), facts }
    }

    /// Counts the result.
    #[inline]
    pub(super) fn note(
        &self,
        state: &ObservedState,
        result: &Result<Decision, StoreError>,
        took: Option<Took>,
        at_us: impl Fn(&Decision) -> u64,
    ) {
        let OpenPolicy { meter: Some(meter), mode, .. } = self.watched else { return };
        if let Some(Took { lasted, weight }) = took {
            let by = result.as_ref().map_or(DecidedBy::Outage, Decision::decided_by);
            meter.took(by, lasted, weight);
        }
        if let (Some(numbers), Ok(decision)) = (self.budget, result) {
            self.note_budget(state, meter, numbers, decision);
        }
        if !self.facts.mode.spends() {
            return self.note_report(state, meter, result);
        }
        let (judgement, at_us) = match result {
            Ok(decision) => {
                let judgement = Judgement::of(decision, self.facts.place, self.facts.mode);
                let is_suspended = self.facts.peeks != 0 && is_refused(decision, self.facts.peeks);
                (if is_suspended { judgement.suspended() } else { judgement }, at_us(decision))
            }
            Err(_) => (Judgement::error(), state.clock.now_us()),
        };
        meter.request(&judgement, *mode == PolicyMode::Shadow, at_us);
        meter.see(self.key);
        let is_told = *mode == PolicyMode::Enforce && !state.events.listeners.is_empty();
        if self.facts.is_looked_at || is_told || judgement.answer != Answer::Allowed {
            self.note_more(meter, &judgement, result);
            if is_told {
                self.tell(state, &judgement, result.as_ref().ok());
            }
        }
    }

    /// Notes the state of budgets after a decision, and warns of it.
    #[inline(never)]
    fn note_budget(&self, state: &ObservedState, meter: &PolicyMeter, numbers: &Policy, decision: &Decision) {
        // A look changes nothing, and comes from pages as well.
        if self.facts.mode.looks() {
            return;
        }
        let warns = self.watched.mode == PolicyMode::Enforce;
        let ask = BudgetAsk { numbers, place: self.facts.place, key: self.key, warns };
        meter.budgets().note(ask, decision, |BudgetWarning { part, quota, standing }| {
            meter.counts().budget_used(part);
            state.events.listeners.tell(&Event::BudgetUsed {
                subject: Subject::of(self.watched.policy.name()).with_key(self.key),
                quota,
                percent: PERCENTS[part],
                used: standing.used,
                limit: standing.limit,
                until: UNIX_EPOCH + Duration::from_micros(standing.until_us),
            });
        });
    }

    /// Notes details of a request that was looked at by chance, waits, or was refused.
    #[inline(never)]
    fn note_more(&self, meter: &PolicyMeter, judgement: &Judgement, result: &Result<Decision, StoreError>) {
        if let (true, Ok(decision)) = (self.facts.is_looked_at, result) {
            let own = decision.quotas().iter().filter(|status| status.policy_index() == self.facts.place);
            meter.asked(self.key, own);
        }
        if let (Answer::Delayed, Ok(decision)) = (judgement.answer, result) {
            meter.waits(decision.delay());
        }
        // An outage says nothing about the keys that it refuses.
        if judgement.answer.is_refusal() && judgement.answer != Answer::Outage {
            let retry_after = result.as_ref().ok().and_then(|decision| self.own_wait(decision));
            meter.refused(MeteredRefusal { key: self.key, answer: judgement.answer, retry_after });
        }
    }

    /// The wait that this policy asks for, regardless of the request's other policies.
    fn own_wait(&self, decision: &Decision) -> Option<Duration> {
        let places = self.facts.peeks | bit(self.facts.place);
        let own = decision.quotas().iter().filter(|status| {
            !status.passed() && !status.is_impossible() && places & bit(status.policy_index()) != 0
        });
        own.map(QuotaStatus::available_after).max()
    }

    /// Tells listeners the result.
    fn tell(&self, state: &ObservedState, judgement: &Judgement, decision: Option<&Decision>) {
        let subject = Subject::of(self.watched.policy.name()).with_key(self.key);
        state.events.listeners.tell(&match judgement.answer {
            Answer::Allowed => Event::Consumed { subject, units: judgement.spent },
            Answer::Delayed => {
                let delay = decision.map_or(Duration::ZERO, Decision::delay);
                Event::Delayed { subject, units: judgement.spent, delay }
            }
            Answer::Rejected | Answer::Impossible | Answer::Suspended | Answer::Outage => {
                let is_suspended = judgement.answer == Answer::Suspended;
                Event::Rejected {
                    subject,
                    retry_after: decision.and_then(Decision::retry_after),
                    is_suspended,
                }
            }
            Answer::OtherRefused | Answer::Error => return,
        });
    }

    fn note_report(&self, state: &ObservedState, meter: &PolicyMeter, result: &Result<Decision, StoreError>) {
        let Ok(decision) = result else { return };
        let subject = Subject::of(self.watched.policy.name()).with_key(self.key);
        let tell = |event: Event<'_>| {
            if self.watched.mode == PolicyMode::Enforce {
                state.events.listeners.tell(&event);
            }
        };
        let counts = meter.counts();
        match self.facts.mode {
            // A lease is not a request, but its units are spent, and come back as refunds.
            Mode::Lease => counts.leased(Judgement::of(decision, self.facts.place, self.facts.mode).spent),
            Mode::Charge => {
                counts.charged(Judgement::of(decision, self.facts.place, self.facts.mode).spent);
                tell(Event::Charged { subject, units: self.facts.cost });
            }
            Mode::Refund | Mode::Return if decision.is_allowed() => {
                counts.refunded(self.facts.cost);
                tell(Event::Refunded { subject, units: self.facts.cost });
            }
            _ => {}
        }
    }
}

impl Took {
    /// The duration of an answer that has just come.
    pub(super) fn since(begun: Instant, weight: usize) -> Self {
        Self { lasted: begun.elapsed(), weight }
    }
}

fn is_refused(decision: &Decision, places: u64) -> bool {
    decision.quotas().iter().any(|status| !status.passed() && places & bit(status.policy_index()) != 0)
}

/// The bit of a place among the asks of a call; none beyond 64.
pub(super) fn bit(place: usize) -> u64 {
    u32::try_from(place).ok().and_then(|place| 1_u64.checked_shl(place)).unwrap_or(0)
}
