//! The calls of a limiter that ask its store about one key.

use std::time::Duration;

use super::handle::RateLimiter;
use crate::key::{AsKey, KeyRef};
use crate::receipt::Receipt;
use crate::store::{Ask, DecisionFuture, Mode, PreparedPolicy};

impl RateLimiter {
    /// Decides one unit now, and spends it if allowed. A policy that waits is asked for a turn: an allowed decision
    /// may then have a [`delay`](crate::Decision::delay) to be kept.
    ///
    /// # Errors
    /// None in an outage, which is [decided by the policy](crate::OnOutage). A
    /// [`StoreError`](crate::StoreError) otherwise is a mistake in a store.
    ///
    /// # Cancel safety
    /// The question is asked when this is called. Dropping the future neither prevents the decision
    /// nor gives back what it has spent.
    ///
    /// # Example
    /// In code that is async and in code that is not:
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let login = Policy::gcra("login", "5/min").on(&MemoryStore::new())?;
    /// if !login.check("ada").await?.is_allowed() {
    ///     return Err("too many attempts".into());
    /// }
    /// let decision = login.check(("ada", "192.0.2.7")).now().expect("memory answers at once")?;
    /// assert_eq!(decision.remaining(), 4);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn check(&self, key: impl AsKey) -> DecisionFuture {
        self.check_cost(key, 1)
    }

    /// Decides `cost` units now, and spends them if allowed.
    ///
    /// All of the cost or none of it: there is no part of it. A cost above the
    /// [capacity](crate::Decision::capacity) is [`Impossible`](crate::Outcome::Impossible),
    /// whatever the wait. A cost of 0 spends nothing and passes while there is no debt.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Outcome, Policy};
    ///
    /// let upload = Policy::gcra("upload", "100/h").on(&MemoryStore::new())?;
    /// let of = |megabytes| upload.check_cost("ada", megabytes).now().expect("memory answers at once");
    /// assert!(of(80)?.is_allowed());
    /// assert_eq!((of(30)?.outcome(), of(20)?.outcome()), (Outcome::Denied, Outcome::Allowed));
    /// assert_eq!(of(101)?.outcome(), Outcome::Impossible);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    ///
    /// # Cancel safety
    /// As [`check`](Self::check).
    #[inline]
    pub fn check_cost(&self, key: impl AsKey, cost: u64) -> DecisionFuture {
        match self.kept() {
            // One call in one place, so that it is inlined.
            Some(opened) => key.with_key(|key| self.spend(opened, &key, cost)),
            None => self.check_late(key, cost),
        }
    }

    /// The same after a replacement.
    #[inline(never)]
    fn check_late(&self, key: impl AsKey, cost: u64) -> DecisionFuture {
        self.with_opened(|opened| key.with_key(|key| self.spend(opened, &key, cost)))
    }

    /// By the short way of the policy, if it has one.
    #[inline]
    fn spend(&self, opened: &PreparedPolicy, key: &KeyRef<'_>, cost: u64) -> DecisionFuture {
        match opened.short_way() {
            Some(short) => short.spend(key, cost, &|| self.spend_by_ask(opened, key, cost)),
            // Here, and not by a call: what is copied from memory just after it was written there waits for it.
            None => self.decide(&[Ask::new(opened, *key, cost, opened.spends())]),
        }
    }

    #[inline(never)]
    fn spend_by_ask(&self, opened: &PreparedPolicy, key: &KeyRef<'_>, cost: u64) -> DecisionFuture {
        self.decide(&[Ask::new(opened, *key, cost, opened.spends())])
    }

    /// Spends `cost` units if it is certain at once that they fit now, and says so. Otherwise it has spent nothing, which does not mean
    /// that they are refused: then [`check_cost`](Self::check_cost) decides.
    ///
    /// For callers that look at no number of an allowed request: in memory it takes four fifths of the time of a check. It is
    /// certain on a memory store alone, under a policy with one quota, and neither for sliding logs and queues nor where requests wait, costs are
    /// given back or keys [start](crate::Quota::starting_with) with less than a burst, a key of the policy is suspended, the policy is off, or another
    /// one was replaced by it lately.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let login = Policy::gcra("login", "2/min").on(&MemoryStore::new())?;
    /// let is_allowed = |key: &str| {
    ///     login.spend_at_once(key, 1)
    ///         || login.check(key).now().expect("memory answers at once").is_ok_and(|decision| decision.is_allowed())
    /// };
    /// assert_eq!([(); 3].map(|()| is_allowed("ada")), [true, true, false]);
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    #[inline]
    #[must_use = "where it is false, a check has to decide"]
    pub fn spend_at_once(&self, key: impl AsKey, cost: u64) -> bool {
        self.with_opened(|opened| match opened.short_way() {
            Some(short) => key.with_key(|key| short.spend_at_once(&key, cost)),
            None => false,
        })
    }

    /// Spends as many units as there are, up to `most`; [`Decision::granted`](crate::Decision::granted) says how many it spent. It
    /// is refused if there is not one, and where it would have to wait, as behind others in a queue.
    ///
    /// For a batch that is cut to the room that there is: rows to send, pages to fetch, bytes to read.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let rows = Policy::gcra("rows", "100/s").on(&MemoryStore::new())?;
    /// let take = |most| rows.check_up_to("ada", most).now().expect("memory answers at once");
    /// assert_eq!(take(80)?.granted(), Some(80));
    /// assert!((20..25).contains(&take(80)?.granted().unwrap_or(80))); // what is left
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    ///
    /// # Cancel safety
    /// As [`check`](Self::check): the units are spent when this is called.
    pub fn check_up_to(&self, key: impl AsKey, most: u64) -> DecisionFuture {
        self.ask(key, most, Mode::Take)
    }

    /// Says where the key stands and whether one unit would pass; spends nothing.
    ///
    /// Under a policy that waits it says whether a unit would pass without waiting.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    ///
    /// # Cancel safety
    /// Nothing is spent, so nothing is lost.
    pub fn peek(&self, key: impl AsKey) -> DecisionFuture {
        self.peek_cost(key, 1)
    }

    /// Says where the key stands and whether `cost` units would pass; spends nothing.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let upload = Policy::gcra("upload", "100/h").on(&MemoryStore::new())?;
    /// let look = upload.peek_cost("ada", 101).now().expect("memory answers at once")?;
    /// assert!(!look.is_allowed()); // more than there ever is
    /// assert_eq!(look.remaining(), 100); // and nothing was spent
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    ///
    /// # Cancel safety
    /// Nothing is spent, so nothing is lost.
    pub fn peek_cost(&self, key: impl AsKey, cost: u64) -> DecisionFuture {
        self.ask(key, cost, Mode::Peek)
    }

    /// Spends `cost` units now, or takes the first turn that comes within `longest`: an allowed decision says by its
    /// [`delay`](crate::Decision::delay) when. First come, first served; [`Turn`](super::Turn) waits for it, and gives it
    /// back when it is dropped.
    ///
    /// The units are spent when this returns, whether the caller comes at its time or not.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate_core::clock::ManualClock;
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let store = MemoryStore::builder().clock(ManualClock::new()).build()?;
    /// let calls = Policy::gcra("calls", "1/s burst 1").on(&store)?;
    /// let turn = || calls.reserve("api.example", 1, Duration::from_secs(2)).now().expect("memory answers at once");
    ///
    /// assert_eq!(turn()?.delay(), Duration::ZERO);
    /// assert_eq!(turn()?.delay(), Duration::from_secs(1));
    /// assert_eq!(turn()?.delay(), Duration::from_secs(2));
    /// // The fourth would have to wait for three seconds. It can be asked for again in one.
    /// assert_eq!(turn()?.retry_after(), Some(Duration::from_secs(1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    ///
    /// # Cancel safety
    /// The turn is taken when this is called. Dropping the future does not give it back.
    pub fn reserve(&self, key: impl AsKey, cost: u64, longest: Duration) -> DecisionFuture {
        self.ask(key, cost, Mode::Reserve { longest })
    }

    /// Gives `cost` units back, without knowing when they were spent: as if that had been just now. Units that have drained since are
    /// given back a second time then, so this is for units that were spent a moment ago, or by hand, for a customer;
    /// [`refund_of`](Self::refund_of) is exact. A key never gets better than at rest.
    ///
    /// # Errors
    /// When the store gave no answer. Whether the units were given back is unknown then; a refund
    /// is not repeated.
    ///
    /// # Cancel safety
    /// The store is told when this is called, whether the future is polled or not.
    pub fn refund(&self, key: impl AsKey, cost: u64) -> DecisionFuture {
        self.ask(key, cost, Mode::Refund)
    }

    /// Gives back `cost` units of those that a decision has spent, as far as they still count: a unit of a window that has
    /// ended, or one that has leaked out of its bucket, is history, and giving it back would admit more than the
    /// policy allows. The receipt is that of [`Decision::take_receipt`](crate::Decision::take_receipt); what was given back by it is gone from it.
    ///
    /// How exact it is depends on the policy. With
    /// [`refunds`](crate::policy::PolicyBuilder::refunds) all units come back that have not
    /// drained, in the order in which they came. Without it, everything that has leaked since
    /// counts against the refund, so that it may give back too little and never too much.
    ///
    /// # Errors
    /// When the store gave no answer; the receipt has lost the units nevertheless.
    ///
    /// # Cancel safety
    /// The receipt loses the units when this is called, and the store is told whether the future is
    /// polled or not.
    pub fn refund_of(&self, receipt: &mut Receipt, key: impl AsKey, cost: u64) -> DecisionFuture {
        let cost = cost.min(receipt.cost());
        let verdict = self.ask_of(receipt, key, cost, Mode::Refund);
        receipt.spend(cost);
        verdict
    }

    /// Spends `cost` units whether they fit or not; what does not fit is a debt that later requests wait for. A debt has a
    /// ceiling, ten bursts or ten limits, whichever is more, or that of
    /// [`PolicyBuilder::debt_up_to`](crate::policy::PolicyBuilder::debt_up_to): use above it is forgotten, so that one charge
    /// cannot lock a key out for years.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate_core::clock::ManualClock;
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let store = MemoryStore::builder().clock(ManualClock::new()).build()?;
    /// let tokens = Policy::gcra("tokens", "5/min").on(&store)?;
    /// tokens.charge("ada", 8).now().expect("memory answers at once")?; // three more than there are
    ///
    /// let denied = tokens.check("ada").now().expect("memory answers at once")?;
    /// assert_eq!((denied.remaining(), denied.retry_after()), (0, Some(Duration::from_secs(48))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the store gave no answer. A `Resilient` store keeps account of the charge instead and
    /// pays it later.
    ///
    /// # Cancel safety
    /// The store is told when this is called, whether the future is polled or not.
    pub fn charge(&self, key: impl AsKey, cost: u64) -> DecisionFuture {
        self.ask(key, cost, Mode::Charge)
    }

    /// Forgets the key: it has its whole burst again, or the units that a key that is not known
    /// [starts](crate::Quota::starting_with) with.
    ///
    /// Turns that were given out still come at their times, and a [suspension](crate::suspension) and
    /// the refusals that count towards one stay: [`release`](Self::release) ends that.
    ///
    /// # Errors
    /// When the store gave no answer, whatever the policy says of an outage: a key must not come
    /// back with the store.
    ///
    /// # Cancel safety
    /// The store is told when this is called, whether the future is polled or not.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let login = Policy::sliding_log("login", "5/h").on(&MemoryStore::new())?;
    /// login.check_cost("ada", 5).now().expect("memory answers at once")?;
    /// login.reset("ada").now().expect("memory answers at once")?; // support has talked to her
    /// assert_eq!(login.peek("ada").now().expect("memory answers at once")?.remaining(), 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reset(&self, key: impl AsKey) -> DecisionFuture {
        self.ask(key, 0, Mode::Reset)
    }

    fn ask_of(&self, receipt: &Receipt, key: impl AsKey, cost: u64, mode: Mode) -> DecisionFuture {
        key.with_key(|key| self.decide(&[Ask::new(self.newest().as_opened(), key, cost, mode).of(receipt)]))
    }

    fn ask(&self, key: impl AsKey, cost: u64, mode: Mode) -> DecisionFuture {
        self.with_opened(|opened| key.with_key(|key| self.decide(&[Ask::new(opened, key, cost, mode)])))
    }
}
