//! The longest time that the store may take: [`Deadline`].
//!
//! It is only for stores without a deadline of their own. A deadline inside the store is better: it knows
//! whether the command was sent, and closes the connection. From outside, a late call can only be
//! dropped.

use std::time::Duration;

use sluicegate_core::Decision;
use sluicegate_core::error::{ConfigError, ConfigErrorKind, StoreError, StoreErrorKind};
use sluicegate_core::store::DecisionFuture;
use tokio::time::timeout;

/// The longest time that one call of the store may take, if it is bounded.
pub(super) struct Deadline(Option<Duration>);

impl Deadline {
    /// # Errors
    /// For a deadline of zero.
    pub(super) fn new(longest: Option<Duration>) -> Result<Self, ConfigError> {
        if longest.is_some_and(|longest| longest.is_zero()) {
            let problem = "a store with a deadline of 0: no call could keep it";
            return Err(ConfigError::new(ConfigErrorKind::Store, problem));
        }
        Ok(Self(longest))
    }

    /// The answer, or a timeout.
    pub(super) async fn keep(&self, answer: DecisionFuture) -> Result<Decision, StoreError> {
        match (self.0, answer.now()) {
            // Without a timer, which needs a runtime.
            (_, Ok(answer)) => answer,
            (None, Err(pending)) => pending.await,
            (Some(longest), Err(pending)) => {
                let late = |_| Err(StoreError::new(StoreErrorKind::Timeout));
                timeout(longest, pending).await.unwrap_or_else(late)
            }
        }
    }
}
