//! The answer for one request: [`Decision`].
//!
//! Decisions of asks that were decided apart are joined; each ask keeps its receipt.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::status::{Outcome, QuotaStatus, deciding};
use crate::error::{StoreError, StoreErrorKind};
use crate::few::{few, sort_few};
use crate::receipt::{DecidedBy, Receipt, SpentPart, Trace};

/// The answer for one request: the outcome, and the current status of each quota.
///
/// The numbers on the decision itself come from the quota that decided: the one that refuses
/// longest, or, when all allow, the one with the fewest units left. Waits are rounded up, remaining
/// units are rounded down: a client that follows them never comes too early.
///
/// | | of an allowed request | of a refused one |
/// |---|---|---|
/// | [`remaining`](Self::remaining) | after its cost was spent | as if it had not arrived |
/// | [`delay`](Self::delay) | the time to hold it back; zero unless the policy waits | zero |
/// | [`retry_after`](Self::retry_after) | none | the shortest wait for the same cost |
/// | [`reset_after`](Self::reset_after) | until the whole capacity is back | the same |
///
/// A clone has the same numbers and no [receipt](Self::take_receipt): a cost is given back once.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::clock::ManualClock;
/// use sluicegate_core::{MemoryStore, Outcome, Policy};
///
/// let store = MemoryStore::builder().clock(ManualClock::new()).build()?;
/// let payment = Policy::gcra("payment", "100/min").and("2/10s").on(&store)?;
/// let check = |cost| payment.check("ada").cost(cost).now().expect("memory answers at once");
///
/// assert_eq!(check(2)?.remaining(), 0); // the tighter quota decides: 2 of 2 per 10 s
/// let denied = check(1)?;
/// assert_eq!((denied.outcome(), denied.capacity()), (Outcome::Denied, 2));
/// assert_eq!(denied.retry_after(), Some(Duration::from_secs(5)));
/// assert_eq!(denied.quotas()[0].remaining(), 98); // the refusal has spent nothing from the other quota
///
/// let never = check(3)?;
/// assert_eq!((never.outcome(), never.retry_after()), (Outcome::Impossible, None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a decision says whether the request may go on, and what is left"]
#[derive(Debug)]
pub struct Decision {
    pub(super) outcome: Outcome,
    pub(super) deciding: u8,
    pub(super) by: DecidedBy,
    /// Whether the numbers describe the time after the delay.
    pub(super) has_come: bool,
    /// A bit per ask with a receipt that was not taken; none in a clone.
    pub(super) receipts: u16,
    /// In an `Arc` that is never shared: dropping `None` needs a comparison, and in a `Box` it would need a call.
    pub(super) details: Option<Arc<Details>>,
    pub(super) at_us: u64,
    pub(super) delay_us: u64,
    pub(super) quotas: QuotaStatuses,
}

/// Four quotas fit without an allocation; a request with more of them costs one.
type QuotaStatuses = SmallVec<[QuotaStatus; 4]>;

/// The data needed to give back a decision, apart from the numbers.
#[derive(Debug, Default)]
pub(super) struct Details {
    /// One trace per quota, or none.
    pub(super) traces: SmallVec<[Trace; 1]>,
    /// A bit for each ask without a trace, when other asks have one.
    pub(super) untraced: u16,
    /// The asks that another party has decided, or that count from another moment, than the decision says.
    pub(super) moments: SmallVec<[AskMoment; 1]>,
    /// The spends of the places that have decided asks about buckets in several places, each with the index of its ask.
    pub(super) parts: Vec<(u8, SpentPart)>,
}

/// The party that has decided an ask, when by that party's clock, and the time after which the cost of the ask counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AskMoment {
    pub(super) ask: u8,
    pub(super) by: DecidedBy,
    pub(super) at_us: u64,
    pub(super) delay_us: u64,
}

/// The decision of a [short way](crate::store::ShortWay): its moment and the status of its only quota, in a third of the words of a
/// [`Decision`], which is made [from](Decision::from) it once someone needs one.
#[must_use = "it says whether the request may go on, and may have spent"]
#[derive(Debug)]
pub struct ShortAnswer {
    at_us: u64,
    status: QuotaStatus,
    by: DecidedBy,
    trace: Option<Trace>,
}

