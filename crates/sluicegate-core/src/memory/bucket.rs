//! A policy as the memory store prepares it.
//!
//! A bucket is a quota with its table. A replacement keeps the bucket whose rule stays, so that
//! such a change moves no state at all; for the others it notes which buckets the new ones follow,
//! and each key is handed over when it is next asked for. Nothing walks a table.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use smallvec::SmallVec;

use super::account::BucketAccount;
use super::ahead::Ahead;
use super::context::StoreContext;
use super::floors::Floors;
use super::holds::BucketHolds;
use super::home::{Home, LockedSet, TableKind};
use super::plans::{KeyRule, MOST_PLANS, NumberedRule, QuotaRules};
use super::table::SlotWords;
use crate::algorithm::Rule;
use crate::error::{ConfigError, ConfigErrorKind, StoreError, StoreErrorKind};
use crate::key::KeyRef;
use crate::policy::{OnFull, Policy};
use crate::store::{Ask, Inherit, OwnQuotas, PreparedPolicy};

/// The buckets of one policy, one per quota.
pub(super) struct Buckets {
    policy: Arc<Policy>,
    pub(super) each: Box<[Arc<Bucket>]>,
    /// Whether there is a replaced policy whose keys may still matter.
    has_older: AtomicBool,
    /// The replacements after which keys may still have to be handed over, the youngest first.
    older: ArcSwap<Vec<Arc<BucketReplacement>>>,
}

/// One quota of one policy: its rules, and the states of its keys.
pub(super) struct Bucket {
    pub(super) rules: QuotaRules,
    /// Units that pass at once from rest.
    pub(super) capacity: u64,
    /// The table, and its shape: made for the first request that asks.
    made: OnceLock<MadeTable>,
    /// The shape that the table is to have; `None` once it is made.
    shape: Mutex<Option<TableKind>>,
    context: Arc<StoreContext>,
    /// The bucket's place in the order in which several are locked.
    pub(super) number: u64,
    /// Mixed into every key's hash.
    pub(super) salt: u64,
    /// The number of keys that the table is made for.
    keys: usize,
    on_full: OnFull,
    pub(super) holds: BucketHolds,
    pub(super) floors: Floors,
    pub(super) ahead: Ahead,
    births: AtomicU64,
    /// Units that were spent before this moment were not spent from this bucket, or have drained by another rule; 0 if there is no
    /// such moment.
    began_us: u64,
    /// The moment of the last reset of a key, or of the last turn that was reserved then.
    reset_us: AtomicU64,
    /// The latest moment to which a debt or a reserved turn of any key reaches.
    furthest_us: AtomicU64,
    longest_us: AtomicU64,
}

/// The table of a bucket.
struct MadeTable {
    shape: TableKind,
    home: Home,
}

/// The plans of a key's quotas, in the order of the policy's; none where it is the policy's own.
pub(super) type KeyPlans = SmallVec<[Option<Arc<KeyRule>>; 2]>;

/// A policy was replaced: which buckets start from which.
pub(super) struct BucketReplacement {
    pub(super) heirs: Vec<Heir>,
    pub(super) how: Inherit,
    replaced_us: u64,
}

/// A bucket, and the buckets of the policy before that it continues: the most spent of them counts.
pub(super) struct Heir {
    pub(super) bucket: Arc<Bucket>,
    pub(super) follows: Vec<Arc<Bucket>>,
}

/// The most replacements after which a key that has made no request in between is still handed over; after more, its state is
/// forgotten. Each replacement that still matters costs a decision one more set to lock.
const GENERATIONS: usize = 32;

/// The numbers that fit beside the time of a state of one word in a table with plans.
const NARROW_AUX: u64 = 1 << 20;

/// The time for which a bucket is not idle after its last debt is over.
const IDLE_AFTER_US: u64 = 60_000_000;

