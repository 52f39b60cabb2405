//! A change of one key outside of a check: [`Change`].

use std::fmt;
use std::future::IntoFuture;

use super::handle::RateLimiter;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::key::AsKey;
use crate::receipt::Receipt;
use crate::store::{Ask, DecisionFuture, Mode};

/// A charge, a refund or a reset of one key, made when it is awaited.
///
/// [`RateLimiter::charge`], [`RateLimiter::refund`] and [`RateLimiter::reset`] begin a change, and
/// [`change_all`](super::change_all) makes several in one call. The decision shows the status of the key afterwards.
///
/// # Errors
/// When the store gives no answer, whatever the policy says about outages: it is then unknown whether the change was made
/// ([`StoreError::may_have_spent`]). A `Resilient` store records charges and sends them later.
///
/// # Cancel safety
/// A change that is dropped before it is awaited or [started](Self::start) is not made. After that, the store is asked even if the
/// future is dropped.
#[must_use = "a change is made when it is awaited or started"]
pub struct Change<'a, K> {
    pub(super) limiter: &'a RateLimiter,
    pub(super) key: K,
    pub(super) cost: u64,
    pub(super) mode: Mode,
    pub(super) receipt: Option<&'a mut Receipt>,
}

impl RateLimiter {
    /// Spends units whether they fit or not; the excess is a debt that later requests wait for.
    ///
    /// A debt has a ceiling, ten bursts or ten limits, whichever is more, or the ceiling of
    /// [`PolicyBuilder::debt_up_to`](crate::policy::PolicyBuilder::debt_up_to): units above it are forgotten, so that one charge cannot
    /// lock a key out for years. In a fixed window or a period of a calendar, a debt ends with it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate_core::clock::ManualClock;
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let store = MemoryStore::builder().clock(ManualClock::new()).build()?;
    /// let tokens = Policy::gcra("tokens", "5/min").on(&store)?;
    /// tokens.charge("ada", 8).now().expect("memory answers at once")?; // three more than are left
    ///
    /// let denied = tokens.check("ada").now().expect("memory answers at once")?;
    /// assert_eq!((denied.remaining(), denied.retry_after()), (0, Some(Duration::from_secs(48))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn charge<K: AsKey>(&self, key: K, cost: u64) -> Change<'_, K> {
        Change { limiter: self, key, cost, mode: Mode::Charge, receipt: None }
    }

    /// Gives units back: units of a receipt ([`Change::of`]), or units with an unknown time of spending.
    ///
    /// Without a receipt they count as spent just now. Units that have drained since are then given back a second time, so use it
    /// only for units that were spent a moment ago, or for a refund by hand to a customer. A key never gets better than at rest.
    pub fn refund<K: AsKey>(&self, key: K, cost: u64) -> Change<'_, K> {
        Change { limiter: self, key, cost, mode: Mode::Refund, receipt: None }
    }

    /// Forgets a key: it has its whole burst again, or the units that an unknown key
    /// [starts](crate::Quota::starting_with) with.
    ///
    /// Reserved turns still come at their times. A [suspension](crate::suspension), and the refusals that count towards
    /// one, stay: a [release](super::Suspensions::release) ends them.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let login = Policy::sliding_log("login", "5/h").on(&MemoryStore::new())?;
    /// login.check("ada").cost(5).now().expect("memory answers at once")?;
    /// login.reset("ada").now().expect("memory answers at once")?; // support has talked to her
    /// assert_eq!(login.peek("ada").now().expect("memory answers at once")?.remaining(), 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reset<K: AsKey>(&self, key: K) -> Change<'_, K> {
        Change { limiter: self, key, cost: 0, mode: Mode::Reset, receipt: None }
    }
}

impl<'a, K> Change<'a, K> {
    /// Gives back units that a decision has spent ([`Decision::take_receipt`]), except those that no longer count: a unit of a window
    /// that has ended, or one that has leaked out of its bucket, is gone. Giving it back would admit more than the policy
    /// allows. The receipt loses the units when the change is made.
    ///
    /// Under a policy with [`refunds`](crate::policy::PolicyBuilder::refunds) all units that have not drained come back, in the
    /// order of their arrival. Without it, all units that have leaked since count against the refund, which may give back
    /// too little but never too much.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mail = Policy::gcra("mail", "3/h").on(&MemoryStore::new())?;
    /// let mut receipt = mail.check("ada").cost(2).await?.take_receipt(0).ok_or("it has spent")?;
    /// mail.refund("ada", 1).of(&mut receipt).await?;
    /// assert_eq!((receipt.cost(), mail.peek("ada").await?.remaining()), (1, 2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(mut self, receipt: &'a mut Receipt) -> Self {
        self.cost = self.cost.min(receipt.cost());
        self.receipt = Some(receipt);
        self
    }

    pub(super) fn ask<'b>(&'b self, asked: Ask<'b>) -> Ask<'b> {
        match &self.receipt {
            Some(receipt) => asked.of(receipt),
            None => asked,
        }
    }

    /// Deducts the units that were given back from the receipt.
    pub(super) fn settle(self) {
        if let (Some(receipt), Mode::Refund) = (self.receipt, self.mode) {
            receipt.spend(self.cost);
        }
    }
}

impl<K: AsKey> Change<'_, K> {
    /// Makes the change now, if the store answers without waiting, as a [`MemoryStore`](crate::MemoryStore) always does.
    ///
    /// # Errors
    /// The future, if the answer is still to come; the store was asked.
    #[expect(clippy::result_large_err, reason = "the future is handed back, not reported")]
    pub fn now(self) -> Result<Result<Decision, StoreError>, DecisionFuture> {
        self.start().now()
    }

    /// Asks the store at once and returns the future of its answer.
    ///
    /// # Cancel safety
    /// The change is made, whether the future is polled or dropped.
    pub fn start(self) -> DecisionFuture {
        let answer = self.key.with_key(|key| {
            let found = self.limiter.find(self.limiter.quotas.as_ref(), Some(key));
            self.limiter.decide(&[self.ask(Ask::new(found.prepared(), key, self.cost, self.mode))])
        });
        self.settle();
        answer
    }
}

impl<K: AsKey> IntoFuture for Change<'_, K> {
    type Output = Result<Decision, StoreError>;
    type IntoFuture = DecisionFuture;

    fn into_future(self) -> DecisionFuture {
        self.start()
    }
}

impl<K> fmt::Debug for Change<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Change");
        debug.field("limiter", self.limiter).field("cost", &self.cost).field("mode", &self.mode);
        debug.finish_non_exhaustive()
    }
}
