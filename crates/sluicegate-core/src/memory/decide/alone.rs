//! One key under a policy of one quota: the fastest path, which the limiter keeps.
//!
//! It skips questions that were answered when the policy was opened: that there is one bucket, and that the policy spends at once
//! or not at all. If one look at the state is not enough, the other ways decide, before any state has changed. A refusal that counts
//! towards a suspension is counted here, unless it may be the one that suspends the key.

use std::sync::Arc;

use super::status_after;
use crate::algorithm::{Looked, Rule, SpendState, State};
use crate::decision::ShortAnswer;
use crate::key::KeyRef;
use crate::memory::buckets::{Bucket, Buckets};
use crate::memory::change::trace;
use crate::memory::context::{HashedKey, StoreContext};
use crate::memory::home::Home;
use crate::memory::logs::Logs;
use crate::memory::slot::KeyRule;
use crate::memory::table::{Locked, SlotWords, Table, state_words};
use crate::policy::PolicyMode;
use crate::store::{PreparedPolicy, ShortWay};

/// The one bucket of a policy.
pub(in crate::memory) struct OnlyBucket {
    context: Arc<StoreContext>,
    bucket: Arc<Bucket>,
    /// The policy's rule, or the rule of the quota that the key brings.
    rule: Rule,
    plan: Option<Arc<KeyRule>>,
    buckets: Arc<Buckets>,
    /// The buckets of suspensions. For keys that have ever been suspended there, the other ways decide.
    suspensions: Box<[Arc<Buckets>]>,
    /// The bucket that counts refusals towards a suspension, if they count.
    strikes: Option<Arc<Buckets>>,
    /// Whether a refusal spends, and the other ways have to decide.
    counts_rejected: bool,
}

impl OnlyBucket {
    /// The fast path of a policy, if it has one.
    pub(in crate::memory) fn new(context: &Arc<StoreContext>, policy: &PreparedPolicy) -> Option<Self> {
        let buckets_of = |policy: &PreparedPolicy| policy.replaced::<Buckets>().ok();
        let buckets = buckets_of(policy)?;
        let [bucket] = &*buckets.each else { return None };
        let plans = policy.own().map(|own| buckets.plans(policy, own, context.clock.now_us()));
        let plan = plans.transpose().ok()?.and_then(|plans| plans.first().cloned().flatten());
        let rule = plan.as_ref().map_or(bucket.rules.own, |plan| plan.rule);
        let (context, bucket) = (Arc::clone(context), Arc::clone(bucket));
        let suspensions = policy.suspension().into_iter();
        let suspensions =
            suspensions.flat_map(|suspension| suspension.everywhere.iter().chain([&suspension.suspended]));
        let suspensions: Box<[_]> = suspensions.map(buckets_of).collect::<Option<_>>()?;
        let is_enforced = policy.policy().mode() == PolicyMode::Enforce;
        let counted = policy.suspension().filter(|_| is_enforced).and_then(|of| of.strikes.as_ref());
        let strikes = match counted {
            Some([strikes, _]) => Some(buckets_of(strikes)?),
            None => None,
        };
        let counts_rejected = policy.policy().counts_rejected();
        Some(Self { context, bucket, rule, plan, buckets, suspensions, strikes, counts_rejected })
    }

    /// Whether the decision needs more than the bucket: a replaced policy, or a suspension of this key.
    #[inline]
    fn is_beside(&self, key: HashedKey) -> bool {
        let is_at_rest = |buckets: &Arc<Buckets>| buckets.is_at_rest(|| key);
        self.buckets.has_older() || !self.suspensions.iter().all(is_at_rest)
    }

    /// Whether the key may be refused here: a refusal then spends nothing, and has been counted if it counts towards a suspension.
    #[inline]
    fn refuses(&self, key: HashedKey, now_us: u64) -> bool {
        let counts = |strikes: &Arc<Buckets>| self.strikes_in(strikes, key, now_us);
        !self.counts_rejected && self.strikes.as_ref().is_none_or(counts)
    }