impl ShortAnswer {
    /// The status of the quota at this moment, in microseconds of the store's clock.
    pub fn new(at_us: u64, status: QuotaStatus) -> Self {
        Self { at_us, status, by: DecidedBy::Store, trace: None }
    }

    /// This answer, by that part of the service in place of the store that keeps the state.
    pub fn by(self, by: DecidedBy) -> Self {
        Self { by, ..self }
    }

    /// This answer, with the state of its bucket before.
    pub(crate) fn with_trace(self, trace: Trace) -> Self {
        Self { trace: Some(trace), ..self }
    }

    /// The time of the decision, in microseconds of the store's clock.
    pub fn at_us(&self) -> u64 {
        self.at_us
    }

    /// The status of the quota.
    pub fn status(&self) -> &QuotaStatus {
        &self.status
    }

    /// The decision without a [receipt](Decision::take_receipt), which stays here.
    #[inline]
    pub fn numbers(&self) -> Decision {
        let mut decision = Decision::single(self.at_us, self.status);
        decision.by = self.by;
        decision.receipts = 0;
        decision
    }
}

impl From<ShortAnswer> for Decision {
    #[inline]
    fn from(answer: ShortAnswer) -> Self {
        // Before the decision is made: it would be copied after an allocation.
        let details = answer.trace.map(|trace| Details { traces: few([trace]), ..Details::default() });
        let details = details.map(Arc::new);
        let mut decision = Self::single(answer.at_us, answer.status);
        (decision.by, decision.details) = (answer.by, details);
        decision
    }
}

impl Clone for Decision {
    #[inline]
    fn clone(&self) -> Self {
        let mut clone = Self::empty(self.at_us, self.delay_us);
        clone.outcome = self.outcome;
        clone.deciding = self.deciding;
        clone.by = self.by;
        clone.has_come = self.has_come;
        clone.receipts = 0;
        // In a loop: there is almost always one status, and copying a slice takes longer.
        for status in &self.quotas {
            clone.quotas.push(*status);
        }
        clone
    }
}

impl Decision {
    /// The decision that follows from the statuses of these quotas.
    #[inline]
    pub(crate) fn of(at_us: u64, delay_us: u64, quotas: impl IntoIterator<Item = QuotaStatus>) -> Self {
        let mut decision = Self::empty(at_us, delay_us);
        for status in quotas {
            decision.outcome = decision.outcome.max(status.outcome());
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
        decision.outcome = status.outcome();
        decision.quotas.push(status);
        decision
    }

    /// A decision to be filled in place: it is large, and copying takes a noticeable part of the time of a decision.
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

    /// Moves the details out of the decision.
    pub(super) fn take_details(&mut self) -> Details {
        self.details.take().and_then(Arc::into_inner).unwrap_or_default()
    }

    /// This decision after its [delay](Self::delay), if nothing else was decided: all waits are shorter.
    pub fn after_delay(mut self) -> Self {
        let by = if self.is_allowed() && !self.has_come { self.delay_us } else { 0 };
        for status in &mut self.quotas {
            let resets_us = &mut status.balance.reset_after_us;
            *resets_us = resets_us.saturating_sub(by);
            status.available_after_us = status.available_after_us.saturating_sub(by);
        }
        self.has_come = true;
        self
    }

    /// This decision, but decided by another party than the store. For authors of stores.
    pub fn by(mut self, by: DecidedBy) -> Self {
        self.by = by;
        self
    }

    /// The party that made the decision: store, lease, cache or fallback, or none of them.
    pub fn decided_by(&self) -> DecidedBy {
        self.by
    }

    /// Whether the request was counted. Otherwise nothing was spent, and the numbers are those of a key at rest.
    pub fn is_counted(&self) -> bool {
        !matches!(self.by, DecidedBy::Outage | DecidedBy::Off)
    }

    /// The units that were spent: the whole cost, or the available units for a check [`up_to`](crate::limiter::Check::up_to) a number;
    /// 0 for a refused request. `None` if the request was not counted, and all of the cost may be used.
    ///
    /// With several quotas and policies, the fewest units that any of them has spent.
    pub fn granted(&self) -> Option<u64> {
        if !self.is_allowed() {
            return Some(0);
        }
        self.is_counted().then(|| self.quotas.iter().map(QuotaStatus::spent).min().unwrap_or(0))
    }

    /// The outcome.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the request may proceed.
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.outcome == Outcome::Allowed
    }

