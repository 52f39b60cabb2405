//! Decisions while the store cannot be asked, by the policies' [`OnOutage`].
//!
//! The fallback is told everything that the store admits, so that a client that has used up
//! its limit does not get a fresh bucket when the store goes down. It decides with its *share* of
//! each quota. A cost that fits the quota but not the share is refused as in an outage, with a
//! wait: it could pass when the store is back.
//!
//! With several instances, a share does not [count refused requests](sluicegate_core::policy::PolicyBuilder::count_rejected): it refuses
//! requests that the whole quota would admit, and if it counted them, a client within its limit might be refused forever.
//!
//! A request that waits for a store that does not answer may be decided here long after it came, and its policy may have been
//! replaced meanwhile. The old share's buckets are at rest by then, because their keys moved to the new share: the old share would
//! give such a request a burst that is already spent. So it is decided by the share in force.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate_core::Decision;
use sluicegate_core::algorithm::Inherit;
use sluicegate_core::error::{ConfigError, StoreError};
use sluicegate_core::policy::{OnOutage, Policy, PolicyQuota};
use sluicegate_core::store::{
    Ask, DecidedBy, Mode, OwnQuotas, PreparedPolicy, QuotaStatus, Store, StoreStatus, WeakPolicy,
};
use sluicegate_core::support::lock;
use sluicegate_core::wrap::{Within, decide_in_outage};
use smallvec::SmallVec;

use super::debts::Debts;

/// A store of this process that decides with its share of each quota, and the debts of the requests that it admitted.
pub(super) struct LocalFallback {
    store: Arc<dyn Store>,
    pub(super) replicas: u64,
    pub(super) debts: Debts,
}

impl LocalFallback {
    pub(super) fn new(store: Arc<dyn Store>, replicas: u64) -> Self {
        Self { store, replicas, debts: Debts::default() }
    }

    /// Opens a policy's share. Dropping the result undoes it.
    pub(super) fn prepare(
        &self,
        policy: &Policy,
        replaces: Option<(&FallbackShare, Inherit)>,
    ) -> Result<FallbackShare, ConfigError> {
        let own = match policy.on_outage() {
            OnOutage::Local => Some(policy.share(policy.name(), 1, self.replicas)?),
            _ => policy.in_outage()?,
        };
        let open = |own: Policy| {
            let old = replaces.and_then(|(old, how)| Some((old.own()?, how)));
            let own = if self.replicas > 1 { own.without_count_rejected() } else { own };
            self.store.open(Arc::new(own), old)
        };
        let own = own.map(open).transpose()?;
        Ok(FallbackShare::new(own, replaces.map(|(old, _)| old)))
    }

    /// The state of its table.
    pub(super) fn status(&self) -> StoreStatus {
        self.store.status()
    }

