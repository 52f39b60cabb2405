//! Forwards a call to the observed store, and counts its answer.
//!
//! Memory answers at once, and its answer is counted before it is returned: nothing is allocated, and no key is copied. A later
//! answer is counted by the future that waits for it, which needs a copy of the keys; if that future is dropped, the answer is
//! not counted. A call of several asks is one request, and one duration, for each of its policies.
//!
//! No lock is held while the inner store or a listener is called.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use sluicegate_core::Decision;
use sluicegate_core::algorithm::Inherit;
use sluicegate_core::error::{ConfigError, StoreError};
use sluicegate_core::key::{Key, KeyRef};
use sluicegate_core::policy::{Policy, PolicyMode};
use sluicegate_core::store::{
    Ask, DecidedBy, DecisionFuture, Event, Listener, Mode, Notice, Place, PreparedPolicy, QuotaStatus,
    ShortAnswer, ShortWay, Store, StoreStatus, Subject,
};
use sluicegate_core::wrap::{OutageAnswer, Within, Wrap, or_by_policy};
use smallvec::SmallVec;

use crate::budgets::{BudgetAsk, BudgetWarning, PERCENTS};
use crate::counts::{Answer, Judgement};
use crate::lanes::Took;
use crate::meter::{MeteredRefusal, PolicyMeter};
use crate::metrics::Gauges;
use crate::state::ObservedState;
use crate::{budgets, lanes};

/// An observed store, as limiters hold it.
pub(super) struct ObservedStore {
    pub(super) within: Within<OpenPolicy>,
    pub(super) state: Arc<ObservedState>,
    /// Whether most answers come later; each of them is timed. Of answers in memory one in 64 is
    /// timed, because two readings of a clock cost nearly as much as the decision.
    pub(super) is_far: bool,
    pub(super) gauges: Mutex<Gauges>,
}

/// The state of a policy as it is open now.
#[derive(Clone)]
pub(super) struct OpenPolicy {
    pub(super) policy: Arc<Policy>,
    /// `None` for the bucket of a suspension, which is not a limit of its own.
    pub(super) meter: Option<Arc<PolicyMeter>>,
    pub(super) mode: PolicyMode,
    has_budget: bool,
    /// The buckets that say which of its keys are suspended.
    suspended_by: SmallVec<[String; 0]>,
}

impl Wrap for ObservedStore {
    type Own = OpenPolicy;

    fn within(&self) -> &Within<OpenPolicy> {
        &self.within
    }

    fn prepare(
        &self,
        policy: &Arc<Policy>,
        _: Option<(&OpenPolicy, Inherit)>,
    ) -> Result<OpenPolicy, ConfigError> {
        let meter = (!policy.is_of_suspension()).then(|| self.state.meters.open(policy.counted_as()));
        let opened = OpenPolicy::new(policy, meter)?;
        if let (true, Some(meter)) = (opened.has_budget, &opened.meter) {
            // Made here, so that no request has to allocate the tables.
            meter.budgets();
        }
        if let (Some(tightening), Some(meter)) = (policy.tightening(), &opened.meter)
            && tightening.is_of_new_keys()
        {
            meter.remember_keys();
        }
        Ok(opened)
    }

    fn own_place(&self) -> Option<Place> {
        Some(Place::Observed)
    }

    fn ask(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        let is_looked_at = lanes::one_in_64();
        // Two readings of the clock take nearly as long as a decision in memory.
        let begun = (self.is_far || is_looked_at).then(Instant::now);
        self.noted(asks, self.within.decide(asks), begun, is_looked_at)
    }

    fn short_way(&self, policy: &PreparedPolicy, within: Arc<dyn ShortWay>) -> Option<Arc<dyn ShortWay>> {
        let watched = self.within.own(policy).ok()?.clone();
        let budget = budgets::has_budget(policy.numbers()).then(|| Arc::clone(policy.numbers()));
        Some(Arc::new(ObservedShortWay { within, state: Arc::clone(&self.state), watched, budget }))
    }

