//! One bucket in several places: the common part of [`Sharded`](crate::Sharded) and [`Regional`](crate::Regional).
//!
//! A policy is opened as several parts whose limits sum to its own ([`Policy::split`]), each on its store and under its key. So nothing
//! that happens between the parts can admit more than the policy: the sum covers whatever each part lets pass. Each cost is spent in one part:
//! the first that is asked, or the one with the most units left; a cost above the burst of every part is impossible.

mod call;
mod decide;

use std::sync::Arc;

use sluicegate_core::error::{ConfigErrorKind, StoreErrorKind};
use sluicegate_core::key::KeyRef;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::MAX_QUOTAS;
use sluicegate_core::store::{
    Ask, Capabilities, DecisionFuture, Limiters, Notice, OwnQuotas, Parts, Place, PreparedPolicy, Shared,
    SharedFuture, StoreStatus, Write,
};
use sluicegate_core::{ConfigError, Key, Policy, Store, StoreError};
use smallvec::SmallVec;

use self::decide::DividedAsk;

/// Defines how the buckets of policies are divided.
///
/// # Contract
/// The quotas of all parts sum to those of the policy, whichever instance asks: [`parts`](Self::parts) is a pure function of the policy and
/// of settings that are the same everywhere. The results of the other functions may differ between instances; they decide where units are
/// spent, never their number.
pub(crate) trait Divide: Send + Sync + 'static {
    /// The stores that hold the parts. A policy that is kept whole is on the first.
    fn stores(&self) -> &[Arc<dyn Store>];

    /// The parts of a policy, which sum to it; `None` if it is kept whole. `replaces` says whether a policy that this one replaces is in
    /// parts; if so, this one has the same number of parts.
    ///
    /// # Errors
    /// When the policy cannot be divided into that many parts, because one of them would have no unit.
    fn parts(&self, policy: &Policy, replaces: Option<bool>) -> Result<Option<Vec<Policy>>, ConfigError>;

    /// The index of the store that holds this part.
    fn store_of(&self, part: usize) -> usize;

    /// The name of a key in this part.
    fn key(&self, key: KeyRef<'_>, part: usize) -> Key;

    /// The part that is asked first, among this many.
    ///
    /// It is asked for the whole cost before the status of any part is known, so it should be likely to have room.
    fn first(&self, parts: usize) -> usize;

    /// Whether parts are spent from in their order, instead of from the part with the most units left.
    fn is_in_order(&self) -> bool;

    /// The store on which instances share everything except buckets.
    fn shared(&self) -> &Arc<dyn Store>;
}

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
            if !opened.is_whole || ask.receipt().is_some_and(|receipt| receipt.part().is_some()) {
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

    fn capabilities(&self) -> Capabilities<'_> {
        let stores = self.divide.stores().iter();
        let each: SmallVec<[Capabilities<'_>; 4]> = stores.map(|store| store.capabilities()).collect();
        let mut capabilities =
            Capabilities::new().always_answers(each.iter().all(|store| store.always_answers)).parts(self);
        capabilities.place = each.iter().filter_map(|store| store.place).max().max(Some(Place::Shard));
        capabilities.clock = each[0].clock;
        capabilities.shared = self.divide.shared().shared().map(|_| self as &dyn Shared);
        capabilities
    }

    fn notify(&self, notice: &Notice<'_>) {
        let Notice::Replaced { old, new, inherit } = *notice else {
            return self.divide.stores().iter().for_each(|store| store.notify(notice));
        };
        let (Ok(old), Ok(new)) = (OpenedParts::of(old), OpenedParts::of(new)) else { return };
        for (old, (store, new)) in old.parts.iter().zip(self.each_part(new)) {
            store.replaced(old, new, inherit);
        }
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

impl<D: Divide> Parts for Divided<D> {
    fn parts(&self, asks: &[Ask<'_>]) -> u64 {
        let Ok(asks) = DividedAsk::each(&*self.divide, asks) else { return 1 };
        let looks = asks.iter().flat_map(|asked| asked.looks(&*self.divide, &asks));
        let parts = looks.map(|look| self.divide.stores()[look.store].parts(&[look.ask()]));
        parts.fold(0, |all, bits| all | bits)
    }
}

/// The value of one of the stores. Permits are not divided.
impl<D: Divide> Shared for Divided<D> {
    fn exchange(&self, write: Option<Write<'_>>) -> SharedFuture {
        let shared = self.divide.shared().shared();
        shared.expect("the capabilities have named it").exchange(write)
    }
}

/// A policy that is open in its parts, or in one place as a whole.
struct OpenedParts {
    /// The parts as their stores have prepared them; a single one if the policy is kept whole.
    parts: SmallVec<[PreparedPolicy; 2]>,
    /// Whether it is kept whole: its asks go to the first store unchanged, under their own key.
    is_whole: bool,
}

impl OpenedParts {
    /// The parts that were opened for a policy.
    ///
    /// # Errors
    /// [`StoreErrorKind::ForeignPolicy`] when it was opened on another store.
    fn of(policy: &PreparedPolicy) -> Result<&Self, StoreError> {
        policy.prepared().ok_or_else(|| StoreError::new(StoreErrorKind::ForeignPolicy))
    }

    /// The parts for an ask: those of its policy, or those with the quotas that its key brings.
    ///
    /// # Errors
    /// When the policy was opened on another store, or the quotas cannot be divided.
    fn for_ask(divide: &dyn Divide, ask: &Ask<'_>) -> Result<Arc<Self>, StoreError> {
        let policy = ask.policy();
        let Some(own) = ask.own() else {
            return policy.replaced().map_err(|_| StoreError::new(StoreErrorKind::ForeignPolicy));
        };
        let opened = Self::of(policy)?.under(divide, policy, own);
        opened.map_err(|error| StoreError::with_source(StoreErrorKind::QuotasExhausted, error))
    }

    /// The parts of this policy for a key that brings quotas of its own, divided as the policy is. They are made once.
    ///
    /// # Errors
    /// When they cannot be divided.
    fn under(
        &self,
        divide: &dyn Divide,
        policy: &PreparedPolicy,
        own: &Arc<OwnQuotas>,
    ) -> Result<Arc<Self>, ConfigError> {
        own.prepared(policy, || self.divided(divide, own))
    }

    /// The parts, each with its part of these quotas.
    ///
    /// # Errors
    /// When a part would have no unit.
    fn divided(&self, divide: &dyn Divide, own: &Arc<OwnQuotas>) -> Result<Self, ConfigError> {
        let parts = if self.is_whole { None } else { divide.parts(own.policy(), Some(true))? };
        let owns = parts.map_or_else(
            || vec![Arc::clone(own)],
            |parts| parts.into_iter().map(|part| Arc::new(OwnQuotas::new(Arc::new(part)))).collect(),
        );
        let parts = self.parts.iter().zip(owns).map(|(part, own)| part.under(own));
        Ok(Self { parts: parts.collect(), is_whole: self.is_whole })
    }

    /// The number of quotas of the policy.
    fn quotas(&self) -> usize {
        self.parts[0].policy().quotas().len()
    }

    /// The units of this quota that pass at once from rest in this part.
    fn capacity(&self, part: usize, quota: usize) -> u64 {
        self.parts[part].numbers().quotas()[quota].rule().capacity()
    }

    /// The units of this quota that pass at once from rest in all parts together.
    fn whole_capacity(&self, quota: usize) -> u64 {
        (0..self.parts.len()).map(|part| self.capacity(part, quota)).fold(0, u64::saturating_add)
    }
}
