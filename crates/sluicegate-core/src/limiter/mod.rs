//! The user's handle: [`RateLimiter`].
//!
//! | call | spends | answers |
//! |---|---|---|
//! | [`check`](RateLimiter::check) | one unit, if allowed | now |
//! | [`peek`](RateLimiter::peek) | nothing | now |
//! | `acquire` (feature `tokio`) | some units | when it is the caller's turn, or at once that this is too far away |
//! | [`reserve`](RateLimiter::reserve) | some units, or a turn in the future | now, with the delay to be kept |
//! | [`charge`](RateLimiter::charge) | some units, into debt if they do not fit | now |
//! | [`refund`](RateLimiter::refund), [`refund_of`](RateLimiter::refund_of) | gives back | now |
//! | [`reset`](RateLimiter::reset) | forgets the key | now |
//! | [`suspend`](RateLimiter::suspend), [`release`](RateLimiter::release) | nothing; the key is refused outright for a time, or no longer | now |
//!
//! "Now" is at once in memory, and one round trip on Redis.
//!
//! # Which call
//! - *Before the work*, with a known cost: `check`. Costs that are known only afterwards are
//!   charged afterwards, or estimated before and settled by `refund_of`.
//! - *A job that may wait*: `acquire`. It keeps the order of arrival and needs no loop of checks
//!   and sleeps.
//! - *For a display*: `peek`. A peek and a later check are two calls, and another request may come
//!   between them, so never decide by a peek.
//!
//! # When not to use it
//! Around an HTTP service use the layer, which finds the key, writes the header fields and keeps
//! the delays. For work that is limited by how much of it goes on at once, use
//! [`in_flight`](crate::in_flight).
//!
//! # An outage
//! A question (`check`, `peek`, `reserve`, `acquire`) that the store does not answer becomes a
//! decision by what the policy [says of an outage](crate::OnOutage). A report (`charge`, `refund`,
//! `reset`) stays an error, because it may or may not have happened:
//! [`StoreError::may_have_spent`](crate::StoreError::may_have_spent) tells.

mod by_hand;
mod handles;
mod off;
mod open;
mod overrides;
mod replacement;
#[cfg(feature = "tokio")]
#[cfg(test)]
mod tests;
mod together;
#[cfg(feature = "tokio")]
mod turn;

use std::fmt;
#[cfg(feature = "tokio")]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use smallvec::SmallVec;

pub use self::overrides::{OverrideError, OverrideErrorKind, Overrides};
pub use self::together::Change;
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use self::turn::Turn;
pub use crate::algorithm::Inherit;
use crate::key::AsKey;
use crate::policy::{OnExceeded, Override, Policy};
pub use crate::receipt::Receipt;
pub use crate::store::Limiters;
use crate::store::{Ask, DecisionFuture, Mode, PreparedPolicy, Store, in_outage};
use crate::suspension::{self, suspends};

/// A policy on a store: what services ask before they do something.
///
/// One type for every store, cheap to clone. There is one handle per policy name and store: whoever opens the name again
/// gets a clone, with the same buckets and queues, and sees a [`replace`](Self::replace) at once.
///
/// All methods that ask the store return a [`DecisionFuture`]: a future that is ready at once on a [`MemoryStore`], where
/// [`DecisionFuture::now`] serves code that is not async.
///
/// ```
/// use sluicegate_core::{MemoryStore, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let login = Policy::sliding_counter("login", "5/min").on(&MemoryStore::new())?;
///
/// assert!(login.check("ada").await?.is_allowed());
/// login.charge("ada", 4).await?; // known only afterwards: it was a costly one
/// assert!(!login.check("ada").await?.is_allowed());
/// login.refund("ada", 1).await?;
/// assert_eq!(login.peek("ada").await?.remaining(), 1);
/// # Ok(())
/// # }
/// ```
///
/// [`MemoryStore`]: crate::MemoryStore
#[derive(Clone)]
pub struct RateLimiter(Arc<Handle>);

