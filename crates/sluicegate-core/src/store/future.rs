//! The answer to come: [`DecisionFuture`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::decision::Decision;
use crate::error::StoreError;

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
