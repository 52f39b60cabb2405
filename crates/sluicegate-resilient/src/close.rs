//! Settles all debts to the store before the process ends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{Resilient, ResilientState};

/// The pause before a store that is down is asked again.
const PAUSE: Duration = Duration::from_millis(100);

impl Resilient {
    /// Charges the units admitted without the store to it, at the end of the process: after the last request
    /// was answered, and before the runtime ends.
    ///
    /// It ignores the breaker and asks the store up to ten times a second while the store is down. It ends when no debt is
    /// left, or when the time `within` is over, and waits for charges and refunds in progress. The store can be used
    /// afterwards, and closed again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redis = sluicegate_core::MemoryStore::new();
    /// # async fn serve() {}
    /// use std::time::Duration;
    /// use sluicegate_resilient::Resilient;
    ///
    /// let store = Resilient::new(redis);
    /// serve().await; // for example `axum::serve(..).with_graceful_shutdown(..)`
    /// if let Err(unsettled) = store.close(Duration::from_secs(5)).await {
    ///     eprintln!("{unsettled}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Unsettled`] when debts are left at the end. They are lost with the process: their keys may spend the units again.
    ///
    /// # Panics
    /// Outside of a tokio runtime with its timer.
    ///
    /// # Cancel safety
    /// A call that is in progress when this is dropped may or may not have been charged, and is not repeated. All other debts are
    /// still owed.
    pub async fn close(&self, within: Duration) -> Result<(), Unsettled> {
        let now = Instant::now();
        // A time that is too long for the clock is cut to a day.
        let until = now.checked_add(within).unwrap_or(now + Duration::from_secs(86_400));
        match self.0.0.settle_until(until).await {
            0 => Ok(()),
            debts => Err(Unsettled { debts }),
        }
    }
}

/// Debts of a process that its store does not know of. See [`Resilient::close`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsettled {
    debts: usize,
}

impl Unsettled {
    /// The number of debts: one for each key and policy. It includes debts whose charge was not answered.
    pub fn debts(&self) -> usize {
        self.debts
    }
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { debts } = self;
        let (noun, verb) = if *debts == 1 { ("debt", "was") } else { ("debts", "were") };
        write!(f, "{debts} {noun} {verb} not charged to the store: give `close` more time")
    }
}

impl std::error::Error for Unsettled {}

impl ResilientState {
    /// Settles until no debt is left, or until this moment; returns the number of debts left.
    async fn settle_until(self: &Arc<Self>, until: Instant) -> usize {
        let mut unanswered = 0;
        loop {
            if let Some(settling) = self.settling() {
                unanswered += settling.run(Some(until)).await;
            }
            let left = self.fallback.debts.owed() + self.settlement.under_way();
            let now = Instant::now();
            if left == 0 || now >= until {
                return left + unanswered;
            }
            sleep_until(until.min(now + PAUSE)).await;
        }
    }
}
