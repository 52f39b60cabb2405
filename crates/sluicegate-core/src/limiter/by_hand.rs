//! Suspending and releasing keys by hand.

use std::time::Duration;

use super::decide::decide_plainly;
use super::handle::RateLimiter;
use crate::error::StoreError;
use crate::key::AsKey;
use crate::store::DecisionFuture;
use crate::suspension::{Strikes, change, finished, strikes};

impl RateLimiter {
    /// Suspends the key by hand, for this time from now on, whatever it has been refused or suspended before; ten years at most. The
    /// policy has to be enforced and to have a [suspension](crate::policy::PolicyBuilder::suspend), or to take part in those
    /// [everywhere](crate::policy::PolicyBuilder::everywhere). The decision is that of a [`peek`](Self::peek) after it.
    ///
    /// It does not count as one of the suspensions that make the next one longer. A time of zero ends a suspension, and forgets
    /// nothing else.
    ///
    /// # Errors
    /// [`StoreErrorKind::NoSuspension`](crate::error::StoreErrorKind::NoSuspension) when the policy suspends no key, and when the
    /// store gave no answer: then the key may be suspended or not.
    ///
    /// # Cancel safety
    /// A call that has begun is finished, if it began on a tokio runtime (feature `tokio`).
    pub fn suspend(&self, key: impl AsKey, lasts: Duration) -> DecisionFuture {
        self.change_suspension(key, Some(lasts), None)
    }

    /// Ends the suspension of the key, and forgets its refusals and the suspensions before: as if it had never been refused. What
    /// it has spent stays spent; [`reset`](Self::reset) is for that, and leaves a suspension alone. The decision is that of a
    /// [`peek`](Self::peek) after it. A key that is suspended [everywhere](crate::policy::PolicyBuilder::everywhere) is released
    /// everywhere.
    ///
    /// # Errors
    /// As those of [`suspend`](Self::suspend).
    ///
    /// # Cancel safety
    /// As that of [`suspend`](Self::suspend).
    pub fn release(&self, key: impl AsKey) -> DecisionFuture {
        self.change_suspension(key, None, None)
    }

    /// How far the key is from its next suspension. `None` if the policy suspends no key by itself, or
    /// is not enforced.
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
    /// let strikes = login.strikes("ada").await?.ok_or("it suspends keys")?;
    /// assert_eq!((strikes.counted, strikes.after, strikes.suspensions), (31, 100, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the store gave no answer.
    ///
    /// # Cancel safety
    /// It only looks.
    pub async fn strikes(&self, key: impl AsKey) -> Result<Option<Strikes>, StoreError> {
        let (policy, key) = (self.with_opened(Clone::clone), key.with_key(|key| key.to_key()));
        strikes(self.store(), &policy, &key, decide_plainly).await
    }

    /// As [`suspend`](Self::suspend), by this operator: logs, events and pages then say who it was.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate_core::{MemoryStore, Outcome, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let login = Policy::gcra("login", "5/min").suspend(100, "10min", "30min").on(MemoryStore::new())?;
    /// login.suspend_by("eve", Duration::from_secs(600), "ada").await?;
    /// assert_eq!(login.check("eve").await?.outcome(), Outcome::Suspended);
    /// login.release_by("eve", "ada").await?;
    /// assert!(login.check("eve").await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As those of [`suspend`](Self::suspend).
    ///
    /// # Cancel safety
    /// As that of [`suspend`](Self::suspend).
    pub fn suspend_by(&self, key: impl AsKey, lasts: Duration, operator: &str) -> DecisionFuture {
        self.change_suspension(key, Some(lasts), Some(operator))
    }

    /// As [`release`](Self::release), by this operator: logs, events and pages then say who it was.
    ///
    /// # Errors
    /// As those of [`suspend`](Self::suspend).
    ///
    /// # Cancel safety
    /// As that of [`suspend`](Self::suspend).
    pub fn release_by(&self, key: impl AsKey, operator: &str) -> DecisionFuture {
        self.change_suspension(key, None, Some(operator))
    }

    fn change_suspension(
        &self,
        key: impl AsKey,
        lasts: Option<Duration>,
        operator: Option<&str>,
    ) -> DecisionFuture {
        let (limiter, key) = (self.clone(), key.with_key(|key| key.to_key()));
        let (policy, operator) = (self.with_opened(Clone::clone), operator.map(str::to_owned));
        finished(self.store().always_answers(), async move {
            change(limiter.store(), &policy, &key, (lasts, operator.as_deref()), decide_plainly).await?;
            limiter.peek(&key).await
        })
    }
}
