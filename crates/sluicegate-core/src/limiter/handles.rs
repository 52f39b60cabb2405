//! One handle per policy name and store: opening one, finding it again, and replacing its policy for everybody.

use std::collections::HashMap;
use std::fmt;
#[cfg(feature = "tokio")]
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;

use super::{Handle, RateLimiter};
use crate::error::ConfigError;
use crate::policy::Policy;
use crate::store::{Inherit, Store};

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
            queues: crate::wait::Queues::default(),
        });
        open.retain(|_, handle| handle.strong_count() > 0);
        open.insert(name, Arc::downgrade(&handle));
        Ok(Self(handle))
    }

    /// Whether whoever names this policy means this handle: it was opened by that policy, or is replaced by it.
    fn joined_by(&self, policy: &Policy) -> Result<(), ConfigError> {
        let current = self.policy();
        if !policy.is_like(self.0.first.policy()) && !policy.is_like(&current) {
            return Err(crate::store::name_taken(policy, &current));
        }
        if policy.gives_back() { self.keep_accounts() } else { Ok(()) }
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
    /// [`PolicyBuilder::refunds`](crate::policy::PolicyBuilder::refunds).
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

    #[cfg(feature = "tokio")]
    pub(crate) fn identity(&self) -> Identity {
        Identity(Arc::downgrade(&self.0))
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
