//! Forwards a call to the observed store, and counts its answer.
//!
//! Memory answers at once, and its answer is counted before it is handed on: nothing is allocated, and no key is copied. A later
//! answer is counted by the future that waits for it, which needs a copy of the keys; if that future is dropped, the answer is
//! not counted. A call of several asks is one request, and one duration, for each of its policies.
//!
//! No lock is held while the store within is called or a listener is told.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use sluicegate_core::Decision;
use sluicegate_core::algorithm::Inherit;
use sluicegate_core::error::{ConfigError, StoreError};
use sluicegate_core::key::{Key, KeyRef};
use sluicegate_core::policy::{Policy, PolicyMode};
use sluicegate_core::store::{
    Ask, DecidedBy, DecisionFuture, Event, Listener, Mode, Place, PreparedPolicy, QuotaStatus, ShortWay,
    Store, StoreStatus, Subject,
};
use sluicegate_core::wrap::{OutageAnswer, Within, Wrap, or_by_policy};
use smallvec::SmallVec;

use super::answer::{Answer, Judgement};
use super::budgets::{self, BudgetAsk, BudgetWarning, PERCENTS};
use super::counts::PolicyCounts;
use super::exported::Gauges;
use super::meter::{MeteredRefusal, PolicyMeter};
use super::short::ObservedShortWay;
use super::state::ObservedState;
use super::thread;
use super::tighten::Tighteners;

/// An observed store, as limiters hold it.
pub(super) struct ObservedStore {
    pub(super) within: Within<OpenPolicy>,
    pub(super) state: Arc<ObservedState>,
    /// Whether most answers come later; each of them is timed. Of answers in memory one in 64 is
    /// timed, because two readings of a clock cost nearly as much as the decision.
    pub(super) is_far: bool,
    pub(super) gauges: Mutex<Gauges>,
    pub(super) tighteners: Tighteners,
}

/// The state of a policy as it is open now.
#[derive(Clone)]
pub(super) struct OpenPolicy {
    policy: Arc<Policy>,
    /// `None` for the bucket of a suspension, which is not a limit of its own.
    pub(super) meter: Option<Arc<PolicyMeter>>,
    pub(super) mode: PolicyMode,
    has_budget: bool,
    /// The buckets that say which of its keys are suspended.
    suspended_by: SmallVec<[String; 0]>,
}

/// The duration of an answer, and the number of answers that it stands for.
#[derive(Clone, Copy)]
pub(super) struct Took {
    lasted: Duration,
    weight: usize,
}

/// The ask of one policy.
pub(super) struct ObservedAsk<'a> {
    pub(super) watched: &'a OpenPolicy,
    pub(super) place: usize,
    pub(super) key: KeyRef<'a>,
    pub(super) cost: u64,
    pub(super) mode: Mode,
    /// The places of the asks that say whether the key is suspended, a bit each.
    pub(super) peeks: u64,
    /// The policy with the numbers that decide, if one of its quotas is a budget.
    pub(super) budget: Option<&'a Arc<Policy>>,
    /// Whether this is one of the few calls that are looked at more closely.
    pub(super) is_looked_at: bool,
}

/// An [`ObservedAsk`] that owns its parts, kept until the answer comes.
struct Awaited {
    watched: OpenPolicy,
    place: usize,
    key: Key,
    cost: u64,
    mode: Mode,
    peeks: u64,
    budget: Option<Arc<Policy>>,
    is_looked_at: bool,
}

