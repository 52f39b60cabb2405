//! Forwards a call to the observed store, and counts its answer.
//!
//! Memory answers at once, and its answer is counted before it is returned: nothing is allocated, and no key is copied. A later
//! answer is counted by the future that waits for it, which needs a copy of the keys; if that future is dropped, the answer is
//! not counted. A call of several asks is one request, and one duration, for each of its policies.
//!
//! No lock is held while the inner store or a listener is called.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use sluicegate_core::Decision;
use sluicegate_core::algorithm::Inherit;
use sluicegate_core::error::ConfigError;
use sluicegate_core::policy::{Policy, PolicyMode};
use sluicegate_core::store::{
    Ask, DecisionFuture, Event, Listener, Mode, Notice, Place, PreparedPolicy, ShortWay, Store, StoreStatus,
    Subject,
};
use sluicegate_core::wrap::{OutageAnswer, Within, Wrap, or_by_policy};
use smallvec::SmallVec;

use crate::ask::{AskFacts, AwaitedAsk, ObservedAsk, Took, bit};
use crate::meter::PolicyMeter;
use crate::metrics::Gauges;
use crate::short::ObservedShortWay;
use crate::state::ObservedState;
use crate::tighten::Tighteners;
use crate::{budgets, lanes};

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
