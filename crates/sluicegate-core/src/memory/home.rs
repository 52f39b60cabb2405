//! The tables and logs that keep the states of one quota.
//!
//! A state has one word or two, a key with an account or a plan has three words, and a log is a list: there is a kind of home for
//! each. The kind is chosen at the first request, so that a decision branches once and then
//! works on a table with sizes that the compiler knows.

use std::sync::MutexGuard;

use super::context::StoreContext;
use super::logs::{LogCopy, Logs, Shard};
use super::slot::{QuotaRules, SlotWords};

use super::table::{self, FullTable, Locked, NarrowTable, Table, WideTable, slots_of_a_set};
use crate::algorithm::Rule;
use crate::policy::{OnFull, Policy};

/// The table of one quota of one policy, or its logs. Allocated at the first request; it never grows.
pub(super) enum Home {
    /// States of one word, five to a set of 64 bytes.
    Narrow(NarrowTable),
    /// States of two words, three to a set.
    Wide(WideTable),
    /// States with accounts and plans; four to two lines.
    Full(FullTable),
    Logs(Logs),
}

/// The kinds of data that a table holds beside states.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TableKind {
    /// Accounts of units that are given back.
    pub(super) accounts: bool,
    /// Quotas that keys bring.
    pub(super) quotas: bool,
}

