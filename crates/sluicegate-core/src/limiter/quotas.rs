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

use std::sync::Arc;

use arc_swap::{ArcSwapOption, Guard};

use super::for_layers::ForLayers;
use super::handle::{InForce, Pinned, RateLimiter};
use super::view::{Current, LimiterView};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::policy::{Policy, Quotas};
use crate::store::{Event, OwnQuotas, PreparedPolicy, Store, Subject};

/// The quotas of some keys, and the policy in force with these quotas.
pub(super) struct OwnNumbers {
    quotas: Quotas,
    /// After a replacement: the policy in force then, and the same policy with these quotas.
    again: ArcSwapOption<(PreparedPolicy, Arc<PreparedPolicy>)>,
}

/// A policy under the quotas of a key, for one call.
#[derive(Clone)]
pub(super) enum KeyPolicy<'a> {
    Kept(&'a Arc<Pinned>),
    Shared(Arc<Pinned>),
}

impl RateLimiter {
    /// The limiter for a key that has quotas of its own, for example from a customer's plan: it decides by these quotas in place of
    /// the quotas of the policy.
    ///
    /// Keys, queues, refunds and overrides of the mode are those of this limiter. If the quotas of a key change, the
    /// units that it has spent still count under the new ones. A limiter of some quotas can be kept and shared by all keys with
    /// these quotas. Making it again takes a few nanoseconds for kept [`Quotas`] or clones of them, and a map lookup for others. A check
    /// alone needs no limiter: see [`Check::under`](super::Check::under).
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
        let own = self.view().under(&quotas)?;
        Ok(Self(Arc::clone(&self.0), Some(own.into_pinned())))
    }
}

impl<'a> LimiterView<'a> {
    /// The policy of this limiter under the quotas of a key.
    ///
    /// # Errors
    /// As [`RateLimiter::with_quotas`].
    #[inline]
    pub(super) fn under(self, quotas: &Quotas) -> Result<KeyPolicy<'a>, ConfigError> {
        let base = self.base();
        match base.remembered().and_then(|kept| kept.owned[0].get()?.get(quotas)) {
            Some(kept) => Ok(KeyPolicy::Kept(kept)),
            None => base.made_under(quotas).map(KeyPolicy::Shared),
        }
    }

    /// The policy that decides, if it is kept as long as the handle.
    #[inline]
    fn remembered(self) -> Option<&'a InForce> {
        if self.pinned.is_some() { None } else { self.handle.remembered(self.replacements()) }
    }

    /// Finds or makes the policy under these quotas.
    #[inline(never)]
    fn made_under(self, quotas: &Quotas) -> Result<Arc<Pinned>, ConfigError> {
        self.take_quotas()?;
        let under = |in_force: &InForce| {
            let from = (&in_force.prepared, in_force.kept_at());
            let owned = &in_force.owned[usize::from(self.pinned.is_some())];
            owned.get_or_init(Box::default).get_or_make(quotas, || self.pin(from, quotas, false))
        };
        if let Some(kept) = self.remembered() {
            return under(kept);
        }
        // Read before the policy in force, so that a replacement in between is noticed.
        let (replacements, in_force) = (self.replacements(), self.in_force());
        match self.pinned {
            // A request that began under other rules is decided by those rules.
            Some(pinned) if pinned.epoch != Some(in_force.epoch) => {
                self.pin((&pinned.prepared, replacements), quotas, false).map(Arc::new)
            }
            _ => under(&in_force),
        }
    }

    /// The policy in force under the quotas that an operator has given to a key.
    pub(super) fn under_given(self, quotas: &Quotas) -> Result<Pinned, ConfigError> {
        let base = self.base();
        base.take_quotas()?;
        let in_force = base.in_force();
        base.pin((&in_force.prepared, in_force.kept_at()), quotas, true)
    }

    /// From now on keys may bring quotas of their own.
    fn take_quotas(self) -> Result<(), ConfigError> {
        match self.with_opened(|opened| opened.policy().takes_quotas()) {
            true => Ok(()),
            false => self.to_limiter().remember(Policy::taking_quotas),
        }
    }

    /// This limiter without quotas of its keys.
    #[inline]
    fn base(self) -> Self {
        Self { pinned: self.pinned.filter(|pinned| pinned.epoch.is_some()), ..self }
    }

    /// Makes the policy under these quotas, from a policy and the count of replacements at which limiters may keep it.
    fn pin(
        self,
        (from, replacements): (&PreparedPolicy, u64),
        quotas: &Quotas,
        is_given: bool,
    ) -> Result<Pinned, ConfigError> {
        let prepared = prepare(&*self.handle.store, from, quotas)?;
        // An override ends at its time, which the base checks.
        let is_overridden = replacements == u64::MAX;
        let again = is_overridden.then(|| Arc::new((from.clone(), Arc::new(prepared.clone()))));
        Ok(Pinned {
            own: self.to_limiter().own_policy(),
            epoch: self.epoch(),
            replacements,
            quotas: Some(OwnNumbers { quotas: quotas.clone(), again: ArcSwapOption::new(again) }),
            is_given,
            prepared,
        })
    }

    /// The policy in force, with the quotas of this limiter's keys if they have their own.
    pub(super) fn of_keys(self, in_force: Guard<Arc<InForce>>) -> Current<'a> {
        let Some(own) = self.pinned.and_then(|pinned| pinned.quotas.as_ref()) else {
            return Current::Replaced(in_force);
        };
        if let Some(again) = own.again.load().as_deref().filter(|again| again.0.is(&in_force.prepared)) {
            return Current::Own(Arc::clone(&again.1));
        }
        let prepared = prepare(&*self.handle.store, &in_force.prepared, &own.quotas);
        let prepared = prepared.unwrap_or_else(|error| {
            warn(&own.quotas, &error);
            in_force.prepared.clone()
        });
        let prepared = Arc::new(prepared);
        own.again.store(Some(Arc::new((in_force.prepared.clone(), Arc::clone(&prepared)))));
        Current::Own(prepared)
    }
}

impl OwnNumbers {
    pub(super) fn quotas(&self) -> &Quotas {
        &self.quotas
    }
}

impl KeyPolicy<'_> {
    #[inline]
    pub(super) fn pinned(&self) -> &Arc<Pinned> {
        match self {
            Self::Kept(pinned) => pinned,
            Self::Shared(pinned) => pinned,
        }
    }

    fn into_pinned(self) -> Arc<Pinned> {
        match self {
            Self::Kept(pinned) => Arc::clone(pinned),
            Self::Shared(pinned) => pinned,
        }
    }
}

/// A policy under these quotas, as this store prepares it.
fn prepare(
    store: &dyn Store,
    opened: &PreparedPolicy,
    quotas: &Quotas,
) -> Result<PreparedPolicy, ConfigError> {
    let policy = opened.policy().under(quotas)?;
    if policy == **opened.policy() {
        return Ok(opened.clone());
    }
    let prepared = opened.under(Arc::new(OwnQuotas::new(Arc::new(policy))));
    store.admit(&prepared).map_err(|error| {
        if error.kind() == ConfigErrorKind::QuotasExhausted {
            store.notice(&Event::QuotasRefused(Subject::of(opened.policy().name())));
        }
        error.in_policy(opened.policy().name())
    })?;
    Ok(prepared.with_short_way_of(store))
}

#[cfg(feature = "tracing")]
fn warn(quotas: &Quotas, error: &ConfigError) {
    tracing::error!(%quotas, %error, "the policy was replaced by one that cannot have these quotas of a key: its own decide");
}

#[cfg(not(feature = "tracing"))]
fn warn(_: &Quotas, _: &ConfigError) {}
