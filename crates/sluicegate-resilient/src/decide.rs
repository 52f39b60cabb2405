//! Decides a call: by the store for the parts that are asked, and by the fallback for the rest.
//!
//! 1. Reports about turns that the fallback gave go to the fallback.
//! 2. Reports for several parts go to each part separately: a part that is down must not prevent the
//!    others from getting theirs.
//! 3. If all parts may be asked, the store decides. Its failure counts for the breaker of the part
//!    that it names, and the call is decided again without that part, unless it was a report, which
//!    may have arrived.
//! 4. If some parts are down, the call is split: see `split`. If all are down, the fallback decides.
//!
//! Reports are finished even if no caller waits for them, so that a client that
//! hangs up does not undo a charge.

use std::sync::Arc;

use sluicegate_core::Decision;
use sluicegate_core::algorithm::Inherit;
use sluicegate_core::error::{ConfigError, StoreError, StoreErrorKind};
use sluicegate_core::key::KeyRef;
use sluicegate_core::policy::Policy;
use sluicegate_core::store::{Ask, DecisionFuture, Listener, Mode, Place, PreparedPolicy, StoreStatus};
use sluicegate_core::wrap::{OwnedAsk, Within, Wrap};
use smallvec::SmallVec;

use super::fallback::{granted, is_its};
use super::parts::CallPermits;
use super::reports::{AskPlaces, by_part, in_places, is_own_turn, joined};
use super::settle::Report;
use super::share::FallbackShare;
use super::split::SplitCall;
use super::{ResilientState, ResilientStore};

impl Wrap for ResilientStore {
    type Own = FallbackShare;

    fn within(&self) -> &Within<FallbackShare> {
        &self.0.within
    }

    fn prepare(
        &self,
        policy: &Arc<Policy>,
        replaces: Option<(&FallbackShare, Inherit)>,
    ) -> Result<FallbackShare, ConfigError> {
        self.0.fallback.prepare(policy, replaces)
    }

    fn own_place(&self) -> Option<Place> {
        Some(Place::Resilient)
    }

    fn ask(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        match asks.iter().find_map(|ask| self.0.within.own(ask.policy()).err()) {
            Some(foreign) => DecisionFuture::ready(Err(foreign)),
            None => self.0.decide(asks),
        }
    }

    fn is_at_rest(&self, _: &PreparedPolicy, _: KeyRef<'_>) -> bool {
        // The fallback may know of debts that the store does not.
        false
    }

    fn hand_over(&self, old: &PreparedPolicy, new: &PreparedPolicy, inherit: Inherit) {
        self.0.fallback.debts.hand_over(old, new, inherit);
        if let Ok(share) = self.0.within.own(new) {
            share.begin(new);
        }
    }

    fn tell(&self, listener: &Arc<dyn Listener>) {
        self.0.parts.listeners.add(Arc::clone(listener));
    }

    fn report(&self, status: &mut StoreStatus) {
        status.resilient = Some(self.0.status());
        if status.memory.is_none() {
            let StoreStatus { memory, quotas, .. } = self.0.fallback.status();
            (status.memory, status.quotas) = (memory, quotas);
        }
    }
}

/// The parts of the store for each of some asks.
pub(super) type PartsOfEach = SmallVec<[u64; 4]>;

