//! Decides a request: here, with a refill that it waits for, or by the store.
//!
//! # Steps
//! 1. Asks that only a store can answer (turns, refunds, charges, peeks) go to it; a reset first drops the held units.
//! 2. If enough units are held, they are spent under the lock of one set, and no call is made.
//! 3. If the current refill will bring enough, the request waits for it, once.
//! 4. Otherwise it goes to the store, and requests the next lease in the same call if the key is used often enough.
//!
//! A request with several asks is decided here if every ask can be. Otherwise all of it goes to the store, and held units stay
//! unused: a request that spends partly here and partly there could not be taken back as one.

use std::sync::{Arc, MutexGuard};

use sluicegate_core::clock::micros;
use sluicegate_core::policy::MAX_QUOTAS;
use sluicegate_core::store::{
    Ask, DecidedBy, DecisionFuture, Inherit, Mode, Notice, Place, QuotaStatus, StoreStatus, judge,
};
use sluicegate_core::wrap::{OwnedAsk, Within, Wrap};
use sluicegate_core::{ConfigError, Policy};
use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::measure::Measure;
use super::policy::LeasedPolicy;
use super::refill::{PendingRefill, Refills};
use super::table::{AccountId, AccountSet, locked};
use super::units::PerQuota;
use super::{LeaseState, LeasingStore};
use crate::latch::Latch;

impl Wrap for LeasingStore {
    type Own = Arc<LeasedPolicy>;

    fn within(&self) -> &Within<Self::Own> {
        &self.0.within
    }

    fn own_place(&self) -> Option<Place> {
        Some(Place::Leased)
    }

    fn prepare(
        &self,
        policy: &Arc<Policy>,
        _: Option<(&Self::Own, Inherit)>,
    ) -> Result<Self::Own, ConfigError> {
        Ok(Arc::new(LeasedPolicy::new(policy, &self.0.batch)))
    }

    #[inline]
    fn ask(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        match asks {
            [ask] => self.0.one(ask, true),
            asks => self.0.several(asks),
        }
    }

    /// Drops the units held for keys of a replaced policy: the store has converted them as part of the replacement.
    fn hear(&self, notice: &Notice<'_>) {
        if let Notice::Replaced { old, .. } = notice
            && let Ok(policy) = self.0.within.own(old)
        {
            policy.replaced();
            self.0.table.each().for_each(|mut set| set.drop_policy(policy));
        }
    }

    fn report(&self, status: &mut StoreStatus) {
        status.leases = Some(self.0.status());
    }

    fn answers_at_once(&self) -> bool {
        true
    }
}

/// Whether held units can decide an ask. Held units belong to the policy's quotas, so the store decides for a key that brings its own.
#[inline]
fn is_local(ask: &Ask<'_>) -> bool {
    ask.own().is_none()
        && matches!(ask.mode(), Mode::Spend | Mode::Take)
        && ask.cost() > 0
        && ask.receipt().is_none()
}

impl LeaseState {
    /// Decides a request with one ask; `waits` says whether it may wait for the refill of another.
    #[inline]
    fn one(self: &Arc<Self>, ask: &Ask<'_>, waits: bool) -> DecisionFuture {
        let policy = match self.within.own(ask.policy()) {
            Ok(policy) => policy,
            Err(foreign) => return DecisionFuture::ready(Err(foreign)),
        };
        let measures = policy.measures().filter(|_| is_local(ask) && self.is_open());
        let Some(measures) = measures else { return self.pass(policy, ask) };
        let now_us = self.clock.now_us();
        let hash = self.table.hash(policy, ask.key());
        let mut set = self.table.set_of(hash);
        if let Some((account, counts)) = set.find(hash, policy, ask.key())
            && account.has(measures, ask, now_us, &mut counts.lost)
        {
            counts.local += 1;
            // It is large, and made where it is returned.
            let decision = DecisionFuture::ready(Ok(account.decide(measures, ask, now_us)));
            // So few units are left that the next lease should be requested.
            if account.is_low(measures, now_us) {
                let number = self.number();
                let units = account.begin(measures, &self.batch, ask.cost(), (now_us, number));
                drop(set);
                self.refill_alone(ask, PendingRefill::new(self.id(hash, policy, ask), now_us, number, units));
            }
            return decision;
        }
        if waits
            && ask.mode() == Mode::Spend
            // A store that always answers at once has answered before any request could wait.
            && !self.within.store().always_answers()
            && Handle::try_current().is_ok()
            && let Some((account, _)) = set.find(hash, policy, ask.key())
            && let Some(latch) = account.wait(ask.cost())
        {
            // No call begins under a lock.
            drop(set);
            return self.wait(ask, latch);
        }
        let refill = self.refill(&mut set, (policy, hash), Some(measures), ask, now_us);
        drop(set);
        match refill {
            Some(refill) => {
                self.ask_within(std::slice::from_ref(ask), std::iter::once((0, refill)).collect())
            }
            None => self.pass(policy, ask),
        }
    }