    /// Decides without the store, which could not answer for the reason given.
    pub(super) fn decide(
        &self,
        asks: &[Ask<'_>],
        reason: StoreError,
        outage: impl FnOnce() -> (u64, Duration),
    ) -> Result<Decision, StoreError> {
        if asks.iter().any(|ask| must_be_known(ask)) {
            return Err(reason);
        }
        let share = |(index, ask)| {
            let share = in_force(ask)?;
            let own = self.share_of(ask, &share);
            Some((index, ask, share, own))
        };
        let shares: SmallVec<[_; 4]> = (0_u8..).zip(asks).filter_map(share).collect();
        let local: SmallVec<[(u8, Ask<'_>); 4]> = shares
            .iter()
            .map(|(index, ask, share, own)| (*index, local(ask, share).under(own.as_ref())))
            .collect();
        decide_in_outage(asks, &local, Some(&*self.store), outage)
    }

    /// Records units spent without the store, to be charged when it is back; or only those that the store cannot learn in another way, if
    /// the request `may_arrive` there late.
    ///
    /// The whole cost is owed even if the share was smaller, because the store counts whole quotas. Of a `Take`, the units that the
    /// fallback has [granted](granted) are owed.
    pub(super) fn note_spending<'a>(
        &self,
        asks: impl IntoIterator<Item = Ask<'a>>,
        may_arrive: bool,
        within: &Within<FallbackShare>,
    ) {
        for ask in asks.into_iter().filter(|ask| !may_arrive || is_its(ask)) {
            let ask = &ask;
            // Requests that no quota of the policy has counted stay uncounted; a charge is owed under every policy.
            let counts = match ask.mode() {
                Mode::Charge => true,
                mode => mode.spends() && ask.policy().policy().on_outage() == OnOutage::Local,
            };
            if counts {
                let parts = within.parts(std::slice::from_ref(ask));
                self.debts.add(parts, newest(ask.policy()), ask.key().to_key(), ask.cost());
            } else {
                self.strike(ask, within);
            }
        }
    }

    /// Tells the fallback the store's decisions, so that it does not start from rest when it is needed.
    pub(super) fn keep_warm(&self, asks: &[Ask<'_>], decision: &Decision, within: &Within<FallbackShare>) {
        if !decision.is_allowed() {
            return;
        }
        for (ask, granted) in asks.iter().zip(granted(asks, decision)) {
            if ask.mode() == Mode::Reset {
                self.debts.forget(ask.policy(), ask.key());
            }
            let Some(share) = in_force(ask) else { continue };
            let own = self.share_of(ask, &share);
            let local = granted.on(&share).under(own.as_ref());
            let local = match ask.mode() {
                // A suspension is a debt, and has the same length in every share.
                Mode::Charge if ask.policy().policy().is_of_suspension() => local.plainly(Mode::Charge),
                // As far as it fits: a share is smaller than the units that the store may admit here.
                // Leased units are spent by this process in any case.
                Mode::Spend | Mode::Reserve { .. } | Mode::Take | Mode::Lease | Mode::Charge => {
                    local.plainly(Mode::Take)
                }
                Mode::Refund if is_its(ask) => {
                    self.strike(ask, within);
                    local
                }
                Mode::Refund | Mode::Return => local.plainly(Mode::Refund),
                Mode::Reset => local,
                _ => continue,
            };
            drop(self.store.decide(&[local]));
        }
    }

    /// The status of the key under the policy's share, if it has one and the fallback answers. A quota that the policy names for an
    /// outage says nothing about the policy itself.
    pub(super) fn look<'a>(&self, ask: Ask<'a>) -> Option<Option<(&'a Policy, Decision)>> {
        let share = share(ask.policy()).filter(|_| ask.policy().policy().on_outage() == OnOutage::Local)?;
        let own = self.share_of(&ask, share);
        let look = self.store.decide(&[ask.on(share).under(own.as_ref())]).now().ok();
        Some(look.and_then(Result::ok).map(|decision| (&**share.policy(), decision)))
    }

    /// The share of the quotas that an ask brings for its key, made once: at least one unit of each. `None` if the policy names a
    /// quota for an outage, which is for all keys.
    fn share_of(&self, ask: &Ask<'_>, share: &PreparedPolicy) -> Option<Arc<OwnQuotas>> {
        let own = ask.own().filter(|_| ask.policy().policy().on_outage() == OnOutage::Local)?;
        let made = own.prepared(share, || {
            let (whole, replicas) = (ask.numbers(), self.replicas);
            let a_unit = |of: &PolicyQuota| {
                let of = of.quota();
                of.with_units(of.limit().div_ceil(replicas), of.burst_size().div_ceil(replicas))
            };
            let share = whole
                .share(whole.name(), 1, replicas)
                .or_else(|_| whole.with_quotas(&whole.quotas().iter().map(a_unit).collect::<Vec<_>>()))?;
            Ok::<_, ConfigError>(OwnQuotas::new(Arc::new(share)))
        });
        // Quotas that cannot be shared at all are used whole.
        Some(made.unwrap_or_else(|_| Arc::new(OwnQuotas::new(Arc::clone(ask.numbers())))))
    }

    /// Reduces the debt by units that are given back of a spend that the fallback admitted, or may have admitted.
    fn strike(&self, ask: &Ask<'_>, within: &Within<FallbackShare>) {
        let is_owed = is_its(ask) || ask.receipt().is_none();
        if ask.mode().gives_back() && is_owed && self.debts.count() > 0 {
            let parts = within.parts(std::slice::from_ref(ask));
            self.debts.strike(parts, ask.policy(), &ask.key().to_key(), ask.cost());
        }
    }
}

/// A policy's share, opened on the fallback, if the policy is decided locally in an outage.
pub(super) struct FallbackShare {
    own: Option<PreparedPolicy>,
    /// The number of policies before this one.
    number: u64,
    terms: Arc<ShareInForce>,
}

/// State that a policy shares with its replacements.
#[derive(Default)]
struct ShareInForce {
    /// The number of the policy in force.
    newest: AtomicU64,
    /// The policy in force. Weak, so that an old handle does not keep a replaced policy open.
    in_force: Mutex<Option<PolicyInForce>>,
}

/// A policy in force, and its share, if it is decided locally.
struct PolicyInForce {
    policy: WeakPolicy,
    share: Option<WeakPolicy>,
}

impl FallbackShare {
    /// The share of a policy, linked to the share that it replaces.
    fn new(own: Option<PreparedPolicy>, replaces: Option<&Self>) -> Self {
        match replaces {
            Some(old) => Self { own, number: old.number + 1, terms: Arc::clone(&old.terms) },
            None => Self { own, number: 0, terms: Arc::default() },
        }
    }

    /// Puts this share of a policy in force, in place of the earlier ones.
    pub(super) fn begin(&self, policy: &PreparedPolicy) {
        let mut in_force = lock(&self.terms.in_force);
        let share = self.own.as_ref().map(PreparedPolicy::downgrade);
        *in_force = Some(PolicyInForce { policy: policy.downgrade(), share });
        // Release: a thread that reads the number finds the share under the lock.
        self.terms.newest.store(self.number, Ordering::Release);
    }

    /// The share that was opened for this policy.
    fn own(&self) -> Option<&PreparedPolicy> {
        self.own.as_ref()
    }

    /// The share that decides now: this policy's own, or that of its latest replacement, if that is decided locally.
    fn in_force(&self) -> Option<Cow<'_, PreparedPolicy>> {
        let own = self.own.as_ref()?;
        let newer = self.newer(|newer| newer.share.as_ref()?.upgrade());
        Some(newer.map_or(Cow::Borrowed(own), Cow::Owned))
    }

    /// Reads something of the latest replacement, if there is one.
    fn newer<T>(&self, read: impl FnOnce(&PolicyInForce) -> Option<T>) -> Option<T> {
        // Acquire, with the release in `begin`.
        if self.terms.newest.load(Ordering::Acquire) == self.number {
            return None;
        }
        let in_force = lock(&self.terms.in_force);
        in_force.as_ref().and_then(read)
    }
}

/// Whether the ask refers to a spend that the fallback admitted.
pub(super) fn is_its(ask: &Ask<'_>) -> bool {
    ask.receipt().is_some_and(|receipt| receipt.decided_by() == DecidedBy::Fallback)
}

/// The asks of a decision, with the spends that a `Take` or a `Lease` among them resulted in.
pub(super) fn granted<'a>(asks: &[Ask<'a>], decision: &Decision) -> impl Iterator<Item = Ask<'a>> {
    asks.iter().enumerate().map(|(place, ask)| {
        let own = decision.quotas().iter().filter(|status| status.policy_index() == place);
        ask.granted(own.map(QuotaStatus::spent).min().unwrap_or(0))
    })
}