    /// Counts a refusal. `false` leaves it to the other ways: if it may be the one that suspends the key, and if the key was
    /// ever suspended.
    #[inline(never)]
    fn strikes_in(&self, strikes: &Buckets, key: HashedKey, now_us: u64) -> bool {
        let [bucket] = &*strikes.each else { return false };
        let Home::Logs(logs) = bucket.home() else { return false };
        let hash = self.context.hash(bucket.salt, key);
        let mut shard = logs.lock(Logs::shard_of(hash));
        // Under the lock, which the refusal that suspends the key holds until that is noted: none counts in between.
        let has_owed = |buckets: &Arc<Buckets>| buckets.may_have_owed(key);
        !strikes.has_older()
            && !self.suspensions.iter().any(has_owed)
            && shard.spend_one_of_several(hash, now_us)
    }

    /// Decides by one look at the key, if it is enough.
    #[inline(always)]
    fn answer(&self, key: KeyRef<'_>, cost: u64) -> Option<ShortAnswer> {
        let key = self.context.hashed(key);
        if self.is_beside(key) {
            return None;
        }
        let asked = (key, cost);
        let (now_us, spent) = match self.bucket.home() {
            Home::Narrow(table) => self.spend_in(table, asked),
            Home::Wide(table) => self.spend_in(table, asked),
            Home::NarrowOwn(table) => self.spend_in(table, asked),
            Home::WideOwn(table) => self.spend_in(table, asked),
            Home::Logs(logs) if !self.bucket.accounts() => self.spend_in_log(logs, asked),
            Home::NarrowKept(table) => return self.spend_kept(table, asked),
            Home::Logs(_) | Home::KeptOwn(_) => None,
        }?;
        Some(ShortAnswer::new(now_us, status_after((0, 0), &spent, cost)))
    }

    /// Spends from a table; returns the moment and the state of the key then.
    // Inlined always, like the next function: each kind of home has its own copy, in which all sizes are known.
    #[inline(always)]
    fn spend_in<const SLOTS: usize, const WORDS: usize, const OWN: usize, const SIZE: usize>(
        &self,
        table: &Table<SLOTS, WORDS, false, OWN, SIZE>,
        (key, cost): (HashedKey, u64),
    ) -> Option<(u64, Looked)> {
        let (context, bucket) = (&*self.context, &*self.bucket);
        let hash = context.hash(bucket.salt, key);
        // Read before the lock, to hold it for less time; but a window must not begin after a moment counted in it.
        let is_level = const { state_words::<WORDS, false>() == 1 };
        let before_us = if is_level { Some(context.clock.now_us()) } else { None };
        let now_us = || before_us.unwrap_or_else(|| context.clock.now_us());
        let (now_us, spent) =
            spend_one(table, (bucket, &self.rule, self.plan.as_deref()), (hash, cost), now_us)?;
        (spent.passed || self.refuses(key, now_us)).then_some((now_us, spent))
    }

    /// Spends from a table with accounts, and returns the data of a receipt.
    #[inline(never)]
    fn spend_kept(&self, table: &Table<3, 2, true>, (key, cost): (HashedKey, u64)) -> Option<ShortAnswer> {
        let (bucket, rule) = (&*self.bucket, &self.rule);
        let hash = self.context.hash(bucket.salt, key);
        let mut set = table.lock(table.set_of(hash));
        if cost == 0 {
            return None;
        }
        // Read under the lock, as in the general case.
        let now_us = self.context.clock.now_us();
        let (slot, before) = set.look(hash);
        let spent = rule.spend_level_now(before.state, now_us, cost, ())?;
        let status = status_after((0, 0), &spent, cost);
        if !spent.passed {
            drop(set);
            return self.refuses(key, now_us).then(|| ShortAnswer::new(now_us, status));
        }
        let account = bucket.account_of(rule, &before, now_us);
        let after = SlotWords { state: spent.state, account, ..before };
        set.put(slot, hash, after, &bucket.rules, now_us);
        drop(set);
        let spend = trace((bucket, rule), before.state, after, account.birth(), now_us);
        Some(ShortAnswer::new(now_us, status).with_trace(spend))
    }

