//! The answer of a store: [`Decision`].
//!
//! It carries data about one request and holds nothing: dropping it neither spends nor gives back.
//! What was spent can be given back by its [receipt](Decision::take_receipt), once.

mod status;
#[cfg(test)]
mod tests;

use std::time::Duration;

use smallvec::SmallVec;

pub use self::status::QuotaStatus;
#[cfg(feature = "resilient")]
use crate::error::{StoreError, StoreErrorKind};
pub use crate::receipt::DecidedBy;
use crate::receipt::{Receipt, Trace};

/// What a limiter decided.
///
/// | | spent | worth a retry | over HTTP |
/// |---|---|---|---|
/// | [`Allowed`](Self::Allowed) | its cost | | the service's answer |
/// | [`Denied`](Self::Denied) | nothing | after [`retry_after`](Decision::retry_after) | 429 and `Retry-After` |
/// | [`Impossible`](Self::Impossible) | nothing | never with this cost | no `Retry-After` |
/// | [`Suspended`](Self::Suspended) | nothing | after [`retry_after`](Decision::retry_after) | `Retry-After` |
///
/// The order is that of strictness: of several quotas the greatest outcome counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It may go on, after [`Decision::delay`]; it has spent its cost.
    Allowed,
    /// It exceeds a quota now, and could pass after [`Decision::retry_after`]; it has spent nothing.
    Denied,
    /// Its cost is above what a quota ever lets pass at once; no wait helps, and it has spent nothing.
    Impossible,
    /// Its key is suspended, because it went on after many refusals: whatever it costs, it is refused until
    /// [`Decision::retry_after`] is over. It has spent nothing.
    Suspended,
}

/// The answer for one request: the outcome, and where each quota stands now.
///
/// The numbers on the decision itself are those of the quota that decided: the one that refuses
/// longest, or, when all allow, the one with the fewest units left. Waits are rounded up, remaining
/// units are rounded down: a client that follows them is never refused for having come too early.
///
/// | | of an allowed request | of a refused one |
/// |---|---|---|
/// | [`remaining`](Self::remaining) | after its cost was spent | as if it had not come |
/// | [`delay`](Self::delay) | how long to hold it back; zero unless the policy waits | zero |
/// | [`retry_after`](Self::retry_after) | none | the shortest wait for the same cost |
/// | [`reset_after`](Self::reset_after) | until the whole capacity is back | the same |
///
/// A clone says the same, and has no [receipt](Self::take_receipt): a cost is given back once.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::clock::ManualClock;
/// use sluicegate_core::{MemoryStore, Outcome, Policy};
///
/// let store = MemoryStore::builder().clock(ManualClock::new()).build()?;
/// let payment = Policy::gcra("payment", "100/min").and("2/10s").on(&store)?;
/// let check = |cost| payment.check_cost("ada", cost).now().expect("memory answers at once");
///
/// assert_eq!(check(2)?.remaining(), 0); // the tighter one speaks: 2 of 2 per 10 s
/// let denied = check(1)?;
/// assert_eq!((denied.outcome(), denied.capacity()), (Outcome::Denied, 2));
/// assert_eq!(denied.retry_after(), Some(Duration::from_secs(5)));
/// assert_eq!(denied.quotas()[0].remaining(), 98); // the other one has lost nothing by the refusal
///
/// let never = check(3)?;
/// assert_eq!((never.outcome(), never.retry_after()), (Outcome::Impossible, None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Decision {
    outcome: Outcome,
    deciding: u8,
    by: DecidedBy,
    /// Whether the numbers are those after the delay.
    has_come: bool,
    /// A bit per ask whose receipt was not taken; none in a clone.
    receipts: u16,
    details: Option<Box<Details>>,
    at_us: u64,
    delay_us: u64,
    quotas: Quotas,
}

/// Four quotas fit without an allocation; a request with more of them costs one.
type Quotas = SmallVec<[QuotaStatus; 4]>;