/// The one handle of a name on a store. All clones of a [`RateLimiter`] share it, and the store
/// holds it weakly, so that a name is free again when the last clone is gone.
struct Handle {
    store: Arc<dyn Store>,
    always_answers: bool,
    first: PreparedPolicy,
    /// Whether it was opened by a file of rules, whose policy stands in for whatever code has under this name.
    is_ruled: bool,
    /// The current policy once there was a replacement. A limiter that is never replaced does not pay for the swap.
    current: ArcSwap<InForce>,
    replacements: AtomicU64,
    /// Locked by whoever replaces the policy.
    own: Mutex<Own>,
    #[cfg(feature = "tokio")]
    queues: crate::wait::Queues,
    #[cfg(feature = "tokio")]
    waiting: AtomicUsize,
}

/// The policy that decides, and the override that has made it what it is.
struct InForce {
    prepared: PreparedPolicy,
    over: Option<Arc<Override>>,
}

/// The policy as code has put it in force, whatever an operator makes of it.
struct Own {
    policy: Arc<Policy>,
    /// The version of the last override that could not be kept here.
    refused: u64,
}

impl Handle {
    fn new(store: Arc<dyn Store>, first: PreparedPolicy, own: Arc<Policy>, is_ruled: bool) -> Self {
        Self {
            is_ruled,
            always_answers: store.always_answers(),
            store,
            current: ArcSwap::from_pointee(InForce { prepared: first.clone(), over: None }),
            own: Mutex::new(Own { policy: own, refused: 0 }),
            first,
            replacements: AtomicU64::new(0),
            #[cfg(feature = "tokio")]
            queues: crate::wait::Queues::default(),
            #[cfg(feature = "tokio")]
            waiting: AtomicUsize::new(0),
        }
    }
}

impl RateLimiter {
    /// Whether both are the handle of the same policy on the same store.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The policy in force: that of the code, or as an [override](Overrides) has it.
    pub fn policy(&self) -> Arc<Policy> {
        self.with_opened(|opened| Arc::clone(opened.policy()))
    }

    /// Reads the policy in force where it is: cheaper than a [`policy`](Self::policy) of one's own.
    #[inline]
    pub fn with_policy<T>(&self, read: impl FnOnce(&Policy) -> T) -> T {
        self.with_opened(|opened| read(opened.policy()))
    }

    /// The store that decides.
    ///
    /// Limiters of one store can be asked [together](Self::check_all).
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// How often the policy was replaced: what was derived from [`policy`](Self::policy) is out of date when this
    /// has changed.
    ///
    /// Use it to keep something that is costly to derive, such as header values, beside the handle:
    /// keep the count with it, and derive anew when the two differ.
    #[inline]
    pub fn replacements(&self) -> u64 {
        // Acquire: pairs with the release in `replace`.
        self.0.replacements.load(Ordering::Acquire)
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn queues(&self) -> &crate::wait::Queues {
        &self.0.queues
    }

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
    #[inline]
    pub fn check_cost(&self, key: impl AsKey, cost: u64) -> DecisionFuture {
        self.with_opened(|opened| {
            let mode = spending_mode(opened.policy().on_exceeded());
            key.with_key(|key| self.decide(&[Ask::new(opened, key, cost, mode)]))
        })
    }

    /// Says where the key stands and whether one unit would pass; spends nothing.
    ///
    /// Under a policy that waits it says whether a unit would pass without waiting.
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
    pub fn peek_cost(&self, key: impl AsKey, cost: u64) -> DecisionFuture {
        self.ask(key, cost, Mode::Peek)
    }

    /// Spends `cost` units now, or takes the first turn that comes within `longest`: an allowed decision says by its
    /// [`delay`](crate::Decision::delay) when. First come, first served; [`Turn`] waits for it, and gives it
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
    pub fn reserve(&self, key: impl AsKey, cost: u64, longest: Duration) -> DecisionFuture {
        self.ask(key, cost, Mode::Reserve { longest })
    }

    /// Gives `cost` units back, without knowing when they were spent: as if that had been just now. What has drained since is
    /// given back a second time then, so this is for units that were spent a moment ago, or by hand, for a customer;
    /// [`refund_of`](Self::refund_of) is exact. A key never gets better than at rest.
    ///
    /// # Errors
    /// When the store gave no answer. Whether the units were given back is unknown then; a refund
    /// is not repeated.
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
    pub fn charge(&self, key: impl AsKey, cost: u64) -> DecisionFuture {
        self.ask(key, cost, Mode::Charge)
    }

    /// Forgets the key: it has its whole burst again.
    ///
    /// Turns that were given out still come at their times, and a [suspension] and
    /// the refusals that count towards one stay: [`release`](Self::release) ends that.
    ///
    /// # Errors
    /// When the store gave no answer, whatever the policy says of an outage: a key must not come
    /// back with the store.
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
        self.with_opened(|opened| {
            key.with_key(|key| self.decide(&[Ask::new(opened, key, cost, mode).of(receipt)]))
        })
    }