impl Buckets {
    pub(super) fn new(
        context: &Arc<StoreContext>,
        policy: &Arc<Policy>,
        predecessor: Option<&(Arc<Self>, Inherit)>,
    ) -> Result<Self, ConfigError> {
        let now_us = context.clock.now_us();
        let (from, how) = match predecessor {
            Some((from, how)) if *how != Inherit::Reset => (from, *how),
            other => return Self::afresh(context, policy, if other.is_some() { now_us } else { 0 }),
        };
        let followed = following(&from.policy, policy);
        let uses = |old: usize| followed.iter().flatten().filter(|other| **other == old).count();
        let each = policy.quotas().iter().zip(&followed).map(|(quota, follows)| match follows[..] {
            [old] if uses(old) == 1 && from.each[old].serves(context, policy, quota.rule()) => {
                Ok(Arc::clone(&from.each[old]))
            }
            // Under the same rule, units that were spent there drain as if they had been spent here.
            [old] if from.each[old].rules.own == *quota.rule() => {
                let since_us = from.each[old].since_us();
                Ok(Arc::new(Bucket::new(context, policy, *quota.rule(), since_us)?))
            }
            _ => Ok(Arc::new(Bucket::new(context, policy, *quota.rule(), now_us)?)),
        });
        let each: Box<[Arc<Bucket>]> = each.collect::<Result<_, ConfigError>>()?;
        let heirs = each.iter().zip(&followed).map(|(bucket, follows)| Heir {
            bucket: Arc::clone(bucket),
            follows: follows.iter().map(|old| Arc::clone(&from.each[*old])).collect(),
        });
        let heirs: Vec<_> = heirs.filter(|heir| !heir.keeps()).collect();
        let youngest = Arc::new(BucketReplacement { heirs, how, replaced_us: now_us });
        let before = from.older.load();
        let older = std::iter::once(&youngest).chain(alive(&before, now_us));
        let older: Vec<_> =
            older.filter(|older| !older.heirs.is_empty()).take(GENERATIONS).cloned().collect();
        Ok(Self::of(policy, each, older))
    }

    fn afresh(context: &Arc<StoreContext>, policy: &Arc<Policy>, began_us: u64) -> Result<Self, ConfigError> {
        let each = policy
            .quotas()
            .iter()
            .map(|quota| Bucket::new(context, policy, *quota.rule(), began_us).map(Arc::new));
        Ok(Self::of(policy, each.collect::<Result<_, _>>()?, Vec::new()))
    }

    /// How an ask counts under its policy's quota at this place: by the quota that its key brings, or by the policy's.
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