    /// The time that an allowed request has to wait before it proceeds; zero unless its policy waits or shapes.
    ///
    /// The cost counts from the end of the delay. [`Turn`](crate::limiter::Turn) and the layers wait that
    /// long; code that calls [`check`](crate::RateLimiter::check) has to sleep itself.
    pub fn delay(&self) -> Duration {
        Duration::from_micros(if self.is_allowed() { self.delay_us } else { 0 })
    }

    /// The time of the decision, in microseconds of the store's clock.
    pub fn at_us(&self) -> u64 {
        self.at_us
    }

    /// The time from which the cost of an allowed request counts, in microseconds of the store's clock.
    pub fn spent_us(&self) -> u64 {
        self.at_us.saturating_add(self.delay_us)
    }

    /// The moment from which the waits count, since the epoch of the store's clock: the time of the decision, or the end of its
    /// [delay](Self::after_delay). To show a moment, such as a reset, add its wait. A store counts from the Unix epoch
    /// unless it was given another clock.
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
    /// Rounded down: 2.9 units are 2. A refused request has spent nothing, so there may be units
    /// left, but too few for it.
    #[inline]
    pub fn remaining(&self) -> u64 {
        self.deciding().remaining()
    }

    /// The time until the whole [`capacity`](Self::capacity) is back.
    ///
    /// Rounded up. Under buckets some units are back much earlier; the wait for a particular cost
    /// is [`retry_after`](Self::retry_after) of a refusal.
    #[inline]
    pub fn reset_after(&self) -> Duration {
        self.deciding().reset_after()
    }

    /// For a denied request: the shortest wait after which the same cost would pass if nothing else arrived.
    ///
    /// Exact: a request that comes after this wait, with no other before it, passes, and one that comes a
    /// microsecond earlier does not. A suspended key waits at least until its suspension is over. `None` for an
    /// allowed request, and for a cost that can never pass.
    pub fn retry_after(&self) -> Option<Duration> {
        let waits = matches!(self.outcome, Outcome::Denied | Outcome::Suspended);
        waits.then(|| self.deciding().available_after())
    }

    /// The status of the quota that decided; the decision shows its numbers.
    #[inline]
    pub fn deciding(&self) -> &QuotaStatus {
        &self.quotas[usize::from(self.deciding)]
    }

    /// The status of every quota, in the order of the asks and of the quotas in their policies.
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
    #[doc(hidden)]
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
        // A request that moves up may take a turn before the moment of its own decision.
        self.at_us = self.at_us.min(spent_us);
        self.delay_us = spent_us - self.at_us;
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
        let mut receipt = Receipt::new(
            by,
            at_us.saturating_add(delay_us),
            own().map(|(_, status)| status.spent()),
            own().filter_map(|(index, _)| traces.get(index).copied()),
        );
        receipt.part = part.map(|(_, part)| Box::new(part.copied()));
        Some(receipt)
    }

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
    #[doc(hidden)]
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
    #[doc(hidden)]
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
    #[doc(hidden)]
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

/// The bits of the asks at these indices among the asks of a larger call.
pub(super) fn at_places(bits: u16, places: &[u8]) -> u16 {
    let kept = (0..).zip(places).filter(|(ask, _)| bits & receipt_bit(*ask) != 0);
    kept.fold(0, |all, (_, place)| all | receipt_bit(usize::from(*place)))
}

pub(super) fn receipt_bit(ask: usize) -> u16 {
    u32::try_from(ask).ok().and_then(|ask| 1_u16.checked_shl(ask)).unwrap_or(0)
}