/// What a decision is given back by, beside the numbers.
#[derive(Debug, Default)]
struct Details {
    /// One per quota, or none.
    traces: SmallVec<[Trace; 1]>,
    /// A bit for each ask of which there is none although there are others.
    untraced: u16,
    /// A bit for each ask that the fallback decided beside the store, and when that was by its clock.
    fallback: Option<(u16, u64)>,
}

impl Clone for Decision {
    fn clone(&self) -> Self {
        Self { receipts: 0, details: None, quotas: self.quotas.clone(), ..*self }
    }
}

impl Decision {
    /// What follows from where these quotas stand.
    #[inline]
    pub(crate) fn of(at_us: u64, delay_us: u64, quotas: impl IntoIterator<Item = QuotaStatus>) -> Self {
        let mut decision = Self::empty(at_us, delay_us);
        for status in quotas {
            decision.outcome = decision.outcome.max(outcome(&status));
            decision.quotas.push(status);
        }
        assert!(!decision.quotas.is_empty(), "a decision is about at least one quota");
        if decision.quotas.len() > 1 {
            decision.deciding = deciding(decision.outcome, &decision.quotas);
        }
        decision
    }

    /// A decision over a single quota, without a loop.
    #[inline]
    pub(crate) fn single(at_us: u64, status: QuotaStatus) -> Self {
        let mut decision = Self::empty(at_us, 0);
        decision.outcome = outcome(&status);
        decision.quotas.push(status);
        decision
    }

    /// To be filled where it is: it is large, and copying it takes as long as a part of the decision.
    #[inline]
    fn empty(at_us: u64, delay_us: u64) -> Self {
        Self {
            outcome: Outcome::Allowed,
            deciding: 0,
            by: DecidedBy::Store,
            has_come: false,
            receipts: u16::MAX,
            details: None,
            at_us,
            delay_us,
            quotas: SmallVec::new(),
        }
    }

    /// The same, with what each quota's bucket was like before: one trace per quota. For authors of stores.
    #[must_use]
    pub fn with_traces(mut self, traces: impl IntoIterator<Item = Trace>) -> Self {
        self.details.get_or_insert_default().traces = traces.into_iter().collect();
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
        Some(Receipt::new(
            by,
            at_us,
            own().map(|(_, status)| status.spent()),
            own().filter_map(|(index, _)| traces.get(index).copied()),
        ))
    }

    /// This decision as it stands when its [delay](Self::delay) is over, if nothing else was decided: all waits are shorter.
    #[must_use]
    pub fn after_delay(mut self) -> Self {
        let by = if self.is_allowed() && !self.has_come { self.delay_us } else { 0 };
        for status in &mut self.quotas {
            status.reset_after_us = status.reset_after_us.saturating_sub(by);
            status.available_after_us = status.available_after_us.saturating_sub(by);
        }
        self.has_come = true;
        self
    }

    /// This decision, made by another than the store. For authors of stores.
    #[must_use]
    pub fn by(mut self, by: DecidedBy) -> Self {
        self.by = by;
        self
    }

    /// Who made it.
    pub fn decided_by(&self) -> DecidedBy {
        self.by
    }

    /// Whether somebody counted. Otherwise nothing was spent, and the numbers are those of rest.
    pub fn is_counted(&self) -> bool {
        !matches!(self.by, DecidedBy::Outage | DecidedBy::Off)
    }

    /// This decision, if its asks had stood at these places among others.
    pub(crate) fn of_asks(mut self, places: &[u8]) -> Self {
        // A decision of one ask may be shown as one of many.
        self.receipts = u16::MAX;
        if let Some(details) = self.details.as_deref_mut() {
            let moved = |bits: u16| {
                let of_bits = (0..).zip(places).filter(|(ask, _)| bits & receipt_bit(*ask) != 0);
                of_bits.fold(0, |all, (_, place)| all | receipt_bit(usize::from(*place)))
            };
            details.untraced = moved(details.untraced);
            details.fallback = details.fallback.map(|(bits, at_us)| (moved(bits), at_us));
        }
        for status in &mut self.quotas {
            status.policy = places.get(status.policy_index()).copied().unwrap_or(status.policy);
        }
        self
    }

