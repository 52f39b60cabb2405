//! Replaces a policy with the policy of code, as changed by an override: [`Replacement`].
//!
//! A handle has two policies: its own, which code has put in force, and the one that decides, which an override may have changed.
//! Every replacement, by code, a file, an operator or the end of an override, has three steps: prepare, which can fail and has no
//! effect; commit, which cannot fail; and notification, outside of all locks.
//!
//! # Locks
//! The lock of a handle's own policy is held from prepare to commit, so that replacements follow each other. The locks of several
//! handles are taken in the order in which the policies were given, under the lock of the store's handles.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::given::Given;
use super::handle::{InForce, PolicyOfCode, RateLimiter};
use super::overrides::standing_on;
use crate::error::ConfigError;
use crate::policy::{Override, Policy};
use crate::store::{Event, Inherit, PreparedPolicy, Store, Subject};
use crate::suspension;

/// A policy that is prepared to replace the policy of a handle. It excludes other replacements.
pub(super) struct Replacement<'a> {
    limiter: &'a RateLimiter,
    own: MutexGuard<'a, PolicyOfCode>,
    /// The policy of code.
    policy: Arc<Policy>,
    old: Arc<InForce>,
    /// Boxed, because only a few policies of many are replaced.
    new: Box<InForce>,
    inherit: Inherit,
}

/// A replacement that has taken effect.
pub(super) struct Replaced {
    old: Arc<InForce>,
    new: PreparedPolicy,
    inherit: Inherit,
    /// The override that caused it, unless code or the end of a time did.
    over: Option<Arc<Override>>,
    /// The overrides of keys that begin now, and those that have ended, each with the operator who has withdrawn it.
    given: Vec<Arc<Override>>,
    ended: Vec<(Arc<Override>, Option<String>)>,
}

impl<'a> Replacement<'a> {
    /// Prepares the policy of code, as changed by an override if one is in force; `None` if the result is already in force.
    ///
    /// # Errors
    /// When the store cannot support the policy. An override that it cannot support is left out.
    pub(super) fn prepare(
        limiter: &'a RateLimiter,
        mut own: MutexGuard<'a, PolicyOfCode>,
        policy: Policy,
        inherit: Inherit,
    ) -> Result<Option<Self>, ConfigError> {
        let old = limiter.0.current.load_full();
        let given = limiter.standing_given();
        let is_new = policy != *own.policy;
        let over = standing_on(&*limiter.0.store, limiter.0.first.prepared.policy().name(), None)
            .filter(|over| is_new || over.version() != own.refused);
        if over.is_some() && is_new {
            // The store must be able to support the policy after the override ends.
            limiter.open_for(policy.clone(), &old, inherit)?;
        }
        let changed = over.as_ref().map(|over| limiter.open_under(over, &policy, &old, inherit));
        let (prepared, over) = match (over, changed) {
            (Some(over), Some(Ok(prepared))) => (prepared, Some(over)),
            (over, changed) => {
                if let (Some(over), Some(Err(error))) = (over, changed) {
                    // The policy of code applies unchanged. The override is reported once.
                    own.refused = over.version();
                    warn(&over, &error);
                }
                (limiter.open_for(policy.clone(), &old, inherit)?, None)
            }
        };
        let given = given.with_new_keys(over.as_ref(), &old.given, (&policy, limiter.0.store.limiters()));
        let ends_us = over.iter().chain(given.overrides()).map(|over| over.until_us()).min();
        let ends_us = ends_us.unwrap_or(u64::MAX);
        let (replacements, epoch, owned) = (old.replacements + 1, old.epoch, Default::default());
        let new = Box::new(InForce { prepared, replacements, over, given, ends_us, epoch, owned });
        let is_in_force = new.prepared.is(&old.prepared) && new.over == old.over && new.given == old.given;
        if is_in_force && !is_new {
            return Ok(None);
        }
        Ok(Some(Self { limiter, own, policy: Arc::new(policy), old, new, inherit }))
    }

    /// This replacement as part of another change that takes effect with it: limiters that are pinned to the policy before do not follow.
    pub(super) fn with_epoch(mut self) -> Self {
        self.new.epoch += 1;
        self
    }

    /// The limiter after the commit, for code that runs before it.
    pub(super) fn pinned(&self) -> RateLimiter {
        self.limiter.pinned_to(&self.new, &self.policy)
    }

    /// Puts the policy in force.
    pub(super) fn commit(self) -> Replaced {
        let Self { limiter, mut own, policy, old, new, inherit } = self;
        own.policy = policy;
        let prepared = new.prepared.clone();
        let over = limiter.changed_by(&old, &new);
        let given = new.given.overrides().filter(|over| !old.given.overrides().any(|before| before == *over));
        let is_over = |before: &&Arc<Override>| {
            !new.given
                .overrides()
                .any(|over| (over.key(), over.is_for_new_keys()) == (before.key(), before.is_for_new_keys()))
        };
        let ended =
            old.given.overrides().filter(is_over).map(|over| (Arc::clone(over), limiter.withdrawn_by(over)));
        let (given, ended) = (given.cloned().collect(), ended.collect());
        if !prepared.is(&old.prepared) {
            // Before the first ask under the new policy, so that a later ask under the old one finds the spent units.
            suspension::replaced(&*limiter.0.store, &old.prepared, &prepared, inherit);
        }
        limiter.0.current.store(Arc::from(new));
        // Release: a thread that sees the count also sees the new policy.
        limiter.0.replacements.fetch_add(1, Ordering::Release);
        Replaced { old, new: prepared, inherit, over, given, ended }
    }
}

