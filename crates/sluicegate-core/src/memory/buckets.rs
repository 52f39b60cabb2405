//! The buckets of one policy ([`Buckets`]), each of them ([`Bucket`]: one quota, with its rules and the table of its keys), and the
//! replacements of a policy after which keys may still have to be handed over ([`Replacements`]).
//!
//! A replacement keeps a bucket with an unchanged rule, so that such a change moves no state; for other buckets it notes which buckets
//! the new ones follow, and each key is handed over by its next request. No table is walked.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use arc_swap::ArcSwap;
use smallvec::SmallVec;

use super::beside::{Ahead, BucketAccount, Debtors, Floors};
use super::context::{HashedKey, StoreContext};
use super::home::{Home, LockedSet, TableKind};
use super::slot::{KeyRule, MOST_PLANS, NumberedRule, QuotaRules, SlotWords};
use super::table;
use crate::algorithm::Rule;
use crate::error::{ConfigError, ConfigErrorKind, StoreError, StoreErrorKind};
use crate::policy::{OnFull, Policy};
use crate::store::{Ask, Inherit, OwnQuotas, PreparedPolicy};
use crate::support::lock;

/// The buckets of one policy, one per quota.
pub(super) struct Buckets {
    policy: Arc<Policy>,
    pub(super) each: Box<[Arc<Bucket>]>,
    /// The replacements after which a key may have to be handed over.
    pub(super) replaced: Replacements,
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
    /// When a log of this store cannot hold them, or there is no room.
    pub(super) fn admit(
        &self,
        context: &StoreContext,
        policy: &PreparedPolicy,
        own: &OwnQuotas,
    ) -> Result<(), ConfigError> {
        for (index, quota) in own.policy().quotas().iter().enumerate() {
            if let Some(log) = quota.rule().log() {
                context.check_log(own.policy(), log).map_err(|error| error.in_quota(index))?;
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
        !self.replaced.are_any() && self.each.iter().all(|bucket| bucket.is_at_rest(&key))
    }

    /// Whether a key may owe anything, or have owed, as far as [`is_at_rest`](Self::is_at_rest) knows without a lock.
    pub(super) fn may_have_owed(&self, key: HashedKey) -> bool {
        self.replaced.are_any() || self.each.iter().any(|bucket| bucket.may_have_owed(key))
    }

    /// The policy's buckets, and those of former policies that are still needed. Drops the others.
    pub(super) fn all(&self, now_us: u64) -> Vec<Arc<Bucket>> {
        let mut all = self.each.to_vec();
        for older in self.replaced.alive(now_us).iter() {
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

/// One quota of one policy: its rules, and the states of its keys.
pub(super) struct Bucket {
    pub(super) rules: QuotaRules,
    /// The table and its shape, made for the first request.
    made: OnceLock<MadeTable>,
    /// The future shape of the table; `None` once it is made.
    shape: Mutex<Option<TableKind>>,
    context: Arc<StoreContext>,
    /// The bucket's place in the lock order.
    pub(super) number: u64,
    /// Mixed into every key's hash.
    pub(super) salt: u64,
    /// The number of keys that the table is made for.
    keys: usize,
    on_full: OnFull,
    pub(super) floors: Floors,
    pub(super) ahead: Ahead,
    births: AtomicU64,
    /// Units spent before this moment were not spent from this bucket, or have drained under another rule; 0 if there is no
    /// such moment.
    began_us: u64,
    /// The moment of the last reset of a key, or of the latest turn reserved at that time.
    reset_us: AtomicU64,
    /// The latest moment to which a debt or a reserved turn of any key reaches.
    furthest_us: AtomicU64,
    debtors: Debtors,
    longest_us: AtomicU64,
    /// The last spend while the policy was being replaced, or replaced another one; see [`Handover`](super::handover::Handover).
    spent_us: AtomicU64,
}

/// The table of a bucket.
struct MadeTable {
    shape: TableKind,
    home: Home,
}

/// The time after the end of its last debt before a bucket counts as idle.
pub(super) const IDLE_AFTER_US: u64 = 60_000_000;

impl Bucket {
    pub(super) fn new(
        context: &Arc<StoreContext>,
        policy: &Policy,
        rule: Rule,
        began_us: u64,
    ) -> Result<Self, ConfigError> {
        let keys = context.keys_of(policy);
        if let Some(log) = rule.log() {
            context.check_log(policy, log)?;
        }
        // The table is made for the first request, which must not be the first to know that there is no room.
        if !table::fits(TableKind::of(policy).words(&rule, keys)) {
            let problem = format!(
                "policy {:?}: there is no memory for a table of {keys} keys: use a smaller table size",
                policy.name()
            );
            return Err(ConfigError::new(ConfigErrorKind::Unsupported, problem));
        }
        Ok(Self {
            rules: QuotaRules::new(rule),
            longest_us: AtomicU64::new(rule.longest_spend_us()),
            made: OnceLock::new(),
            shape: Mutex::new(Some(TableKind::of(policy))),
            context: Arc::clone(context),
            number: context.fresh_bucket(),
            salt: context.fresh_salt(),
            keys,
            on_full: policy.on_full(),
            floors: Floors::new(keys),
            ahead: Ahead::default(),
            births: AtomicU64::new(0),
            began_us,
            reset_us: AtomicU64::new(0),
            furthest_us: AtomicU64::new(0),
            debtors: Debtors::default(),
            spent_us: AtomicU64::new(0),
        })
    }

    /// Whether this bucket can serve a quota with that rule. Before the first request, its table can still be made for more.
    pub(super) fn serves(&self, context: &StoreContext, policy: &Policy, rule: &Rule) -> bool {
        if (&self.rules.own, self.keys, self.on_full) != (rule, context.keys_of(policy), policy.on_full()) {
            return false;
        }
        let TableKind { accounts, quotas } = TableKind::of(policy);
        match &mut *lock(&self.shape) {
            Some(shape) => {
                *shape = TableKind { accounts: shape.accounts || accounts, quotas: shape.quotas || quotas };
                true
            }
            None => self.made().shape == TableKind { accounts, quotas },
        }
    }

    /// The table of the keys. The first request makes it, so that an unused policy takes no memory.
    #[inline]
    pub(super) fn home(&self) -> &Home {
        &self.made().home
    }

    /// Whether the bucket keeps accounts.
    #[inline]
    pub(super) fn accounts(&self) -> bool {
        self.made().shape.accounts
    }

    /// Whether keys may bring quotas of their own.
    #[inline]
    pub(super) fn takes_quotas(&self) -> bool {
        self.made().shape.quotas
    }

    #[inline]
    fn made(&self) -> &MadeTable {
        match self.made.get() {
            Some(made) => made,
            None => self.make(),
        }
    }

    #[cold]
    fn make(&self) -> &MadeTable {
        self.made.get_or_init(|| {
            let shape = lock(&self.shape).take();
            let shape = shape.unwrap_or(TableKind { accounts: true, quotas: true });
            let home = Home::new(&self.context, (self.keys, self.on_full), shape, &self.rules.own);
            MadeTable { shape, home }
        })
    }

    /// The plan of a rule; `None` for the policy's own rule.
    pub(super) fn plan(&self, rule: &Rule, now_us: u64) -> Result<Option<Arc<KeyRule>>, StoreError> {
        if *rule == self.rules.own {
            return Ok(None);
        }
        let plan = self.takes_quotas().then(|| self.rules.plan(rule, now_us)).flatten();
        let plan = plan.ok_or_else(|| StoreError::new(StoreErrorKind::QuotasExhausted))?;
        self.longest_us.fetch_max(rule.longest_spend_us(), Ordering::Relaxed);
        Ok(Some(plan))
    }

    /// The last noted spend.
    pub(super) fn spent_us(&self) -> u64 {
        // Relaxed, as below: read under the locks of the sets that a spend was noted under, or else a moment later.
        self.spent_us.load(Ordering::Relaxed)
    }

    /// Notes a spend beside a replacement.
    pub(super) fn spends_at(&self, at_us: u64) {
        self.spent_us.fetch_max(at_us, Ordering::Relaxed);
    }

    /// The furthest ahead that a state can reach by spends alone, under any rule used so far.
    pub(super) fn longest_us(&self) -> u64 {
        // Relaxed: it only grows, before the first spend under that rule.
        self.longest_us.load(Ordering::Relaxed)
    }

    /// The account for a key's bucket when it leaves rest.
    pub(super) fn new_account(&self) -> BucketAccount {
        if !self.accounts() {
            return BucketAccount::default();
        }
        // Relaxed: it only has to be a different number each time.
        BucketAccount::born(self.births.fetch_add(1, Ordering::Relaxed))
    }

    /// The account of a key that spends at this moment: a new one if the key is at rest, or inherits its state. A key that is
    /// known and full is at rest, too: otherwise, after a step back of the clock, refunds of old units would take back new ones.
    pub(super) fn account_of(&self, rule: &Rule, kept: &SlotWords, at_us: u64) -> BucketAccount {
        let is_full = || rule.begins() && rule.reset_after_us(kept.state, at_us) == 0;
        let is_born = kept.state.until_us <= at_us || kept.account.birth() == 0 || is_full();
        if is_born { self.new_account() } else { kept.account }
    }

    /// Whether the units that an ask gives back may have been spent before this bucket began, or before the key was reset. It is
    /// not known which key was reset.
    ///
    /// It errs on the safe side: such a refund gives nothing back.
    pub(super) fn never_had(&self, ask: &Ask<'_>) -> bool {
        let since_us = self.since_us();
        since_us > 0 && ask.receipt().is_some_and(|receipt| receipt.at_us() <= since_us)
    }

    pub(super) fn since_us(&self) -> u64 {
        // Relaxed: a thread that finds a key reset has held the lock of its set.
        self.began_us.max(self.reset_us.load(Ordering::Relaxed))
    }

    /// Notes that a key was forgotten on request.
    pub(super) fn was_reset(&self, now_us: u64) {
        self.reset_us.fetch_max(self.last_reset_us(now_us), Ordering::Relaxed);
    }

    /// The moment up to which no unit can be given back if keys are forgotten now: units of reserved turns have later moments.
    pub(super) fn last_reset_us(&self, now_us: u64) -> u64 {
        self.since_us().max(self.ahead.latest_us()).max(now_us)
    }

    /// Notes that the state of the key with this hash reaches to `until_us`, further than a full burst.
    pub(super) fn reaches(&self, hash: u64, until_us: u64) {
        self.debtors.add(hash);
        // Relaxed: read only to decide whether an old state can still matter, long after.
        self.furthest_us.fetch_max(until_us, Ordering::Relaxed);
    }

    /// The latest moment to which a debt or a reserved turn of any key reaches.
    pub(super) fn furthest_us(&self) -> u64 {
        self.furthest_us.load(Ordering::Relaxed)
    }

    /// Whether no key is in debt, or this one has no state. The key is hashed only if it matters.
    #[inline]
    pub(super) fn is_at_rest(&self, key: impl FnOnce() -> HashedKey) -> bool {
        // Relaxed: a thread that has the answer of a charge sees its note.
        let furthest_us = self.furthest_us();
        if furthest_us == 0 {
            return true;
        }
        let hash = self.context.hash(self.salt, key());
        !self.is_noted(hash) || self.has_no_state(hash) || self.is_over(furthest_us)
    }

    /// Whether the key may owe anything, or have owed. It takes no lock.
    fn may_have_owed(&self, key: HashedKey) -> bool {
        self.furthest_us() > 0 && self.is_noted(self.context.hash(self.salt, key))
    }

    fn is_noted(&self, hash: u64) -> bool {
        // Any key may inherit a debt that was left to its set.
        self.on_full == OnFull::Inherit || self.debtors.may_have(hash)
    }

    /// Whether a key has never owed anything, or was forgotten.
    #[inline(never)]
    fn has_no_state(&self, hash: u64) -> bool {
        let home = self.home();
        if home.is_unknown(hash) {
            return true;
        }
        match home.lock(home.index_of(hash)) {
            LockedSet::Log(_) => false,
            place => place.entry(hash).state.until_us == 0,
        }
    }

    /// Whether the last debt has been over for a while: a clock that is set back a little could return to it.
    #[cold]
    fn is_over(&self, furthest_us: u64) -> bool {
        let is_over = furthest_us.saturating_add(IDLE_AFTER_US) <= self.context.clock.now_us();
        let set =
            |to| self.furthest_us.compare_exchange(furthest_us, to, Ordering::Relaxed, Ordering::Relaxed);
        // Not if another debt was noted in the meantime.
        is_over && set(0).is_ok()
    }

    /// The number of keys that are not at rest, and the maximum.
    pub(super) fn fill(&self, now_us: u64) -> (usize, usize) {
        let made = self.made.get();
        let in_use = made.map_or(0, |made| made.home.in_use(now_us));
        let planned = || *lock(&self.shape);
        let shape = made.map(|made| made.shape).or_else(planned);
        (in_use, shape.map_or(0, |shape| shape.slots(&self.rules.own, self.keys)))
    }
}

/// The replacements with keys that may still matter, the youngest first.
#[derive(Default)]
pub(super) struct Replacements {
    are_any: AtomicBool,
    each: ArcSwap<Vec<Arc<BucketReplacement>>>,
}

/// The replacement of a policy: the new buckets, and the old buckets that each continues.
pub(super) struct BucketReplacement {
    pub(super) heirs: Vec<Heir>,
    pub(super) how: Inherit,
    /// The moment as of which keys are handed over; `u64::MAX` for the moment of the request.
    pub(super) replaced_us: u64,
    /// The end of the last units that were spent before the replacement, under the old or the new policy.
    ends_us: u64,
}

/// A bucket, and the buckets of the previous policy that it continues: the most spent of them counts.
pub(super) struct Heir {
    pub(super) bucket: Arc<Bucket>,
    pub(super) follows: Vec<Arc<Bucket>>,
}

/// The most replacements after which a key without a request in between is still handed over; after more, its state is
/// forgotten. Each replacement that still matters costs a decision one more set to lock.
const GENERATIONS: usize = 32;

impl Replacements {
    /// The replacements of a policy that continues the owner of these, with `youngest` added.
    pub(super) fn followed_by(&self, youngest: BucketReplacement, now_us: u64) -> Self {
        let (before, youngest) = (self.each.load(), Arc::new(youngest));
        let each = std::iter::once(&youngest).chain(alive(&before, now_us));
        let each: Vec<_> = each.filter(|one| !one.heirs.is_empty()).take(GENERATIONS).cloned().collect();
        Self { are_any: AtomicBool::new(!each.is_empty()), each: ArcSwap::from_pointee(each) }
    }

    /// The way back: the old buckets as heirs of the buckets that continue them in the youngest replacement. They follow these only
    /// where spent units stay spent: a request that began under the old policy, and is decided by it only now, finds the units that were
    /// spent under the new policy.
    pub(super) fn back_to(&self, old: &[Arc<Bucket>], how: Inherit) -> Option<BucketReplacement> {
        let each = self.each.load();
        let youngest = each.first()?;
        let heirs = old.iter().filter_map(|old| {
            let heirs = youngest.heirs.iter();
            let heirs = heirs.filter(|heir| heir.follows.iter().any(|follows| Arc::ptr_eq(follows, old)));
            let mut follows: Vec<_> = heirs.map(|heir| Arc::clone(&heir.bucket)).collect();
            if follows.is_empty() {
                return None;
            }
            follows.retain(|_| how == Inherit::Spent);
            Some(Heir { bucket: Arc::clone(old), follows })
        });
        let heirs: Vec<_> = heirs.collect();
        let back = BucketReplacement { heirs, how: Inherit::Spent, replaced_us: u64::MAX, ..**youngest };
        (!back.heirs.is_empty()).then_some(back)
    }

    /// Adds the youngest replacement.
    pub(super) fn add(&self, youngest: BucketReplacement, now_us: u64) {
        let youngest = Arc::new(youngest);
        self.each.rcu(|each| {
            let each = std::iter::once(&youngest).chain(alive(each, now_us));
            each.take(GENERATIONS).cloned().collect::<Vec<_>>()
        });
        self.are_any.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn are_any(&self) -> bool {
        // Relaxed: it is false only long after the last state that matters.
        self.are_any.load(Ordering::Relaxed)
    }

    /// The replacements that still matter. Drops the others and frees their memory.
    pub(super) fn alive(&self, now_us: u64) -> Arc<Vec<Arc<BucketReplacement>>> {
        if !self.are_any() {
            return Arc::default();
        }
        let each = self.each.load_full();
        let count = alive(&each, now_us).len();
        if count == each.len() {
            return each;
        }
        // Entries that another thread adds meanwhile stay; expired entries of its list are filtered out again.
        self.each.rcu(|each| alive(each, now_us).to_vec());
        if count == 0 {
            self.are_any.store(false, Ordering::Relaxed);
            // A replacement may have been added just before this write.
            let is_empty = self.each.load().is_empty();
            self.are_any.store(!is_empty, Ordering::Relaxed);
        }
        Arc::new(each[..count].to_vec())
    }
}

/// The replacements after which a key may still have to be handed over.
///
/// A younger one stays as long as an older one matters, because a key is handed over step by step; and all of them as long as the
/// youngest one: each mattered when the next one came.
fn alive(older: &[Arc<BucketReplacement>], now_us: u64) -> &[Arc<BucketReplacement>] {
    let last = match older {
        [youngest, ..] if youngest.is_alive(now_us) => Some(older.len() - 1),
        _ => older.iter().rposition(|older| older.is_alive(now_us)),
    };
    &older[..last.map_or(0, |last| last + 1)]
}

impl BucketReplacement {
    pub(super) fn new(heirs: Vec<Heir>, how: Inherit, replaced_us: u64) -> Self {
        let ends_us = heirs.iter().map(|heir| heir.ends_us(how, replaced_us)).max().unwrap_or(0);
        Self { heirs, how, replaced_us, ends_us }
    }

    fn is_alive(&self, now_us: u64) -> bool {
        now_us < self.ends_us
    }
}

impl Heir {
    /// The end of the last units that were spent before the replacement: in the old buckets, and in this one. Debts beyond the
    /// capacity of a sliding window are forgotten before, because they are not noted.
    fn ends_us(&self, how: Inherit, replaced_us: u64) -> u64 {
        let rule = &self.bucket.rules.own;
        let ends = self.follows.iter().map(|old| {
            let old_ends_us = replaced_us.saturating_add(old.longest_us()).max(old.furthest_us());
            let from = &old.rules.own;
            let units = from.drains_in(old_ends_us - replaced_us).unwrap_or(0).max(from.capacity());
            // Other strategies may leave less than nothing of the new capacity.
            let units = if how == Inherit::Spent { units } else { units.saturating_add(rule.capacity()) };
            let ends_us = match rule.log() {
                Some(_) => replaced_us.saturating_add(rule.longest_spend_us()),
                None => rule.holding(units, replaced_us).until_us,
            };
            ends_us.max(old_ends_us)
        });
        ends.max().unwrap_or(0)
    }

    /// Whether the bucket continues itself.
    pub(super) fn keeps(&self) -> bool {
        matches!(&self.follows[..], [old] if Arc::ptr_eq(old, &self.bucket))
    }
}
