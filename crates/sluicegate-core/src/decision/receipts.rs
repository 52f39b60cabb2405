//! The receipts of a decision, one for each ask.

use std::sync::Arc;

#[cfg(feature = "tokio")]
use smallvec::SmallVec;

use super::answer::{AskMoment, Decision, Details};
use crate::few::few;
use crate::receipt::{Receipt, SpentPart, Trace};

impl Decision {
    /// This decision with one trace per quota: the state of its bucket before. For authors of stores.
    pub fn with_traces(mut self, traces: impl IntoIterator<Item = Trace>) -> Self {
        let details = Details { traces: few(traces), ..self.take_details() };
        self.details = Some(Arc::new(details));
        self
    }

    /// This decision with the spends of the places that have decided its asks, each with the index of its ask. For authors of stores that keep
    /// one bucket in several places; [`Receipt::part`] returns the place.
    ///
    /// ```
    /// use sluicegate_core::store::{QuotaStatus, SpentPart, judge};
    /// use sluicegate_core::{MemoryStore, Policy, RateLimiter};
    ///
    /// let store = MemoryStore::new();
    /// let whole = Policy::gcra("api", "10/min").build()?;
    /// let parts = whole.split([("api.1".to_owned(), 1), ("api.2".to_owned(), 1)])?;
    /// let second = RateLimiter::new(&store, parts[1].clone())?;
    /// let mut decided = second.check("ada").cost(2).now().expect("memory answers at once")?;
    /// let (policy, receipt) = (second.policy(), decided.take_receipt(0).expect("it has spent"));
    ///
    /// let status = QuotaStatus::at_rest((0, 0), 10).with_remaining(8).spending(2);
    /// let part = SpentPart { place: 1, policy, receipt };
    /// let mut decision = judge(decided.at_us(), 0, [status]).with_parts([(0, part)]);
    /// let receipt = decision.take_receipt(0).expect("it has spent");
    /// assert_eq!(receipt.part().map(|part| (part.place, part.receipt.cost())), Some((1, 2)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_parts(mut self, parts: impl IntoIterator<Item = (u8, SpentPart)>) -> Self {
        let details = Details { parts: parts.into_iter().collect(), ..self.take_details() };
        self.details = Some(Arc::new(details));
        self
    }

    /// This decision with the delays of single asks, by their indices and in microseconds: for asks that wait less long than the
    /// [request](Self::delay), or not at all, and count from then on. For authors of stores.
    pub fn with_delays(mut self, delays: impl IntoIterator<Item = (u8, u64)>) -> Self {
        let Self { by, at_us, delay_us: longest_us, .. } = self;
        let delays = delays.into_iter().filter(|(_, delay_us)| *delay_us != longest_us);
        let moments = few(delays.map(|(ask, delay_us)| AskMoment { ask, by, at_us, delay_us }));
        if !moments.is_empty() {
            self.details = Some(Arc::new(Details { moments, ..self.take_details() }));
        }
        self
    }

    /// The party that has decided this ask, and when.
    pub(super) fn moment(&self, ask: u8) -> AskMoment {
        let moments = self.details.as_deref().map_or(&[][..], |details| &details.moments);
        let of_ask = moments.iter().find(|moment| moment.ask == ask).copied();
        of_ask.unwrap_or(AskMoment { ask, by: self.by, at_us: self.at_us, delay_us: self.delay_us })
    }

    /// Whether the request waits for this ask.
    #[cfg(feature = "tokio")]
    pub(crate) fn delays(&self, ask: u8) -> bool {
        self.moment(ask).delay_us > 0
    }

    /// This decision, of a request that proceeds at this turn: its asks have spent the units of these receipts.
    #[cfg(feature = "tokio")]
    pub(crate) fn at_turn(
        mut self,
        spent_us: u64,
        turn: impl IntoIterator<Item = (u8, Option<Receipt>)>,
    ) -> Self {
        let asks =
            self.quotas.chunk_by(|one, other| one.policy == other.policy).map(|of_ask| of_ask[0].policy);
        let mut moments: SmallVec<[AskMoment; 1]> = few(asks.map(|ask| self.moment(ask)));
        let mut details = self.take_details();
        for (ask, receipt) in turn {
            let Some(receipt) = receipt else { continue };
            let own = (0..self.quotas.len()).filter(|index| self.quotas[*index].policy == ask);
            for (index, trace) in own.zip(&receipt.traces) {
                if let Some(own) = details.traces.get_mut(index) {
                    *own = *trace;
                }
            }
            for moment in moments.iter_mut().filter(|moment| moment.ask == ask) {
                *moment = AskMoment { ask, by: receipt.basis, at_us: receipt.at_us, delay_us: 0 };
            }
            details.parts.retain(|(of, _)| *of != ask);
            details.parts.extend(receipt.part.map(|part| (ask, *part)));
        }
        details.moments = moments;
        self.details = Some(Arc::new(details));
        self.delay_us = spent_us.saturating_sub(self.at_us);
        self
    }

    /// The receipt of the ask at this index, to give its spend back once. `None` if it has spent nothing, if the receipt was
    /// taken, and from a clone.
    ///
    /// For a decision of one limiter the index is 0, for a decision of
    /// [`check_all`](crate::limiter::check_all) the index of the limiter.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let tokens = Policy::gcra("tokens", "1000/h").refunds().on(&MemoryStore::new())?;
    /// let mut decision = tokens.check("ada").cost(800).now().expect("memory answers at once")?;
    /// let mut receipt = decision.take_receipt(0).expect("it was allowed");
    /// assert!(decision.take_receipt(0).is_none()); // once
    ///
    /// // The answer took only 300.
    /// tokens.refund("ada", 500).of(&mut receipt).now().expect("memory answers at once")?;
    /// assert_eq!(tokens.peek("ada").now().expect("memory answers at once")?.remaining(), 700);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_receipt(&mut self, ask: usize) -> Option<Receipt> {
        let receipt = self.receipt(ask)?;
        self.receipts &= !receipt_bit(ask);
        Some(receipt)
    }

    /// This decision without receipts, so that none of it can be given back.
    pub(crate) fn without_receipts(self) -> Self {
        Self { receipts: 0, ..self }
    }

    /// A copy of the receipt that can be [taken](Self::take_receipt). Only one of the two may be used to give anything back. For stores
    /// around stores.
    pub fn receipt(&self, ask: usize) -> Option<Receipt> {
        if !self.is_allowed() || self.receipts & receipt_bit(ask) == 0 {
            return None;
        }
        let own = || self.quotas.iter().enumerate().filter(|(_, status)| status.policy_index() == ask);
        if own().all(|(_, status)| status.spent == 0) {
            return None;
        }
        let bit = receipt_bit(ask);
        let details = self.details.as_deref();
        let traced = details.filter(|details| details.untraced & bit == 0);
        let traces = traced.map_or(&[][..], |details| &details.traces);
        let AskMoment { by, at_us, delay_us, .. } = self.moment(u8::try_from(ask).unwrap_or(u8::MAX));
        let parts = details.map_or(&[][..], |details| &details.parts);
        let part = parts.iter().find(|(of, _)| usize::from(*of) == ask);
        let receipt = Receipt::new(
            by,
            at_us.saturating_add(delay_us),
            own().map(|(_, status)| status.spent()),
            own().filter_map(|(index, _)| traces.get(index).copied()),
        );
        Some(receipt.with_part(part.map(|(_, part)| part.copied())))
    }
}

/// The bits of the asks at these indices among the asks of a larger call.
pub(super) fn at_places(bits: u16, places: &[u8]) -> u16 {
    let kept = (0..).zip(places).filter(|(ask, _)| bits & receipt_bit(*ask) != 0);
    kept.fold(0, |all, (_, place)| all | receipt_bit(usize::from(*place)))
}

pub(super) fn receipt_bit(ask: usize) -> u16 {
    u32::try_from(ask).ok().and_then(|ask| 1_u16.checked_shl(ask)).unwrap_or(0)
}