    /// Spends from a log.
    #[inline]
    fn spend_in_log(&self, logs: &Logs, (key, cost): (HashedKey, u64)) -> Option<(u64, Looked)> {
        let hash = self.context.hash(self.bucket.salt, key);
        let mut shard = logs.lock(Logs::shard_of(hash));
        // Read under the lock, as in the general case.
        let now_us = self.context.clock.now_us();
        let spent = shard.spend_now(hash, now_us, cost)?;
        drop(shard);
        (spent.passed || self.refuses(key, now_us)).then_some((now_us, spent))
    }
}

impl ShortWay for OnlyBucket {
    fn spend(&self, key: &KeyRef<'_>, cost: u64) -> Option<ShortAnswer> {
        self.answer(*key, cost)
    }

    fn is_at_rest(&self, key: &KeyRef<'_>) -> bool {
        self.buckets.is_at_rest(|| self.context.hashed(*key))
    }
}

/// Spends from one set of a table at this moment, read under its lock; returns the moment and the state of the key then. `None` if one
/// look at the state is not enough.
#[inline(always)]
pub(super) fn spend_one<const SLOTS: usize, const WORDS: usize, const OWN: usize, const SIZE: usize>(
    table: &Table<SLOTS, WORDS, false, OWN, SIZE>,
    (bucket, rule, plan): (&Bucket, &Rule, Option<&KeyRule>),
    (hash, cost): (u64, u64),
    now_us: impl FnOnce() -> u64,
) -> Option<(u64, Looked)> {
    let set = table.lock(table.set_of(hash));
    let now_us = now_us();
    let (slot, before) = set.look(hash);
    let is_other = || before.plan != plan.map_or(0, |plan| plan.number) && before.state.until_us > now_us;
    if OWN > 0 && is_other() {
        return None;
    }
    let found = FoundKey { set, slot, hash, before, bucket, now_us, plan };
    let spent = spend_now::<WORDS>(rule, before.state, now_us, cost, found)?;
    Some((now_us, spent))
}

/// A key in its locked set.
struct FoundKey<'a, const SLOTS: usize, const WORDS: usize, const OWN: usize, const SIZE: usize> {
    set: Locked<'a, SLOTS, WORDS, false, OWN, SIZE>,
    slot: Option<usize>,
    hash: u64,
    before: SlotWords,
    bucket: &'a Bucket,
    now_us: u64,
    /// The quota that the key brings, if it has its own.
    plan: Option<&'a KeyRule>,
}

impl<const SLOTS: usize, const WORDS: usize, const OWN: usize, const SIZE: usize> SpendState
    for FoundKey<'_, SLOTS, WORDS, OWN, SIZE>
{
    /// Stores the state and unlocks the set.
    #[inline(always)]
    fn settle(self, after: Option<State>) {
        let Self { mut set, slot, hash, before, bucket, now_us, plan } = self;
        if let Some(state) = after {
            let mut after = SlotWords { state, ..before };
            if OWN > 0 {
                // A key at rest may have been counted by another plan.
                after.plan = plan.map_or(0, |plan| plan.number);
                if let Some(plan) = plan {
                    plan.reaches(state.until_us);
                }
            }
            set.put(slot, hash, after, &bucket.rules, now_us);
        }
    }
}

/// Spends from one look at a state. All rules with states of one word are levels, so only levels are tried for them.
// Inlined always, because it is most of a decision.
#[inline(always)]
fn spend_now<const WORDS: usize>(
    rule: &Rule,
    state: State,
    now_us: u64,
    cost: u64,
    settle: impl SpendState,
) -> Option<Looked> {
    match const { state_words::<WORDS, false>() } {
        1 => rule.spend_level_now(state, now_us, cost, settle),
        _ => rule.spend_now(state, now_us, cost, settle),
    }
}
