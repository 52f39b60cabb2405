//! Replaces a policy with the policy of code, as changed by an override: [`Replacement`].
//!
//! A handle has two policies: the one that code has put in force, and the one that decides, which an override may have changed.
//! Every replacement, by code, a file, an operator or the end of an override, has three steps: prepare, which can fail and has no
//! effect; commit, which cannot fail; and notification, outside of all locks.
//!
//! # Locks
//! The lock of a handle is held from prepare to commit, so that replacements follow each other. The locks of several
//! handles are taken in the order in which the policies were given, under the lock of the store's handles.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, TryLockError};
use std::time::Duration;

use super::handle::{InForce, RateLimiter};
use super::overrides::standing_on;
use crate::error::ConfigError;
use crate::policy::{Override, Policy};
use crate::store::{Event, Inherit, PreparedPolicy, Store, Subject};
use crate::support::lock;
use crate::suspension;

/// A policy that is prepared to replace the policy of a handle. It excludes other replacements.
pub(super) struct Replacement<'a> {
    lock: MutexGuard<'a, u64>,
    replaced: Replaced,
}

/// A replacement, for notifications when it has taken effect.
pub(super) struct Replaced {
    limiter: RateLimiter,
    old: Arc<InForce>,
    new: Arc<InForce>,
    inherit: Inherit,
}

impl<'a> Replacement<'a> {
    /// Prepares the policy of code, as changed by overrides if some are in force; `None` if the result is already in force.
    ///
    /// # Errors
    /// When the store cannot support the policy. An override that it cannot support is left out.
    pub(super) fn prepare(
        limiter: &RateLimiter,
        mut lock: MutexGuard<'a, u64>,
        policy: Policy,
        inherit: Inherit,
    ) -> Result<Option<Self>, ConfigError> {
        let (store, name) = (limiter.store(), limiter.handle.name());
        let old = limiter.handle.current.load_full();
        let now_us = store.now_us();
        let mut given: Vec<_> = store.limiters().overrides().all_given(name, now_us).cloned().collect();
        let over = standing_on(&**store, name, None);
        let new_keys = over.as_ref().filter(|over| over.is_for_new_keys()).cloned();
        let takes_quotas = !given.is_empty() || new_keys.is_some();
        let policy = if takes_quotas { policy.taking_quotas() } else { policy };
        let is_new = policy != *old.written;
        let over = over.filter(|over| is_new || over.version() != *lock);
        let open = |policy: &Policy| open_for(&**store, policy.clone(), &old, inherit);
        if over.is_some() && is_new {
            // The store must be able to support the policy after the override ends.
            open(&policy)?;
        }
        let changed = over.as_ref().map(|over| open(&over.changed(&policy)?));
        let (prepared, over) = match (over, changed) {
            (Some(over), Some(Ok(prepared))) => (prepared, Some(over)),
            (over, changed) => {
                if let (Some(over), Some(Err(error))) = (over, changed) {
                    // The policy of code applies unchanged. The override is reported once.
                    *lock = over.version();
                    warn(&over, &error);
                }
                (open(&policy)?, None)
            }
        };
        let new_keys = new_keys.filter(|_| over.is_some());
        let known_keys = match &new_keys {
            Some(over) if old.given.contains(over) => old.known_keys.clone(),
            Some(_) => store.limiters().known_keys(&policy),
            None => None,
        };
        // It has no key, and so is the first.
        given.splice(0..0, new_keys);
        let is_in_force = prepared.is(&old.prepared) && over == old.over && given == old.given;
        if is_in_force && !is_new {
            return Ok(None);
        }
        let ends_us = over.iter().chain(&given).map(|over| over.until_us()).min().unwrap_or(u64::MAX);
        let mut new = InForce::plain(prepared, Arc::new(policy), old.replacements + 1);
        (new.over, new.given, new.known_keys, new.ends_us) = (over, given, known_keys, ends_us);
        let (limiter, new) = (limiter.clone(), Arc::new(new));
        Ok(Some(Self { lock, replaced: Replaced { limiter, old, new, inherit } }))
    }

    /// The limiter after the commit, for code that runs before it.
    pub(super) fn limiter(&self) -> RateLimiter {
        self.replaced.limiter.before(&self.replaced.new)
    }

    /// Puts the policy in force.
    pub(super) fn commit(self) -> Replaced {
        let Self { lock, replaced } = self;
        let Replaced { limiter, old, new, inherit } = &replaced;
        if !new.prepared.is(&old.prepared) {
            // Before the first ask under the new policy, so that a later ask under the old one finds the spent units.
            suspension::replaced(&**limiter.store(), &old.prepared, &new.prepared, *inherit);
        }
        limiter.handle.current.store(Arc::clone(new));
        // Release: a thread that sees the count also sees the new policy.
        limiter.handle.replacements.fetch_add(1, Ordering::Release);
        drop(lock);
        replaced
    }
}

