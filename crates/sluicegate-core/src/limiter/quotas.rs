//! Limiters for keys that bring quotas of their own: [`RateLimiter::with_quotas`].
//!
//! A quota is data. The policy defines the units, the algorithm and the effect of a refusal; its quotas are the default, and a key may
//! bring others, such as the quotas of a customer's plan. All keys live in one table, or under one name in Redis, and the store keeps with
//! each key the quotas that it was counted by.
//!
//! # The rule
//! - Under the quotas of its last spend, a key is decided as if the policy had them.
//! - Under other quotas, a decision counts the spent units of the key under the new quotas, as
//!   [`Inherit::Spent`](crate::limiter::Inherit::Spent) does when a policy is replaced. A peek or a refusal writes nothing; a spend
//!   writes the state under the new quotas.
//! - Each spend that changes the quotas of a key costs the key at most one part of the new rule, a microsecond of refill or a unit of
//!   a window, and never gives it anything: so two instances may disagree for a while.
//! - Units of a receipt go back to the bucket that has spent them, under a policy that
//!   [keeps accounts](crate::policy::PolicyBuilder::refunds).
//!   A bucket that has changed its quotas since is another one, and gets nothing back.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use arc_swap::{ArcSwapOption, Guard};

use super::for_layers::ForLayers;
use super::handle::{Current, InForce, Pinned, RateLimiter};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::policy::{Policy, Quotas};
use crate::store::{Event, OwnQuotas, PreparedPolicy, Subject};

/// The most limiters that are cached by their quotas: fewer than a store has room for, so that it can free unused quotas.
const MOST: usize = 16_384;

/// The limiters of keys with quotas of their own, by these quotas: each is made once and reused.
#[derive(Default)]
pub(super) struct Owned(RwLock<HashMap<Quotas, Arc<Pinned>>>);

/// The quotas of some keys, and the policy in force with these quotas.
pub(super) struct OwnNumbers {
    quotas: Quotas,
    /// After a replacement: the policy in force then, and the same policy with these quotas.
    again: ArcSwapOption<(PreparedPolicy, Arc<PreparedPolicy>)>,
}

impl RateLimiter {
    /// The limiter for a key that has quotas of its own, for example from a customer's plan: it decides by these quotas in place of
    /// the quotas of the policy.
    ///
    /// Keys, queues, refunds and overrides of the mode are those of this limiter. If the quotas of a key change, the
    /// units that it has spent still count under the new ones. A limiter of some quotas can be kept and shared by all keys with
    /// these quotas. Making it again takes a few nanoseconds for kept [`Quotas`] or clones of them, and a map lookup for others.
    ///
    /// After a [replacement](Self::replace) these quotas replace the quotas of the new policy; if that policy cannot have them,
    /// its own quotas decide, and the log says so.
    ///
    /// # Memory
    /// A policy takes quotas of keys from the first call on, or once a layer [enables it](super::ForLayers::remember): then a key
    /// takes 32 bytes of a [`MemoryStore`](crate::MemoryStore) instead of 24, or about 48 to 64 if it took more than 24. Up to 65,535
    /// different quotas of a policy may be in use there at once: by a cached limiter, or by a key in debt.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let api = Policy::gcra("api", "10/min").on(&MemoryStore::new())?;
    /// let ada = api.with_quotas("500/min burst 50")?; // from a row of a database
    ///
    /// let decision = ada.check("ada").cost(40).now().expect("memory answers at once")?;
    /// assert_eq!((decision.capacity(), decision.remaining()), (50, 10));
    ///
    /// // Her plan changes, and the 40 units still count.
    /// let ada = api.with_quotas("500/min burst 60")?;
    /// assert_eq!(ada.peek("ada").now().expect("memory answers at once")?.remaining(), 20);
    /// // A check without quotas uses the quotas of the policy.
    /// assert_eq!(api.check("bob").now().expect("memory answers at once")?.capacity(), 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the quotas cannot be read, when their number or their names differ from the policy's, when the policy's algorithm or
    /// the store cannot support them, and when more different quotas are in use than the store has room for. The message names them.
    pub fn with_quotas<Q>(&self, quotas: Q) -> Result<Self, ConfigError>
    where
        Q: TryInto<Quotas>,
        ConfigError: From<Q::Error>,
    {
        let quotas = quotas.try_into()?;
        let base = self.base();
        if let Some(pinned) = quotas.made::<Pinned>().filter(|made| base.keeps(made)) {
            return Ok(Self(base.0, Some(pinned)));
        }
        let pinned = match self.0.owned.get(&quotas).filter(|known| base.keeps(known)) {
            Some(known) => known,
            None => {
                let pinned = Arc::new(base.pin(&quotas, false)?);
                self.0.owned.put(quotas.clone(), &pinned);
                pinned
            }
        };
        quotas.make(&pinned);
        Ok(Self(base.0, Some(pinned)))
    }

