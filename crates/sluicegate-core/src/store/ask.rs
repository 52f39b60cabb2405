//! The input of a store ([`Ask`], with its [`Mode`]), and its output: [`Judged`] for each quota, [`judge`] for all of them, alike for all
//! stores, and the answer to come ([`DecisionFuture`]).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::prepared::{OwnQuotas, PreparedPolicy};
use crate::algorithm::{Balance, NEVER, Rule, Slot};
use crate::clock::micros;
use crate::decision::{Decision, QuotaStatus};
use crate::error::StoreError;
use crate::key::KeyRef;
use crate::policy::Policy;
use crate::receipt::Receipt;

/// One request's ask of one policy.
///
/// An ask is data: it names a prepared policy, a key, a cost and a [`Mode`], so it can be sent
/// to a script in Redis as well as to a table in memory. It borrows all of them and is cheap to
/// copy.
///
/// ```
/// use std::sync::Arc;
/// use sluicegate_core::store::{Ask, Mode, Store};
/// use sluicegate_core::{Key, MemoryStore, Policy};
///
/// let store: Arc<dyn Store> = MemoryStore::new().into();
/// let policy = store.open(Arc::new(Policy::gcra("login", "5/min").build()?), None)?;
/// let key = Key::from("ada");
///
/// let spend = Ask::new(&policy, key.as_ref(), 2, Mode::Spend);
/// let look = spend.in_mode(Mode::Peek);
/// // Asks of one call see each other, in their order: the look comes after the spend.
/// let decision = store.decide(&[spend, look]).now().expect("memory answers at once")?;
/// assert_eq!(decision.quotas()[1].remaining(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    policy: &'a PreparedPolicy,
    key: KeyRef<'a>,
    cost: u64,
    /// One cost per quota, if they differ.
    costs: &'a [u64],
    mode: Mode,
    receipt: Option<&'a Receipt>,
    own: Option<&'a Arc<OwnQuotas>>,
    is_repeated: bool,
}

impl<'a> Ask<'a> {
    /// An ask for `cost` units of `key`'s bucket.
    #[inline]
    pub fn new(policy: &'a PreparedPolicy, key: KeyRef<'a>, cost: u64, mode: Mode) -> Self {
        Self { policy, key, cost, costs: &[], mode, receipt: None, own: policy.own(), is_repeated: false }
    }

    /// This ask with its policy as another store has prepared it. For store wrappers.
    #[must_use]
    pub fn on<'b>(self, policy: &'b PreparedPolicy) -> Ask<'b>
    where
        'a: 'b,
    {
        Ask { policy, ..self }
    }

    /// The quotas that the key brings, if it has its own.
    pub fn own(&self) -> Option<&'a Arc<OwnQuotas>> {
        self.own
    }

    /// The policy, as the store prepared it, with the quotas that the key brings, to keep it beyond the call.
    pub fn prepared(&self) -> PreparedPolicy {
        match self.own {
            Some(own) => self.policy.under(Arc::clone(own)),
            None => self.policy.clone(),
        }
    }

    /// The policy with the quotas that decide this ask: those that the key brings, or those of its
    /// [`policy`](Self::policy). A store decides by the rules of these quotas.
    #[inline]
    pub fn numbers(&self) -> &'a Arc<Policy> {
        self.own.map_or_else(|| self.policy.policy(), |own| own.policy())
    }

    /// Whether a store must not carry it out after the deadline of its caller, who has decided or charged in another way by then: so are all
    /// asks that may be refused, and reports that are [`repeated`](Self::repeated).
    pub fn expires(&self) -> bool {
        self.mode.asks() || self.is_repeated
    }

    /// The spend that an ask for [as much as there is](Mode::Take), or for a [lease](Mode::Lease), becomes when a quota has
    /// `remaining` units left; any other ask stays as it is.
    #[must_use]
    pub fn granted(self, remaining: u64) -> Self {
        match self.mode {
            Mode::Take => Self { mode: Mode::Spend, cost: self.cost.min(remaining.max(1)), ..self },
            Mode::Lease => Self { mode: Mode::Spend, cost: self.cost.min(remaining), ..self },
            _ => self,
        }
    }

    /// The policy, as the store prepared it.
    pub fn policy(&self) -> &'a PreparedPolicy {
        self.policy
    }

    /// The key of the bucket.
    pub fn key(&self) -> KeyRef<'a> {
        self.key
    }

    /// The units of the ask.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// One cost per quota; empty if they are all equal.
    pub fn costs(&self) -> &'a [u64] {
        self.costs
    }

    /// The units for the quota at this place in the policy.
    #[inline]
    pub fn cost_of(&self, quota: u8) -> u64 {
        self.costs.get(usize::from(quota)).copied().unwrap_or(self.cost)
    }

    /// The ask from the view of that quota.
    pub(crate) fn of_quota(self, quota: u8) -> Self {
        Self { cost: self.cost_of(quota), costs: &[], ..self }
    }

    /// The purpose of the cost.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The receipt of the spend that it refers to, if known.
    pub fn receipt(&self) -> Option<&'a Receipt> {
        self.receipt
    }
}

