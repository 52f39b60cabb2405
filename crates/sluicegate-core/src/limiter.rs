//! The user's handle: [`RateLimiter`].

use std::collections::HashMap;
use std::fmt;
#[cfg(feature = "tokio")]
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use smallvec::SmallVec;

use crate::error::{ConfigError, StoreError, StoreErrorKind};
use crate::key::{AsKey, Key};
use crate::policy::{OnExceeded, Policy};
use crate::receipt::Receipt;
use crate::store::{Ask, Inherit, Mode, Opened, Store, Verdict};

/// A policy on a store: what services ask before they do something.
///
/// One type for every store, cheap to clone. There is one handle per policy name and store: whoever opens the name again
/// gets a clone, with the same buckets and queues, and sees a [`replace`](Self::replace) at once.
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

/// The handles of a store: one per policy name, so that everybody who names a policy sees its replacements and stands in
/// its queues. For authors of stores, who keep one and hand it out by [`Store::limiters`].
#[derive(Default)]
pub struct Limiters(Mutex<HashMap<String, Weak<Handle>>>);

impl Limiters {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Weak<Handle>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle of this name, if one is open.
    pub fn get(&self, name: &str) -> Option<RateLimiter> {
        self.lock().get(name).and_then(Weak::upgrade).map(RateLimiter)
    }

    /// All handles that are open, by name.
    pub fn all(&self) -> Vec<RateLimiter> {
        let mut all: Vec<_> = self.lock().values().filter_map(Weak::upgrade).map(RateLimiter).collect();
        all.sort_by(|a, b| a.0.first.policy().name().cmp(b.0.first.policy().name()));
        all
    }
}

impl fmt::Debug for Limiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.all()).finish()
    }
}

impl RateLimiter {
    /// Puts a policy on a store, or finds it there: a name that is open gives the handle that is open, with its buckets,
    /// its queues, and the policy that has replaced this one since.
    ///
    /// # Errors
    /// When the store cannot keep the policy exactly, or its name is in use there for a different one.
    pub fn new(store: impl Into<Arc<dyn Store>>, policy: Policy) -> Result<Self, ConfigError> {
        let store = store.into();
        let mut open = store.limiters().lock();
        if let Some(limiter) = open.get(policy.name()).and_then(Weak::upgrade).map(Self) {
            drop(open);
            limiter.joined_by(&policy)?;
            return Ok(limiter);
        }
        let first = store.open(Arc::new(policy), None)?;
        let current = ArcSwap::from_pointee(first.clone());
        let name = first.policy().name().to_owned();
        let handle = Arc::new(Handle {
            store: Arc::clone(&store),
            first,
            current,
            replacements: AtomicU64::new(0),
            replacing: Mutex::new(()),
            #[cfg(feature = "tokio")]
            queues: crate::turn::Queues::default(),
        });
        open.retain(|_, handle| handle.strong_count() > 0);
        open.insert(name, Arc::downgrade(&handle));
        Ok(Self(handle))
    }

    /// Whether whoever names this policy means this handle: it was opened by that policy, or is replaced by it.
    fn joined_by(&self, policy: &Policy) -> Result<(), ConfigError> {
        let current = self.policy();
        if !policy.is_like(self.0.first.policy()) && !policy.is_like(&current) {
            return Err(crate::registry::name_taken(policy, &current));
        }
        if policy.gives_back() { self.keep_accounts() } else { Ok(()) }
    }

