//! Suspending and releasing keys by hand: [`Suspensions`].

use std::time::Duration;

use super::decide::decide_plainly;
use super::handle::RateLimiter;
use crate::error::StoreError;
use crate::key::AsKey;
use crate::store::{DecisionFuture, PreparedPolicy};
use crate::suspension::{Strikes, change, finished, strikes};

/// The suspensions of a limiter's keys, for changes by hand.
///
/// The policy has to be enforced, and to have a [suspension](crate::policy::PolicyBuilder::suspend) or take part in suspensions
/// [everywhere](crate::policy::PolicyBuilder::everywhere).
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::{MemoryStore, Outcome, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let login = Policy::gcra("login", "5/min").suspend(100, "10min", "30min").on(MemoryStore::new())?;
/// let by_ada = login.suspensions().by("ada"); // events and the audit log name Ada
/// by_ada.suspend("eve", Duration::from_secs(600)).await?;
/// assert_eq!(login.check("eve").await?.outcome(), Outcome::Suspended);
/// by_ada.release("eve").await?;
/// assert!(login.check("eve").await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Suspensions<'a> {
    limiter: &'a RateLimiter,
    operator: Option<&'a str>,
}

impl RateLimiter {
    /// The suspensions of this limiter's keys.
    pub fn suspensions(&self) -> Suspensions<'_> {
        Suspensions { limiter: self, operator: None }
    }
}

impl<'a> Suspensions<'a> {
    /// Names the operator who makes the changes, for logs, events and pages.
    #[must_use]
    pub fn by(self, operator: &'a str) -> Self {
        Self { operator: Some(operator), ..self }
    }

    /// Suspends a key for this time from now on, whatever its earlier refusals and suspensions; ten years at most. The decision
    /// is the result of a [`peek`](RateLimiter::peek) afterwards.
    ///
    /// It does not make the next suspension longer. A time of zero ends a suspension and forgets
    /// nothing else.
    ///
    /// # Errors
    /// [`StoreErrorKind::NoSuspension`](crate::error::StoreErrorKind::NoSuspension) when the policy suspends no key. When the
    /// store gives no answer, the key may be suspended or not.
    ///
    /// # Cancel safety
    /// A started call is completed, if it was started on a tokio runtime (feature `tokio`).
    pub fn suspend(&self, key: impl AsKey, lasts: Duration) -> DecisionFuture {
        self.change(key, Some(lasts))
    }

    /// Ends the suspension of a key, and forgets its refusals and earlier suspensions, as if it had never been refused. The
    /// decision is the result of a [`peek`](RateLimiter::peek) afterwards.
    ///
    /// Units that the key has spent stay spent; [`reset`](RateLimiter::reset) forgets them and keeps a suspension. A key that
    /// is suspended [everywhere](crate::policy::PolicyBuilder::everywhere) is released everywhere.
    ///
    /// # Errors
    /// As [`suspend`](Self::suspend).
    ///
    /// # Cancel safety
    /// As [`suspend`](Self::suspend).
    pub fn release(&self, key: impl AsKey) -> DecisionFuture {
        self.change(key, None)
    }

    /// The refusals of a key that count towards its next suspension. `None` if the policy suspends no key by itself, or is not enforced.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let login = Policy::gcra("login", "5/min").suspend(100, "10min", "30min").on(MemoryStore::new())?;
    /// for _ in 0..36 {
    ///     login.check("ada").await?;
    /// }
    /// let strikes = login.suspensions().strikes("ada").await?.ok_or("it suspends keys")?;
    /// assert_eq!((strikes.counted, strikes.after, strikes.suspensions), (31, 100, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the store gives no answer.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn strikes(&self, key: impl AsKey) -> Result<Option<Strikes>, StoreError> {
        let (policy, key) = (self.policy(), key.with_key(|key| key.to_key()));
        strikes(self.limiter.store(), &policy, &key, decide_plainly).await
    }

    fn policy(&self) -> PreparedPolicy {
        self.limiter.find(self.limiter.quotas.as_ref(), None).prepared().clone()
    }

    fn change(&self, key: impl AsKey, lasts: Option<Duration>) -> DecisionFuture {
        let (limiter, key) = (self.limiter.clone(), key.with_key(|key| key.to_key()));
        let (policy, operator) = (self.policy(), self.operator.map(str::to_owned));
        let is_here = limiter.store().always_answers();
        let work = async move {
            change(limiter.store(), &policy, &key, (lasts, operator.as_deref()), decide_plainly).await?;
            limiter.peek(&key).await
        };
        finished(is_here, Box::pin(work))
    }
}
