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
//!
//! # Requests that several places decide
//! The whole request passes, or no units stay spent. A place decides its asks in one step: a store, a hash slot of a Cluster, or the fallback
//! of a `Resilient` store. No step spans two places, so a request for several is decided in these steps:
//!
//! 1. Asks that may be refused go to one place after the other ([`ask_in_turn`]), until one refuses or gives no answer.
//! 2. The caller then gives back the units spent in earlier places, by their receipts. They are never given back twice, whatever the answer.
//! 3. Asks that cannot be refused go to all places [at once](ask_at_once), after all others have passed.
//! 4. The answers are [joined](crate::Decision::joined).
//!
//! Between two steps, units are spent without a request that passes. If the process dies there, or an answer is lost, they stay spent until
//! they drain or their window ends: then too few requests are admitted, never too many.

mod outage;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use smallvec::SmallVec;

pub use self::outage::or_by_policy;
#[doc(hidden)]
pub use self::outage::{OutageAnswer, decide_in_outage};
pub(crate) use self::outage::{ask_by_policy, assumed};
use super::decision::Decision;
use super::error::{StoreError, StoreErrorKind};
use super::key::Key;
use super::receipt::Receipt;
use super::store::{IntoStore, Mode};
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

/// The inner store of a wrapper that keeps an `Own` for each policy.
///
/// It takes policies and asks of the outer store, and translates them for the inner store.
///
/// A policy of the outer store has two parts: the inner store's preparation, and the
/// `Own` of the wrapper. [`ask`](Self::ask) and [`decide`](Self::decide)
/// re-target asks from the outer store to the inner one, with costs per quota, modes and receipts.
pub struct Within<Own = ()> {
    store: Arc<dyn Store>,
    limiters: Limiters,
    own: PhantomData<fn() -> Own>,
}

/// A policy as the outer store has prepared it.
pub(crate) struct Layered<Own> {
    inner: PreparedPolicy,
    pub(crate) own: Own,
}

impl<Own: Send + Sync + 'static> Within<Own> {
    /// Makes this store the inner store of a wrapper.
    pub fn new(store: impl IntoStore) -> Self {
        Self { store: store.into(), limiters: Limiters::default(), own: PhantomData }
    }

    /// The inner store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Decides these asks of the outer store in the inner store.
    ///
    /// # Errors
    /// The error of the inner store, and [`ForeignPolicy`](super::error::StoreErrorKind::ForeignPolicy) for an ask of a policy that
    /// was not opened through this wrapper.
    ///
    /// # Cancel safety
    /// As the inner store.
    #[inline]
    pub fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        if let [ask] = asks {
            // There is almost always one ask, which needs no list.
            return match self.ask(*ask) {
                Ok(ask) => self.store.decide(&[ask]),
                Err(error) => DecisionFuture::ready(Err(error)),
            };
        }
        match self.asks(asks) {
            Ok(asks) => self.store.decide(&asks),
            Err(error) => DecisionFuture::ready(Err(error)),
        }
    }

    /// The parts of the inner store that would decide these asks of the outer store.
    pub fn parts(&self, asks: &[Ask<'_>]) -> u64 {
        self.asks(asks).map_or(1, |asks| self.store.parts(&asks))
    }

    /// Translates an ask of the outer store into one of the inner store, with its key, costs, mode and receipt.
    ///
    /// # Errors
    /// [`StoreErrorKind::ForeignPolicy`] when its policy was opened on another store.
    #[inline]
    pub fn ask<'a>(&self, ask: Ask<'a>) -> Result<Ask<'a>, StoreError> {
        self.inner(ask.policy()).map(|inner| ask.on(inner))
    }

    /// The policy as the inner store has prepared it, and the wrapper's own state for it; `None` if another store has prepared it.
    #[inline]
    pub fn opened(policy: &PreparedPolicy) -> Option<(&PreparedPolicy, &Own)> {
        policy.prepared::<Layered<Own>>().map(|layered| (&layered.inner, &layered.own))
    }

    /// The wrapper's own state for this policy.
    ///
    /// # Errors
    /// [`StoreErrorKind::ForeignPolicy`] when it was opened on another store.
    pub fn own<'a>(&self, policy: &'a PreparedPolicy) -> Result<&'a Own, StoreError> {
        Self::layered(policy).map(|layered| &layered.own)
    }

    /// The policy of the outer store as the inner store has prepared it.
    ///
    /// # Errors
    /// [`StoreErrorKind::ForeignPolicy`] when it was opened on another store.
    pub fn inner<'a>(&self, policy: &'a PreparedPolicy) -> Result<&'a PreparedPolicy, StoreError> {
        Self::layered(policy).map(|layered| &layered.inner)
    }

    fn limiters(&self) -> &Limiters {
        &self.limiters
    }

    fn asks<'a>(&self, asks: &[Ask<'a>]) -> Result<SmallVec<[Ask<'a>; 4]>, StoreError> {
        asks.iter().map(|ask| self.ask(*ask)).collect()
    }

    pub(crate) fn layered(policy: &PreparedPolicy) -> Result<&Layered<Own>, StoreError> {
        policy.prepared().ok_or_else(|| StoreError::new(StoreErrorKind::ForeignPolicy))
    }
}