crate::setters! { small Ask<'a>
    /// The ask with these quotas of its key, or with none. For store wrappers whose parts have quotas of other sizes.
    fn under(it, own: Option<&'a Arc<OwnQuotas>>) { it.own = own }

    /// This ask with separate costs for the quotas, in their order, for units that one quota still counts and another
    /// has forgotten. [`cost`](Self::cost) is then the highest of them.
    fn with_costs(it, costs: &'a [u64]) {
        it.cost = costs.iter().copied().max().unwrap_or(it.cost);
        it.costs = costs;
    }

    /// This ask about the spend of a receipt; the cost is a part of that spend.
    fn of(it, receipt: &'a Receipt) { it.receipt = Some(receipt) }

    /// This report, which its caller makes again if there is no answer in time. For store wrappers.
    fn repeated(it) { it.is_repeated = true }

    /// This ask in another mode, with its costs and its receipt.
    fn in_mode(it, mode: Mode) { it.mode = mode }

    /// This ask in another mode, without its receipt, which belongs to the store that gave it.
    fn plainly(it, mode: Mode) { (it.mode, it.receipt) = (mode, None) }
}

/// The purpose of a cost.
///
/// | mode | kind | may be refused | changes the key |
/// |---|---|---|---|
/// | [`Spend`](Self::Spend), [`Reserve`](Self::Reserve) | a question | yes | if it passes |
/// | [`Take`](Self::Take) | a question | if not one unit fits now | if it passes |
/// | [`Lease`](Self::Lease) | a question | no: it may get nothing | if it gets something |
/// | [`Peek`](Self::Peek) | a question | yes | never |
/// | [`Charge`](Self::Charge), [`Refund`](Self::Refund), [`Reset`](Self::Reset) | a report | no | always |
/// | [`Return`](Self::Return) | a report | if a later turn depends on it | if it passes |
///
/// The policy decides questions without an answer; reports without an answer become errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Spend the cost, if it fits now.
    Spend,
    /// Spend as much of the cost as fits now: the least that any quota of the policy has left, and at least one unit. The statuses
    /// give the number of units ([`QuotaStatus::spent`](crate::decision::QuotaStatus::spent)).
    ///
    /// For an ask with one cost for all quotas. A store that cannot divide a cost, and asks that several slots of a Redis Cluster
    /// decide together, spend all of it or nothing.
    Take,
    /// Report whether the cost would fit, and spend nothing.
    Peek,
    /// Spend up to this cost ahead of future requests: the units that the other asks of the call leave, wherever the lease is
    /// among them, and the least that any quota of the policy has left. A lease may pass without units, and spends nothing in a
    /// call that is refused or that waits. The statuses give the number of units.
    ///
    /// Its receipt says how long each unit may be spent ([`Receipt::lasts`]). Until the last unit has lapsed, no refund
    /// to a draining bucket lowers it below the end of the lease, its *floor*. A lease is given back once,
    /// by a [`Refund`](Self::Refund) with its receipt and the number of units that are unspent and have not lapsed; they may not
    /// be spent after that. This puts the floor back to where the lease found it, if this lease still ends there.
    ///
    /// For an ask with one cost for all quotas, under rules that [can be leased](crate::algorithm::Rule::can_lease); under other rules it
    /// gets nothing.
    Lease,
    /// Spend the cost, if it fits now or its turn comes within `longest`; [`Decision::delay`](crate::Decision::delay) says when.
    ///
    /// When several limits are asked together, each counts the cost from its own turn on, and the request proceeds at the last of these
    /// turns.
    Reserve {
        /// The longest wait.
        longest: Duration,
    },
    /// Give the cost back, as far as it still counts; with the [`Receipt`] of a spend, exactly its units.
    Refund,
    /// Give up the turn of the receipt, which has not come yet. It is taken back if no later turn depends on it; otherwise
    /// the ask does not pass.
    Return,
    /// Spend the cost whether it fits or not: units that do not fit are a debt.
    Charge,
    /// Forget the key; the cost does not matter.
    Reset,
}

impl Mode {
    /// The number of this mode for stores that decide in another language: questions come first, then charges, then modes
    /// that take no units. A new mode takes the next number.
    #[inline]
    pub fn number(self) -> u8 {
        match self {
            Self::Spend => 0,
            Self::Peek => 1,
            Self::Reserve { .. } => 2,
            Self::Charge => 3,
            Self::Refund => 4,
            Self::Reset => 5,
            Self::Return => 6,
            Self::Take => 7,
            Self::Lease => 8,
        }
    }

    /// The longest wait for a turn, if this mode waits.
    #[inline]
    pub fn longest_wait(self) -> Option<Duration> {
        match self {
            Self::Reserve { longest } => Some(longest),
            _ => None,
        }
    }

    /// Whether it gives back units that were spent before.
    pub fn gives_back(self) -> bool {
        matches!(self, Self::Refund | Self::Return)
    }

    /// Whether it spends for the request itself, and only if there is room.
    pub fn spends(self) -> bool {
        matches!(self, Self::Spend | Self::Reserve { .. } | Self::Take)
    }

    /// Whether its cost is cut to the units that are left before it is judged: see [`Ask::granted`].
    pub fn is_cut(self) -> bool {
        matches!(self, Self::Take)
    }

    /// Whether it only reads, and changes nothing.
    pub fn looks(self) -> bool {
        matches!(self, Self::Peek)
    }

    /// Whether it is a question, which may be refused, and not a report of something that has happened.
    #[inline]
    pub fn asks(self) -> bool {
        self.spends() || matches!(self, Self::Peek | Self::Lease)
    }
}

/// Combines the statuses of all quotas of a request into one decision: allowed if each of them lets it pass, and impossible if one
/// never would. For authors of stores.
///
/// `at_us` is the moment of the decision, and `delay_us` the time after it at which an allowed request proceeds, both in microseconds of
/// the store's clock. The statuses come in the order of the asks and of the quotas in their policies, and say how much was spent
/// ([`QuotaStatus::spending`]); the decision carries the traces that are needed to give it back ([`Decision::with_traces`]).
///
/// # Panics
/// When there is no quota.
///
/// # Example
/// Spends from the states of one key, one per quota of its policy, or from none of them:
///
/// ```
/// use sluicegate_core::algorithm::State;
/// use sluicegate_core::store::{Judged, Mode, judge};
/// use sluicegate_core::{Decision, Policy};
///
/// fn spend(policy: &Policy, states: &mut [State], cost: u64, now_us: u64) -> Decision {
///     let quotas = policy.quotas().iter().map(|quota| quota.rule());
///     let slots = quotas.clone().zip(&*states).map(|(rule, state)| (rule, rule.slot(*state, now_us, cost)));
///     let judged: Vec<_> = slots.map(|(rule, slot)| Judged::new(rule, Mode::Spend, slot, now_us)).collect();
///     // All quotas spend, or none does.
///     let spent = if judged.iter().all(Judged::passed) { cost } else { 0 };
///     let statuses = (0..).zip(quotas).zip(states).zip(judged).map(|(((quota, rule), state), judged)| {
///         if spent > 0 {
///             *state = rule.spend(*state, now_us, now_us, spent);
///         }
///         let opens_us = |cost| rule.slot(*state, now_us, cost).opens_us;
///         judged.status((0, quota), rule.balance(*state, now_us), now_us, opens_us).spending(spent)
///     });
///     judge(now_us, 0, statuses)
/// }
///
/// let policy = Policy::gcra("search", "5/min").and("2/s").build()?;
/// let mut states = [State::REST; 2];
/// assert!(spend(&policy, &mut states, 2, 0).is_allowed());
/// let refused = spend(&policy, &mut states, 1, 0);
/// assert_eq!((refused.capacity(), refused.retry_after().map(|wait| wait.as_millis())), (2, Some(500)));
/// assert_eq!(refused.quotas()[0].remaining(), 3, "a refusal spends nothing anywhere");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[inline]
pub fn judge(at_us: u64, delay_us: u64, quotas: impl IntoIterator<Item = QuotaStatus>) -> Decision {
    Decision::of(at_us, delay_us, quotas)
}

/// Whether one quota lets an ask pass, and when. For authors of stores.
///
/// It has two times: when the cost would *pass*, and when it *departs*. They differ under a
/// reservation, which passes now and departs at its turn, and in a queue.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    slot: Slot,
    passed: bool,
    /// When the same ask would pass.
    passes_us: u64,
}