    /// Decisions about different asks of one request as one, each with the places of its asks. Its time is the store's, if the
    /// store decided any of them. What passed uncounted has no numbers, and is left out beside what was counted.
    ///
    /// # Errors
    /// [`StoreErrorKind::NothingAsked`] when there are none.
    #[cfg(feature = "resilient")]
    pub(crate) fn joined(
        pieces: impl IntoIterator<Item = (Self, SmallVec<[u8; 4]>)>,
    ) -> Result<Self, StoreError> {
        let mut pieces: SmallVec<[Self; 2]> =
            pieces.into_iter().map(|(decision, places)| decision.of_asks(&places)).collect();
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
        let fallback = of(DecidedBy::Fallback).fold(0, |all, piece| all | bits(piece));
        let fallback = spent_us(DecidedBy::Fallback).map(|fallback_us| (fallback, fallback_us));
        let (mut lines, mut untraced) = (SmallVec::<[(QuotaStatus, Trace); 4]>::new(), 0);
        for piece in &pieces {
            let traces = piece.details.as_deref().map_or(&[][..], |details| &details.traces);
            untraced |= if traces.is_empty() { bits(piece) } else { 0 };
            let traces = traces.iter().copied().chain(std::iter::repeat(Trace::default()));
            lines.extend(piece.quotas.iter().copied().zip(traces));
        }
        lines.sort_by_key(|(status, _)| (status.policy_index(), status.quota_index()));
        let mut joined = Self::of(at_us, delay_us, lines.iter().map(|(status, _)| *status)).by(by);
        let traces = lines.into_iter().map(|(_, trace)| trace).collect();
        joined.details = Some(Box::new(Details { traces, untraced, fallback }));
        Ok(joined)
    }

    /// This decision, of its first `count` asks, of which there is at least one: where the others were about the same
    /// buckets.
    #[must_use]
    pub fn of_first(mut self, count: usize) -> Self {
        if self.quotas.iter().all(|status| status.policy_index() < count) {
            return self;
        }
        // Traces are in the same order: those of the others come last, and nothing names them any more.
        self.quotas.retain(|status| status.policy_index() < count);
        self.deciding = deciding(self.outcome, &self.quotas);
        self
    }

    /// This decision, of `asks` asks, and that of another limiter on the same request, as one:
    /// allowed if both allow, with the quotas of both, and the tightest of them deciding. The
    /// places of `inner`'s asks are moved behind those of this one.
    #[must_use]
    pub fn merge(&self, asks: usize, inner: &Self) -> Self {
        let place = |status: &QuotaStatus| u8::try_from(status.policy_index() + asks).unwrap_or(u8::MAX);
        let shifted = inner.quotas.iter().map(|status| status.of_ask(place(status)));
        let delay_us = self.delay_us.saturating_add(inner.delay_us);
        let mut merged = Self::of(self.at_us, delay_us, self.quotas.iter().copied().chain(shifted));
        merged.receipts = 0;
        merged.has_come = self.has_come || inner.has_come;
        merged.by = if self.by == DecidedBy::Store { inner.by } else { self.by };
        merged
    }