    /// This limiter under the quotas that an operator has given to its key.
    pub(super) fn under_given(&self, quotas: &Quotas) -> Result<Self, ConfigError> {
        let base = self.base();
        let pinned = Arc::new(base.pin(quotas, true)?);
        Ok(Self(base.0, Some(pinned)))
    }

    /// This limiter without quotas of its keys.
    fn base(&self) -> Self {
        Self(Arc::clone(&self.0), self.1.clone().filter(|pinned| pinned.epoch.is_some()))
    }

    /// Whether this was made from the policy in force.
    fn keeps(&self, pinned: &Pinned) -> bool {
        let is_own = pinned.handle == self.id() && pinned.epoch == self.epoch();
        if pinned.replacements == u64::MAX {
            // It looks up the policy in force at each ask, which is necessary while an override is in force.
            return is_own && self.in_force().is_overridden();
        }
        pinned.replacements == self.replacements()
            && (is_own || pinned.prepared.is(self.opened().as_opened()))
    }

    /// The rules that this limiter is pinned to.
    pub(super) fn epoch(&self) -> Option<u64> {
        self.1.as_ref().and_then(|pinned| pinned.epoch)
    }

    /// Makes a limiter's policy from these quotas.
    fn pin(&self, quotas: &Quotas, is_given: bool) -> Result<Pinned, ConfigError> {
        if !self.with_opened(|opened| opened.policy().takes_quotas()) {
            self.remember(Policy::taking_quotas)?;
        }
        // Read before the policy in force, so that a replacement in between is noticed.
        let replacements = self.replacements();
        let opened = self.opened();
        let opened = opened.as_opened();
        let prepared = self.prepare(opened, quotas)?;
        // An override ends at its time, which the base checks.
        let is_overridden = self.0.current.load().is_overridden();
        let again = is_overridden.then(|| Arc::new((opened.clone(), Arc::new(prepared.clone()))));
        Ok(Pinned {
            handle: self.id(),
            own: self.own_policy(),
            epoch: self.epoch(),
            replacements: if is_overridden { u64::MAX } else { replacements },
            quotas: Some(OwnNumbers { quotas: quotas.clone(), again: ArcSwapOption::new(again) }),
            is_given,
            prepared,
        })
    }

    /// The policy in force, with the quotas of this limiter's keys if they have their own.
    pub(super) fn of_keys(&self, in_force: Guard<Arc<InForce>>) -> Current<'_> {
        let Some(own) = self.1.as_ref().and_then(|pinned| pinned.quotas.as_ref()) else {
            return Current::Replaced(in_force);
        };
        if let Some(again) = own.again.load().as_deref().filter(|again| again.0.is(&in_force.prepared)) {
            return Current::Own(Arc::clone(&again.1));
        }
        let prepared = self.prepare(&in_force.prepared, &own.quotas).unwrap_or_else(|error| {
            warn(&own.quotas, &error);
            in_force.prepared.clone()
        });
        let prepared = Arc::new(prepared);
        own.again.store(Some(Arc::new((in_force.prepared.clone(), Arc::clone(&prepared)))));
        Current::Own(prepared)
    }

    fn prepare(&self, opened: &PreparedPolicy, quotas: &Quotas) -> Result<PreparedPolicy, ConfigError> {
        let policy = opened.policy().under(quotas)?;
        if policy == **opened.policy() {
            return Ok(opened.clone());
        }
        let prepared = opened.under(Arc::new(OwnQuotas::new(Arc::new(policy))));
        let store = &*self.0.store;
        store.admit(&prepared).map_err(|error| {
            if error.kind() == ConfigErrorKind::QuotasExhausted {
                store.notice(&Event::QuotasRefused(Subject::of(opened.policy().name())));
            }
            error.in_policy(opened.policy().name())
        })?;
        Ok(prepared.with_short_way_of(store))
    }
}

impl OwnNumbers {
    pub(super) fn quotas(&self) -> &Quotas {
        &self.quotas
    }
}

impl Owned {
    fn get(&self, quotas: &Quotas) -> Option<Arc<Pinned>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(quotas).cloned()
    }

    /// Keeps a limiter. If there is no room, all others are dropped and made again when needed.
    fn put(&self, quotas: Quotas, pinned: &Arc<Pinned>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(quotas, Arc::clone(pinned));
    }
}

#[cfg(feature = "tracing")]
fn warn(quotas: &Quotas, error: &ConfigError) {
    tracing::error!(%quotas, %error, "the policy was replaced by one that cannot have these quotas of a key: its own decide");
}

#[cfg(not(feature = "tracing"))]
fn warn(_: &Quotas, _: &ConfigError) {}
