//! Store wrappers: a [`Wrap`] implements one thing of its own, and the rest of a [`Store`] is forwarded for it.
//!
//! Every store between a policy's handle and the deciding store prepares the policy, so a wrapper
//! has to open each policy in the inner store, translate each ask, and forward all other calls.
//! A [`Wrap`] need not do any of this: parts of a cluster, costs of each quota, receipts, events,
//! listeners and replacements pass through it unchanged.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! use sluicegate_core::limiter::Inherit;
//! use sluicegate_core::store::{Ask, DecisionFuture};
//! use sluicegate_core::wrap::{Within, Wrap};
//! use sluicegate_core::{ConfigError, MemoryStore, Policy, RateLimiter, Store};
//!
//! /// Counts the refusals of the inner store.
//! struct CountsDenials {
//!     within: Within,
//!     denied: Arc<AtomicU64>,
//! }
//!
//! impl Wrap for CountsDenials {
//!     type Own = (); // it keeps no state for a policy
//!
//!     fn within(&self) -> &Within {
//!         &self.within
//!     }
//!
//!     fn prepare(&self, _: &Arc<Policy>, _: Option<(&(), Inherit)>) -> Result<(), ConfigError> {
//!         Ok(())
//!     }
//!
//!     fn ask(&self, asks: &[Ask<'_>]) -> DecisionFuture {
//!         let denied = Arc::clone(&self.denied);
//!         self.within.decide(asks).map(move |result| {
//!             if result.as_ref().is_ok_and(|decision| !decision.is_allowed()) {
//!                 denied.fetch_add(1, Ordering::Relaxed);
//!             }
//!             result
//!         })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let denied = Arc::new(AtomicU64::new(0));
//! let store = CountsDenials { within: Within::new(MemoryStore::new()), denied: Arc::clone(&denied) };
//! let login = RateLimiter::new(Arc::new(store) as Arc<dyn Store>, Policy::gcra("login", "5/min").build()?)?;
//! for _ in 0..7 {
//!     login.check("ada").await?;
//! }
//! assert_eq!(denied.load(Ordering::Relaxed), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # When not to use it
//! A store that keeps state itself, or that combines several stores, implements
//! [`Store`] directly.

mod outage;
mod owned;
mod together;
mod within;

use std::sync::Arc;

pub(crate) use self::outage::assumed;
pub use self::outage::{OutageAnswer, decide_in_outage, or_by_policy};
pub use self::owned::OwnedAsk;
pub use self::together::{AskedInTurn, DecidedPart, ask_at_once, ask_in_turn};
use self::within::Layered;
pub use self::within::Within;
use crate::error::ConfigError;
use crate::limiter::Limiters;
use crate::policy::Policy;
use crate::store::{
    Ask, Capabilities, DecisionFuture, Inherit, Notice, Parts, Place, PreparedPolicy, ShortWay, Store,
    StoreStatus,
};

