//! Joins and splits decisions when the asks of one request are decided apart.

use std::sync::Arc;

use smallvec::SmallVec;

use super::answer::Decision;
use super::answer::Details;
use super::outcome::deciding;
use super::receipts::{at_places, receipt_bit};
use super::status::QuotaStatus;
use crate::error::{StoreError, StoreErrorKind};
use crate::few::{few, sort_few};
use crate::receipt::{DecidedBy, Trace};

impl Decision {
    /// Moves the asks of this decision to these indices among the asks of a larger call. For stores around stores.
    pub fn of_asks(mut self, places: &[u8]) -> Self {
        // A decision of one ask may be shown as a decision of many.
        self.receipts = u16::MAX;
        if self.details.is_some() {
            let mut details = self.take_details();
            details.untraced = at_places(details.untraced, places);
            for moment in &mut details.moments {
                moment.ask = places.get(usize::from(moment.ask)).copied().unwrap_or(moment.ask);
            }
            for (ask, _) in &mut details.parts {
                *ask = places.get(usize::from(*ask)).copied().unwrap_or(*ask);
            }
            self.details = Some(Arc::new(details));
        }
        for status in &mut self.quotas {
            status.policy = places.get(status.policy_index()).copied().unwrap_or(status.policy);
        }
        self
    }

    /// Joins decisions about different asks of one call, each with the indices of its asks. For stores around stores.
    ///
    /// The time comes from the store if the store decided any of them. Uncounted decisions are left out beside counted ones,
    /// because they have no numbers.
    ///
    /// # Errors
    /// [`StoreErrorKind::NothingAsked`] if there are none.
    pub fn joined(pieces: impl IntoIterator<Item = (Self, impl AsRef<[u8]>)>) -> Result<Self, StoreError> {
        let pieces = pieces.into_iter().map(|(decision, places)| decision.of_asks(places.as_ref()));
        Self::joined_pieces(few(pieces))
    }

    fn joined_pieces(mut pieces: SmallVec<[Self; 2]>) -> Result<Self, StoreError> {
        let has_a_say = |piece: &Self| piece.is_counted() || !piece.is_allowed();
        if pieces.iter().any(has_a_say) {
            pieces.retain(|piece| has_a_say(piece));
        }
        let nothing = || StoreError::new(StoreErrorKind::NothingAsked);
        let by = pieces.iter().map(|piece| piece.by).max().ok_or_else(nothing)?;
        let of = |by| pieces.iter().filter(move |piece| piece.by == by);
        let spent_us = |by| of(by).map(Self::spent_us).max();
        let delay_us = pieces.iter().map(|piece| crate::clock::micros(piece.delay())).max().unwrap_or(0);
        let at_us = spent_us(DecidedBy::Store).or_else(|| spent_us(by)).unwrap_or(0).saturating_sub(delay_us);
        let bits = |piece: &Self| {
            piece.quotas.iter().fold(0, |bits, status| bits | receipt_bit(status.policy_index()))
        };
        let (mut lines, mut untraced) = (SmallVec::<[(QuotaStatus, Trace); 4]>::new(), 0);
        let (mut parts, mut moments) = (Vec::new(), SmallVec::new());
        for piece in &mut pieces {
            for of_ask in piece.quotas.chunk_by(|one, other| one.policy == other.policy) {
                let moment = piece.moment(of_ask[0].policy);
                if (moment.by, moment.at_us, moment.delay_us) != (by, at_us, delay_us) {
                    moments.push(moment);
                }
            }
            let Details { traces, parts: own, untraced: none, .. } = piece.take_details();
            parts.extend(own);
            untraced |= if traces.is_empty() { bits(piece) } else { none };
            for (index, status) in piece.quotas.iter().enumerate() {
                lines.push((*status, traces.get(index).copied().unwrap_or_default()));
            }
        }
        sort_few(&mut lines, |(status, _)| (status.policy_index(), status.quota_index()));
        let mut joined = Self::of(at_us, delay_us, lines.iter().map(|(status, _)| *status)).by(by);
        let traces = few(lines.into_iter().map(|(_, trace)| trace));
        joined.details = Some(Arc::new(Details { traces, untraced, moments, parts }));
        Ok(joined)
    }

    /// This decision with only its first `count` asks, at least one; the other asks were about the same
    /// buckets.
    pub fn of_first(mut self, count: usize) -> Self {
        if self.quotas.iter().all(|status| status.policy_index() < count) {
            return self;
        }
        // Traces are in the same order: the traces of the other asks come last, and nothing refers to them any more.
        self.quotas.retain(|status| status.policy_index() < count);
        self.deciding = deciding(self.outcome, &self.quotas);
        self
    }

    /// This decision with `units` more remaining in each quota of the ask at this index: units that another ask of the
    /// same call has taken for the same caller. For authors of stores.
    pub fn with_more(mut self, ask: usize, units: u64) -> Self {
        for status in self.quotas.iter_mut().filter(|status| status.policy_index() == ask) {
            let remaining = status.remaining().saturating_add(units).min(status.capacity());
            *status = status.with_remaining(remaining);
        }
        self.deciding = deciding(self.outcome, &self.quotas);
        self
    }

    /// Joins this decision, of `asks` asks, with the decision of another limiter on the same request:
    /// allowed if both allow, with the quotas of both; the tightest quota decides. The
    /// indices of `inner`'s asks follow the asks of this decision.
    pub fn merge(&self, asks: usize, inner: &Self) -> Self {
        let place = |status: &QuotaStatus| u8::try_from(status.policy_index() + asks).unwrap_or(u8::MAX);
        let shifted = inner.quotas.iter().map(|status| status.of_ask(place(status)));
        let delay_us = self.delay_us.saturating_add(inner.delay_us);
        let mut merged = Self::of(self.at_us, delay_us, self.quotas.iter().copied().chain(shifted));
        merged.receipts = 0;
        merged.has_come = self.has_come || inner.has_come;
        merged.by = self.by.max(inner.by);
        merged
    }
}