impl ResilientState {
    pub(super) fn decide(self: &Arc<Self>, asks: &[Ask<'_>]) -> DecisionFuture {
        // Reports about a turn go to the store that gave it.
        let (own, others): (AskPlaces, AskPlaces) =
            (0_u8..).take(asks.len()).partition(|place| is_own_turn(&asks[usize::from(*place)]));
        if !own.is_empty() && others.is_empty() {
            let reason = StoreError::new(StoreErrorKind::Unavailable);
            return DecisionFuture::ready(self.decide_alone(asks, reason));
        }
        if !own.is_empty() {
            return self.report_turn(asks, &own, others);
        }
        let each: PartsOfEach = asks.iter().map(|ask| self.within.parts(std::slice::from_ref(ask))).collect();
        if let Some(groups) = by_part(asks, &each) {
            let answers = groups.into_iter().map(|places| {
                let answer = self.decide(&in_places(asks, &places));
                (places, answer)
            });
            return joined(answers.collect());
        }
        let (permits, away) = self.parts.permits(union(&each));
        if away == 0 {
            return self.ask_store(asks, each, permits);
        }
        drop(permits);
        let reason = "it has failed too often, and is left alone for a moment";
        let reason = StoreError::with_source(StoreErrorKind::Unavailable, reason);
        self.decide_apart(asks, &each, away, reason)
    }

    /// Asks the store about all asks.
    fn ask_store(
        self: &Arc<Self>,
        asks: &[Ask<'_>],
        each: PartsOfEach,
        permits: CallPermits,
    ) -> DecisionFuture {
        let answer = self.within_store(asks.iter().copied());
        let reports = asks.iter().any(|ask| !ask.mode().asks());
        let asks: SmallVec<[OwnedAsk; 1]> = asks.iter().map(OwnedAsk::new).collect();
        let state = Arc::clone(self);
        self.carry_out(reports, async move {
            let result = state.deadline.keep(answer).await;
            let follows = {
                let asks: SmallVec<[Ask<'_>; 4]> = asks.iter().map(OwnedAsk::ask).collect();
                state.after_store(&asks, &each, permits, result)
            };
            follows.await
        })
    }

    /// The answer of the inner store, which does not know the spends of the fallback: the debt is deducted when it has
    /// answered.
    pub(super) fn within_store<'a>(&self, asks: impl Iterator<Item = Ask<'a>>) -> DecisionFuture {
        let asks: SmallVec<[Ask<'a>; 4]> = asks
            .map(|ask| if is_its(&ask) { ask.plainly(Mode::Refund).with_costs(&[0]) } else { ask })
            .collect();
        self.within.decide(&asks)
    }

    /// Finishes a call. The outcome of a report is noted, with the store or without, even if its caller has gone.
    pub(super) fn carry_out(
        self: &Arc<Self>,
        reports: bool,
        call: impl Future<Output = Result<Decision, StoreError>> + Send + 'static,
    ) -> DecisionFuture {
        if !reports {
            return DecisionFuture::polled(call);
        }
        let report = Report::begin(Arc::clone(self));
        DecisionFuture::begun_here(async move {
            let _report = report;
            call.await
        })
    }

    /// The answer derived from the store's.
    fn after_store(
        self: &Arc<Self>,
        asks: &[Ask<'_>],
        each: &PartsOfEach,
        permits: CallPermits,
        result: Result<Decision, StoreError>,
    ) -> DecisionFuture {
        match result {
            Ok(decision) => {
                permits.succeeded();
                self.note_answer(asks, &decision);
                DecisionFuture::ready(Ok(decision))
            }
            Err(error) if error.may_succeed_later() => {
                self.counts.failed(&error);
                let failed = permits.failed(&error);
                // The report may have arrived, and is not sent twice.
                let is_safe = asks.iter().all(|ask| ask.mode().asks());
                self.decide_apart(asks, each, if is_safe { failed } else { u64::MAX }, error)
            }
            // A mistake in the program says nothing about the store.
            Err(error) => DecisionFuture::ready(Err(error)),
        }
    }

    /// Notes that the store has decided these asks.
    pub(super) fn note_answer(self: &Arc<Self>, asks: &[Ask<'_>], decision: &Decision) {
        self.fallback.keep_warm(asks, decision, &self.within);
        if self.fallback.debts.count() > 0 {
            self.settle();
        }
    }

    /// Decides the asks of available parts in the store, and the rest in the fallback.
    ///
    /// Whether a part is down may show only when permission to ask it is requested. So this repeats
    /// until all remaining parts permit it, or none is left.
    fn decide_apart(
        self: &Arc<Self>,
        asks: &[Ask<'_>],
        each: &PartsOfEach,
        mut away: u64,
        reason: StoreError,
    ) -> DecisionFuture {
        loop {
            let remote = union(each.iter().filter(|parts| **parts & away == 0));
            if remote == 0 {
                self.counts.decided_alone();
                return DecisionFuture::ready(self.decide_alone(asks, reason));
            }
            match self.parts.permits(remote) {
                (permits, 0) => {
                    self.counts.decided_alone();
                    let is_local = |place: usize| each[place] & away != 0;
                    return SplitCall::new(self, asks, is_local).decide(permits, reason);
                }
                (_, more) => away |= more,
            }
        }
    }

    /// Decides without the store, which could not answer for the reason given.
    pub(super) fn decide_alone(&self, asks: &[Ask<'_>], reason: StoreError) -> Result<Decision, StoreError> {
        let decision = self.fallback.decide(asks, reason, || self.outage())?;
        if decision.is_allowed() {
            self.fallback.note_spending(granted(asks, &decision), &self.within);
        }
        Ok(decision)
    }

    /// The time of an outage, and the wait of a request that is refused because of it.
    pub(super) fn outage(&self) -> (u64, std::time::Duration) {
        (self.clock.now_us(), self.parts.longest_pause())
    }
}

fn union<'a>(each: impl IntoIterator<Item = &'a u64>) -> u64 {
    each.into_iter().fold(0, |all, parts| all | parts)
}
