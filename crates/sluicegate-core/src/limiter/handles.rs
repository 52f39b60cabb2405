//! One handle per policy name and store: opening one, finding it again, and replacing its policy for everybody.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;

use super::{Handle, RateLimiter};
use crate::algorithm::Inherit;
use crate::error::ConfigError;
use crate::policy::{Policy, PolicyBuilder};
use crate::store::{Limiters, Store};

impl Limiters {
    /// The handle of this name, if one is open.
    pub fn get(&self, name: &str) -> Option<RateLimiter> {
        self.lock().get(name).and_then(limiter)
    }

    /// All handles that are open, by name.
    pub fn all(&self) -> Vec<RateLimiter> {
        let mut all: Vec<_> = self.lock().values().filter_map(limiter).collect();
        all.sort_by(|a, b| a.0.first.policy().name().cmp(b.0.first.policy().name()));
        all
    }
}

/// The limiter whose handle a store holds.
fn limiter(handle: &Weak<dyn Any + Send + Sync>) -> Option<RateLimiter> {
    handle.upgrade()?.downcast().ok().map(RateLimiter)
}

impl PolicyBuilder {
    /// Builds the policy and puts it on a store: the last step to a [`RateLimiter`].
    ///
    /// # Errors
    /// As [`build`](Self::build), and whatever the store cannot keep.
    pub fn on(self, store: impl Into<Arc<dyn Store>>) -> Result<RateLimiter, ConfigError> {
        RateLimiter::new(store, self.build()?)
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
        if let Some(limiter) = open.get(policy.name()).and_then(limiter) {
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
        let weak: Weak<Handle> = Arc::downgrade(&handle);
        open.insert(name, weak);
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
    pub(crate) fn identity(&self) -> crate::wait::Identity {
        crate::wait::Identity::of(&self.0)
    }
}