impl<Own> fmt::Debug for Within<Own> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Within").finish_non_exhaustive()
    }
}

/// The asks that one place has decided, and its decision.
#[doc(hidden)]
pub type DecidedPart<A> = (A, Decision);

/// The answers of places that were asked one after the other.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "it is a pair with names")]
#[doc(hidden)]
pub struct AskedInTurn<A> {
    /// The parts that have passed, in the order in which they were asked. Give back their units if another part did not pass.
    pub passed: Vec<DecidedPart<A>>,
    /// The part that was refused, or the error of a place that gave no answer; `None` if all have passed.
    pub ended: Option<Result<DecidedPart<A>, StoreError>>,
}

/// Asks one place after the other, until one refuses or gives no answer. `ask` gets the asks of a place, and the parts that have passed
/// before. For stores that decide in several places.
///
/// # Cancel safety
/// If the future is dropped, units that places have spent stay spent: run it [to its end](DecisionFuture::begun).
#[doc(hidden)]
pub async fn ask_in_turn<A>(
    parts: impl IntoIterator<Item = A>,
    mut ask: impl FnMut(&mut A, &[DecidedPart<A>]) -> DecisionFuture,
) -> AskedInTurn<A> {
    let mut asked = AskedInTurn { passed: Vec::new(), ended: None };
    for mut asks in parts {
        match ask(&mut asks, &asked.passed).await {
            Ok(decision) if decision.is_allowed() => asked.passed.push((asks, decision)),
            answer => {
                asked.ended = Some(answer.map(|decision| (asks, decision)));
                break;
            }
        }
    }
    asked
}

/// The answers of places that were asked at the same time. It waits for all of them, even after an error. Use it for peeks and reports,
/// which are never all or nothing. For stores that decide in several places.
///
/// # Errors
/// The error of a place that gave no answer. It says nothing about the others.
///
/// # Cancel safety
/// If it is dropped, each place continues or stops as its own future says; run it [to its end](DecisionFuture::begun) for reports.
#[doc(hidden)]
pub async fn ask_at_once<A>(begun: Vec<(A, DecisionFuture)>) -> Result<Vec<DecidedPart<A>>, StoreError> {
    let (mut parts, mut failed) = (Vec::with_capacity(begun.len()), None);
    for (asks, answer) in begun {
        match answer.await {
            Ok(decision) => parts.push((asks, decision)),
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(parts), Err)
}

/// An ask that outlives its call, for store wrappers that continue after an answer.
///
/// Cloning the key allocates above 51 bytes of text, and a receipt allocates; everything else is a reference count.
#[derive(Debug)]
pub struct OwnedAsk {
    policy: PreparedPolicy,
    key: Key,
    cost: u64,
    costs: SmallVec<[u64; 2]>,
    mode: Mode,
    /// Boxed, because few asks have one.
    receipt: Option<Box<Receipt>>,
}

impl OwnedAsk {
    /// A copy of an ask. It has the same receipt, so only one of the two may give units back.
    pub fn new(ask: &Ask<'_>) -> Self {
        Self {
            policy: ask.prepared(),
            key: ask.key().to_key(),
            cost: ask.cost(),
            costs: ask.costs().into(),
            mode: ask.mode(),
            receipt: ask.receipt().map(|receipt| Box::new(receipt.copied())),
        }
    }

    /// The ask.
    pub fn ask(&self) -> Ask<'_> {
        let mut ask = Ask::new(&self.policy, self.key.as_ref(), self.cost, self.mode);
        if !self.costs.is_empty() {
            ask = ask.with_costs(&self.costs);
        }
        match &self.receipt {
            Some(receipt) => ask.of(receipt),
            None => ask,
        }
    }
}
