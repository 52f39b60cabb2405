//! Where state lives, and who decides: the [`Store`] trait, for authors of stores and of wrappers around them.

mod registry;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pub use self::registry::Registry;
pub(crate) use self::registry::name_taken;
use crate::decision::Decision;
pub use crate::decision::{DecidedBy, QuotaStatus};
use crate::error::{ConfigError, ConfigErrorKind, StoreError};
use crate::key::KeyRef;
pub use crate::limiter::Limiters;
use crate::policy::Policy;
use crate::receipt::Receipt;
pub use crate::receipt::Trace;

/// Where state lives, and who decides.
///
/// # Contract
/// - `decide` admits no more than the policies' algorithms define, under any concurrency.
/// - All spending asks of one call are granted together or not at all; a call that is not granted changes nothing.
/// - `decide` starts its work when it is called, and finishes it: a verdict that is dropped, polled or not, undoes and
///   prevents nothing.
/// - Several asks for one bucket in one call see each other, in their order.
/// - A decision that spends says how much took effect, by [`QuotaStatus::spending`](crate::store::QuotaStatus::spending).
/// - A request's future may be dropped at any time, so nothing may be held between `decide` and the verdict.
pub trait Store: Send + Sync + 'static {
    /// Prepares a policy: checks that this store can keep it exactly, and compiles what can be compiled once.
    ///
    /// Opening an equal policy again gives the same buckets. With `replaces`, the new policy takes over the keys of
    /// an open one, of the same name, in the way that [`Inherit`] says.
    ///
    /// # Errors
    /// When the store cannot keep the policy exactly, or its name is open for a different one.
    fn open(
        &self,
        policy: Arc<Policy>,
        replaces: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError>;

    /// Decides all asks of one request together: all spend, or none does.
    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture;

    /// Which parts of the store would decide these asks, one bit each: parts that fail on their own, such as the nodes
    /// of a cluster, so that what calls this store can leave out one of them. By default it is one part.
    fn parts(&self, asks: &[Ask<'_>]) -> u64 {
        _ = asks;
        1
    }

    /// The handles of this store, one per name: a field that starts as its default.
    fn limiters(&self) -> &Limiters;
}

/// How the keys of a replaced policy start under the new one, once, when they are next asked for.
///
/// A quota inherits from the one with the same rule; if there is none, from the one with the same id; if there is none,
/// from the one that has counted most. A quota whose rule stays is not touched at all. A memory store follows a key
/// through up to 32 replacements between two of its requests.
///
/// All but [`Spent`](Self::Spent) are Bucket4j's (`TokensInheritanceStrategy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Inherit {
    /// With the units that were spent: 50 of 100 become 50 of 10, a debt of 40. Nobody gains by the replacement, whatever
    /// the old and the new algorithm. A debt under a sliding counter or log is forgotten after its periods.
    #[default]
    Spent,
    /// Afresh: everybody has the whole new burst.
    Reset,
    /// With the units that remained, at most the new burst.
    AsIs,
    /// With the same part of the burst that remained.
    Proportional,
    /// With the units that remained, and the units that the burst has grown by.
    Additive,
}

/// A policy that a store has prepared; only that store can decide it.
#[derive(Clone)]
pub struct PreparedPolicy {
    policy: Arc<Policy>,
    prepared: Arc<dyn Any + Send + Sync>,
}

impl PreparedPolicy {
    /// A policy with what the store prepared for it.
    pub fn new<T: Send + Sync + 'static>(policy: Arc<Policy>, prepared: Arc<T>) -> Self {
        Self { policy, prepared }
    }

    /// Whether this is what was prepared for it.
    pub(crate) fn has<T: ?Sized>(&self, prepared: &Arc<T>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.prepared), Arc::as_ptr(prepared))
    }

    /// Whether both were opened as one.
    #[cfg(feature = "resilient")]
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.has(&other.prepared)
    }

    /// The policy.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// What the store prepared for a policy that is replaced, to be kept; for [`Store::open`].
    ///
    /// # Errors
    /// [`ConfigErrorKind::Store`] when it was opened on a store that does not prepare a `T`: another one.
    pub fn replaced<T: Send + Sync + 'static>(&self) -> Result<Arc<T>, ConfigError> {
        let problem = "the replaced policy was opened on another store";
        let foreign = |_| ConfigError::new(ConfigErrorKind::Store, problem);
        Arc::clone(&self.prepared).downcast().map_err(foreign)
    }

    /// What the store prepared, if it was a store that prepares a `T`.
    #[inline]
    pub fn prepared<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.prepared.downcast_ref()
    }
}

impl fmt::Debug for PreparedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PreparedPolicy").field(&self.policy.name()).finish()
    }
}

/// What one request asks of one policy.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    policy: &'a PreparedPolicy,
    key: KeyRef<'a>,
    cost: u64,
    /// One per quota, if they are not the same.
    costs: &'a [u64],
    mode: Mode,
    receipt: Option<&'a Receipt>,
}

/// What is to be done with the cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Spend it, if it fits now.
    Spend,
    /// Say whether it would fit, and spend nothing.
    Peek,
    /// Spend it, if it fits now or its turn comes within `longest`; [`Decision::delay`] says when.
    ///
    /// Of several limits that are asked together, those that the turn does not wait for hold the cost until then: it counts
    /// in full, and does not drain. They hold at most half of a key's burst, or one unit.
    Reserve {
        /// The longest wait.
        longest: Duration,
    },
    /// Give it back, as far as it still counts; with the [`Receipt`] of what was spent, exactly that.
    Refund,
    /// Give up the turn of the receipt, which has not come. It is taken back if no later turn depends on it, and otherwise
    /// the ask does not pass.
    Return,
    /// The turn of the receipt has come: what was held for it is spent now.
    Depart,
    /// Spend it whether it fits or not: what does not fit is a debt.
    Charge,
    /// Forget the key; the cost does not matter.
    Reset,
}