    /// The refill to request beside an ask that goes to the store; of no units without `measures` to request it by. `None` if the answer
    /// need not be noted.
    fn refill(
        &self,
        set: &mut AccountSet,
        (policy, hash): (&Arc<LeasedPolicy>, u64),
        measures: Option<&[Measure]>,
        ask: &Ask<'_>,
        now_us: u64,
    ) -> Option<PendingRefill> {
        let Some((account, _)) = set.find(hash, policy, ask.key()) else {
            policy.remember(ask.policy());
            set.make(hash, policy, ask.key(), now_us)?;
            return Some(PendingRefill::none(self.id(hash, policy, ask), now_us));
        };
        account.passes(ask.cost());
        let number = self.number();
        let units =
            measures.map_or(0, |measures| account.begin(measures, &self.batch, ask.cost(), (now_us, number)));
        let is_noted = units > 0 || !account.is_fresh(&self.batch, now_us);
        is_noted.then(|| PendingRefill::new(self.id(hash, policy, ask), now_us, number, units))
    }

    fn id(&self, hash: u64, policy: &Arc<LeasedPolicy>, ask: &Ask<'_>) -> AccountId {
        AccountId { hash, policy: Arc::clone(policy), key: ask.key().to_key() }
    }

    /// Waits once for the current refill, and decides when it has arrived or was dropped.
    #[cold]
    fn wait(self: &Arc<Self>, ask: &Ask<'_>, latch: Latch) -> DecisionFuture {
        let (state, ask) = (Arc::clone(self), OwnedAsk::new(ask));
        DecisionFuture::begun_here(async move {
            latch.opened().await;
            let decided = state.one(&ask.ask(), false);
            decided.await
        })
    }

    /// Handles an ask that held units cannot decide.
    fn pass(&self, policy: &Arc<LeasedPolicy>, ask: &Ask<'_>) -> DecisionFuture {
        let asks = std::slice::from_ref(ask);
        match ask.mode() {
            Mode::Reset => {
                self.forget(policy, ask);
                self.within.decide(asks)
            }
            Mode::Peek if ask.own().is_none() => {
                let held = self.held(policy, ask);
                let answer = self.within.decide(asks);
                if held.iter().all(|units| *units == 0) {
                    return answer;
                }
                let costs: PerQuota<u64> = (0..).take(held.len()).map(|quota| ask.cost_of(quota)).collect();
                answer.map(move |result| result.map(|decision| with_held(&decision, &held, &costs)))
            }
            _ => self.within.decide(asks),
        }
    }

    /// Drops the units held of a key.
    fn forget(&self, policy: &Arc<LeasedPolicy>, ask: &Ask<'_>) {
        let hash = self.table.hash(policy, ask.key());
        if let Some((account, counts)) = self.table.set_of(hash).find(hash, policy, ask.key()) {
            counts.lost += account.forget();
        }
    }

    /// The held units of each quota of a key.
    fn held(&self, policy: &Arc<LeasedPolicy>, ask: &Ask<'_>) -> PerQuota<u64> {
        let Some(measures) = policy.measures() else { return PerQuota::new() };
        let (hash, now_us) = (self.table.hash(policy, ask.key()), self.clock.now_us());
        let mut set = self.table.set_of(hash);
        let Some((account, counts)) = set.find(hash, policy, ask.key()) else { return PerQuota::new() };
        counts.lost += account.units.expire(measures, now_us);
        (0..measures.len()).map(|quota| account.units.of(quota)).collect()
    }

