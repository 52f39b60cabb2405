//! The buckets of one policy, one for each quota: [`Buckets`].
//!
//! A replacement keeps a bucket with an unchanged rule, so that such a change moves no state; for other buckets it notes which buckets
//! the new ones follow, and each key is handed over by its next request. No table is walked.

use std::sync::Arc;

use smallvec::SmallVec;

use super::bucket::Bucket;
use super::context::{HashedKey, StoreContext};
use super::plans::{KeyRule, MOST_PLANS, NumberedRule};
use super::replaced::{BucketReplacement, Heir, Replacements};
use crate::error::{ConfigError, ConfigErrorKind, StoreError};
use crate::policy::Policy;
use crate::store::{Ask, Inherit, OwnQuotas, PreparedPolicy};

/// The buckets of one policy, one per quota.
pub(super) struct Buckets {
    policy: Arc<Policy>,
    pub(super) each: Box<[Arc<Bucket>]>,
    replaced: Replacements,
}

/// The plans of a key's quotas, in the order of the policy's; `None` for the policy's own quota.
pub(super) type KeyPlans = SmallVec<[Option<Arc<KeyRule>>; 2]>;

impl Buckets {
    pub(super) fn new(
        context: &Arc<StoreContext>,
        policy: &Arc<Policy>,
        predecessor: Option<&(Arc<Self>, Inherit)>,
    ) -> Result<Self, ConfigError> {
        let now_us = context.clock.now_us();
        let (from, how) = match predecessor {
            Some((from, how)) if *how != Inherit::Reset => (from, *how),
            Some((from, _)) => {
                // Turns that were reserved before may still come, and their units are unknown to the new buckets.
                let reset_us = from.all(now_us).iter().map(|bucket| bucket.last_reset_us(now_us)).max();
                return Self::afresh(context, policy, reset_us.unwrap_or(now_us));
            }
            None => return Self::afresh(context, policy, 0),
        };
        let followed = following(&from.policy, policy);
        let uses = |old: usize| followed.iter().flatten().filter(|other| **other == old).count();
        let each = policy.quotas().iter().zip(&followed).map(|(quota, follows)| match follows[..] {
            [old] if uses(old) == 1 && from.each[old].serves(context, policy, quota.rule()) => {
                Ok(Arc::clone(&from.each[old]))
            }
            // Under the same rule, units spent there drain as if spent here.
            [old] if from.each[old].rules.own == *quota.rule() => {
                let since_us = from.each[old].since_us();
                Ok(Arc::new(Bucket::new(context, policy, *quota.rule(), since_us)?))
            }
            _ => {
                let since_us = follows.iter().map(|old| from.each[*old].since_us()).max().unwrap_or(0);
                Ok(Arc::new(Bucket::new(context, policy, *quota.rule(), since_us.max(now_us))?))
            }
        });
        let each: Box<[Arc<Bucket>]> = each.collect::<Result<_, ConfigError>>()?;
        let heirs = each.iter().zip(&followed).map(|(bucket, follows)| Heir {
            bucket: Arc::clone(bucket),
            follows: follows.iter().map(|old| Arc::clone(&from.each[*old])).collect(),
        });
        let heirs: Vec<_> = heirs.filter(|heir| !heir.keeps()).collect();
        let youngest = BucketReplacement::new(heirs, how, now_us);
        Ok(Self { policy: Arc::clone(policy), each, replaced: from.replaced.followed_by(youngest, now_us) })
    }

    fn afresh(context: &Arc<StoreContext>, policy: &Arc<Policy>, began_us: u64) -> Result<Self, ConfigError> {
        let each = policy
            .quotas()
            .iter()
            .map(|quota| Bucket::new(context, policy, *quota.rule(), began_us).map(Arc::new));
        let each = each.collect::<Result<_, _>>()?;
        Ok(Self { policy: Arc::clone(policy), each, replaced: Replacements::default() })
    }

    /// The rule that an ask counts by under its policy's quota at this index: from the quota of its key, or from the policy's quota.
    ///
    /// # Errors
    /// When more different quotas are in use than there is room for.
    #[inline]
    pub(super) fn counted(&self, ask: &Ask<'_>, quota: u8, now_us: u64) -> Result<NumberedRule, StoreError> {
        let plan = match ask.own() {
            Some(own) => self.plans(ask.policy(), own, now_us)?.get(usize::from(quota)).cloned().flatten(),
            None => None,
        };
        let bucket = &self.each[usize::from(quota)];
        Ok(plan.map_or(NumberedRule { rule: bucket.rules.own, plan: 0 }, |plan| plan.counted()))
    }

