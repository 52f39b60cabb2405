//! The user's handle: [`RateLimiter`].

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use smallvec::SmallVec;

use crate::decision::Decision;
use crate::error::{ConfigError, StoreError, StoreErrorKind};
use crate::key::{AsKey, Key};
use crate::policy::{OnExceeded, Policy};
use crate::store::{Ask, Inherit, Mode, Opened, Store, Verdict};

/// A policy on a store: what services ask before they do something.
///
/// One type for every store, cheap to clone; clones share the same buckets and see a [`replace`](Self::replace) at once.
///
/// All methods that ask the store return a [`Verdict`]: a future that is ready at once on a [`MemoryStore`], where
/// [`Verdict::now`] serves code that is not async.
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
    first: Opened,
    /// The current policy once there was a replacement. A limiter that is never replaced does not pay for the swap.
    current: ArcSwap<Opened>,
    replacements: AtomicU64,
    replacing: Mutex<()>,
    #[cfg(feature = "tokio")]
    queues: crate::turn::Queues,
}

impl RateLimiter {
    /// Puts a policy on a store. Equal policies on one store share their buckets.
    ///
    /// # Errors
    /// When the store cannot keep the policy exactly, or its name is in use there for a different one.
    pub fn new(store: impl Into<Arc<dyn Store>>, policy: Policy) -> Result<Self, ConfigError> {
        let store = store.into();
        let first = store.open(Arc::new(policy), None)?;
        let current = ArcSwap::from_pointee(first.clone());
        Ok(Self(Arc::new(Handle {
            store,
            first,
            current,
            replacements: AtomicU64::new(0),
            replacing: Mutex::new(()),
            #[cfg(feature = "tokio")]
            queues: crate::turn::Queues::default(),
        })))
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        self.with_opened(|opened| Arc::clone(opened.policy()))
    }