    /// Decides a request with several asks: here if all of them can be, otherwise by the store.
    fn several(self: &Arc<Self>, asks: &[Ask<'_>]) -> DecisionFuture {
        let mut policies: SmallVec<[&Arc<LeasedPolicy>; 4]> = SmallVec::new();
        for ask in asks {
            match self.within.own(ask.policy()) {
                Ok(policy) => policies.push(policy),
                Err(foreign) => return DecisionFuture::ready(Err(foreign)),
            }
        }
        for (ask, policy) in asks.iter().zip(&policies).filter(|(ask, _)| ask.mode() == Mode::Reset) {
            self.forget(policy, ask);
        }
        let is_spent = asks.iter().all(|ask| ask.mode() == Mode::Spend && is_local(ask));
        if !is_spent || !self.is_open() || asks.is_empty() || has_twins(asks, &policies) {
            return self.within.decide(asks);
        }
        let now_us = self.clock.now_us();
        let hashes: SmallVec<[u64; 4]> =
            asks.iter().zip(&policies).map(|(ask, policy)| self.table.hash(policy, ask.key())).collect();
        let mut sets = locked(&self.table, hashes.iter().map(|hash| self.table.place(*hash)));
        if let Some(decision) = self.all_here(asks, &policies, &hashes, now_us, &mut sets) {
            return decision;
        }
        let mut refills = Refills::new();
        let mut quotas: usize = asks.iter().map(|ask| ask.policy().policy().quotas().len()).sum();
        for (place, ask) in (0_u8..).zip(asks) {
            let (policy, hash) = (policies[usize::from(place)], hashes[usize::from(place)]);
            let Some(measures) = policy.measures() else { continue };
            let set = set_at(&mut sets, self.table.place(hash));
            // The units held may be enough for this ask, and only the units of another ask are missing.
            let is_enough = set
                .find(hash, policy, ask.key())
                .is_some_and(|(account, counts)| account.has(measures, ask, now_us, &mut counts.lost));
            let leases = !is_enough && quotas + measures.len() <= MAX_QUOTAS;
            let refill = self.refill(set, (policy, hash), Some(measures).filter(|_| leases), ask, now_us);
            if let Some(refill) = refill {
                quotas += if refill.units > 0 { measures.len() } else { 0 };
                refills.push((place, refill));
            }
        }
        drop(sets);
        if refills.is_empty() { self.within.decide(asks) } else { self.ask_within(asks, refills) }
    }

    /// The decision, if held units can decide all asks.
    fn all_here(
        &self,
        asks: &[Ask<'_>],
        policies: &[&Arc<LeasedPolicy>],
        hashes: &[u64],
        now_us: u64,
        sets: &mut [(usize, MutexGuard<'_, AccountSet>)],
    ) -> Option<DecisionFuture> {
        let each = || asks.iter().zip(policies).zip(hashes);
        for ((ask, policy), hash) in each() {
            let measures = policy.measures()?;
            let set = set_at(sets, self.table.place(*hash));
            let (account, counts) = set.find(*hash, policy, ask.key())?;
            if !account.has(measures, ask, now_us, &mut counts.lost) {
                return None;
            }
        }
        let (mut statuses, mut at_us) = (SmallVec::<[QuotaStatus; 4]>::new(), u64::MAX);
        for (place, ((ask, policy), hash)) in (0_u8..).zip(each()) {
            let measures = policy.measures()?;
            let set = set_at(sets, self.table.place(*hash));
            let (account, counts) = set.find(*hash, policy, ask.key())?;
            counts.local += u64::from(place == 0);
            at_us = at_us.min(account.store_us(now_us));
            account.spend(measures, ask, (place, now_us), |status| statuses.push(status));
        }
        Some(DecisionFuture::ready(Ok(judge(at_us, 0, statuses).by(DecidedBy::Lease))))
    }
}

/// One of the locked sets.
fn set_at<'a>(sets: &'a mut [(usize, MutexGuard<'_, AccountSet>)], place: usize) -> &'a mut AccountSet {
    let found = sets.iter_mut().find(|(of, _)| *of == place);
    &mut found.expect("the sets of all asks are locked").1
}

/// Whether two asks are about one bucket.
fn has_twins(asks: &[Ask<'_>], policies: &[&Arc<LeasedPolicy>]) -> bool {
    let each = || asks.iter().zip(policies);
    each().enumerate().any(|(index, (ask, policy))| {
        each().skip(index + 1).any(|(other, of)| Arc::ptr_eq(policy, of) && other.key() == ask.key())
    })
}

/// The status of a key from the store, plus the units held here, which the store counts as spent.
fn with_held(decision: &sluicegate_core::Decision, held: &[u64], costs: &[u64]) -> sluicegate_core::Decision {
    let is_enough = held.iter().zip(costs).all(|(units, cost)| units >= cost);
    let statuses = decision.quotas().iter().map(|status| {
        let units = held.get(status.quota_index()).copied().unwrap_or(0);
        let remaining = status.remaining().saturating_add(units).min(status.capacity());
        let status = status.with_remaining(remaining);
        match status.passed() || status.is_impossible() || !is_enough {
            true => status,
            false => status.with_more_after_us(micros(status.available_after())),
        }
    });
    judge(decision.at_us(), 0, statuses).by(decision.decided_by())
}