impl Replaced {
    /// Notifies listeners. To be called outside of all locks.
    pub(super) fn tell(&self, store: &Arc<dyn Store>) {
        for (over, by) in &self.ended {
            tell_of_key(store, over, Duration::ZERO, by.as_deref());
        }
        for over in &self.given {
            let lasts = Duration::from_micros(over.until_us().saturating_sub(store.now_us()));
            tell_of_key(store, over, lasts, Some(over.by()));
        }
        let (old, new) = (self.old.prepared.policy(), self.new.policy());
        if old.is_like(new) && self.inherit != Inherit::Reset {
            return;
        }
        let by = self.over.as_deref().map(Override::by);
        #[cfg(feature = "tracing")]
        tracing::info!(
            target: "sluicegate::audit",
            policy = new.name(),
            from = %old,
            from_mode = %old.mode(),
            to = %new,
            to_mode = %new.mode(),
            inherit = %self.inherit,
            by,
            until_us = self.over.as_deref().map(Override::until_us),
            "the policy is replaced"
        );
        store.notice(&Event::PolicyReplaced { old, new, inherit: self.inherit, by });
    }
}

/// Notifies listeners that a key has other quotas for this time, or no longer.
fn tell_of_key(store: &Arc<dyn Store>, over: &Override, lasts: Duration, by: Option<&str>) {
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
    /// The policy that code has put in force, by opening or [replacing](Self::replace) it: it applies again when the
    /// current override ends. For a key with [quotas of its own](Self::with_quotas), it has these quotas.
    pub fn own_policy(&self) -> Arc<Policy> {
        let own = match self.1.as_ref().filter(|pinned| pinned.epoch.is_some()) {
            Some(pinned) => Arc::clone(&pinned.own),
            None => Arc::clone(&self.0.own.lock().unwrap_or_else(PoisonError::into_inner).policy),
        };
        let quotas = self.1.as_ref().and_then(|pinned| pinned.quotas.as_ref());
        // If the policy cannot have these quotas, its own quotas decide.
        quotas.and_then(|own_numbers| own.under(own_numbers.quotas()).ok()).map_or(own, Arc::new)
    }

    /// Applies the overrides known here to the policy in force.
    pub(super) fn follow(&self) -> Option<Replaced> {
        let own = self.0.own.lock().unwrap_or_else(PoisonError::into_inner);
        self.follow_by(own)
    }

    /// Ends an expired override, unless another thread is ending it.
    pub(super) fn end_override(&self) {
        let own = match self.0.own.try_lock() {
            Ok(own) => own,
            Err(TryLockError::Poisoned(own)) => own.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if let Some(replaced) = self.follow_by(own) {
            replaced.tell(self.store());
        }
    }

    fn follow_by(&self, own: MutexGuard<'_, PolicyOfCode>) -> Option<Replaced> {
        let policy = Policy::clone(&own.policy);
        // The store already supports the policy of code.
        let replacement = Replacement::prepare(self, own, policy, Inherit::Spent).ok()?;
        replacement.map(Replacement::commit)
    }

    /// Checks that the store supports this override.
    pub(super) fn would_keep(&self, over: &Override) -> Result<(), ConfigError> {
        if over.key().is_some() || over.is_for_new_keys() {
            return self.view().under_given(&over.quotas().to_vec().into()).map(drop);
        }
        let own = self.own_policy();
        self.open_under(over, &own, &self.0.current.load(), Inherit::Spent).map(drop)
    }

    /// The operator who has withdrawn or replaced the override of a key; `None` if it has expired.
    fn withdrawn_by(&self, over: &Override) -> Option<String> {
        let board = self.0.store.limiters().overrides();
        let last = board.last(over.policy(), over.key()).filter(|last| ***last != *over);
        last.map(|last| last.by().to_owned())
    }

    fn standing_given(&self) -> Given {
        let now_us = self.0.store.now_us();
        Given::of(&self.0.store.limiters().overrides(), self.0.first.prepared.policy().name(), now_us)
    }

    /// The override or withdrawal that makes the difference, if any.
    fn changed_by(&self, old: &InForce, new: &InForce) -> Option<Arc<Override>> {
        if new.over == old.over {
            return None;
        }
        let last =
            || self.0.store.limiters().overrides().last(self.0.first.prepared.policy().name(), None).cloned();
        new.over.clone().or_else(|| last().filter(|last| last.is_withdrawal()))
    }

    fn open_under(
        &self,
        over: &Override,
        policy: &Policy,
        old: &InForce,
        inherit: Inherit,
    ) -> Result<PreparedPolicy, ConfigError> {
        self.open_for(over.changed(policy)?, old, inherit)
    }

    /// The policy in force, if it is this one and stays, or the policy that the store has prepared in its place.
    fn open_for(
        &self,
        policy: Policy,
        old: &InForce,
        inherit: Inherit,
    ) -> Result<PreparedPolicy, ConfigError> {
        if policy == **old.prepared.policy() && inherit != Inherit::Reset {
            return Ok(old.prepared.clone());
        }
        suspension::open(&*self.0.store, policy, Some((&old.prepared, inherit)))
    }
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