    fn ask(&self, key: impl AsKey, cost: u64, mode: Mode) -> DecisionFuture {
        self.with_opened(|opened| key.with_key(|key| self.decide(&[Ask::new(opened, key, cost, mode)])))
    }

    /// Asks the store, of which all asks are.
    #[inline]
    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        // One look at the policies for all that is rare.
        if asks.iter().any(|ask| off::is_off(ask) || suspends(ask)) {
            return self.decide_specially(asks);
        }
        // A decision is large, and even to look at it costs a copy of it: a tenth of a decision in memory.
        if self.0.always_answers {
            return self.0.store.decide(asks);
        }
        or_by_policy(self.0.store.decide(asks), asks)
    }

    /// Decides where a policy is off, or suspends keys.
    #[cold]
    fn decide_specially(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        match asks.iter().any(off::is_off) {
            true => self.decide_without_off(asks),
            false => suspension::decide(&self.0.store, asks, decide_plainly),
        }
    }

    #[inline]
    fn with_opened<T>(&self, use_it: impl FnOnce(&PreparedPolicy) -> T) -> T {
        let replaced;
        use_it(match self.replacements() {
            0 => &self.0.first,
            _ => {
                replaced = self.in_force();
                &replaced.prepared
            }
        })
    }

    #[inline]
    fn opened(&self) -> Current<'_> {
        match self.replacements() {
            0 => Current::First(&self.0.first),
            _ => Current::Replaced(self.in_force()),
        }
    }

    /// What has replaced the first policy. The first who asks after the end of an override ends it.
    fn in_force(&self) -> arc_swap::Guard<Arc<InForce>> {
        let in_force = self.0.current.load();
        match &in_force.over {
            Some(over) if !over.stands_at(self.0.store.now_us()) => {
                self.end_override();
                self.0.current.load()
            }
            _ => in_force,
        }
    }
}

/// The policy in force, for as long as a call takes.
enum Current<'a> {
    First(&'a PreparedPolicy),
    Replaced(arc_swap::Guard<Arc<InForce>>),
}

impl Current<'_> {
    #[inline]
    fn as_opened(&self) -> &PreparedPolicy {
        match self {
            Self::First(opened) => opened,
            Self::Replaced(in_force) => &in_force.prepared,
        }
    }
}

/// Asks a store, whoever may be suspended.
fn decide_plainly(store: &dyn Store, asks: &[Ask<'_>]) -> DecisionFuture {
    or_by_policy(store.decide(asks), asks)
}

/// The answer of a store that may give none: its policies say what an outage means, whoever has asked.
fn or_by_policy(answer: DecisionFuture, asks: &[Ask<'_>]) -> DecisionFuture {
    if matches!(answer.known(), Some(Ok(_))) || !asks.iter().all(|ask| ask.mode().asks()) {
        return answer;
    }
    let policies = asks.iter().map(|ask| (Arc::clone(ask.policy().policy()), ask.mode()));
    let policies: SmallVec<[(Arc<Policy>, Mode); 2]> = policies.collect();
    answer.map(move |result| {
        result.or_else(|error| in_outage(policies.iter().map(|(policy, mode)| (&**policy, *mode)), error))
    })
}

#[inline]
fn spending_mode(on_exceeded: OnExceeded) -> Mode {
    match on_exceeded {
        OnExceeded::Deny => Mode::Spend,
        OnExceeded::Wait { longest } => Mode::Reserve { longest },
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RateLimiter({})", self.policy())
    }
}
