//! One bucket in several places: the common part of [`Sharded`](crate::Sharded) and [`Regional`](crate::Regional).
//!
//! A policy is opened as several parts whose limits sum to its own ([`Policy::split`]), each on its store and under its key. So nothing
//! that happens between the parts can admit more than the policy: the sum covers whatever each part lets pass. The rest, such as which part
//! is asked, in which order, and what is looked at, only serves to use all of the limit.

mod answer;
mod call;
mod decide;
mod divide;
mod opened;
mod piece;
mod plan;
mod request;
mod spread;
mod table;

use std::fmt;
use std::sync::Arc;

use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::key::KeyRef;
use sluicegate_core::limiter::{Inherit, Receipt};
use sluicegate_core::policy::MAX_QUOTAS;
use sluicegate_core::store::{
    Ask, DecisionFuture, Event, Limiters, Listener, Place, PreparedPolicy, Shared, StoreStatus,
};
use sluicegate_core::{ConfigError, Policy, Store, StoreError};
use smallvec::SmallVec;

pub(crate) use self::divide::Divide;
use self::opened::OpenedParts;
use self::request::DividedAsk;

/// A store that keeps buckets in several places, as `D` defines.
pub(crate) struct Divided<D> {
    divide: Arc<D>,
    limiters: Limiters,
}

impl<D: Divide> Divided<D> {
    /// A store with buckets divided in this way.
    pub(crate) fn new(divide: D) -> Self {
        Self { divide: Arc::new(divide), limiters: Limiters::default() }
    }

    /// Opens the parts of a policy, each on its store. `old` is the policy that it replaces; the division of `old` is kept.
    ///
    /// # Errors
    /// When a store cannot keep its part, and when all parts have more quotas than one call decides, because one call must be able to look
    /// at all of them.
    fn opened_parts(
        &self,
        policy: &Arc<Policy>,
        old: Option<(&OpenedParts, Inherit)>,
    ) -> Result<OpenedParts, ConfigError> {
        let parts = self.divide.parts(policy, old.map(|(old, _)| !old.is_whole))?;
        let is_whole = parts.is_none();
        let parts =
            parts.map_or_else(|| vec![Arc::clone(policy)], |parts| parts.into_iter().map(Arc::new).collect());
        let buckets = parts.len() * policy.quotas().len();
        if !is_whole && buckets > MAX_QUOTAS {
            let (count, quotas) = (parts.len(), policy.quotas().len());
            let problem = format!(
                "{count} parts of {quotas} quotas are {buckets} buckets, and at most {MAX_QUOTAS} are decided together: use at most {} parts",
                MAX_QUOTAS / quotas
            );
            return Err(ConfigError::new(ConfigErrorKind::TooManyQuotas, problem).in_policy(policy.name()));
        }
        let opened = parts.into_iter().enumerate().map(|(part, policy)| {
            let replaces = old.and_then(|(old, how)| Some((old.parts.get(part)?, how)));
            self.store(is_whole, part).open(policy, replaces)
        });
        Ok(OpenedParts { parts: opened.collect::<Result<_, _>>()?, is_whole })
    }

    /// The store of this part of a policy.
    fn store(&self, is_whole: bool, part: usize) -> &dyn Store {
        &*self.divide.stores()[if is_whole { 0 } else { self.divide.store_of(part) }]
    }

    /// The parts of a policy, each with its store.
    fn each_part<'a>(
        &'a self,
        opened: &'a OpenedParts,
    ) -> impl Iterator<Item = (&'a dyn Store, &'a PreparedPolicy)> {
        opened.parts.iter().enumerate().map(|(part, policy)| (self.store(opened.is_whole, part), policy))
    }

    /// The asks for the first store, or `None` if one of them is about a policy in parts.
    fn whole<'a>(asks: &[Ask<'a>]) -> Result<Option<SmallVec<[Ask<'a>; 4]>>, StoreError> {
        let mut whole = SmallVec::new();
        for ask in asks {
            let opened = OpenedParts::of(ask.policy())?;
            if !opened.is_whole || ask.receipt().is_some_and(Receipt::has_pieces) {
                return Ok(None);
            }
            whole.push(ask.on(&opened.parts[0]));
        }
        Ok(Some(whole))
    }
}

impl<D: Divide> Store for Divided<D> {
    fn open(
        &self,
        policy: Arc<Policy>,
        replaces: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        let (old, how) = replaces.unzip();
        let old = old.map(PreparedPolicy::replaced::<OpenedParts>).transpose()?;
        let opened = self.opened_parts(&policy, old.as_deref().zip(how))?;
        Ok(PreparedPolicy::new(policy, Arc::new(opened)))
    }

    fn admit(&self, policy: &PreparedPolicy) -> Result<(), ConfigError> {
        let Some(own) = policy.own() else { return Ok(()) };
        let opened = policy.replaced::<OpenedParts>()?.under(&*self.divide, policy, own)?;
        self.each_part(&opened).try_for_each(|(store, policy)| store.admit(policy))
    }

    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        match Self::whole(asks) {
            Ok(Some(asks)) => self.divide.stores()[0].decide(&asks),
            Ok(None) => decide::begin(&self.divide, asks),
            Err(foreign) => DecisionFuture::ready(Err(foreign)),
        }
    }

    fn always_answers(&self) -> bool {
        self.divide.stores().iter().all(|store| store.always_answers())
    }

    fn place(&self) -> Option<Place> {
        self.divide.stores().iter().filter_map(|store| store.place()).max().max(Some(Place::Shard))
    }

    fn parts(&self, asks: &[Ask<'_>]) -> u64 {
        let Ok(asks) = DividedAsk::each(&*self.divide, asks) else { return 1 };
        let pieces = asks.iter().flat_map(|asked| asked.looks(&*self.divide));
        let parts = pieces.map(|piece| self.divide.stores()[piece.store].parts(&[piece.ask()]));
        parts.fold(0, |all, bits| all | bits)
    }

    fn is_at_rest(&self, policy: &PreparedPolicy, key: KeyRef<'_>) -> bool {
        let opened = OpenedParts::of(policy);
        opened.is_ok_and(|opened| self.each_part(opened).all(|(store, part)| store.is_at_rest(part, key)))
    }

    fn replaced(&self, old: &PreparedPolicy, new: &PreparedPolicy, inherit: Inherit) {
        let (Ok(old), Ok(new)) = (OpenedParts::of(old), OpenedParts::of(new)) else { return };
        for (old, (store, new)) in old.parts.iter().zip(self.each_part(new)) {
            store.replaced(old, new, inherit);
        }
    }

    fn notice(&self, event: &Event<'_>) {
        self.divide.stores().iter().for_each(|store| store.notice(event));
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.divide.stores().iter().for_each(|store| store.listen(Arc::clone(&listener)));
    }

    fn now_us(&self) -> u64 {
        self.divide.stores()[0].now_us()
    }

    fn shared(&self) -> Option<&dyn Shared> {
        self.divide.shared().shared()
    }

    fn has_fallback(&self) {
        self.divide.stores().iter().for_each(|store| store.has_fallback());
    }

    fn status(&self) -> StoreStatus {
        let mut status = self.divide.stores()[0].status();
        status.disagreements = self.divide.stores().iter().map(|store| store.status().disagreements).sum();
        status
    }

    fn limiters(&self) -> &Limiters {
        &self.limiters
    }
}

impl<D> fmt::Debug for Divided<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Apart").finish_non_exhaustive()
    }
}