impl Replaced {
    /// Notifies listeners. To be called outside of all locks.
    pub(super) fn tell(&self) {
        let Self { limiter, old, new, inherit } = self;
        let store = &**limiter.store();
        let keys = |over: &Override| (over.key().cloned(), over.is_for_new_keys());
        let is_given = |over: &&Arc<Override>| new.given.iter().any(|given| keys(given) == keys(over));
        for over in old.given.iter().filter(|over| !is_given(over)) {
            let withdrawal = last_override(store, over).filter(|last| *last != *over);
            tell_of_key(store, over, Duration::ZERO, withdrawal.as_deref().map(Override::by));
        }
        for over in new.given.iter().filter(|over| !old.given.contains(over)) {
            let lasts = Duration::from_micros(over.until_us().saturating_sub(store.now_us()));
            tell_of_key(store, over, lasts, Some(over.by()));
        }
        let (before, after) = (old.prepared.policy(), new.prepared.policy());
        if before.is_like(after) && *inherit != Inherit::Reset {
            return;
        }
        // The override that has begun, or the withdrawal of the one that has ended.
        let over = match (&old.over, &new.over) {
            (old, new) if old == new => None,
            (_, Some(new)) => Some(Arc::clone(new)),
            (Some(old), None) => last_override(store, old).filter(|last| last.is_withdrawal()),
            (None, None) => None,
        };
        let by = over.as_deref().map(Override::by);
        #[cfg(feature = "tracing")]
        tracing::info!(
            target: "sluicegate::audit",
            policy = after.name(),
            from = %before,
            from_mode = %before.mode(),
            to = %after,
            to_mode = %after.mode(),
            inherit = %inherit,
            by,
            until_us = over.as_deref().map(Override::until_us),
            "the policy is replaced"
        );
        store.notice(&Event::PolicyReplaced { old: before, new: after, inherit: *inherit, by });
    }
}

/// The last override of the policy and key of `over`, which may be a withdrawal.
fn last_override(store: &dyn Store, over: &Override) -> Option<Arc<Override>> {
    store.limiters().overrides().last(over.policy(), over.key()).cloned()
}

/// Notifies listeners that a key has other quotas for this time, or no longer.
fn tell_of_key(store: &dyn Store, over: &Override, lasts: Duration, by: Option<&str>) {
    let subject = Subject::of(over.policy());
    let subject = over.key().map_or(subject, |key| subject.with_key(key.as_ref()));
    #[cfg(feature = "tracing")]
    {
        let (policy, key, until_us) =
            (over.policy(), over.key().map(crate::key::Key::shown), over.until_us());
        let what = if lasts.is_zero() {
            "a key no longer has the quotas that it was given"
        } else {
            "a key is given quotas for a time"
        };
        tracing::info!(target: "sluicegate::audit", policy, key, to = %over, by, until_us, "{what}");
    }
    store.notice(&Event::QuotasGiven { subject, quotas: over.quotas(), lasts, by });
}

impl RateLimiter {
    /// Prepares a replacement of the policy of code, which has no effect before it is committed. `None` if there is
    /// nothing to replace.
    pub(super) fn replacement(
        &self,
        policy: impl FnOnce(&Policy) -> Policy,
        inherit: Inherit,
    ) -> Result<Option<Replacement<'_>>, ConfigError> {
        let lock = lock(&self.handle.replacing);
        let written = Arc::clone(&self.handle.current.load().written);
        let policy = policy(&written).remembering_as(&written);
        Replacement::prepare(self, lock, policy, inherit)
    }

    /// Replaces the policy of code, and returns whether there was anything to replace.
    pub(super) fn replace_by(
        &self,
        policy: impl FnOnce(&Policy) -> Policy,
        inherit: Inherit,
    ) -> Result<bool, ConfigError> {
        let replaced = self.replacement(policy, inherit)?.map(Replacement::commit);
        replaced.iter().for_each(Replaced::tell);
        Ok(replaced.is_some())
    }

    /// Applies the overrides known here to the policy in force.
    pub(super) fn follow(&self) -> Option<Replaced> {
        self.follow_by(lock(&self.handle.replacing))
    }

    /// Ends an expired override, unless another thread is ending it.
    pub(super) fn end_override(&self) {
        let lock = match self.handle.replacing.try_lock() {
            Ok(lock) => lock,
            Err(TryLockError::Poisoned(lock)) => lock.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if let Some(replaced) = self.follow_by(lock) {
            replaced.tell();
        }
    }

    fn follow_by(&self, lock: MutexGuard<'_, u64>) -> Option<Replaced> {
        let policy = Policy::clone(&self.handle.current.load().written);
        // The store already supports the policy of code.
        Replacement::prepare(self, lock, policy, Inherit::Spent).ok()?.map(Replacement::commit)
    }

    /// Checks that the policy or the keys of an override can have its quotas.
    ///
    /// # Errors
    /// When the store cannot support them.
    pub(super) fn would_keep(&self, over: &Override) -> Result<(), ConfigError> {
        if over.key().is_some() || over.is_for_new_keys() {
            return self.check_quotas(over.key_quotas());
        }
        let in_force = self.handle.current.load();
        let changed = over.changed(&in_force.written)?;
        open_for(&**self.store(), changed, &in_force, Inherit::Spent).map(drop)
    }
}

/// Opens a policy in place of the one in force, unless it is that one.
fn open_for(
    store: &dyn Store,
    policy: Policy,
    old: &InForce,
    inherit: Inherit,
) -> Result<PreparedPolicy, ConfigError> {
    if policy == **old.prepared.policy() && inherit != Inherit::Reset {
        return Ok(old.prepared.clone());
    }
    suspension::open(store, policy, Some((&old.prepared, inherit)))
}

#[cfg(feature = "tracing")]
fn warn(over: &Override, error: &ConfigError) {
    tracing::error!(
        target: "sluicegate::audit",
        policy = over.policy(),
        to = %over,
        by = over.by(),
        %error,
        "an override cannot be kept on this instance, and is left out"
    );
}

#[cfg(not(feature = "tracing"))]
fn warn(_: &Override, _: &ConfigError) {}