impl Judged {
    /// Judges an ask whose cost could pass at this slot, by its [mode](Mode::asks): a spend passes now or not at
    /// all, a reservation may wait, and a report always passes.
    #[inline]
    pub fn new(rule: &Rule, mode: Mode, slot: Slot, now_us: u64) -> Self {
        let (passed, passes_us) = match mode {
            Mode::Reserve { longest } => {
                let soonest_us = slot.departs_us.saturating_sub(micros(longest));
                // No request waits outside of a full queue.
                let passes_us = if rule.is_queue() { soonest_us.max(slot.opens_us) } else { soonest_us };
                (slot.opens_us != NEVER && passes_us <= now_us, passes_us)
            }
            Mode::Lease => (true, now_us),
            mode if mode.asks() => (slot.opens_us <= now_us, slot.opens_us),
            _ => (true, now_us),
        };
        Self { slot, passed, passes_us }
    }

    /// An ask that passes now.
    #[inline]
    pub fn passing(now_us: u64) -> Self {
        Self { slot: Slot::at(now_us), passed: true, passes_us: now_us }
    }

    /// An ask that passes at `passes_us`, and not before.
    pub fn refused_until(passes_us: u64) -> Self {
        Self { slot: Slot::at(passes_us), passed: false, passes_us }
    }