    fn hear(&self, notice: &Notice<'_>) {
        match *notice {
            Notice::Event(event) => self.count(event),
            Notice::Listener(listener) => self.state.events.listeners.add(Arc::clone(listener)),
            Notice::Replaced { old, new, inherit } => self.replaced(old, new, inherit),
            _ => (),
        }
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    fn report(&self, status: &mut StoreStatus) {
        status.observed = Some(self.state.name.as_str().to_owned());
    }
}

impl ObservedStore {
    fn replaced(&self, old: &PreparedPolicy, new: &PreparedPolicy, inherit: Inherit) {
        let calendars = |policy: &Policy| -> Vec<_> {
            policy.quotas().iter().map(|quota| quota.quota().calendar()).collect()
        };
        let keeps = inherit != Inherit::Reset && calendars(old.policy()) == calendars(new.policy());
        if let (false, Ok(OpenPolicy { meter: Some(meter), .. })) = (keeps, self.within.own(new)) {
            meter.forget_budgets();
        }
    }

    fn count(&self, event: &Event<'_>) {
        let subject = match event {
            Event::Suspended { subject, .. } | Event::QuotasRefused(subject) => *subject,
            _ => Subject::default(),
        };
        if let Some(policy) = subject.policy {
            // The name that the policy is counted as is unknown here if its limiter is on a store around this one.
            let limiter = Store::limiters(self).get(policy);
            let counted_as =
                limiter.map(|limiter| limiter.with_policy(|policy| policy.counted_as().to_owned()));
            let meter = self.state.meters.known(counted_as.as_deref().unwrap_or(policy));
            match (event, subject.key) {
                (Event::Suspended { lasts, .. }, Some(key)) if lasts.is_zero() => meter.released(key),
                (Event::Suspended { lasts, .. }, _) if lasts.is_zero() => {}
                (Event::Suspended { .. }, _) => meter.counts().suspended(),
                _ => meter.counts().quotas_refused(),
            }
        }
        self.state.event(event);
    }
}

impl OpenPolicy {
    fn new(policy: &Arc<Policy>, meter: Option<Arc<PolicyMeter>>) -> Result<Self, ConfigError> {
        let buckets = match policy.suspension() {
            Some(_) => [Some(policy.suspended()?), policy.suspended_everywhere()?],
            None => [None, None],
        };
        let suspended_by = buckets.iter().flatten().map(|bucket| bucket.name().to_owned()).collect();
        let has_budget = meter.is_some() && budgets::has_budget(policy);
        Ok(Self { policy: Arc::clone(policy), meter, mode: policy.mode(), has_budget, suspended_by })
    }

    /// The places of the other asks that say whether the key of this one is suspended, a bit each. They are found by name, because
    /// another store may be between this one and the limiter that asks them.
    fn peeks(&self, asks: &[Ask<'_>], ask: &Ask<'_>) -> u64 {
        if self.suspended_by.is_empty() || asks.len() == 1 {
            return 0;
        }
        let is_its = |peek: &Ask<'_>| {
            peek.mode() == Mode::Peek
                && self.suspended_by.iter().any(|bucket| bucket == peek.policy().policy().name())
                && peek.key().to_key() == ask.key().to_key()
        };
        let its = asks.iter().enumerate().filter(|(_, peek)| is_its(peek));
        its.fold(0, |bits, (place, _)| bits | bit(place))
    }

