//! A slot of a table: the words of its state and account ([`SlotWords`]), and the rules by which the keys of one bucket are counted
//! ([`QuotaRules`]): the policy's own rule, and the rules that keys bring.
//!
//! ```text
//! word 0   moment of rest (52 bits)                          | aux of a one-word state (12 bits)
//! word 1   aux of a two-word state
//! word 2   account
//! ```
//!
//! All accesses are `Relaxed`: the lock of the set orders them, and a gauge that reads without the lock needs no order.
//! 52 bits of microseconds reach to the year 2112, the bound of every [`Clock`](crate::clock::Clock).
//!
//! A slot has no room for a rule, so each rule that keys bring has a number, a *plan*. A number is used again when its
//! plan is no longer held and all states counted by it are at rest.

use std::collections::HashMap;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicU64 as Count, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard};

#[cfg(loom)]
use loom::sync::atomic::AtomicU64;

use super::beside::BucketAccount;
use crate::algorithm::{Rule, State};
use crate::support::{read, write};

/// The rule of a quota, and the plans of keys.
pub(super) struct QuotaRules {
    /// The rule of the policy's own quota, with number 0.
    pub(super) own: Rule,
    plans: RwLock<Plans>,
}

/// Another rule, by which some keys are counted.
pub(super) struct KeyRule {
    pub(super) rule: Rule,
    pub(super) number: u16,
    /// The moment at which all states counted by it are at rest.
    until_us: Count,
}

#[derive(Default)]
struct Plans {
    numbers: HashMap<Rule, u16>,
    /// The plan of each number, from 1 on.
    each: Vec<Arc<KeyRule>>,
    /// Free numbers.
    free: Vec<u16>,
    /// When all numbers were last found in use.
    full_us: u64,
}

/// The most plans of a quota at once.
pub(super) const MOST_PLANS: u16 = u16::MAX;

/// The time for which a plan is kept after its last state has come to rest: if the clock is set back a little, the state is found again.
const KEPT_AFTER_US: u64 = 60_000_000;

/// The time before plans that were all in use are searched again.
const FULL_FOR_US: u64 = 1_000_000;

impl QuotaRules {
    pub(super) fn new(own: Rule) -> Self {
        Self { own, plans: RwLock::default() }
    }

    fn plans(&self) -> RwLockReadGuard<'_, Plans> {
        read(&self.plans)
    }

    /// The rule of this number.
    pub(super) fn numbered(&self, plan: u16) -> Rule {
        let plans = if plan == 0 { None } else { Some(self.plans()) };
        let found = plans.as_ref().and_then(|plans| plans.each.get(usize::from(plan) - 1));
        found.map_or(self.own, |plan| plan.rule)
    }

    /// The plan of a rule that a key brings; `None` if all numbers are in use.
    pub(super) fn plan(&self, rule: &Rule, now_us: u64) -> Option<Arc<KeyRule>> {
        let plans = self.plans();
        if let Some(number) = plans.numbers.get(rule) {
            return plans.each.get(usize::from(*number) - 1).cloned();
        }
        drop(plans);
        write(&self.plans).add(rule, now_us)
    }

    /// The number of rules of keys that are still in use.
    pub(super) fn in_use(&self) -> usize {
        self.plans().numbers.len()
    }

    /// Notes that a state that is counted by this plan reaches to `until_us`.
    pub(super) fn reaches(&self, plan: u16, until_us: u64) {
        if plan > 0
            && let Some(plan) = self.plans().each.get(usize::from(plan) - 1)
        {
            plan.reaches(until_us);
        }
    }

    /// The entry of a key under another rule: its spent units still count.
    ///
    /// Its account starts afresh.
    pub(super) fn counted(&self, kept: SlotWords, (rule, plan): (&Rule, u16), now_us: u64) -> SlotWords {
        match kept.plan {
            same if same == plan => kept,
            _ if kept.state.until_us <= now_us => SlotWords { plan, ..SlotWords::default() },
            other => {
                let state = rule.converted(&self.numbered(other), kept.state, now_us);
                SlotWords { state, plan, ..SlotWords::default() }
            }
        }
    }

    /// The debt of a key, to compare keys: the used part of its quota, if keys may be counted by different rules.
    pub(super) fn weight(&self, kept: &SlotWords, are_different: bool, now_us: u64) -> (u64, u64) {
        let SlotWords { state, plan, .. } = *kept;
        if !are_different {
            return self.own.weight(state, now_us);
        }
        let rule = self.numbered(plan);
        let part = (u128::from(rule.outstanding(state, now_us)) << 32) / u128::from(rule.capacity().max(1));
        (u64::try_from(part).unwrap_or(u64::MAX), state.until_us)
    }
}

