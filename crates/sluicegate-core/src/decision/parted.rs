//! A decision in two parts: the turn that a request waits for, possibly decided anew in the end, and the asks that it keeps.

use std::sync::Arc;

use smallvec::SmallVec;

use super::answer::{Decision, Details};
use super::receipts::{at_places, receipt_bit};
use crate::receipt::DecidedBy;

/// The indices of asks.
pub(crate) type AskIndices = SmallVec<[u8; 4]>;

impl Decision {
    /// The decision about these asks, renumbered, and the decision about the others, if there are any.
    pub(crate) fn parted(mut self, asks: &[u8], others: &[u8]) -> (Self, Option<Self>) {
        let mut details = self.take_details();
        let says =
            |status: &super::QuotaStatus| others.iter().any(|ask| usize::from(*ask) == status.policy_index());
        let others = self.quotas.iter().any(says).then(|| self.of_these(others, &mut details));
        (self.of_these(asks, &mut details), others)
    }

    /// The decision about these asks. Takes their parts out of the details.
    fn of_these(&self, asks: &[u8], details: &mut Details) -> Self {
        let place =
            |ask: usize| (0_u8..).zip(asks).find(|(_, of)| usize::from(**of) == ask).map(|(place, _)| place);
        let moved = |bits: u16| {
            let kept = (0..).zip(asks).filter(|(_, ask)| bits & receipt_bit(usize::from(**ask)) != 0);
            kept.fold(0, |all, (place, _)| all | receipt_bit(place))
        };
        let of = self
            .quotas
            .iter()
            .enumerate()
            .filter_map(|(index, status)| Some((index, status.of_ask(place(status.policy_index())?))));
        let mut part = Self::of(self.at_us, self.delay_us, of.clone().map(|(_, status)| status)).by(self.by);
        part.has_come = self.has_come;
        part.receipts = moved(self.receipts);
        let traces = of.filter_map(|(index, _)| details.traces.get(index).copied()).collect();
        let (parts, others) =
            std::mem::take(&mut details.parts).into_iter().partition(|(ask, _)| asks.contains(ask));
        details.parts = others;
        let mut own = Details { traces, untraced: moved(details.untraced), fallback: None, parts };
        own.parts.iter_mut().for_each(|(ask, _)| *ask = place(usize::from(*ask)).unwrap_or(*ask));
        if let Some((by_fallback, fallback_us)) = details.fallback {
            let all = (0..asks.len()).fold(0, |all, place| all | receipt_bit(place));
            match moved(by_fallback) {
                0 => part.by = DecidedBy::Store,
                bits if bits == all => part.at_us = fallback_us.saturating_sub(self.delay_us),
                bits => own.fallback = Some((bits, fallback_us)),
            }
        }
        part.details = Some(Arc::new(own));
        part
    }

    /// This decision, with its asks at these places, joined with the decision about the turn at which its request proceeds in the end.
    pub(crate) fn at_turn(self, turn: Self, (own, asks): (&[u8], &[u8])) -> Self {
        let receipts = at_places(self.receipts, own) | at_places(turn.receipts, asks);
        let (at_us, delay_us) = match self.by == turn.by {
            true => (turn.at_us, turn.delay_us),
            // The turn was decided by another clock.
            false => (self.spent_us().saturating_sub(turn.delay_us), turn.delay_us),
        };
        let parts = [
            (turn, AskIndices::from_slice(asks)),
            (self.told_at(at_us, delay_us), AskIndices::from_slice(own)),
        ];
        let mut whole = Self::joined(parts).expect("there are two");
        whole.receipts = receipts;
        whole
    }

    /// This decision, at another moment.
    fn told_at(mut self, at_us: u64, delay_us: u64) -> Self {
        let moved = |after_us: u64| self.at_us.saturating_add(after_us).saturating_sub(at_us);
        for status in &mut self.quotas {
            status.balance.reset_after_us = moved(status.balance.reset_after_us);
            status.available_after_us = moved(status.available_after_us);
        }
        Self { at_us, delay_us, ..self }
    }
}
