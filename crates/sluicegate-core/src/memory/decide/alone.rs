//! One key under a policy of one quota: the fastest path, which the limiter keeps.
//!
//! It skips questions that were answered when the policy was opened: that there is one bucket, and what a refusal
//! does. If one look at the state is not enough, the other ways decide, before any state has changed. A refusal that counts
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
use crate::memory::slot::{KeyRule, SlotWords};
use crate::memory::table::{FullTable, Locked, Table};
use crate::policy::PolicyMode;
use crate::store::{Mode, PreparedPolicy, ShortWay};

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
    /// Whether a refusal spends or waits for a turn, and the other ways have to decide.
    outlasts_refusal: bool,
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
        let counted = policy.suspension().filter(|_| policy.policy().mode() == PolicyMode::Enforce);
        let strikes = counted.and_then(|of| of.strikes.as_ref()).map(|[strikes, _]| buckets_of(strikes));
        let strikes = strikes.flatten();
        let outlasts_refusal = policy.policy().counts_rejected() || policy.spends() != Mode::Spend;
        Some(Self { context, bucket, rule, plan, buckets, suspensions, strikes, outlasts_refusal })
    }

    /// Whether the key may be refused here: a refusal neither spends nor counts, or has been counted towards a suspension. If it may be the
    /// one that suspends the key, or if the key was ever suspended, the other ways decide.
    #[inline]
    fn refuses(&self, key: HashedKey, now_us: u64) -> bool {
        !self.outlasts_refusal
            && self.strikes.as_ref().is_none_or(|strikes| self.strike(strikes, key, now_us))
    }

    #[inline(never)]
    fn strike(&self, strikes: &Buckets, key: HashedKey, now_us: u64) -> bool {
        let [bucket] = &*strikes.each else { return false };
        let Home::Logs(logs) = bucket.home() else { return false };
        let hash = self.context.hash(bucket.salt, key);
        let mut shard = logs.lock(Logs::shard_of(hash));
        // Under the lock, which the refusal that suspends the key holds until that is noted: none counts in between.
        let has_owed = |buckets: &Arc<Buckets>| buckets.may_have_owed(key);
        !strikes.replaced.are_any()
            && !self.suspensions.iter().any(has_owed)
            && shard.spend_one_of_several(hash, now_us)
    }

    /// Decides by one look at the key, if it is enough.
    #[inline(always)]
    fn answer(&self, key: KeyRef<'_>, cost: u64) -> Option<ShortAnswer> {
        let key = self.context.hashed(key);
        // A replaced policy or a suspension of this key needs more than the bucket.
        if self.buckets.replaced.are_any()
            || !self.suspensions.iter().all(|buckets| buckets.is_at_rest(|| key))
        {
            return None;
        }
        let asked = (key, cost);
        let (now_us, spent) = match self.bucket.home() {
            Home::Narrow(table) => self.spend_in(table, asked),
            Home::Wide(table) => self.spend_in(table, asked),
            Home::Full(table) if !self.bucket.accounts() => self.spend_in(table, asked),
            Home::Full(table) => return self.spend_kept(table, asked),
            Home::Logs(logs) if !self.bucket.accounts() => self.spend_in_log(logs, asked),
            Home::Logs(_) => None,
        }?;
        Some(ShortAnswer::new(now_us, status_after((0, 0), &spent, cost)))
    }

    /// Spends from a table; returns the moment and the state of the key then.
    // Inlined always: each kind of home has its own copy, in which all sizes are known.
    #[inline(always)]
    fn spend_in<const WORDS: usize, const SIZE: usize>(
        &self,
        table: &Table<WORDS, SIZE>,
        (key, cost): (HashedKey, u64),
    ) -> Option<(u64, Looked)> {
        let (context, bucket, rule) = (&*self.context, &*self.bucket, &self.rule);
        let hash = context.hash(bucket.salt, key);
        // Read before the lock, to hold it for less time; but a window must not begin after a moment counted in it.
        let before_us = if WORDS == 1 { Some(context.clock.now_us()) } else { None };
        let set = table.lock(table.set_of(hash));
        let now_us = before_us.unwrap_or_else(|| context.clock.now_us());
        let (slot, before) = set.look(hash);
        let plan = self.plan.as_deref();
        let is_other = || before.plan != plan.map_or(0, |plan| plan.number) && before.state.until_us > now_us;
        if WORDS == 3 && is_other() {
            return None;
        }
        let found = FoundKey { set, slot, hash, before, bucket, now_us, plan };
        // All rules with states of one word are levels, so only levels are tried for them.
        let spent = match WORDS {
            1 => rule.spend_level_now(before.state, now_us, cost, found),
            _ => rule.spend_now(before.state, now_us, cost, found),
        }?;
        (spent.passed || self.refuses(key, now_us)).then_some((now_us, spent))
    }

    /// Spends from a table with accounts, and returns the data of a receipt.
    #[inline(never)]
    fn spend_kept(&self, table: &FullTable, (key, cost): (HashedKey, u64)) -> Option<ShortAnswer> {
        let (bucket, rule) = (&*self.bucket, &self.rule);
        let hash = self.context.hash(bucket.salt, key);
        let mut set = table.lock(table.set_of(hash));
        let (slot, before) = set.look(hash);
        if cost == 0 || self.plan.is_some() || before.plan > 0 {
            return None;
        }
        // Read under the lock, as in the general case.
        let now_us = self.context.clock.now_us();
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

/// A key in its locked set.
struct FoundKey<'a, const WORDS: usize, const SIZE: usize> {
    set: Locked<'a, WORDS, SIZE>,
    slot: Option<usize>,
    hash: u64,
    before: SlotWords,
    bucket: &'a Bucket,
    now_us: u64,
    /// The quota that the key brings, if it has its own.
    plan: Option<&'a KeyRule>,
}

impl<const WORDS: usize, const SIZE: usize> SpendState for FoundKey<'_, WORDS, SIZE> {
    /// Stores the state and unlocks the set.
    #[inline(always)]
    fn settle(self, after: Option<State>) {
        let Self { mut set, slot, hash, before, bucket, now_us, plan } = self;
        if let Some(state) = after {
            let mut after = SlotWords { state, ..before };
            if WORDS == 3 {
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