impl Took {
    /// The duration of an answer that has just come, which the state counts as well.
    pub(super) fn since(begun: Instant, weight: usize, state: &ObservedState) -> Self {
        let lasted = begun.elapsed();
        state.took(lasted);
        Self { lasted, weight }
    }
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
            // Here, so that no request has to make its tables.
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
        let is_looked_at = thread::one_in_64();
        // Two readings of the clock take nearly as long as a decision in memory.
        let begun = (self.is_far || is_looked_at).then(Instant::now);
        self.noted(asks, self.within.decide(asks), begun, is_looked_at)
    }

    fn short_way(&self, policy: &PreparedPolicy, within: Arc<dyn ShortWay>) -> Option<Arc<dyn ShortWay>> {
        let watched = self.within.own(policy).ok()?.clone();
        let budget = budgets::has_budget(policy.numbers()).then(|| Arc::clone(policy.numbers()));
        Some(Arc::new(ObservedShortWay { within, state: Arc::clone(&self.state), watched, budget }))
    }

    fn observe(&self, event: &Event<'_>) {
        let counted = match event {
            Event::Suspended { subject, lasts, .. } if !lasts.is_zero() => {
                Some((subject, PolicyCounts::suspended as fn(&_)))
            }
            Event::QuotasRefused(subject) => Some((subject, PolicyCounts::quotas_refused as fn(&_))),
            _ => None,
        };
        if let Some((subject, count)) = counted
            && let Some(policy) = subject.policy
        {
            // The name that the policy is counted as is unknown here if its limiter is on a store around this one.
            let limiter = self.limiters().get(policy);
            let counted_as =
                limiter.map(|limiter| limiter.with_policy(|policy| policy.counted_as().to_owned()));
            count(self.state.meters.known(counted_as.as_deref().unwrap_or(policy)).counts());
        }
        self.state.event(event);
    }

    fn tell(&self, listener: &Arc<dyn Listener>) {
        self.state.events.listeners.add(Arc::clone(listener));
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    fn report(&self, status: &mut StoreStatus) {
        status.observed = Some(self.state.name.as_str().to_owned());
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

    /// Whether one of the quotas that decide is a budget.
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
        let took =
            begun.map(|begun| Took::since(begun, if self.is_far { 1 } else { thread::ONE_IN }, &self.state));
        if self.is_far || result.is_err() {
            self.state.answered(result.as_ref().err());
        }
        let answer = or_by_policy(answer, asks);
        if let Some(result) = answer.known() {
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
        let awaited: SmallVec<[Awaited; 1]> =
            self.asked(asks, is_looked_at).map(|asked| asked.awaited()).collect();
        let (state, fallback) = (Arc::clone(&self.state), OutageAnswer::of(asks));
        answer.map(move |result| {
            let took = begun.map(|begun| Took::since(begun, 1, &state));
            state.answered(result.as_ref().err());
            let result = result.or_else(|error| fallback.unanswered(error));
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
            let (key, cost, mode, peeks) = (ask.key(), ask.cost(), ask.mode(), watched.peeks(asks, ask));
            let budget = watched.is_of_budget(ask).then(|| ask.numbers());
            Some(ObservedAsk { watched, place, key, cost, mode, peeks, budget, is_looked_at })
        })
    }
}

impl Awaited {
    fn asked(&self) -> ObservedAsk<'_> {
        let Self { watched, place, key, cost, mode, peeks, budget, is_looked_at } = self;
        ObservedAsk {
            watched,
            place: *place,
            key: key.as_ref(),
            cost: *cost,
            mode: *mode,
            peeks: *peeks,
            budget: budget.as_ref(),
            is_looked_at: *is_looked_at,
        }
    }
}

impl ObservedAsk<'_> {
    /// A copy that owns its parts, to keep until the answer comes.
    fn awaited(&self) -> Awaited {
        let Self { watched, place, key, cost, mode, peeks, budget, is_looked_at } = *self;
        let (watched, key, budget) = (watched.clone(), key.to_key(), budget.cloned());
        Awaited { watched, place, key, cost, mode, peeks, budget, is_looked_at }
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
        if !self.mode.spends() {
            return self.note_report(state, meter, result);
        }
        let (judgement, at_us) = match result {
            Ok(decision) => {
                let judgement = Judgement::of(decision, self.place, self.mode);
                let is_suspended = self.peeks != 0 && is_refused(decision, self.peeks);
                (if is_suspended { judgement.suspended() } else { judgement }, at_us(decision))
            }
            Err(_) => (Judgement::error(), state.clock.now_us()),
        };
        meter.request(&judgement, *mode == PolicyMode::Shadow, at_us);
        meter.see(self.key);
        let is_told = *mode == PolicyMode::Enforce && !state.events.listeners.is_empty();
        if self.is_looked_at || is_told || judgement.answer != Answer::Allowed {
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
        if self.mode == Mode::Peek {
            return;
        }
        let warns = self.watched.mode == PolicyMode::Enforce;
        let ask = BudgetAsk { numbers, place: self.place, key: self.key, warns };
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
        if let (true, Ok(decision)) = (self.is_looked_at, result) {
            let own = decision.quotas().iter().filter(|status| status.policy_index() == self.place);
            meter.asked(self.key, own);
        }
        if let (Answer::Delayed, Ok(decision)) = (judgement.answer, result) {
            meter.waits(decision.delay());
        }
        if judgement.answer.is_refusal() {
            let retry_after = result.as_ref().ok().and_then(|decision| self.own_wait(decision));
            meter.refused(MeteredRefusal { key: self.key, answer: judgement.answer, retry_after });
        }
    }

    /// The wait that this policy asks for, regardless of the request's other policies.
    fn own_wait(&self, decision: &Decision) -> Option<Duration> {
        let places = self.peeks | bit(self.place);
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
            Answer::Rejected | Answer::Impossible | Answer::Suspended => {
                let is_suspended = judgement.answer == Answer::Suspended;
                Event::Rejected {
                    subject,
                    retry_after: decision.and_then(Decision::retry_after),
                    is_suspended,
                }
            }
            Answer::Error => return,
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
        match self.mode {
            // A lease is not a request, but its units are spent, and come back as refunds.
            Mode::Lease => counts.leased(Judgement::of(decision, self.place, self.mode).spent),
            Mode::Charge => {
                counts.charged(Judgement::of(decision, self.place, self.mode).spent);
                tell(Event::Charged { subject, units: self.cost });
            }
            Mode::Refund | Mode::Return if decision.is_allowed() => {
                counts.refunded(self.cost);
                tell(Event::Refunded { subject, units: self.cost });
            }
            _ => {}
        }
    }
}

fn is_refused(decision: &Decision, places: u64) -> bool {
    decision.quotas().iter().any(|status| !status.passed() && places & bit(status.policy_index()) != 0)
}

fn bit(place: usize) -> u64 {
    u32::try_from(place).ok().and_then(|place| 1_u64.checked_shl(place)).unwrap_or(0)
}