/// A set or shard of a home, locked.
pub(super) enum LockedSet<'a> {
    Narrow(Locked<'a, 1, 8>),
    Wide(Locked<'a, 2, 8>),
    Full(Locked<'a, 3, 16>),
    Log(MutexGuard<'a, Shard>),
}

/// Slots per hundred keys of capacity, for states of one word, of two and of three: a table at its full capacity has 2.7 of 5, 1.3 of 3 or
/// 2 of 4 slots of a set in use.
///
/// Keys fall into sets at random, and a full set evicts its least indebted key. More
/// slots than keys make this rare: three to five keys in a hundred meet a full set when the table
/// is at its full capacity.
const PER_HUNDRED: [usize; 3] = [187, 225, 200];

/// Sends a call to the table of this kind; for logs, evaluates the given expression.
macro_rules! tables {
    ($self:expr, $kind:ident, $table:ident => $call:expr, $logs:pat => $log:expr) => {
        match $self {
            $kind::Narrow($table) => $call,
            $kind::Wide($table) => $call,
            $kind::Full($table) => $call,
            $logs => $log,
        }
    };
}

impl TableKind {
    pub(super) fn of(policy: &Policy) -> Self {
        Self { accounts: policy.gives_back(), quotas: policy.takes_quotas() }
    }

    /// The words of a slot.
    fn words_of_a_slot(self, rule: &Rule) -> usize {
        match rule.fits_one_word() {
            _ if self.accounts || self.quotas => 3,
            true => 1,
            false => 2,
        }
    }

    /// The number of slots of a table for this many keys, in whole sets. A log has no slots; the result is then the number of keys.
    pub(super) fn slots(self, rule: &Rule, keys: usize) -> usize {
        if rule.log().is_some() {
            return keys;
        }
        let words = self.words_of_a_slot(rule);
        let of_a_set = slots_of_a_set(words);
        slots(keys, PER_HUNDRED[words - 1]).div_ceil(of_a_set).max(1).saturating_mul(of_a_set)
    }

    /// The words of a table for this many keys. Logs have at most nine for each, beside their entries.
    pub(super) fn words(self, rule: &Rule, keys: usize) -> usize {
        if rule.log().is_some() {
            return keys.saturating_mul(9);
        }
        let words = self.words_of_a_slot(rule);
        let of_a_set = if words == 3 { 16 } else { 8 };
        (self.slots(rule, keys) / slots_of_a_set(words)).saturating_mul(of_a_set)
    }
}

impl Home {
    pub(super) fn new(
        context: &StoreContext,
        (keys, on_full): (usize, OnFull),
        shape: TableKind,
        rule: &Rule,
    ) -> Self {
        let slots = shape.slots(rule, keys);
        let count = if on_full == OnFull::Inherit { &context.inherited } else { &context.evictions };
        if let Some(log) = rule.log() {
            let room = (keys, context.settings.log_entries);
            return Self::Logs(Logs::new(*log, room, (on_full, shape.quotas), context.fresh_salt(), count));
        }
        match shape.words_of_a_slot(rule) {
            1 => Self::Narrow(Table::new(slots, on_full, count)),
            2 => Self::Wide(Table::new(slots, on_full, count)),
            _ => Self::Full(Table::new(slots, on_full, count)),
        }
    }

    /// The set or shard of a key.
    #[inline]
    pub(super) fn index_of(&self, hash: u64) -> usize {
        tables!(self, Self, table => table.set_of(hash), Self::Logs(_) => Logs::shard_of(hash))
    }

    #[inline]
    pub(super) fn lock(&self, index: usize) -> LockedSet<'_> {
        match self {
            Self::Narrow(table) => LockedSet::Narrow(table.lock(index)),
            Self::Wide(table) => LockedSet::Wide(table.lock(index)),
            Self::Full(table) => LockedSet::Full(table.lock(index)),
            Self::Logs(logs) => LockedSet::Log(logs.lock(index)),
        }
    }

    /// Whether no slot belongs to this key and it inherits nothing. Without a lock: a thread that has an answer about the key's debt sees
    /// its slot.
    #[inline]
    pub(super) fn is_unknown(&self, hash: u64) -> bool {
        tables!(self, Self, table => table.is_unknown(hash), Self::Logs(_) => false)
    }

    /// Keys that are not at rest.
    pub(super) fn in_use(&self, now_us: u64) -> usize {
        tables!(self, Self, table => table.in_use(now_us), Self::Logs(logs) => logs.in_use(now_us))
    }
}

/// The slots for `keys` keys at this many per hundred, in steps that fit a 32-bit `usize` for every capacity.
fn slots(keys: usize, per_cent: usize) -> usize {
    (keys / 100).saturating_mul(per_cent).saturating_add(keys % 100 * per_cent / 100)
}

/// The contents of a set or of a key's log.
///
/// For asks of one call that affect each other: each is carried out before the next is judged, and
/// then undone.
pub(super) enum Copied {
    Set(table::Copy),
    Log(LogCopy),
}

impl LockedSet<'_> {
    /// The table's entry of a key, unchanged; the entry of a key at rest if this is a log.
    pub(super) fn entry(&self, hash: u64) -> SlotWords {
        self.look(hash).1
    }

    /// The slot of a key and its entry; no slot, and the entry of a key at rest, if this is a log.
    #[inline]
    pub(super) fn look(&self, hash: u64) -> (Option<usize>, SlotWords) {
        tables!(self, LockedSet, set => set.look(hash), LockedSet::Log(_) => (None, SlotWords::default()))
    }

    /// Stores the entry of a key in the slot that `look` found.
    #[inline]
    pub(super) fn put_at(
        &mut self,
        slot: Option<usize>,
        hash: u64,
        kept: SlotWords,
        rules: &QuotaRules,
        now_us: u64,
    ) {
        tables!(self, LockedSet, set => set.put(slot, hash, kept, rules, now_us), LockedSet::Log(_) => {});
    }

    /// Whether the key itself is here, not only a debt that it would inherit.
    pub(super) fn knows(&mut self, hash: u64, now_us: u64) -> bool {
        tables!(self, LockedSet, set => set.find(hash).is_some(), LockedSet::Log(shard) => shard.knows(hash, now_us))
    }

    /// Forgets a key.
    pub(super) fn reset(&mut self, hash: u64) {
        tables!(self, LockedSet, set => set.reset(hash), LockedSet::Log(shard) => shard.reset(hash));
    }

    /// A number that changes when a key of this set is forgotten or reset; 0 for a log.
    pub(super) fn forgotten(&self) -> u64 {
        tables!(self, LockedSet, set => set.forgotten(), LockedSet::Log(_) => 0)
    }

    pub(super) fn copy(&mut self, hash: u64, now_us: u64) -> Copied {
        tables!(self, LockedSet, set => Copied::Set(set.copy()), LockedSet::Log(shard) => Copied::Log(shard.copy(hash, now_us)))
    }

    pub(super) fn restore(&mut self, hash: u64, copied: &Copied, now_us: u64) {
        match copied {
            Copied::Set(copy) => tables!(self, LockedSet, set => set.restore(copy), LockedSet::Log(_) => {}),
            Copied::Log(copy) => {
                if let LockedSet::Log(shard) = self {
                    shard.restore(hash, copy, now_us);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `keys * 187` overflowed 32 bits above 22.9 million keys, and the table was too small.
    #[test]
    fn slots_are_reckoned_without_a_product_that_is_larger_than_they_are() {
        for keys in [1, 99, 100, 101, 12_345, 22_968_473, 1 << 31] {
            for per_cent in PER_HUNDRED {
                let exact = keys as u64 * per_cent as u64 / 100;
                assert_eq!(slots(keys, per_cent) as u64, exact, "{keys} at {per_cent}");
                assert!(keys as u64 / 100 * per_cent as u64 <= exact);
            }
        }
    }
}