    /// Whether the ask passes.
    pub fn passed(&self) -> bool {
        self.passed
    }

    /// When a passing spend proceeds, in microseconds of the store's clock.
    pub fn departs_us(&self) -> u64 {
        self.slot.departs_us
    }

    /// The status of the quota after the ask; `opens_us` says when a cost would pass now ([`Slot::opens_us`]). `place` is the index of
    /// the policy among the asks, and of the quota in the policy.
    #[inline]
    pub fn status(
        &self,
        place: (u8, u8),
        balance: Balance,
        now_us: u64,
        opens_us: impl FnOnce(u64) -> u64,
    ) -> QuotaStatus {
        let status = QuotaStatus::of(place, balance);
        match self.slot.opens_us {
            _ if self.passed && balance.remaining < balance.capacity => {
                let more = balance.remaining.saturating_add(1);
                status.with_more_after_us(opens_us(more).saturating_sub(now_us))
            }
            _ if self.passed => status,
            NEVER => status.impossible(),
            _ => status.refused_for_us(self.passes_us.saturating_sub(now_us)),
        }
    }
}

/// A decision, ready or still to come: a future that is ready at once if the store is in memory.
///
/// # Cancel safety
/// Dropping it gives nothing back and prevents nothing: the store completes the call, polled or not.
///
/// Code that is not async asks with [`now`](Self::now):
///
/// ```
/// use sluicegate_core::store::DecisionFuture;
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let login = Policy::gcra("login", "5/min").on(&MemoryStore::new())?;
/// match login.check("ada").now() {
///     Ok(answer) => assert!(answer?.is_allowed()),
///     // Only for a store over a network: await it, or block on it.
///     Err(pending) => drop::<DecisionFuture>(pending),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a decision says whether the request may go on"]
pub struct DecisionFuture(FutureState);

