//! Decides a call: by the store if all parts that it needs may be asked, otherwise by the fallback.
//!
//! 1. Reports about turns that the fallback gave go to the fallback.
//! 2. Reports for several parts are made one by one: a part that is down must not prevent the others from getting theirs.
//! 3. The store decides. Its failure counts for the breaker of the part that it names, and the fallback decides the call as a whole. What
//!    it spends is owed to each part, and parts that answer are charged at once.
//!
//! Reports are finished even if no caller waits for them, so that a client that
//! hangs up does not undo a charge.

use std::sync::Arc;

use sluicegate_core::Decision;
use sluicegate_core::algorithm::Inherit;
use sluicegate_core::error::{ConfigError, StoreError, StoreErrorKind};
use sluicegate_core::policy::Policy;
use sluicegate_core::store::{Ask, DecisionFuture, Mode, Notice, Place, StoreStatus};
use sluicegate_core::wrap::{OwnedAsk, Within, Wrap, ask_at_once};
use smallvec::SmallVec;

use super::fallback::{granted, is_its};
use super::parts::CallPermits;
use super::settle::{Report, is_owed_on};
use super::share::FallbackShare;
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

    fn hear(&self, notice: &Notice<'_>) {
        match *notice {
            Notice::Listener(listener) => self.0.parts.listeners.add(Arc::clone(listener)),
            Notice::Replaced { old, new, inherit } => {
                self.0.fallback.debts.hand_over(old, new, inherit);
                if let Ok(share) = self.0.within.own(new) {
                    share.begin(new);
                }
            }
            _ => (),
        }
    }

    fn report(&self, status: &mut StoreStatus) {
        status.resilient = Some(self.0.status());
        if status.memory.is_none() {
            let StoreStatus { memory, quotas, .. } = self.0.fallback.status();
            (status.memory, status.quotas) = (memory, quotas);
        }
    }
}

impl ResilientState {
    pub(super) fn decide(self: &Arc<Self>, asks: &[Ask<'_>]) -> DecisionFuture {
        // Reports about a turn go to the store that gave it.
        let is_own_turn = |ask: &Ask<'_>| ask.mode() == Mode::Return && is_its(ask);
        if !asks.is_empty() && asks.iter().all(is_own_turn) {
            let reason = StoreError::new(StoreErrorKind::Unavailable);
            return DecisionFuture::ready(self.decide_alone(asks, reason));
        }
        let parts_of = |ask: &Ask<'_>| self.within.parts(std::slice::from_ref(ask));
        let is_report = |ask: &Ask<'_>| !ask.mode().asks() && ask.mode() != Mode::Return;
        if asks.iter().all(is_report) && asks.windows(2).any(|two| parts_of(&two[0]) != parts_of(&two[1])) {
            return self.report_each(asks);
        }
        let (permits, away) = self.parts.permits(self.within.parts(asks));
        if away == 0 {
            return self.ask_store(asks, permits);
        }
        drop(permits);
        let reason = "it has failed too often, and is left alone for a moment";
        let reason = StoreError::with_source(StoreErrorKind::Unavailable, reason);
        DecisionFuture::ready(self.decide_in_outage(asks, away, reason))
    }

    /// Makes each report on its own. It waits for all answers, also after an error, which says nothing about the other reports.
    fn report_each(self: &Arc<Self>, asks: &[Ask<'_>]) -> DecisionFuture {
        let answers: Vec<_> = (0_u8..).zip(asks).map(|(index, ask)| (index, self.decide(&[*ask]))).collect();
        DecisionFuture::polled(async {
            let parts = ask_at_once(answers).await?;
            Decision::joined(parts.into_iter().map(|(index, decision)| (decision, [index])))
        })
    }

    /// Asks the store. The outcome of a report is noted, with the store or without, even if its caller has gone.
    fn ask_store(self: &Arc<Self>, asks: &[Ask<'_>], permits: CallPermits) -> DecisionFuture {
        // The store does not know the spends of the fallback: the debt is deducted when it has answered.
        let known = asks.iter().map(|ask| match ask.mode() {
            _ if is_its(ask) => ask.plainly(Mode::Refund).with_costs(&[0]),
            Mode::Charge => ask.repeated(),
            _ => *ask,
        });
        let answer = self.within.decide(&known.collect::<SmallVec<[Ask<'_>; 4]>>());
        let reports = asks.iter().any(|ask| !ask.mode().asks());
        let asks: SmallVec<[OwnedAsk; 1]> = asks.iter().map(OwnedAsk::new).collect();
        let state = Arc::clone(self);
        let call = async move {
            let result = state.deadline.keep(answer).await;
            let asks: SmallVec<[Ask<'_>; 4]> = asks.iter().map(OwnedAsk::ask).collect();
            state.after_store(&asks, permits, result)
        };
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
        permits: CallPermits,
        result: Result<Decision, StoreError>,
    ) -> Result<Decision, StoreError> {
        match result {
            Ok(decision) => {
                permits.succeeded();
                self.fallback.keep_warm(asks, &decision, &self.within);
                if self.fallback.debts.count() > 0 {
                    self.settle();
                }
                Ok(decision)
            }
            Err(error) if error.may_succeed_later() => {
                self.counts.failed(&error);
                let failed = permits.failed(&error);
                self.decide_in_outage(asks, failed, error)
            }
            // A mistake in the program says nothing about the store.
            Err(error) => Err(error),
        }
    }

    /// Decides a request that needs parts which are `away`, for the reason given. Its other parts learn at once what it spends.
    fn decide_in_outage(
        self: &Arc<Self>,
        asks: &[Ask<'_>],
        away: u64,
        reason: StoreError,
    ) -> Result<Decision, StoreError> {
        self.counts.decided_alone();
        let decision = self.decide_alone(asks, reason)?;
        if asks.iter().any(|ask| self.within.parts(&[*ask]) & away == 0) && self.fallback.debts.count() > 0 {
            self.settle();
        }
        Ok(decision)
    }

    /// Decides without the store, which could not answer for the reason given.
    fn decide_alone(&self, asks: &[Ask<'_>], reason: StoreError) -> Result<Decision, StoreError> {
        let outage = || (self.clock.now_us(), self.parts.longest_pause());
        // What arrives after its deadline is not carried out, unless units are given back.
        let expires = |ask: &Ask<'_>| ask.mode().asks() || ask.mode() == Mode::Charge;
        let may_arrive = !asks.iter().all(expires) && !is_owed_on(&reason);
        let decision = self.fallback.decide(asks, reason, outage)?;
        if decision.is_allowed() {
            self.fallback.note_spending(granted(asks, &decision), may_arrive, &self.within);
        }
        Ok(decision)
    }
}