    /// The plans of the quotas that a key brings, looked up once; `None` for the policy's own quota.
    pub(super) fn plans(
        &self,
        policy: &PreparedPolicy,
        own: &OwnQuotas,
        now_us: u64,
    ) -> Result<Arc<KeyPlans>, StoreError> {
        own.prepared(policy, || {
            let rules = self.each.iter().zip(own.policy().quotas());
            rules.map(|(bucket, quota)| bucket.plan(quota.rule(), now_us)).collect()
        })
    }

    /// Checks that there is room for the quotas that a key brings, and keeps it for them.
    ///
    /// # Errors
    /// When the tables of this policy cannot hold them, or there is no room.
    pub(super) fn admit(
        &self,
        context: &StoreContext,
        policy: &PreparedPolicy,
        own: &OwnQuotas,
    ) -> Result<(), ConfigError> {
        for (index, (bucket, quota)) in self.each.iter().zip(own.policy().quotas()).enumerate() {
            let here = |error: ConfigError| error.in_quota(index);
            if let Some(log) = quota.rule().log() {
                context.check_log(own.policy(), log).map_err(here)?;
            }
            if !bucket.fits(quota.rule()) {
                let problem = format!(
                    "{} needs more room in memory than the table of this policy has: give the policy a quota that needs as much, such as this one",
                    quota.quota()
                );
                return Err(here(ConfigError::new(ConfigErrorKind::Unsupported, problem)));
            }
        }
        match self.plans(policy, own, context.clock.now_us()) {
            Ok(_) => Ok(()),
            Err(_) => {
                let problem = format!(
                    "no room for the quotas of {}: {MOST_PLANS} different ones of keys are in use under this policy, which is the most",
                    own.policy()
                );
                Err(ConfigError::new(ConfigErrorKind::QuotasExhausted, problem))
            }
        }
    }

    /// From now on spends under this policy are noted, and by [`Inherit::Spent`] keys are handed over in both directions: a request that
    /// began under this policy, and is decided by it only now, finds the units that were spent under the new policy.
    pub(super) fn is_replaced_by(&self, new: &Self, how: Inherit, now_us: u64) {
        if let Some(back) = new.replaced.back_to(&self.each, how) {
            self.replaced.add(back, now_us);
        }
    }

    /// Whether a key may have to be handed over.
    #[inline]
    pub(super) fn has_older(&self) -> bool {
        self.replaced.are_any()
    }

    /// The name of the policy.
    pub(super) fn name(&self) -> &str {
        self.policy.name()
    }

    /// The number of different quotas of keys in use, for the quota of the policy with the most.
    pub(super) fn quotas_in_use(&self) -> usize {
        self.each.iter().map(|bucket| bucket.rules.in_use()).max().unwrap_or(0)
    }

    /// Whether it is certain that this key owes nothing. Keys that owe no more than a burst are not noted: this is for buckets that
    /// are only [charged](Bucket::reaches).
    #[inline]
    pub(super) fn is_at_rest(&self, key: impl Fn() -> HashedKey) -> bool {
        !self.has_older() && self.each.iter().all(|bucket| bucket.is_at_rest(&key))
    }

    /// Whether a key may owe anything, or have owed, as far as [`is_at_rest`](Self::is_at_rest) knows without a lock.
    pub(super) fn may_have_owed(&self, key: HashedKey) -> bool {
        self.has_older() || self.each.iter().any(|bucket| bucket.may_have_owed(key))
    }

    /// The replacements whose keys may still matter, the youngest first. Drops the others and frees their memory.
    pub(super) fn older(&self, now_us: u64) -> Arc<Vec<Arc<BucketReplacement>>> {
        self.replaced.alive(now_us)
    }

    /// The policy's buckets, and those of former policies that are still needed. Drops the others.
    pub(super) fn all(&self, now_us: u64) -> Vec<Arc<Bucket>> {
        let mut all = self.each.to_vec();
        for older in self.older(now_us).iter() {
            older.heirs.iter().for_each(|heir| all.extend_from_slice(&heir.follows));
        }
        all
    }
}

/// The quotas of the old policy that each quota of the new one continues: the one with the same rule, else the one with the
/// same id, else all quotas, of which the most spent one counts.
fn following(old: &Policy, new: &Policy) -> Vec<Vec<usize>> {
    let (old, mut taken) = (old.quotas(), vec![false; old.quotas().len()]);
    let mut same = |quota: &crate::policy::PolicyQuota| {
        let alike = |at: &usize| !taken[*at] && old[*at].rule() == quota.rule();
        let named = (0..old.len()).filter(alike).find(|at| old[*at].id() == quota.id());
        let found = named.or_else(|| (0..old.len()).find(alike))?;
        taken[found] = true;
        Some(found)
    };
    let follows = new.quotas().iter().map(|quota| {
        let id = || old.iter().position(|old| old.id().is_some() && old.id() == quota.id());
        same(quota).or_else(id).map_or_else(|| (0..old.len()).collect(), |old| vec![old])
    });
    follows.collect()
}