/// A decision, or why there is none.
pub(crate) type DecideResult = Result<Decision, StoreError>;

#[allow(
    clippy::large_enum_variant,
    reason = "a decision that is ready takes no allocation, however many numbers it has"
)]
enum FutureState {
    Ready(Option<DecideResult>),
    Pending(Pin<Box<dyn Future<Output = DecideResult> + Send>>),
}

impl DecisionFuture {
    /// A decision that is known now.
    #[inline]
    pub fn ready(result: Result<Decision, StoreError>) -> Self {
        Self(FutureState::Ready(Some(result)))
    }

    /// A decision that is still to come.
    pub fn pending(future: impl Future<Output = Result<Decision, StoreError>> + Send + 'static) -> Self {
        Self(FutureState::Pending(Box::pin(future)))
    }

    /// Work that begins now, with a first poll: the decision is known at once if no part of it has to wait. Work that sets a timer needs a
    /// runtime with one.
    ///
    /// # Cancel safety
    /// Dropping the future drops the rest of the work.
    pub fn polled(work: impl Future<Output = Result<Decision, StoreError>> + Send + 'static) -> Self {
        Self::polled_boxed(Box::pin(work))
    }

    pub(crate) fn polled_boxed(mut work: Pin<Box<dyn Future<Output = DecideResult> + Send>>) -> Self {
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Self::ready(answer),
            Poll::Pending => Self(FutureState::Pending(work)),
        }
    }

    /// Borrows the answer, if it is known without waiting: cheaper than
    /// [`now`](Self::now), for loops that ask millions of times a second.
    #[inline]
    pub fn known(&self) -> Option<&Result<Decision, StoreError>> {
        match &self.0 {
            FutureState::Ready(result) => result.as_ref(),
            FutureState::Pending(_) => None,
        }
    }

    /// The answer if it is known without waiting, as it always is from a [`MemoryStore`](crate::MemoryStore);
    /// otherwise the future again.
    ///
    /// # Errors
    /// The future itself, when the answer is still to come.
    #[inline]
    #[expect(clippy::result_large_err, reason = "the future is handed back, not reported")]
    pub fn now(self) -> Result<Result<Decision, StoreError>, Self> {
        match self.0 {
            FutureState::Ready(Some(result)) => Ok(result),
            other => Err(Self(other)),
        }
    }

    /// The answer after `change`: at once if it is known, otherwise when it comes. For store wrappers, to read or change an
    /// answer.
    ///
    /// # Cancel safety
    /// `change` never sees the answer of a future that is dropped before it came.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let refused = Arc::new(AtomicU64::new(0));
    /// let count = Arc::clone(&refused);
    /// let login = Policy::gcra("login", "1/h").on(&MemoryStore::new())?;
    /// login.check("ada").now().expect("memory answers at once")?;
    /// let answer = login.check("ada").start().map(move |answer| {
    ///     if answer.as_ref().is_ok_and(|decision| !decision.is_allowed()) {
    ///         count.fetch_add(1, Ordering::Relaxed);
    ///     }
    ///     answer
    /// });
    /// // Memory has answered, so the change was made at once, without a future.
    /// assert!(answer.known().is_some());
    /// assert_eq!(refused.load(Ordering::Relaxed), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map(
        self,
        change: impl FnOnce(Result<Decision, StoreError>) -> Result<Decision, StoreError> + Send + 'static,
    ) -> Self {
        match self.now() {
            Ok(result) => Self::ready(change(result)),
            Err(pending) => Self::pending(async { change(pending.await) }),
        }
    }
}

impl Future for DecisionFuture {
    type Output = Result<Decision, StoreError>;

    /// # Panics
    /// When polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            FutureState::Ready(result) => {
                Poll::Ready(result.take().expect("a decision is polled until it is ready, once"))
            }
            FutureState::Pending(future) => future.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for DecisionFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            FutureState::Ready(result) => f.debug_tuple("DecisionFuture").field(result).finish(),
            FutureState::Pending(_) => f.write_str("DecisionFuture(..)"),
        }
    }
}