impl KeyRule {
    /// The rule and number for an ask that brings this rule.
    pub(super) fn counted(&self) -> NumberedRule {
        NumberedRule { rule: self.rule, plan: self.number }
    }

    /// Notes that a state reaches to `until_us`.
    #[inline]
    pub(super) fn reaches(&self, until_us: u64) {
        // Relaxed: read only to decide, much later, whether the number can be used again. Noted ahead, so that few spends write it.
        if self.until_us.load(Ordering::Relaxed) < until_us {
            let ahead_us = until_us.saturating_add(self.rule.longest_spend_us());
            self.until_us.fetch_max(ahead_us, Ordering::Relaxed);
        }
    }
}

impl Plans {
    fn add(&mut self, rule: &Rule, now_us: u64) -> Option<Arc<KeyRule>> {
        if let Some(number) = self.numbers.get(rule) {
            return self.each.get(usize::from(*number) - 1).cloned();
        }
        if self.free.is_empty() && self.each.len() >= usize::from(MOST_PLANS) {
            self.sweep(now_us);
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.each.len() >= usize::from(MOST_PLANS) => return None,
            None => u16::try_from(self.each.len() + 1).ok()?,
        };
        let plan = Arc::new(KeyRule { rule: *rule, number, until_us: Count::new(0) });
        match self.each.get_mut(usize::from(number) - 1) {
            Some(before) => *before = Arc::clone(&plan),
            None => self.each.push(Arc::clone(&plan)),
        }
        self.numbers.insert(*rule, number);
        Some(plan)
    }

    /// Frees the numbers of plans that are no longer held and no longer count any state.
    fn sweep(&mut self, now_us: u64) {
        if self.full_us.abs_diff(now_us) < FULL_FOR_US {
            return;
        }
        self.full_us = now_us;
        let is_over = |plan: &Arc<KeyRule>| {
            let until_us = plan.until_us.load(Ordering::Relaxed).saturating_add(KEPT_AFTER_US);
            Arc::strong_count(plan) == 1 && until_us <= now_us
        };
        for plan in self.each.iter().filter(|plan| is_over(plan)) {
            if self.numbers.get(&plan.rule) == Some(&plan.number) {
                self.numbers.remove(&plan.rule);
                self.free.push(plan.number);
            }
        }
    }
}

/// A rule, and its number in a slot.
#[derive(Clone, Copy)]
pub(super) struct NumberedRule {
    pub(super) rule: Rule,
    pub(super) plan: u16,
}

/// A table's entry of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotWords {
    pub(super) state: State,
    /// Only in tables of three words.
    pub(super) account: BucketAccount,
    /// The number of the plan that the state is counted by: 0 for the policy's own quota.
    pub(super) plan: u16,
}

const LOW_BITS: u32 = 12;
const LOW_MAX: u64 = (1 << LOW_BITS) - 1;
const TIME_MAX: u64 = u64::MAX >> LOW_BITS;

/// When the state of a slot is at rest. One read, so that it may be asked without the lock, for a
/// gauge.
#[inline]
pub(super) fn until_of<const WORDS: usize>(words: &[AtomicU64; WORDS]) -> u64 {
    words[0].load(Ordering::Relaxed) >> LOW_BITS
}

#[inline]
pub(super) fn load<const WORDS: usize>(words: &[AtomicU64; WORDS]) -> SlotWords {
    let first = words[0].load(Ordering::Relaxed);
    let aux = if WORDS == 1 { first & LOW_MAX } else { words[1].load(Ordering::Relaxed) };
    let account = if WORDS < 3 { 0 } else { words[2].load(Ordering::Relaxed) };
    SlotWords { state: State::new(first >> LOW_BITS, aux), account: BucketAccount::of(account), plan: 0 }
}

#[inline]
pub(super) fn store<const WORDS: usize>(words: &[AtomicU64; WORDS], kept: SlotWords) {
    let SlotWords { state, account, .. } = kept;
    let low = if WORDS == 1 { state.aux & LOW_MAX } else { 0 };
    if WORDS > 1 {
        words[1].store(state.aux, Ordering::Relaxed);
    }
    if WORDS == 3 {
        words[2].store(account.word(), Ordering::Relaxed);
    }
    words[0].store(state.until_us.min(TIME_MAX) << LOW_BITS | low, Ordering::Relaxed);
}