/// A store wrapper. Each type that implements this is a [`Store`].
///
/// | implement | when |
/// |---|---|
/// | [`within`](Self::within), [`prepare`](Self::prepare) | always |
/// | [`ask`](Self::ask) | to decide, count or refuse |
/// | [`short_way`](Self::short_way) | to do so without an ask, if one look at the key decides |
/// | [`hear`](Self::hear) | to receive events of layers, listeners if events arise here, and replacements of policies |
///
/// A wrapper has limiters of its own: a policy on the wrapper and one on the inner store are two
/// handles, and only the first goes through the wrapper.
pub trait Wrap: Send + Sync + 'static {
    /// Its own state for each policy, such as a cache or counters; `()` if it keeps none.
    type Own: Send + Sync + 'static;

    /// The inner store.
    fn within(&self) -> &Within<Self::Own>;

    /// Makes the state for a policy, before the inner store opens the policy. `replaces` has the state of the replaced policy, if any.
    ///
    /// It must not change anything in force: if the inner store refuses the policy, the new state is dropped.
    ///
    /// # Errors
    /// When it cannot keep the policy.
    fn prepare(
        &self,
        policy: &Arc<Policy>,
        replaces: Option<(&Self::Own, Inherit)>,
    ) -> Result<Self::Own, ConfigError>;

    /// Its place among the store wrappers of this family, if it is one of them: a policy is opened only if the inner store
    /// has a lower place. By default it has none, and goes anywhere.
    fn own_place(&self) -> Option<Place> {
        None
    }

    /// Decides, as [`Store::decide`] does. By default the inner store decides.
    ///
    /// # Errors
    /// As [`Store::decide`].
    ///
    /// # Cancel safety
    /// As [`Store::decide`].
    fn ask(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        self.within().decide(asks)
    }

    /// Wraps the short way that the inner store has for a policy, as prepared for this store. By default there is no short way,
    /// so that this store sees all asks.
    fn short_way(&self, policy: &PreparedPolicy, within: Arc<dyn ShortWay>) -> Option<Arc<dyn ShortWay>> {
        _ = (policy, within);
        None
    }

    /// Hears of an event, a listener, or a replacement (with both policies as prepared for this store), before the inner store does. By
    /// default it ignores them.
    fn hear(&self, notice: &Notice<'_>) {
        _ = notice;
    }

    /// Whether it always answers at once if the inner store [does](Capabilities::always_answers). By default it is `false`.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Adds its own state to the status of the inner store. By default it adds nothing.
    fn report(&self, status: &mut StoreStatus) {
        _ = status;
    }
}

#[diagnostic::do_not_recommend]
impl<W: Wrap> Store for W {
    fn open(
        &self,
        policy: Arc<Policy>,
        replaces: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        if let Some(place) = self.own_place() {
            place.around(&**self.within().store()).map_err(|error| error.in_policy(policy.name()))?;
        }
        let (old, how) = replaces.unzip();
        let old = old.map(PreparedPolicy::replaced::<Layered<W::Own>>).transpose()?;
        let old = old.as_deref().zip(how);
        let own = self.prepare(&policy, old.map(|(old, how)| (&old.own, how)))?;
        let inner = self.within().store().open(policy, old.map(|(old, how)| (&old.inner, how)))?;
        Ok(PreparedPolicy::new(Arc::clone(inner.policy()), Arc::new(Layered { inner, own })))
    }

    fn admit(&self, policy: &PreparedPolicy) -> Result<(), ConfigError> {
        let layered = policy.replaced::<Layered<W::Own>>()?;
        match policy.own() {
            Some(own) => self.within().store().admit(&layered.inner.under(Arc::clone(own))),
            None => Ok(()),
        }
    }

    #[inline]
    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        self.ask(asks)
    }

    fn short_way(&self, policy: &PreparedPolicy) -> Option<Arc<dyn ShortWay>> {
        let inner = |policy: &PreparedPolicy| self.within().inner(policy).ok().cloned();
        let mut within = inner(policy)?;
        if let Some(own) = policy.own() {
            within = within.under(Arc::clone(own));
        }
        // A suspension belongs to the outer policy, and its buckets are those of the inner store, too.
        if let Some(suspension) = policy.suspension() {
            within = within.with_suspension(suspension.within(inner)?);
        }
        Wrap::short_way(self, policy, self.within().store().short_way(&within)?)
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let inner = self.within().store().capabilities();
        Capabilities {
            always_answers: inner.always_answers && self.answers_at_once(),
            place: inner.place.max(self.own_place()),
            parts: inner.parts.map(|_| self as &dyn Parts),
            ..inner
        }
    }

    fn notify(&self, notice: &Notice<'_>) {
        self.hear(notice);
        let (within, store) = (self.within(), self.within().store());
        let Notice::Replaced { old, new, inherit } = *notice else {
            return store.notify(notice);
        };
        if let (Ok(old), Ok(new)) = (within.inner(old), within.inner(new)) {
            store.notify(&Notice::Replaced { old, new, inherit });
        }
    }

    fn status(&self) -> StoreStatus {
        let mut status = self.within().store().status();
        self.report(&mut status);
        status
    }

    fn limiters(&self) -> &Limiters {
        self.within().limiters()
    }
}

impl<W: Wrap> Parts for W {
    fn parts(&self, asks: &[Ask<'_>]) -> u64 {
        self.within().parts(asks)
    }
}