    /// Whether both are the handle of the same policy on the same store.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        self.with_opened(|opened| Arc::clone(opened.policy()))
    }

    /// The store that decides.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// Replaces the policy for everybody who names it on this store; `inherit` says how keys start under the new one. By an
    /// equal policy it changes nothing, unless everybody is to start afresh. Accounts that are
    /// [kept](Self::keep_accounts) stay kept.
    ///
    /// # Errors
    /// When the new policy has another name, or the store cannot keep it; the old one then stays in force.
    pub fn replace(&self, policy: Policy, inherit: Inherit) -> Result<(), ConfigError> {
        let _one_at_a_time = self.0.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let keeps_accounts = policy.gives_back() || !self.policy().gives_back();
        self.swap(if keeps_accounts { policy } else { policy.with_refunds() }, inherit)
    }

    /// From now on the store keeps account of what is given back, so that a refund is exact; see
    /// [`PolicyBuilder::refunds`](crate::PolicyBuilder::refunds).
    ///
    /// # Errors
    /// When the store cannot keep it.
    pub fn keep_accounts(&self) -> Result<(), ConfigError> {
        let _one_at_a_time = self.0.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = self.policy();
        if policy.gives_back() { Ok(()) } else { self.swap(policy.with_refunds(), Inherit::Spent) }
    }

    fn swap(&self, policy: Policy, inherit: Inherit) -> Result<(), ConfigError> {
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
    pub(crate) fn identity(&self) -> Identity {
        Identity(Arc::downgrade(&self.0))
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn queues(&self) -> &crate::turn::Queues {
        &self.0.queues
    }

    /// Decides one unit now, and spends it if allowed. A policy that waits is asked for a turn: an allowed decision
    /// may then have a [`delay`](crate::Decision::delay) to be kept.
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
    /// [`delay`](crate::Decision::delay) when. First come, first served; [`Turn`](crate::Turn) waits for it, and gives it
    /// back when it is dropped.
    pub fn reserve(&self, key: impl AsKey, cost: u64, longest: Duration) -> Verdict {
        self.ask(key, cost, Mode::Reserve { longest })
    }

    /// Gives `cost` units back, without knowing when they were spent: as if that had been just now. What has drained since is
    /// given back a second time then, so this is for units that were spent a moment ago, or by hand, for a customer;
    /// [`refund_of`](Self::refund_of) is exact. A key never gets better than at rest.
    pub fn refund(&self, key: impl AsKey, cost: u64) -> Verdict {
        self.ask(key, cost, Mode::Refund)
    }

    /// Gives back `cost` units of those that a decision has spent, as far as they still count: a unit of a window that has
    /// ended, or one that has leaked out of its bucket, is history, and giving it back would admit more than the
    /// policy allows. The receipt is that of [`Decision::take_receipt`](crate::Decision::take_receipt); what was given back by it is gone from it.
    pub fn refund_of(&self, receipt: &mut Receipt, key: impl AsKey, cost: u64) -> Verdict {
        let cost = cost.min(receipt.cost());
        let verdict = self.ask_of(receipt, key, cost, Mode::Refund);
        receipt.spend(cost);
        verdict
    }

    /// Gives up a turn that has not come. The decision is allowed if the store takes it back; otherwise a later turn may
    /// depend on it, and it stays.
    #[cfg(any(feature = "tokio", feature = "conformance"))]
    pub(crate) fn give_up<'a>(turns: impl IntoIterator<Item = (&'a Self, &'a Key, &'a Receipt)>) -> Verdict {
        Self::about(turns, Mode::Return)
    }

    /// The turn has come: what other limits held for it is spent.
    #[cfg(feature = "tokio")]
    pub(crate) fn depart<'a>(turns: impl IntoIterator<Item = (&'a Self, &'a Key, &'a Receipt)>) -> Verdict {
        Self::about(turns, Mode::Depart)
    }

    #[cfg(any(feature = "tokio", feature = "conformance"))]
    fn about<'a>(turns: impl IntoIterator<Item = (&'a Self, &'a Key, &'a Receipt)>, mode: Mode) -> Verdict {
        let turns: SmallVec<[_; 2]> = turns
            .into_iter()
            .map(|(limiter, key, receipt)| (limiter.opened(), limiter, key, receipt))
            .collect();
        let asks: SmallVec<[Ask<'_>; 2]> = turns
            .iter()
            .map(|(opened, _, key, receipt)| {
                Ask::new(opened.as_opened(), key.as_ref(), receipt.cost(), mode).of(receipt)
            })
            .collect();
        match turns.first() {
            Some((_, limiter, ..)) => limiter.0.store.decide(&asks),
            None => Verdict::ready(Err(StoreError::new(StoreErrorKind::NothingAsked))),
        }
    }

    /// Spends `cost` units whether they fit or not; what does not fit is a debt that later requests wait for. A debt has a
    /// ceiling, ten bursts or ten limits, whichever is more, or that of
    /// [`PolicyBuilder::debt_up_to`](crate::PolicyBuilder::debt_up_to): use above it is forgotten, so that one charge
    /// cannot lock a key out for years.
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

    /// Charges and refunds under several limiters of one store, together in one call.
    pub fn change_all<'a>(changes: impl IntoIterator<Item = (&'a Self, &'a Key, Change<'a>)>) -> Verdict {
        let mut changes: SmallVec<[_; 4]> = changes
            .into_iter()
            .map(|(limiter, key, change)| {
                let cost = match &change {
                    Change::Charge(cost) => *cost,
                    Change::Refund(receipt, cost) => receipt.cost().min(*cost),
                    Change::Nothing => 0,
                };
                (limiter, limiter.opened(), key, change, cost)
            })
            .collect();
        let Some((first, ..)) = changes.first() else {
            return Verdict::ready(Err(StoreError::new(StoreErrorKind::NothingAsked)));
        };
        let store = Arc::clone(&first.0.store);
        if !changes.iter().all(|(other, ..)| Arc::ptr_eq(&other.0.store, &store)) {
            return Verdict::ready(Err(StoreError::new(StoreErrorKind::ForeignPolicy)));
        }
        let asks: SmallVec<[Ask<'_>; 4]> = changes
            .iter()
            .map(|(_, opened, key, change, cost)| {
                let ask = |mode| Ask::new(opened.as_opened(), key.as_ref(), *cost, mode);
                match change {
                    Change::Charge(_) => ask(Mode::Charge),
                    Change::Refund(receipt, _) => ask(Mode::Refund).of(receipt),
                    Change::Nothing => ask(Mode::Refund),
                }
            })
            .collect();
        let verdict = store.decide(&asks);
        drop(asks);
        for (.., change, cost) in &mut changes {
            if let Change::Refund(receipt, _) = change {
                receipt.spend(*cost);
            }
        }
        verdict
    }

    fn ask_of(&self, receipt: &Receipt, key: impl AsKey, cost: u64, mode: Mode) -> Verdict {
        self.with_opened(|opened| {
            key.with_key(|key| self.0.store.decide(&[Ask::new(opened, key, cost, mode).of(receipt)]))
        })
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

/// What has become of a request that was let through: for [`RateLimiter::change_all`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Change<'a> {
    /// It has cost so much more; see [`RateLimiter::charge`].
    Charge(u64),
    /// Up to so many units of this receipt are given back; see [`RateLimiter::refund_of`].
    Refund(&'a mut Receipt, u64),
    /// Nothing; the decision says where the key stands.
    Nothing,
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

/// Which handle it is, without keeping it open. While there is one of these, no other handle is taken for it.
#[cfg(feature = "tokio")]
#[derive(Clone)]
pub(crate) struct Identity(Weak<Handle>);

#[cfg(feature = "tokio")]
impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

#[cfg(feature = "tokio")]
impl Eq for Identity {}

#[cfg(feature = "tokio")]
impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_ptr().hash(state);
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RateLimiter({})", self.policy())
    }
}
