//! Budgets, which are quotas of a calendar: the keys that have used most of their budgets, and warnings about them, [`Budgets`].
//!
//! A decision that leaves a key half of its budget or more only updates the list of the nearest keys. Below that, a table remembers the
//! warnings given. Both have a fixed size, whatever keys clients make up, and exist once a policy has a quota of a calendar.

mod given;
mod nearest;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Mutex;

use sluicegate_core::Decision;
use sluicegate_core::key::{Key, KeyRef};
use sluicegate_core::policy::Policy;
use sluicegate_core::store::{DecidedBy, QuotaStatus};

use self::given::GivenWarnings;
pub use self::nearest::KeyBudget;
use self::nearest::Nearest;
use super::lock::lock;
use super::offenders;

/// The thresholds of a budget at which warnings are given, in percent.
pub(super) const PERCENTS: [u8; 3] = [50, 80, 100];

/// The budgets of the keys of a policy.
pub(super) struct Budgets {
    hashes: RandomState,
    given: Mutex<GivenWarnings>,
    nearest: Mutex<Nearest>,
}

/// The ask that a decision is about.
#[derive(Clone, Copy)]
pub(super) struct BudgetAsk<'a> {
    /// The policy with the quotas that have decided.
    pub(super) numbers: &'a Policy,
    /// The place of the ask among those of the decision.
    pub(super) place: usize,
    pub(super) key: KeyRef<'a>,
    /// Whether warnings are given.
    pub(super) warns: bool,
}

/// A part of a budget that a key has used, for the first time in the period.
#[derive(Clone, Copy)]
pub(super) struct BudgetWarning {
    /// The place in [`PERCENTS`].
    pub(super) part: usize,
    /// The place of the quota in its policy.
    pub(super) quota: usize,
    pub(super) standing: BudgetStanding,
}

/// A key's use of a budget, in the period of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BudgetStanding {
    pub(super) used: u64,
    pub(super) limit: u64,
    pub(super) from_us: u64,
    pub(super) until_us: u64,
}

/// Whether a policy has a budget.
pub(super) fn has_budget(policy: &Policy) -> bool {
    policy.quotas().iter().any(|quota| quota.quota().calendar().is_some())
}

impl Budgets {
    pub(super) fn new() -> Self {
        Self {
            hashes: RandomState::new(),
            given: Mutex::new(GivenWarnings::new()),
            nearest: Mutex::default(),
        }
    }

    /// Notes the standing of a key after a decision, and calls `warn` for each warning that is due, without a lock.
    pub(super) fn note(&self, ask: BudgetAsk<'_>, decision: &Decision, mut warn: impl FnMut(BudgetWarning)) {
        // The fallback knows only a share of the spent units, and other deciders report a key at rest.
        if !matches!(decision.decided_by(), DecidedBy::Store | DecidedBy::Lease) {
            return;
        }
        let own = decision.quotas().iter().filter(|status| status.policy_index() == ask.place);
        for status in own.filter(|status| !status.is_suspended()) {
            let quota = status.quota_index();
            let Some(standing) = BudgetStanding::of(ask.numbers, status, decision.at_us()) else { continue };
            let digest = self.hashes.hash_one((ask.numbers.name(), quota, ask.key.digest()));
            lock(&self.nearest).note(digest, ask.key, quota, standing, decision.at_us());
            if ask.warns {
                let parts = self.due(digest, standing, status.spent(), decision.at_us());
                parts.for_each(|part| warn(BudgetWarning { part, quota, standing }));
            }
        }
    }

    /// The thresholds with a warning due.
    fn due(&self, digest: u64, standing: BudgetStanding, spent: u64, now_us: u64) -> Range<usize> {
        let reached = standing.parts_used();
        if reached == 0 {
            return 0..0;
        }
        // Other numbers are another budget.
        let BudgetStanding { limit, from_us, until_us, .. } = standing;
        let digest = self.hashes.hash_one((digest, limit, from_us, until_us));
        let before = BudgetStanding { used: standing.used.saturating_sub(spent), ..standing }.parts_used();
        let given = lock(&self.given).give(digest, until_us, now_us, reached);
        given.unwrap_or(before)..reached
    }

    /// The keys that have used most of their budgets in the periods that are under way, the one nearest to the end first.
    pub(super) fn nearest(&self, now_us: u64) -> Vec<KeyBudget> {
        lock(&self.nearest).shown(now_us)
    }

    /// Forgets the keys that are listed, because a policy was replaced and their budgets with it. They are listed again once they ask.
    pub(super) fn forget_nearest(&self) {
        *lock(&self.nearest) = Nearest::default();
    }

    /// The key that is listed with this reference.
    pub(super) fn find(&self, reference: &str) -> Option<Key> {
        lock(&self.nearest).find(offenders::digest(reference)?)
    }
}

impl BudgetStanding {
    /// `None` if the quota is not a budget.
    fn of(numbers: &Policy, status: &QuotaStatus, at_us: u64) -> Option<Self> {
        let quota = numbers.quotas().get(status.quota_index())?;
        let (from_us, until_us) = quota.quota().calendar()?.around(at_us);
        // A share of a policy has that share of its limit. Carried units come on top of the limit, and are spent first.
        let limit = part_of(quota.quota().limit(), status.capacity(), quota.rule().capacity());
        Some(Self { used: limit.saturating_sub(status.remaining()), limit, from_us, until_us })
    }

    /// The number of [`PERCENTS`] that are used.
    fn parts_used(&self) -> usize {
        PERCENTS.iter().filter(|percent| self.has_used(**percent)).count()
    }

    fn has_used(&self, percent: u8) -> bool {
        u128::from(self.used) * 100 >= u128::from(self.limit.max(1)) * u128::from(percent)
    }
}

fn part_of(number: u64, part: u64, whole: u64) -> u64 {
    let part = u128::from(number) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}