impl Mode {
    /// Whether it spends only if there is room.
    #[inline]
    pub fn spends(self) -> bool {
        matches!(self, Self::Spend | Self::Reserve { .. })
    }

    /// Whether it is a question, that may be answered with a refusal, and not the report of something that has happened.
    #[inline]
    pub fn asks(self) -> bool {
        self.spends() || self == Self::Peek
    }
}

impl<'a> Ask<'a> {
    /// An ask for `cost` units of `key`'s bucket.
    #[inline]
    pub fn new(policy: &'a PreparedPolicy, key: KeyRef<'a>, cost: u64, mode: Mode) -> Self {
        Self { policy, key, cost, costs: &[], mode, receipt: None }
    }

    /// The same ask, of a policy as another store has prepared it: for stores around stores.
    #[must_use]
    pub fn on<'b>(self, policy: &'b PreparedPolicy) -> Ask<'b>
    where
        'a: 'b,
    {
        Ask { policy, ..self }
    }

    /// The same ask with a cost of its own for each quota, in their order: for what one of them still counts and another
    /// has forgotten. [`cost`](Self::cost) is the highest then.
    #[must_use]
    pub fn with_costs(mut self, costs: &'a [u64]) -> Self {
        self.cost = costs.iter().copied().max().unwrap_or(self.cost);
        self.costs = costs;
        self
    }

    /// The same ask about what this receipt says was spent; the cost is part of that.
    #[must_use]
    pub fn of(mut self, receipt: &'a Receipt) -> Self {
        self.receipt = Some(receipt);
        self
    }

    /// The same cost for another purpose, and without the receipt, which is for the store that gave it.
    #[cfg(feature = "resilient")]
    pub(crate) fn plainly(self, mode: Mode) -> Self {
        Self { mode, receipt: None, ..self }
    }

    /// The policy, as the store prepared it.
    #[inline]
    pub fn policy(&self) -> &'a PreparedPolicy {
        self.policy
    }

    /// Whose bucket.
    #[inline]
    pub fn key(&self) -> KeyRef<'a> {
        self.key
    }

    /// How many units.
    #[inline]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// One cost per quota; empty if they are all the same.
    pub fn costs(&self) -> &'a [u64] {
        self.costs
    }

    /// How many units of the quota at this place in the policy.
    pub fn cost_of(&self, quota: u8) -> u64 {
        self.costs.get(usize::from(quota)).copied().unwrap_or(self.cost)
    }

    /// The ask as that quota sees it.
    pub(crate) fn of_quota(self, quota: u8) -> Self {
        Self { cost: self.cost_of(quota), costs: &[], ..self }
    }

    /// What is to be done with them.
    #[inline]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What it is about that was spent before, if that is known.
    #[inline]
    pub fn receipt(&self) -> Option<&'a Receipt> {
        self.receipt
    }
}

type Pending = Pin<Box<dyn Future<Output = Result<Decision, StoreError>> + Send>>;

/// A decision, or the promise of one: a future that is ready at once when the store is in memory.
///
/// # Cancel safety
/// Dropping it gives nothing back and prevents nothing: what was asked is done, polled or not.
#[must_use = "a verdict says whether the request may go on"]
pub struct DecisionFuture(Answer);

enum Answer {
    Ready(Option<Result<Decision, StoreError>>),
    Pending(Pending),
}

impl DecisionFuture {
    /// A verdict that is known now.
    #[inline]
    pub fn ready(result: Result<Decision, StoreError>) -> Self {
        Self(Answer::Ready(Some(result)))
    }

    /// A verdict that is still to come.
    pub fn pending(future: impl Future<Output = Result<Decision, StoreError>> + Send + 'static) -> Self {
        Self(Answer::Pending(Box::pin(future)))
    }

    /// The answer, looked at where it is, if it is known without waiting: cheaper than taking it out with
    /// [`now`](Self::now), for loops that ask millions of times a second.
    #[inline]
    pub fn known(&self) -> Option<&Result<Decision, StoreError>> {
        match &self.0 {
            Answer::Ready(result) => result.as_ref(),
            Answer::Pending(_) => None,
        }
    }

    /// The answer if it is known without waiting, as it always is from a [`MemoryStore`](crate::MemoryStore);
    /// otherwise the verdict again.
    ///
    /// # Errors
    /// The verdict itself, when the answer is still to come.
    #[inline]
    #[expect(clippy::result_large_err, reason = "the verdict is handed back, not reported")]
    pub fn now(self) -> Result<Result<Decision, StoreError>, Self> {
        match self.0 {
            Answer::Ready(Some(result)) => Ok(result),
            other => Err(Self(other)),
        }
    }
}

impl Future for DecisionFuture {
    type Output = Result<Decision, StoreError>;

    /// # Panics
    /// When polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Answer::Ready(result) => {
                Poll::Ready(result.take().expect("a verdict is polled until it is ready, once"))
            }
            Answer::Pending(future) => future.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for DecisionFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Answer::Ready(result) => f.debug_tuple("DecisionFuture").field(result).finish(),
            Answer::Pending(_) => f.write_str("DecisionFuture(..)"),
        }
    }
}
