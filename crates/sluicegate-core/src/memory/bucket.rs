//! One quota of one policy: its rules and the table of its keys.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::account::BucketAccount;
use super::ahead::Ahead;
use super::context::{HashedKey, StoreContext};
use super::debtors::Debtors;
use super::floors::Floors;
use super::home::{Home, LockedSet, TableKind};
use super::plans::{KeyRule, QuotaRules};
use super::table::{self, SlotWords};
use crate::algorithm::Rule;
use crate::error::{ConfigError, ConfigErrorKind, StoreError, StoreErrorKind};
use crate::policy::{OnFull, Policy};
use crate::store::Ask;
use crate::support::lock;

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

/// The numbers that fit beside the time of a state of one word in a table with plans.
const NARROW_AUX: u64 = 1 << 20;

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

    /// Whether the table has room for the states of a rule that a key brings.
    pub(super) fn fits(&self, rule: &Rule) -> bool {
        !(matches!(self.home(), Home::NarrowOwn(_)) && rule.aux_bound() > NARROW_AUX)
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
    #[inline]
    pub(super) fn may_have_owed(&self, key: HashedKey) -> bool {
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