    /// Whether one of the deciding quotas is a budget.
    #[inline]
    fn is_of_budget(&self, ask: &Ask<'_>) -> bool {
        ask.own().map_or(self.has_budget, |own| budgets::has_budget(own.policy()))
    }
}

impl ObservedStore {
    /// Notes an answer, now or when it comes.
    fn noted(
        &self,
        asks: &[Ask<'_>],
        answer: DecisionFuture,
        begun: Option<Instant>,
        is_looked_at: bool,
    ) -> DecisionFuture {
        let Some(result) = answer.known() else { return self.later(asks, answer, begun, is_looked_at) };
        let took = begun.map(|begun| Took::since(begun, if self.is_far { 1 } else { lanes::ONE_IN }));
        if self.is_far || result.is_err() {
            self.state.answered(result.as_ref().err());
        }
        let answer = or_by_policy(answer, asks);
        if let Some(result) = answer.known() {
            self.state.decided(result, took, asks.iter().any(|ask| ask.mode().spends()));
            self.asked(asks, is_looked_at)
                .for_each(|asked| asked.note(&self.state, result, took, Decision::at_us));
        }
        answer
    }

    /// Notes the answer when it comes. An answer that is no longer awaited is not counted.
    fn later(
        &self,
        asks: &[Ask<'_>],
        answer: DecisionFuture,
        begun: Option<Instant>,
        is_looked_at: bool,
    ) -> DecisionFuture {
        let awaited: SmallVec<[AwaitedAsk; 1]> =
            self.asked(asks, is_looked_at).map(|asked| asked.awaited()).collect();
        let (state, fallback) = (Arc::clone(&self.state), OutageAnswer::of(asks));
        let spends = asks.iter().any(|ask| ask.mode().spends());
        answer.map(move |result| {
            let took = begun.map(|begun| Took::since(begun, 1));
            state.answered(result.as_ref().err());
            let result = result.or_else(|error| fallback.unanswered(error));
            state.decided(&result, took, spends);
            // A remote store has another clock.
            let now_us = state.clock.now_us();
            awaited.iter().for_each(|awaited| awaited.asked().note(&state, &result, took, |_| now_us));
            result
        })
    }

    /// The asks of policies that are observed here.
    fn asked<'a>(&'a self, asks: &'a [Ask<'a>], is_looked_at: bool) -> impl Iterator<Item = ObservedAsk<'a>> {
        asks.iter().enumerate().filter_map(move |(place, ask)| {
            let watched = self.within.own(ask.policy()).ok()?;
            let (cost, mode, peeks) = (ask.cost(), ask.mode(), watched.peeks(asks, ask));
            let budget = watched.is_of_budget(ask).then(|| ask.numbers());
            let facts = AskFacts { place, cost, mode, peeks, is_looked_at };
            Some(ObservedAsk { watched, key: ask.key(), budget, facts })
        })
    }
}

// An ask of an observed policy, and how its result is counted: [`ObservedAsk`].

/// The ask of one policy.
pub(super) struct ObservedAsk<'a> {
    pub(super) watched: &'a OpenPolicy,
    pub(super) key: KeyRef<'a>,
    /// The policy with the numbers that decide, if one of its quotas is a budget.
    pub(super) budget: Option<&'a Arc<Policy>>,
    facts: AskFacts,
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
    is_looked_at: bool,
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

fn is_refused(decision: &Decision, places: u64) -> bool {
    decision.quotas().iter().any(|status| !status.passed() && places & bit(status.policy_index()) != 0)
}

/// The bit of a place among the asks of a call; none beyond 64.
pub(super) fn bit(place: usize) -> u64 {
    u32::try_from(place).ok().and_then(|place| 1_u64.checked_shl(place)).unwrap_or(0)
}

// Counts the checks of one key that the inner store decides without an ask: [`ObservedShortWay`].

/// The short way of a policy, around the short way of the inner store.
pub(super) struct ObservedShortWay {
    pub(super) within: Arc<dyn ShortWay>,
    pub(super) state: Arc<ObservedState>,
    pub(super) watched: OpenPolicy,
    /// The policy with the numbers that decide, if one of its quotas is a budget.
    pub(super) budget: Option<Arc<Policy>>,
}

impl ShortWay for ObservedShortWay {
    #[inline]
    fn spend(&self, key: &KeyRef<'_>, cost: u64) -> Option<ShortAnswer> {
        let begun = lanes::one_in_64().then(Instant::now);
        // Without an answer, an ask goes through the observed store, which counts it.
        let answer = self.within.spend(key, cost)?;
        if begun.is_some() || !self.has_counted(key, answer.at_us(), answer.status()) {
            self.note((*key, cost), &answer, begun);
        }
        Some(answer)
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
    fn note(&self, (key, cost): (KeyRef<'_>, u64), answer: &ShortAnswer, begun: Option<Instant>) {
        let is_looked_at = begun.is_some();
        let took = begun.map(|begun| Took::since(begun, lanes::ONE_IN));
        let result = Ok(answer.numbers());
        self.state.decided(&result, took, true);
        let (watched, budget) = (&self.watched, self.budget.as_ref());
        let facts = AskFacts { place: 0, cost, mode: Mode::Spend, peeks: 0, is_looked_at };
        let asked = ObservedAsk { watched, key, budget, facts };
        asked.note(&self.state, &result, took, Decision::at_us);
    }
}