    /// The store that decides.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// Replaces the policy for all clones of this limiter; `inherit` says how keys start under the new one.
    ///
    /// # Errors
    /// When the new policy has another name, or the store cannot keep it; the old one then stays in force.
    pub fn replace(&self, policy: Policy, inherit: Inherit) -> Result<(), ConfigError> {
        let _one_at_a_time = self.0.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.0.current.load();
        let opened = self.0.store.open(Arc::new(policy), Some((&old, inherit)))?;
        self.0.current.store(Arc::new(opened));
        // Release: whoever sees the count also sees the new policy.
        self.0.replacements.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// How often the policy was replaced: what was derived from [`policy`](Self::policy) is out of date when this
    /// has changed.
    #[inline]
    pub fn replacements(&self) -> u64 {
        // Acquire: pairs with the release in `replace`.
        self.0.replacements.load(Ordering::Acquire)
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn queues(&self) -> &crate::turn::Queues {
        &self.0.queues
    }

    /// Decides one unit now, and spends it if allowed. A policy that waits is asked for a turn: an allowed decision
    /// may then have a [`delay`](Decision::delay) to be kept.
    #[inline]
    pub fn check(&self, key: impl AsKey) -> Verdict {
        self.check_cost(key, 1)
    }

    /// Decides `cost` units now, and spends them if allowed.
    #[inline]
    pub fn check_cost(&self, key: impl AsKey, cost: u64) -> Verdict {
        self.with_opened(|opened| {
            let mode = spending_mode(opened.policy().on_exceeded());
            key.with_key(|key| self.0.store.decide(&[Ask::new(opened, key, cost, mode)]))
        })
    }

    /// Says where the key stands and whether one unit would pass; spends nothing.
    pub fn peek(&self, key: impl AsKey) -> Verdict {
        self.peek_cost(key, 1)
    }

    /// Says where the key stands and whether `cost` units would pass; spends nothing.
    pub fn peek_cost(&self, key: impl AsKey, cost: u64) -> Verdict {
        self.ask(key, cost, Mode::Peek)
    }

    /// Spends `cost` units now, or takes the first turn that comes within `longest`: an allowed decision says by its
    /// [`delay`](Decision::delay) when. First come, first served; whoever does not take its turn gives it
    /// back with [`refund`](Self::refund).
    pub fn reserve(&self, key: impl AsKey, cost: u64, longest: Duration) -> Verdict {
        self.ask(key, cost, Mode::Reserve { longest })
    }

    /// Gives `cost` units back. A key never gets better than at rest. While turns are reserved ahead, what is given back
    /// is the last of them.
    pub fn refund(&self, key: impl AsKey, cost: u64) -> Verdict {
        self.ask(key, cost, Mode::Refund { spent_us: None })
    }

    /// Gives back `cost` units that `decision` spent, as far as they still count: a unit of a window that has ended, or
    /// one that has leaked out of its bucket, is history, and giving it back would admit more than the policy allows.
    pub fn refund_of(&self, decision: &Decision, key: impl AsKey, cost: u64) -> Verdict {
        self.ask(key, cost, Mode::Refund { spent_us: Some(decision.spent_us()) })
    }

    /// Spends `cost` units whether they fit or not; what does not fit is a debt that later requests wait for. A debt of
    /// more than one burst may saturate where the quota is an awkward one; round quotas hold thousands of bursts.
    pub fn charge(&self, key: impl AsKey, cost: u64) -> Verdict {
        self.ask(key, cost, Mode::Charge)
    }

    /// Forgets the key: it has its whole burst again.
    pub fn reset(&self, key: impl AsKey) -> Verdict {
        self.ask(key, 0, Mode::Reset)
    }

    /// Decides a request that several limiters have a say in, each with its own key and cost: all spend, or none.
    ///
    /// The limiters must be on the same store; otherwise the verdict is [`StoreErrorKind::ForeignPolicy`].
    pub fn check_all<'a>(checks: impl IntoIterator<Item = (&'a Self, &'a Key, u64)>) -> Verdict {
        Self::decide_all(checks.into_iter().map(|(limiter, key, cost)| (limiter, key, cost, None)))
    }

    /// Decides several limiters together. Without a mode, a policy spends, or waits if it is one that waits.
    pub fn decide_all<'a>(asks: impl IntoIterator<Item = (&'a Self, &'a Key, u64, Option<Mode>)>) -> Verdict {
        let mut asks = asks.into_iter();
        let Some(first @ (limiter, key, cost, mode)) = asks.next() else {
            return Verdict::ready(Err(StoreError::new(StoreErrorKind::NothingAsked)));
        };
        let Some(second) = asks.next() else {
            // Almost always it is one limiter; it needs no lists.
            return limiter.with_opened(|opened| {
                let mode = mode.unwrap_or_else(|| spending_mode(opened.policy().on_exceeded()));
                limiter.0.store.decide(&[Ask::new(opened, key.as_ref(), cost, mode)])
            });
        };
        let asks: SmallVec<[_; 4]> = [first, second]
            .into_iter()
            .chain(asks)
            .map(|(limiter, key, cost, mode)| (limiter, limiter.opened(), key, cost, mode))
            .collect();
        if !asks.iter().all(|(other, ..)| Arc::ptr_eq(&other.0.store, &limiter.0.store)) {
            return Verdict::ready(Err(StoreError::new(StoreErrorKind::ForeignPolicy)));
        }
        let asks: SmallVec<[Ask<'_>; 4]> = asks
            .iter()
            .map(|(_, opened, key, cost, mode)| {
                let opened = opened.as_opened();
                let mode = mode.unwrap_or_else(|| spending_mode(opened.policy().on_exceeded()));
                Ask::new(opened, key.as_ref(), *cost, mode)
            })
            .collect();
        limiter.0.store.decide(&asks)
    }

    fn ask(&self, key: impl AsKey, cost: u64, mode: Mode) -> Verdict {
        self.with_opened(|opened| {
            key.with_key(|key| self.0.store.decide(&[Ask::new(opened, key, cost, mode)]))
        })
    }

    #[inline]
    fn with_opened<T>(&self, use_it: impl FnOnce(&Opened) -> T) -> T {
        use_it(self.opened().as_opened())
    }

    #[inline]
    fn opened(&self) -> Current<'_> {
        match self.replacements() {
            0 => Current::First(&self.0.first),
            _ => Current::Replaced(self.0.current.load()),
        }
    }
}

/// The policy in force, for as long as a call takes.
enum Current<'a> {
    First(&'a Opened),
    Replaced(arc_swap::Guard<Arc<Opened>>),
}

impl Current<'_> {
    #[inline]
    fn as_opened(&self) -> &Opened {
        match self {
            Self::First(opened) => opened,
            Self::Replaced(guard) => guard,
        }
    }
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