    /// The plans of the quotas that a key brings, found once: none where it is the policy's own.
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
    /// When the tables of this policy cannot keep them, or there is no room.
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
            if matches!(bucket.home(), Home::NarrowOwn(_)) && quota.rule().aux_bound() > NARROW_AUX {
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

    fn of(policy: &Arc<Policy>, each: Box<[Arc<Bucket>]>, older: Vec<Arc<BucketReplacement>>) -> Self {
        Self {
            policy: Arc::clone(policy),
            each,
            has_older: AtomicBool::new(!older.is_empty()),
            older: ArcSwap::from_pointee(older),
        }
    }

    /// From now on keys are handed over in both directions: a request that began under this policy, and is decided by it only
    /// now, finds the units that were spent under the one that has replaced it.
    pub(super) fn is_replaced_by(&self, new: &Self, now_us: u64) {
        let newer = new.older.load();
        let follows = |old: &Arc<Bucket>| {
            let heirs = newer.first().into_iter().flat_map(|youngest| &youngest.heirs);
            let heirs = heirs.filter(|heir| heir.follows.iter().any(|follows| Arc::ptr_eq(follows, old)));
            heirs.map(|heir| Arc::clone(&heir.bucket)).collect::<Vec<_>>()
        };
        let heirs = self.each.iter().map(|old| Heir { bucket: Arc::clone(old), follows: follows(old) });
        let heirs: Vec<_> = heirs.filter(|heir| !heir.follows.is_empty()).collect();
        if heirs.is_empty() {
            return;
        }
        let back = Arc::new(BucketReplacement { heirs, how: Inherit::Spent, replaced_us: now_us });
        self.older.rcu(|older| {
            std::iter::once(&back).chain(alive(older, now_us)).take(GENERATIONS).cloned().collect::<Vec<_>>()
        });
        self.has_older.store(true, Ordering::Relaxed);
    }

    /// Whether a key may have to be handed over.
    #[inline]
    pub(super) fn has_older(&self) -> bool {
        // Relaxed: it is false only long after the last state that matters.
        self.has_older.load(Ordering::Relaxed)
    }

    /// The name of the policy.
    pub(super) fn name(&self) -> &str {
        self.policy.name()
    }

    /// The number of different quotas of keys in use, for the quota of the policy that has the most.
    pub(super) fn quotas_in_use(&self) -> usize {
        self.each.iter().map(|bucket| bucket.rules.in_use()).max().unwrap_or(0)
    }

    /// Whether it is certain that this key owes nothing. Keys that owe no more than a burst are not noted: this is for buckets that
    /// are only [charged](Bucket::reaches).
    #[inline]
    pub(super) fn is_at_rest(&self, key: KeyRef<'_>) -> bool {
        !self.has_older() && self.each.iter().all(|bucket| bucket.is_at_rest(key))
    }

    /// Whether any key owes something, or would after the clock is set back a little.
    pub(super) fn owe(&self, now_us: u64) -> bool {
        let earlier_us = now_us.saturating_sub(IDLE_AFTER_US);
        !self.older(now_us).is_empty()
            || self
                .each
                .iter()
                .any(|bucket| bucket.ahead.latest_us() > earlier_us || bucket.fill(earlier_us).0 > 0)
    }

    /// The replacements whose keys may still matter, the youngest first. Lets go of the others, and of their memory.
    pub(super) fn older(&self, now_us: u64) -> Arc<Vec<Arc<BucketReplacement>>> {
        if !self.has_older() {
            return Arc::default();
        }
        let older = self.older.load_full();
        let count = alive(&older, now_us).len();
        if count == older.len() {
            return older;
        }
        // Entries that another thread adds meanwhile stay; those of its list that are over are left out once more.
        self.older.rcu(|older| alive(older, now_us).to_vec());
        if count == 0 {
            self.has_older.store(false, Ordering::Relaxed);
            // A replacement may have been added just before that.
            let is_empty = self.older.load().is_empty();
            self.has_older.store(!is_empty, Ordering::Relaxed);
        }
        Arc::new(older[..count].to_vec())
    }

    /// The policy's buckets, and those of former policies that are still needed. Drops the others.
    pub(super) fn all(&self, now_us: u64) -> impl Iterator<Item = Arc<Bucket>> {
        let older = self.older(now_us);
        let older: Vec<_> =
            older.iter().flat_map(|older| &older.heirs).flat_map(|heir| &heir.follows).cloned().collect();
        self.each.iter().cloned().chain(older).collect::<Vec<_>>().into_iter()
    }
}

/// The replacements from which a key may still have to be handed over.
///
/// An older one stays as long as a younger one matters, because a key is handed over step by step.
fn alive(older: &[Arc<BucketReplacement>], now_us: u64) -> &[Arc<BucketReplacement>] {
    &older[..older.iter().rposition(|older| older.is_alive(now_us)).map_or(0, |last| last + 1)]
}

impl BucketReplacement {
    fn is_alive(&self, now_us: u64) -> bool {
        self.heirs.iter().flat_map(|heir| &heir.follows).any(|bucket| {
            let spent_us = self.replaced_us.saturating_add(bucket.longest_us());
            now_us < spent_us.max(bucket.furthest_us.load(Ordering::Relaxed))
        })
    }
}

impl Heir {
    /// Whether the bucket is the one that it continues.
    fn keeps(&self) -> bool {
        matches!(&self.follows[..], [old] if Arc::ptr_eq(old, &self.bucket))
    }
}

/// The quotas of the old policy that each quota of the new one continues: the one with the same rule, else the one with the
/// same id, else all, of which the most spent counts.
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

impl Bucket {
    fn new(
        context: &Arc<StoreContext>,
        policy: &Policy,
        rule: Rule,
        began_us: u64,
    ) -> Result<Self, ConfigError> {
        let keys = context.keys_of(policy);
        if let Some(log) = rule.log() {
            context.check_log(policy, log)?;
        }
        Ok(Self {
            rules: QuotaRules::new(rule),
            longest_us: AtomicU64::new(rule.longest_spend_us()),
            capacity: rule.capacity(),
            made: OnceLock::new(),
            shape: Mutex::new(Some(TableKind::of(policy))),
            context: Arc::clone(context),
            number: context.fresh_bucket(),
            salt: context.fresh_salt(),
            keys,
            on_full: policy.on_full(),
            holds: BucketHolds::new(keys),
            floors: Floors::new(keys),
            ahead: Ahead::default(),
            births: AtomicU64::new(0),
            began_us,
            reset_us: AtomicU64::new(0),
            furthest_us: AtomicU64::new(0),
        })
    }

    /// Whether this bucket serves a quota with that rule. Before the first request, its table can still be made for more.
    fn serves(&self, context: &StoreContext, policy: &Policy, rule: &Rule) -> bool {
        if (&self.rules.own, self.keys, self.on_full) != (rule, context.keys_of(policy), policy.on_full()) {
            return false;
        }
        let TableKind { accounts, quotas } = TableKind::of(policy);
        match &mut *self.shape.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(shape) => {
                *shape = TableKind { accounts: shape.accounts || accounts, quotas: shape.quotas || quotas };
                true
            }
            None => self.made().shape == TableKind { accounts, quotas },
        }
    }

    /// The table of the keys. The first request has it made, so that an unused policy takes no memory.
    #[inline]
    pub(super) fn home(&self) -> &Home {
        &self.made().home
    }

