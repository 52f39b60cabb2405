//! The part of a limiter for layers and other code around it: [`ForLayers`].

use std::sync::Arc;

use super::handle::RateLimiter;
use super::quotas::OwnNumbers;
use crate::error::ConfigError;
use crate::key::KeyRef;
use crate::policy::Policy;
use crate::store::Inherit;

/// More methods of a limiter, for authors of layers. Services do not need them. Sealed.
///
/// ```
/// use sluicegate_core::limiter::{ForLayers, Inherit};
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let mail = Policy::gcra("mail", "3/h").on(&MemoryStore::new())?;
/// // A layer that gives units back needs exact refunds.
/// mail.remember(Policy::with_refunds)?;
/// assert!(mail.with_policy(Policy::gives_back));
///
/// // It keeps header values until the policy is replaced.
/// let before = mail.replacements();
/// mail.replace(Policy::gcra("mail", "9/h").build()?, Inherit::Spent)?;
/// assert_ne!(mail.replacements(), before);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
pub trait ForLayers: sealed::Sealed + Sized {
    /// Reads the policy in force in place, which is cheaper than [`policy`](RateLimiter::policy).
    fn with_policy<T>(&self, read: impl FnOnce(&Policy) -> T) -> T;

    /// The number of times that the policy was replaced: values derived from [`policy`](RateLimiter::policy) are out of date if it
    /// has changed.
    ///
    /// Use it to cache values that are costly to derive, such as header values, beside the handle:
    /// keep the count with them, and derive them again when the two differ.
    fn replacements(&self) -> u64;

    /// From now on the store remembers more about keys than the policy in code requires: [`Policy::with_refunds`], so that a refund is
    /// exact, or [`Policy::taking_quotas`], so that keys may bring [quotas of their own](RateLimiter::with_quotas). Replacements keep it.
    ///
    /// # Errors
    /// When the store cannot support it.
    fn remember(&self, more: impl Fn(&Policy) -> Policy) -> Result<(), ConfigError>;

    /// This limiter under the quotas that an operator has given this key for a time, by an [override](super::Overrides) of the key alone or
    /// of new keys; `None` if the key has none. The override of the key alone takes precedence over quotas that the key brings.
    ///
    /// A check of the key looks for these quotas by itself. Middleware calls this to show the numbers that decide.
    ///
    /// ```
    /// use sluicegate_core::limiter::{ForLayers, Overrides};
    /// use sluicegate_core::policy::Override;
    /// use sluicegate_core::{Key, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let api = Policy::gcra("api", "10/min").on(&store)?;
    /// Overrides::of(&store).put(Override::builder("api", "ada").key("acme").quota("20/min")).await?;
    /// assert_eq!((api.check("acme").await?.capacity(), api.check("other").await?.capacity()), (20, 10));
    /// let acme = api.given(Key::from("acme").as_ref()).ok_or("it has")?;
    /// assert_eq!(acme.policy().to_string(), "api: 20/min (gcra)");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    fn given(&self, key: KeyRef<'_>) -> Option<Self>;

    /// This limiter, for work that lasts longer than a request, such as a transfer of a large body: it decides by the policy that is in
    /// force at each ask, even if rules have pinned the limiter to their policy. Quotas of its keys stay.
    #[must_use]
    fn following(&self) -> Self;
}

mod sealed {
    #[expect(unnameable_types, reason = "nobody else shall implement it")]
    pub trait Sealed {}
}

impl sealed::Sealed for RateLimiter {}

impl ForLayers for RateLimiter {
    #[inline]
    fn with_policy<T>(&self, read: impl FnOnce(&Policy) -> T) -> T {
        self.with_opened(|opened| read(opened.numbers()))
    }

    #[inline]
    fn replacements(&self) -> u64 {
        self.view().replacements()
    }

    fn remember(&self, more: impl Fn(&Policy) -> Policy) -> Result<(), ConfigError> {
        let own = self.own_policy();
        if more(&own) == *own {
            return Ok(());
        }
        if let Some(replacement) = self.replacement(more, Inherit::Spent)? {
            replacement.commit().tell(self.store());
            self.0.remember_prepared();
        }
        Ok(())
    }

    #[inline]
    fn given(&self, key: KeyRef<'_>) -> Option<Self> {
        let view = self.view();
        match view.kept() {
            Some(_) => None,
            None => view.given_in(&view.in_force(), key),
        }
    }

    fn following(&self) -> Self {
        let Some(pinned) = self.1.as_ref().filter(|pinned| pinned.epoch.is_some()) else {
            return self.clone();
        };
        let newest = Self(Arc::clone(&self.0), None);
        match pinned.quotas.as_ref().map(OwnNumbers::quotas) {
            // If they no longer fit, the policy's own quotas decide, as after every replacement.
            Some(quotas) => newest.with_quotas(quotas.clone()).unwrap_or(newest),
            None => newest,
        }
    }
}
