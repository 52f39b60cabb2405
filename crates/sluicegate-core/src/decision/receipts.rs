//! What a decision is given back by: a receipt for each ask.

use super::answer::Decision;
use crate::receipt::{DecidedBy, Receipt, Trace};

impl Decision {
    /// The same, with what each quota's bucket was like before: one trace per quota. For authors of stores.
    #[must_use]
    pub fn with_traces(mut self, traces: impl IntoIterator<Item = Trace>) -> Self {
        self.details.get_or_insert_default().traces = traces.into_iter().collect();
        self
    }

    /// The same, where several places have decided an ask together: the place of the ask, that of what has spent a piece of it,
    /// and the receipt of that. For authors of stores that keep one bucket in several places, who find them again by
    /// [`Receipt::pieces_of`].
    ///
    /// ```
    /// use sluicegate_core::store::{QuotaStatus, judge};
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let check = |name: &str, cost| -> Result<_, Box<dyn std::error::Error>> {
    ///     let part = Policy::gcra(name, "5/min").on(&MemoryStore::new())?;
    ///     Ok(part.check_cost("ada", cost).now().expect("memory answers at once")?)
    /// };
    /// let (mut first, mut second) = (check("api.1", 5)?, check("api.2", 2)?);
    /// let pieces = [(0, 0, first.take_receipt(0)), (0, 1, second.take_receipt(0))];
    /// let pieces = pieces.into_iter().filter_map(|(ask, place, receipt)| Some((ask, place, receipt?)));
    ///
    /// let status = QuotaStatus::at_rest((0, 0), 10).with_remaining(3).spending(7);
    /// let mut whole = judge(first.at_us(), 0, [status]).with_pieces(pieces);
    /// let receipt = whole.take_receipt(0).expect("it has spent");
    /// let given: Vec<_> = receipt.pieces_of(6).map(|(place, _, units)| (place, units[0])).collect();
    /// assert_eq!(given, [(0, 5), (1, 1)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_pieces(mut self, pieces: impl IntoIterator<Item = (u8, u8, Receipt)>) -> Self {
        self.details.get_or_insert_default().pieces = pieces.into_iter().collect();
        self
    }

    /// What the ask at this place has spent, to give it back; once. `None` if it has spent nothing, if the receipt was
    /// taken, and from a clone.
    ///
    /// For a decision of one limiter the place is 0, for one of
    /// [`check_all`](crate::RateLimiter::check_all) that of the limiter.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let tokens = Policy::gcra("tokens", "1000/h").refunds().on(&MemoryStore::new())?;
    /// let mut decision = tokens.check_cost("ada", 800).now().expect("memory answers at once")?;
    /// let mut receipt = decision.take_receipt(0).expect("it was allowed");
    /// assert!(decision.take_receipt(0).is_none()); // once
    ///
    /// // The answer took 300 only.
    /// tokens.refund_of(&mut receipt, "ada", 500).now().expect("memory answers at once")?;
    /// assert_eq!(tokens.peek("ada").now().expect("memory answers at once")?.remaining(), 700);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_receipt(&mut self, ask: usize) -> Option<Receipt> {
        let receipt = self.receipt(ask)?;
        self.receipts &= !receipt_bit(ask);
        Some(receipt)
    }

    /// The receipt that can be taken. Only one of the two may be used to give anything back.
    pub(crate) fn receipt(&self, ask: usize) -> Option<Receipt> {
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
        let (by, at_us) = match details.and_then(|details| details.fallback) {
            Some((asks, at_us)) if asks & bit != 0 => (DecidedBy::Fallback, at_us),
            Some(_) => (DecidedBy::Store, self.spent_us()),
            None => (self.by, self.spent_us()),
        };
        let pieces = details.map_or(&[][..], |details| &details.pieces);
        let pieces = pieces.iter().filter(|(of, ..)| usize::from(*of) == ask);
        let receipt = Receipt::new(
            by,
            at_us,
            own().map(|(_, status)| status.spent()),
            own().filter_map(|(index, _)| traces.get(index).copied()),
        );
        Some(receipt.with_pieces(pieces.map(|(_, place, piece)| (*place, piece.copied())).collect()))
    }
}

pub(super) fn receipt_bit(ask: usize) -> u16 {
    u32::try_from(ask).ok().and_then(|ask| 1_u16.checked_shl(ask)).unwrap_or(0)
}