    /// Whether it keeps accounts.
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
            let shape = self.shape.lock().unwrap_or_else(PoisonError::into_inner).take();
            let shape = shape.unwrap_or(TableKind { accounts: true, quotas: true });
            let home = Home::new(&self.context, (self.keys, self.on_full), shape, &self.rules.own);
            MadeTable { shape, home }
        })
    }

    /// The plan of a rule; none if it is the policy's own.
    fn plan(&self, rule: &Rule, now_us: u64) -> Result<Option<Arc<KeyRule>>, StoreError> {
        if *rule == self.rules.own {
            return Ok(None);
        }
        let plan = self.takes_quotas().then(|| self.rules.plan(rule, now_us)).flatten();
        let plan = plan.ok_or_else(|| StoreError::new(StoreErrorKind::QuotasExhausted))?;
        self.longest_us.fetch_max(rule.longest_spend_us(), Ordering::Relaxed);
        Ok(Some(plan))
    }

    /// The furthest ahead that a state can reach by spending alone, under any rule that was asked for.
    pub(super) fn longest_us(&self) -> u64 {
        // Relaxed: it only grows, before the first spend by that rule.
        self.longest_us.load(Ordering::Relaxed)
    }

    /// The account of a key's bucket that leaves rest.
    pub(super) fn new_account(&self) -> BucketAccount {
        if !self.accounts() {
            return BucketAccount::default();
        }
        // Relaxed: it only has to be another number each time.
        BucketAccount::born(self.births.fetch_add(1, Ordering::Relaxed))
    }

    /// The account of a key that spends at this moment: a new one if the key is at rest, or inherits its state. A key that is
    /// known and full is at rest, too: otherwise, after a step back of the clock, refunds of old units would take new ones back.
    pub(super) fn account_of(&self, rule: &Rule, kept: &SlotWords, at_us: u64) -> BucketAccount {
        let is_full = || rule.begins() && rule.reset_after_us(kept.state, at_us) == 0;
        let is_born = kept.state.until_us <= at_us || kept.account.birth() == 0 || is_full();
        if is_born { self.new_account() } else { kept.account }
    }

    /// Whether the units that an ask gives back may have been spent before this bucket began, or before the key was reset. It is
    /// not known which key was reset.
    ///
    /// It errs to the safe side: such a refund gives nothing back.
    pub(super) fn never_had(&self, ask: &Ask<'_>) -> bool {
        let since_us = self.since_us();
        since_us > 0 && ask.receipt().is_some_and(|receipt| receipt.at_us() <= since_us)
    }

    fn since_us(&self) -> u64 {
        // Relaxed: a thread that finds a key reset has held the lock of its set.
        self.began_us.max(self.reset_us.load(Ordering::Relaxed))
    }

    /// Notes that a key was forgotten on request.
    pub(super) fn was_reset(&self, now_us: u64) {
        self.reset_us.fetch_max(self.ahead.latest_us().max(now_us), Ordering::Relaxed);
    }

    /// Notes that a state reaches to `until_us`, beyond what a full burst would.
    pub(super) fn reaches(&self, until_us: u64) {
        // Relaxed: read only to decide whether an old state can still matter, long after.
        self.furthest_us.fetch_max(until_us, Ordering::Relaxed);
    }

    /// Whether no key is in debt, or this one has no state.
    #[inline]
    fn is_at_rest(&self, key: KeyRef<'_>) -> bool {
        // Relaxed: a thread that was told of a charge sees what the charge noted.
        let furthest_us = self.furthest_us.load(Ordering::Relaxed);
        furthest_us == 0 || self.has_no_state(key) || self.is_over(furthest_us)
    }

    /// Whether a key has never owed anything, or was forgotten.
    fn has_no_state(&self, key: KeyRef<'_>) -> bool {
        let (hash, home) = (self.context.hash(self.salt, key), self.home());
        match home.lock(home.index_of(hash)) {
            LockedSet::Log(_) => false,
            place => place.entry(hash).state.until_us == 0,
        }
    }

    /// Whether the last debt has been over for a while: a clock that is set back a little would find it again.
    #[cold]
    fn is_over(&self, furthest_us: u64) -> bool {
        let is_over = furthest_us.saturating_add(IDLE_AFTER_US) <= self.context.clock.now_us();
        let set =
            |to| self.furthest_us.compare_exchange(furthest_us, to, Ordering::Relaxed, Ordering::Relaxed);
        // Not if another was noted meanwhile.
        is_over && set(0).is_ok()
    }

    /// Keys that are not at rest, and the most that fit.
    pub(super) fn fill(&self, now_us: u64) -> (usize, usize) {
        let made = self.made.get();
        let in_use = made.map_or(0, |made| made.home.in_use(now_us));
        let planned = || *self.shape.lock().unwrap_or_else(PoisonError::into_inner);
        let shape = made.map(|made| made.shape).or_else(planned);
        (in_use, shape.map_or(0, |shape| shape.slots(&self.rules.own, self.keys)))
    }
}
