//! A call that is decided in two places: by the store for the parts that are asked, and by the fallback for the others.
//!
//! All asks pass, or none does. The fallback is asked first, because it is local: its spends can be given back at once when
//! the store refuses. It lets no request wait, so the store counts when the request proceeds.

use std::sync::Arc;

use sluicegate_core::Decision;
use sluicegate_core::clock::micros;
use sluicegate_core::error::StoreError;
use sluicegate_core::store::QuotaStatus;
use sluicegate_core::store::{Ask, DecisionFuture, Mode, judge};
use sluicegate_core::wrap::OwnedAsk;
use smallvec::SmallVec;

use super::ResilientState;
use super::fallback::{granted, must_be_known};
use super::parts::CallPermits;
use super::reports::AskPlaces;

/// A call that both decide.
///
/// # Invariants
/// - Spends of the fallback are given back, owed, or finally spent: exactly one of the three, whatever
///   happens to the future.
/// - The store is asked to spend only if the fallback lets the request pass; otherwise it only gets a
///   peek.
/// - Reports are made only for a request that proceeds.
pub(super) struct SplitCall {
    state: Arc<ResilientState>,
    /// Asks of parts that are down, with their indexes.
    local: Side,
    /// Asks of the other parts.
    remote: Side,
    /// Spends of the fallback that are not recorded yet.
    spent: Vec<OwnedAsk>,
}

#[derive(Default)]
struct Side {
    places: AskPlaces,
    asks: Vec<OwnedAsk>,
}

impl Side {
    fn push(&mut self, place: u8, ask: &Ask<'_>) {
        self.places.push(place);
        self.asks.push(OwnedAsk::new(ask));
    }

    /// These asks, with their places.
    fn which(&self, is_asked: impl Fn(&Ask<'_>) -> bool) -> (SmallVec<[Ask<'_>; 4]>, AskPlaces) {
        let each = self.asks.iter().map(OwnedAsk::ask).zip(self.places.iter().copied());
        each.filter(|(ask, _)| is_asked(ask)).unzip()
    }
}