    /// What was decided.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the request may go on.
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.outcome == Outcome::Allowed
    }

    /// How long an allowed request has to wait before it goes on; zero unless its policy waits or shapes.
    ///
    /// The cost counts from then on. [`Turn`](crate::limiter::Turn) and the layers keep it; code
    /// that asks by [`check`](crate::RateLimiter::check) has to sleep that long itself.
    pub fn delay(&self) -> Duration {
        Duration::from_micros(if self.is_allowed() { self.delay_us } else { 0 })
    }

    /// When it was made, in microseconds of the store's clock.
    pub fn at_us(&self) -> u64 {
        self.at_us
    }

    /// When what an allowed request spent began to count, in microseconds of the store's clock.
    pub fn spent_us(&self) -> u64 {
        self.at_us.saturating_add(self.delay_us)
    }

    /// The moment at which its waits begin, since the epoch of the store's clock: when it was made, or when its
    /// [delay was over](Self::after_delay). For a moment to show, such as that of a reset, add the wait to it. A store that was
    /// given no other clock counts from the Unix epoch.
    pub fn stands_at(&self) -> Duration {
        let passed_us = if self.has_come && self.is_allowed() { self.delay_us } else { 0 };
        Duration::from_micros(self.at_us.saturating_add(passed_us))
    }

    /// Units that pass at once from rest: the limit of a window, the burst of a bucket.
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.deciding().capacity()
    }

    /// Units that would pass now.
    ///
    /// Rounded down: of 2.9 units, 2. A refused request has spent nothing, so there may be units
    /// left that were too few for it.
    #[inline]
    pub fn remaining(&self) -> u64 {
        self.deciding().remaining()
    }

    /// How long until the whole [`capacity`](Self::capacity) is back.
    ///
    /// Rounded up. Under buckets some units are back much earlier; the wait for a particular cost
    /// is [`retry_after`](Self::retry_after) of a refusal.
    #[inline]
    pub fn reset_after(&self) -> Duration {
        self.deciding().reset_after()
    }

    /// For a denied request, the shortest wait after which the same cost would pass if nothing else arrived.
    ///
    /// Exact: a request that comes after it and finds nobody before it passes, and one that comes a
    /// microsecond earlier does not. For a suspended key it is no sooner than its suspension is over. `None` for one that
    /// is allowed, and for a cost that can never pass.
    pub fn retry_after(&self) -> Option<Duration> {
        let waits = matches!(self.outcome, Outcome::Denied | Outcome::Suspended);
        waits.then(|| self.deciding().available_after())
    }

    /// Where the quota stands that decided, whose numbers the decision shows.
    #[inline]
    pub fn deciding(&self) -> &QuotaStatus {
        &self.quotas[usize::from(self.deciding)]
    }

    /// Where every quota stands, in the order of the asks and of the quotas in their policies.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let payment = Policy::gcra("payment", "100/h").and("5/min").on(&MemoryStore::new())?;
    /// let decision = payment.check("ada").now().expect("memory answers at once")?;
    /// let policy = payment.policy();
    /// let left: Vec<_> = decision
    ///     .quotas()
    ///     .iter()
    ///     .map(|status| format!("{}: {}", policy.quotas()[status.quota_index()].label(), status.remaining()))
    ///     .collect();
    /// assert_eq!(left, ["payment.1h: 99", "payment.1min: 4"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn quotas(&self) -> &[QuotaStatus] {
        &self.quotas
    }
}

/// What one quota alone would come to.
#[inline]
fn outcome(status: &QuotaStatus) -> Outcome {
    match (status.passed(), status.is_impossible(), status.is_suspended()) {
        (true, ..) => Outcome::Allowed,
        (false, false, false) => Outcome::Denied,
        (false, true, _) => Outcome::Impossible,
        (false, false, true) => Outcome::Suspended,
    }
}

/// The place of the tightest quota, which speaks for a decision.
fn deciding(outcome: Outcome, quotas: &[QuotaStatus]) -> u8 {
    let strictness = |status: &QuotaStatus| match outcome {
        Outcome::Allowed => (true, status.remaining(), u64::MAX - status.reset_after_us),
        // Whatever refuses longest, of a suspended key, too: it says when the request could pass.
        Outcome::Denied | Outcome::Suspended => {
            (status.passed(), u64::MAX - status.available_after_us, status.remaining())
        }
        Outcome::Impossible => (!status.is_impossible(), status.capacity(), 0),
    };
    let deciding = (0_u8..).zip(quotas).min_by_key(|(_, status)| strictness(status));
    deciding.map_or(0, |(index, _)| index)
}

fn receipt_bit(ask: usize) -> u16 {
    u32::try_from(ask).ok().and_then(|ask| 1_u16.checked_shl(ask)).unwrap_or(0)
}
