//! The inner store of a wrapper: [`Within`].

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::{StoreError, StoreErrorKind};
use crate::limiter::Limiters;
use crate::store::{Ask, DecisionFuture, IntoStore, PreparedPolicy, Store};

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
    pub(super) inner: PreparedPolicy,
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
    /// The error of the inner store, and [`ForeignPolicy`](crate::error::StoreErrorKind::ForeignPolicy) for an ask of a policy that
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

    pub(super) fn limiters(&self) -> &Limiters {
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
