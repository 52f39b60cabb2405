//! The user's handle: [`RateLimiter`].
//! | call | spends | answers |
//! |---|---|---|
//! | [`check`](RateLimiter::check) | one unit, if allowed | now |
//! | [`peek`](RateLimiter::peek) | nothing | now |
//! | `acquire` (feature `tokio`) | some units | when it is the caller's turn, or at once that this is too far away |
//! | [`reserve`](RateLimiter::reserve) | some units, or a turn in the future | now, with the delay to be kept |
//! | [`charge`](RateLimiter::charge) | some units, into debt if they do not fit | now |
//! | [`refund`](RateLimiter::refund), [`refund_of`](RateLimiter::refund_of) | gives back | now |
//! | [`reset`](RateLimiter::reset) | forgets the key | now |
//!
//! "Now" is at once in memory, and one round trip on Redis.

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

struct Handle {
    store: Arc<dyn Store>,
    always_answers: bool,
    first: PreparedPolicy,
    /// The current policy once there was a replacement. A limiter that is never replaced does not pay for the swap.
    current: ArcSwap<InForce>,
    replacements: AtomicU64,
    /// Locked by whoever replaces the policy.
    own: Mutex<Own>,
    #[cfg(feature = "tokio")]
    queues: crate::wait::Queues,
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
    fn new(store: Arc<dyn Store>, first: PreparedPolicy) -> Self {
        Self {
            always_answers: store.always_answers(),
            store,
            current: ArcSwap::from_pointee(InForce { prepared: first.clone(), over: None }),
            own: Mutex::new(Own { policy: Arc::clone(first.policy()), refused: 0 }),
            first,
            replacements: AtomicU64::new(0),
            #[cfg(feature = "tokio")]
            queues: crate::wait::Queues::default(),
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
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// How often the policy was replaced: what was derived from [`policy`](Self::policy) is out of date when this
    /// has changed.
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
    #[inline]
    pub fn check(&self, key: impl AsKey) -> DecisionFuture {
        self.check_cost(key, 1)
    }

    /// Decides `cost` units now, and spends them if allowed.
    #[inline]
    pub fn check_cost(&self, key: impl AsKey, cost: u64) -> DecisionFuture {
        self.with_opened(|opened| {
            let mode = spending_mode(opened.policy().on_exceeded());
            key.with_key(|key| self.decide(&[Ask::new(opened, key, cost, mode)]))
        })
    }

    /// Says where the key stands and whether one unit would pass; spends nothing.
    pub fn peek(&self, key: impl AsKey) -> DecisionFuture {
        self.peek_cost(key, 1)
    }

    /// Says where the key stands and whether `cost` units would pass; spends nothing.
    pub fn peek_cost(&self, key: impl AsKey, cost: u64) -> DecisionFuture {
        self.ask(key, cost, Mode::Peek)
    }

    /// Spends `cost` units now, or takes the first turn that comes within `longest`: an allowed decision says by its
    /// [`delay`](crate::Decision::delay) when. First come, first served; [`Turn`] waits for it, and gives it
    /// back when it is dropped.
    pub fn reserve(&self, key: impl AsKey, cost: u64, longest: Duration) -> DecisionFuture {
        self.ask(key, cost, Mode::Reserve { longest })
    }

    /// Gives `cost` units back, without knowing when they were spent: as if that had been just now. What has drained since is
    /// given back a second time then, so this is for units that were spent a moment ago, or by hand, for a customer;
    /// [`refund_of`](Self::refund_of) is exact. A key never gets better than at rest.
    pub fn refund(&self, key: impl AsKey, cost: u64) -> DecisionFuture {
        self.ask(key, cost, Mode::Refund)
    }

    /// Gives back `cost` units of those that a decision has spent, as far as they still count: a unit of a window that has
    /// ended, or one that has leaked out of its bucket, is history, and giving it back would admit more than the
    /// policy allows. The receipt is that of [`Decision::take_receipt`](crate::Decision::take_receipt); what was given back by it is gone from it.
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
    pub fn charge(&self, key: impl AsKey, cost: u64) -> DecisionFuture {
        self.ask(key, cost, Mode::Charge)
    }

    /// Forgets the key: it has its whole burst again.
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
        if asks.iter().any(off::is_off) {
            return self.decide_without_off(asks);
        }
        // A decision is large, and even to look at it costs a copy of it: a tenth of a decision in memory.
        if self.0.always_answers {
            return self.0.store.decide(asks);
        }
        or_by_policy(self.0.store.decide(asks), asks)
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