impl SplitCall {
    pub(super) fn new(
        state: &Arc<ResilientState>,
        asks: &[Ask<'_>],
        is_local: impl Fn(usize) -> bool,
    ) -> Self {
        let (mut local, mut remote) = (Side::default(), Side::default());
        for (place, ask) in (0_u8..).zip(asks) {
            let side = if is_local(usize::from(place)) { &mut local } else { &mut remote };
            side.push(place, ask);
        }
        Self { state: Arc::clone(state), local, remote, spent: Vec::new() }
    }

    /// Decides all asks; `reason` tells why some parts cannot be asked.
    pub(super) fn decide(mut self, permits: CallPermits, reason: StoreError) -> DecisionFuture {
        if self.local.asks.iter().any(|ask| must_be_known(&ask.ask())) {
            return DecisionFuture::ready(Err(reason));
        }
        let local = match self.decide_local(reason) {
            Ok(local) => local,
            Err(error) => return DecisionFuture::ready(Err(error)),
        };
        let goes_on = local.as_ref().is_none_or(|(decision, _)| decision.is_allowed());
        if let (true, Some((decision, _))) = (goes_on, &local) {
            let (asks, _) = self.local.which(|ask| ask.mode().asks());
            self.spent = granted(&asks, decision).map(|ask| OwnedAsk::new(&ask)).collect();
        }
        let (remote, places) = self.remote.which(|ask| goes_on || ask.mode().asks());
        if remote.is_empty() {
            // Only reports are left, which are not made for a refused request.
            return DecisionFuture::ready(Decision::joined(local));
        }
        let asks = remote.iter().map(|ask| if goes_on { *ask } else { ask.looking() });
        let answer = self.state.within_store(asks);
        let reports = remote.iter().any(|ask| !ask.mode().asks());
        drop(remote);
        let state = Arc::clone(&self.state);
        state.clone().carry_out(reports, async move {
            let result = state.deadline.keep(answer).await;
            self.after_store(local, places, permits, result)
        })
    }

    /// The fallback's answer to the asks of the parts that are down, if it has one.
    fn decide_local(&self, reason: StoreError) -> Result<Option<PlacedDecision>, StoreError> {
        let (asks, places) = self.local.which(|ask| ask.mode().asks());
        if asks.is_empty() {
            return Ok(None);
        }
        let asks: SmallVec<[Ask<'_>; 4]> = asks
            .into_iter()
            .map(
                |ask| if matches!(ask.mode(), Mode::Reserve { .. }) { ask.in_mode(Mode::Spend) } else { ask },
            )
            .collect();
        let decision = self.state.fallback.decide(&asks, reason, || self.state.outage())?;
        let delay = decision.delay();
        if !delay.is_zero() {
            // A queue spaces the requests that it lets through.
            let decision = self.give_back(decision, Mode::Return);
            let refused = |status: QuotaStatus| status.refused_for_us(micros(delay));
            return Ok(decision.map(|(decision, places)| (restated(&decision, refused), places)));
        }
        Ok(Some((decision, places)))
    }

    /// The answer to the whole request, when the store has answered about its asks in these places.
    fn after_store(
        mut self,
        local: Option<PlacedDecision>,
        places: AskPlaces,
        permits: CallPermits,
        result: Result<Decision, StoreError>,
    ) -> Result<Decision, StoreError> {
        let spent = std::mem::take(&mut self.spent);
        let goes_on = local.as_ref().is_none_or(|(decision, _)| decision.is_allowed());
        let undone = |local: Option<PlacedDecision>| {
            let (decision, places) = local?;
            match decision.is_allowed() {
                true => self.give_back(decision, Mode::Refund),
                false => Some((decision, places)),
            }
        };
        match result {
            Ok(remote) if goes_on && remote.is_allowed() => {
                permits.succeeded();
                let (asks, _) = self.remote.which(|_| true);
                self.state.note_answer(&asks, &remote);
                let reported = self.report_mine(&spent);
                let pieces = [local, reported, Some((remote, places))];
                Decision::joined(pieces.into_iter().flatten())
            }
            Ok(remote) => {
                permits.succeeded();
                let (asks, _) = self.remote.which(|ask| ask.mode().asks());
                let remote =
                    if goes_on { remote } else { restated(&remote, |status| as_asked(status, &asks)) };
                Decision::joined([undone(local), Some((remote, places))].into_iter().flatten())
            }
            Err(error) if error.may_succeed_later() => {
                self.state.counts.failed(&error);
                permits.failed(&error);
                drop(undone(local));
                let mut all = self.local.which(|_| true);
                let remote = self.remote.which(|_| true);
                all.0.extend(remote.0);
                all.1.extend(remote.1);
                let decision = self.state.decide_alone(&all.0, error)?;
                Decision::joined([(decision, all.1)])
            }
            Err(error) => {
                drop(undone(local));
                Err(error)
            }
        }
    }

    /// The fallback's asks have passed: notes their spends as owed, and decides its reports.
    fn report_mine(&self, spent: &[OwnedAsk]) -> Option<PlacedDecision> {
        self.note(spent);
        let (reports, places) = self.local.which(|ask| !ask.mode().asks());
        if reports.is_empty() {
            return None;
        }
        Some((self.state.decide_alone(&reports, unasked()).ok()?, places))
    }

    /// Notes spends of the fallback as owed.
    fn note(&self, spent: &[OwnedAsk]) {
        self.state.fallback.note_spending(spent.iter().map(OwnedAsk::ask), &self.state.within);
    }

    /// Gives back the units that the fallback has spent, and returns the state of its keys after that.
    fn give_back(&self, decision: Decision, how: Mode) -> Option<PlacedDecision> {
        let (asks, places) = self.local.which(|ask| ask.mode().asks());
        let receipts: SmallVec<[_; 4]> = (0..asks.len()).map(|ask| decision.receipt(ask)).collect();
        let asks: SmallVec<[Ask<'_>; 4]> = asks
            .iter()
            .zip(&receipts)
            .map(|(ask, receipt)| match receipt {
                Some(receipt) => ask.in_mode(how).of(receipt),
                None => ask.in_mode(Mode::Refund).with_costs(&[0]),
            })
            .collect();
        let decision = self.state.fallback.decide(&asks, unasked(), || self.state.outage()).ok()?;
        Some((decision, places))
    }
}

impl Drop for SplitCall {
    fn drop(&mut self) {
        // If the caller has gone, the fallback's spends stay spent.
        self.note(&self.spent);
    }
}

/// A decision about some of the asks, with their places.
type PlacedDecision = (Decision, AskPlaces);

/// A placeholder that is not shown: no store was asked.
fn unasked() -> StoreError {
    StoreError::new(sluicegate_core::error::StoreErrorKind::NothingAsked)
}

/// The decision with the status of each quota changed.
fn restated(decision: &Decision, how: impl Fn(QuotaStatus) -> QuotaStatus) -> Decision {
    judge(decision.at_us(), 0, decision.quotas().iter().copied().map(how)).by(decision.decided_by())
}

/// The status of a peek, restated for an ask that would wait.
fn as_asked(status: QuotaStatus, asks: &[Ask<'_>]) -> QuotaStatus {
    match asks.get(status.policy_index()).map(Ask::mode) {
        Some(Mode::Reserve { longest }) if !status.is_impossible() && status.available_after() <= longest => {
            status.with_more_after_us(micros(status.available_after()))
        }
        _ => status,
    }
}