/// The share of a policy that is open on a `Resilient` store.
fn opened_share(policy: &PreparedPolicy) -> Option<&FallbackShare> {
    Within::opened(policy).map(|(_, share)| share)
}

/// The policy that has replaced this one; itself if there is none.
fn newest(policy: &PreparedPolicy) -> PreparedPolicy {
    let newest = opened_share(policy).and_then(|share| share.newer(|newer| newer.policy.upgrade()));
    newest.unwrap_or_else(|| policy.clone())
}

/// The share of a policy, as the fallback has prepared it.
fn share(policy: &PreparedPolicy) -> Option<&PreparedPolicy> {
    opened_share(policy)?.own()
}

/// The share that an ask is for, if its policy is decided locally: the share in force answers questions and is charged, and units
/// spent under a policy go back to the share of that policy.
fn in_force<'a>(ask: &Ask<'a>) -> Option<Cow<'a, PreparedPolicy>> {
    let share = opened_share(ask.policy())?;
    let is_new = ask.mode().asks() || ask.mode() == Mode::Charge;
    if is_new { share.in_force() } else { share.own().map(Cow::Borrowed) }
}

/// The ask as the fallback gets it.
fn local<'a>(ask: &Ask<'a>, share: &'a PreparedPolicy) -> Ask<'a> {
    let local = ask.on(share);
    match ask.mode() {
        // Units of a share are not leased, because the store would not count them.
        Mode::Lease => local.with_costs(&[0]),
        // A receipt of the store uses another clock.
        mode if !is_its(ask) => local.plainly(mode),
        _ => local,
    }
}

/// Whether only the store can do this: a reset has to take effect everywhere, and only the store knows the state of a turn
/// that it gave.
fn must_be_known(ask: &Ask<'_>) -> bool {
    match ask.mode() {
        Mode::Reset => true,
        mode => mode == Mode::Return && !is_its(ask),
    }
}
