//! A part of the logs, behind one lock, with the data of its keys.
//!
//! Every change keeps the chain of entries sorted and the sum right. Units of one moment are one entry, so a burst
//! in a microsecond takes one entry, whatever its size; with a resolution, units of one part of the period are one entry.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::algorithm::{Looked, SlidingLog, Slot, State};
use crate::memory::beside::IdentityHasher;
use crate::policy::OnFull;

/// The number of keys of a shard that share one place for inherited units.
const HEIRS: usize = 8;

pub(super) const NIL: u32 = u32::MAX;

/// The logs of some keys.
///
/// # Invariants
/// - A chain is sorted by time, oldest first, and `sum` is the cost of all its entries.
/// - `index` and `logs` name the same keys; a log without entries is closed at once.
/// - Entries are in exactly one chain or in the free list. None is allocated beyond `most_entries`.
pub(in crate::memory) struct Shard {
    pub(super) rule: SlidingLog,
    pub(super) takes_quotas: bool,
    /// The position of each key's log in `logs`.
    pub(super) index: HashMap<u64, u32, BuildHasherDefault<IdentityHasher>>,
    /// Without gaps, so that a random log is drawn in one step.
    pub(super) logs: Vec<Log>,
    /// The times for which the entries of each log are kept; empty if keys bring no quotas of their own.
    pub(super) spans: Vec<LogSpan>,
    pub(super) most_logs: usize,
    pub(super) entries: Vec<LogUnits>,
    pub(super) most_entries: usize,
    pub(super) free_entry: u32,
    pub(super) hand: usize,
    pub(super) random: u64,
    pub(super) births: u32,
    /// The units that logs have left to others when they made room, by hash; empty if such logs are forgotten.
    pub(super) left: Box<[(u64, u64)]>,
    pub(super) evictions: Arc<AtomicU64>,
}

/// One key's log: a chain of entries, oldest first.
#[derive(Clone, Copy)]
pub(super) struct Log {
    pub(super) hash: u64,
    pub(super) sum: u64,
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) birth: u32,
}

/// The time for which the entries of a log are kept, if its key may bring quotas of its own.
///
/// An entry counts by the period of the ask, so a log with spends under a longer period keeps the entries that still count under that
/// period.
#[derive(Clone, Copy, Default)]
pub(in crate::memory) struct LogSpan {
    /// The period of the last spend.
    pub(super) period_us: u64,
    /// A longer period of earlier spends, and the moment until which it counts: one such period after their last entry.
    pub(super) longer: (u64, u64),
}

/// The times and costs of a log's entries, the log's birth number, and the time for which the entries are kept.
pub(in crate::memory) type LogCopy = (Vec<(u64, u64)>, u32, LogSpan);

impl LogSpan {
    /// The current period for which entries are kept.
    pub(super) fn at(self, now_us: u64) -> u64 {
        let (longer_us, until_us) = self.longer;
        if now_us < until_us { longer_us.max(self.period_us) } else { self.period_us }
    }

    /// The span after a spend under this period; `last_us` is the moment of the last entry.
    pub(super) fn spent_by(self, period_us: u64, now_us: u64, last_us: u64) -> Self {
        let before_us = self.at(now_us);
        let longer = match period_us {
            _ if period_us >= before_us => (0, 0),
            _ if period_us < self.period_us => (before_us, last_us.saturating_add(before_us)),
            _ => self.longer,
        };
        Self { period_us, longer }
    }
}

/// Units that were admitted at one moment, or in the part of the period that ends with it. A free entry links to the next free one.
#[derive(Clone, Copy)]
pub(super) struct LogUnits {
    pub(super) at_us: u64,
    pub(super) cost: u32,
    pub(super) next: u32,
}

/// Identifies the entry with the units of a spend, so that they can be found again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::memory) struct EntryRef {
    pub(in crate::memory) at_us: u64,
    /// The birth number of the key's log, which changes after the log was empty or forgotten.
    pub(in crate::memory) birth: u32,
}

#[expect(clippy::cast_possible_truncation, reason = "`Shard::new` bounds all positions below u32::MAX")]
pub(super) fn link(position: usize) -> u32 {
    position as u32
}

pub(super) fn narrow(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}

impl Shard {
    pub(super) fn new(
        rule: SlidingLog,
        (keys, entries): (usize, usize),
        (on_full, takes_quotas): (OnFull, bool),
        seed: u64,
        evictions: Arc<AtomicU64>,
    ) -> Self {
        let [keys, entries] = [keys, entries].map(|room| room.clamp(1, NIL as usize - 1));
        let inherited = if on_full == OnFull::Inherit { keys.div_ceil(HEIRS) } else { 0 };
        Self {
            rule,
            // The memory is reserved now; its pages are touched only when needed.
            index: HashMap::with_capacity_and_hasher(keys, BuildHasherDefault::default()),
            logs: Vec::with_capacity(keys),
            spans: Vec::with_capacity(if takes_quotas { keys } else { 0 }),
            takes_quotas,
            most_logs: keys,
            entries: Vec::with_capacity(entries),
            most_entries: entries,
            free_entry: NIL,
            hand: 0,
            random: seed | 1,
            births: 0,
            left: vec![(0, 0); inherited].into(),
            evictions,
        }
    }

    /// The number of logs that hold an entry that is not over.
    pub(super) fn in_use(&self, now_us: u64) -> usize {
        (0..self.logs.len()).filter(|log| self.until_us(*log, now_us) > now_us).count()
    }

    /// When `cost` would pass if nothing else arrived.
    pub(in crate::memory) fn slot(
        &mut self,
        (hash, rule): (u64, &SlidingLog),
        now_us: u64,
        cost: u64,
    ) -> Slot {
        let log = self.current(hash, now_us);
        let (head, sum, inherited) = match log {
            Some(log) => (self.logs[log].head, self.counted(log, rule, now_us), None),
            None => (NIL, 0, self.inherited(hash, now_us)),
        };
        let sum = inherited.map_or(sum, |(_, cost)| cost);
        let counts = |(at_us, _): &(u64, u64)| !rule.is_over(*at_us, now_us);
        let entries = inherited.into_iter().chain(self.chain(head).filter(counts));
        rule.slot(entries, sum, now_us, cost)
    }

    /// Whether no entry comes a period or more after that entry. A later turn cannot use a gap before it.
    pub(in crate::memory) fn is_of_last_period(
        &mut self,
        (hash, rule): (u64, &SlidingLog),
        entered: EntryRef,
        now_us: u64,
    ) -> bool {
        let Some(log) = self.current(hash, now_us) else { return true };
        self.newest_us(log) < entered.at_us.saturating_add(rule.period_us().get())
    }

    /// The remaining units of that entry; none if it is over or the key was forgotten since.
    pub(in crate::memory) fn entered(
        &mut self,
        (hash, rule): (u64, &SlidingLog),
        entered: EntryRef,
        now_us: u64,
    ) -> u64 {
        let Some(log) = self.current(hash, now_us) else { return 0 };
        if self.logs[log].birth != entered.birth {
            return 0;
        }
        let found =
            self.chain(self.logs[log].head).find(|&(at_us, _)| rule.is_one_entry(at_us, entered.at_us));
        found.map_or(0, |(_, cost)| cost)
    }

    /// The units that this rule counts.
    pub(in crate::memory) fn used(&mut self, (hash, rule): (u64, &SlidingLog), now_us: u64) -> u64 {
        match self.current(hash, now_us) {
            Some(log) => self.counted(log, rule, now_us),
            None => self.inherited(hash, now_us).map_or(0, |(_, cost)| cost),
        }
    }

    /// The units of a log that this rule counts: all of them, unless a longer period has kept some.
    pub(super) fn counted(&self, log: usize, rule: &SlidingLog, now_us: u64) -> u64 {
        let Log { head, sum, .. } = self.logs[log];
        if self.period_us(log, now_us) <= rule.period_us().get() {
            return sum;
        }
        let counts = self.chain(head).skip_while(|&(at_us, _)| rule.is_over(at_us, now_us));
        counts.map(|(_, cost)| cost).sum()
    }

    /// Microseconds until the log is empty, as this rule counts it.
    pub(in crate::memory) fn reset_after_us(&mut self, (hash, rule): (u64, &SlidingLog), now_us: u64) -> u64 {
        let until_us = match self.current(hash, now_us) {
            Some(log) => self.newest_us(log).saturating_add(rule.period_us().get()),
            None => self.inherited(hash, now_us).map_or(0, |(at_us, _)| self.over_us(at_us)),
        };
        until_us.saturating_sub(now_us)
    }

    /// Whether the key has a log of its own.
    pub(in crate::memory) fn knows(&mut self, hash: u64, now_us: u64) -> bool {
        self.current(hash, now_us).is_some()
    }

    /// The entries of a key's log, or the entry that it would begin with.
    pub(in crate::memory) fn entries(&mut self, hash: u64, now_us: u64) -> LogCopy {
        let mut copy = self.copy(hash, now_us);
        if copy.0.is_empty() {
            copy.0.extend(self.inherited(hash, now_us));
        }
        copy
    }

    /// The times and costs of a key's entries, oldest first, and the log's birth number.
    pub(in crate::memory) fn copy(&mut self, hash: u64, now_us: u64) -> LogCopy {
        match self.current(hash, now_us) {
            Some(log) => (
                self.chain(self.logs[log].head).collect(),
                self.logs[log].birth,
                self.spans.get(log).copied().unwrap_or_default(),
            ),
            None => LogCopy::default(),
        }
    }

    /// The key's log without the entries that are over; `None` if no entry is left.
    pub(super) fn current(&mut self, hash: u64, now_us: u64) -> Option<usize> {
        let log = *self.index.get(&hash)? as usize;
        self.drop_over(log, now_us).then_some(log)
    }

    /// Frees the entries that are over, and the log if none is left. Returns whether one is left.
    pub(super) fn drop_over(&mut self, log: usize, now_us: u64) -> bool {
        let Log { mut head, mut sum, .. } = self.logs[log];
        let period_us = self.period_us(log, now_us);
        while let Some(&LogUnits { at_us, cost, next }) = self.entries.get(head as usize) {
            if at_us.saturating_add(period_us) > now_us {
                break;
            }
            sum -= u64::from(cost);
            self.free_entry(head);
            head = next;
        }
        (self.logs[log].head, self.logs[log].sum) = (head, sum);
        if head == NIL {
            self.close(log);
        }
        head != NIL
    }

    /// Enters `cost` as admitted at `at_us`, after the units that the key inherits, and returns the entry.
    pub(in crate::memory) fn spend(
        &mut self,
        (hash, rule): (u64, &SlidingLog),
        now_us: u64,
        at_us: u64,
        cost: u64,
    ) -> EntryRef {
        if cost == 0 {
            return EntryRef::default();
        }
        self.tidy(now_us);
        if !self.knows(hash, now_us)
            && let Some((left_us, left)) = self.inherited(hash, now_us)
        {
            self.enter((hash, rule), now_us, left_us, left);
        }
        self.enter((hash, rule), now_us, at_us, cost)
    }

    pub(super) fn enter(
        &mut self,
        (hash, rule): (u64, &SlidingLog),
        now_us: u64,
        at_us: u64,
        cost: u64,
    ) -> EntryRef {
        let log = self.current(hash, now_us);
        self.enter_in(log, (hash, cost, rule), now_us, at_us).1
    }

    /// Enters a cost in the key's log, which is `log` if there is one, and returns the log's position after that.
    fn enter_in(
        &mut self,
        log: Option<usize>,
        (hash, cost, rule): (u64, u64, &SlidingLog),
        now_us: u64,
        at_us: u64,
    ) -> (usize, EntryRef) {
        let cost = narrow(cost);
        let mut log = log.unwrap_or_else(|| self.open(hash, now_us));
        self.is_spent_by(log, rule, now_us);
        let Log { tail, birth, .. } = self.logs[log];
        // Neither a clock that is a little behind another thread's nor a turn reserved ahead may unsort the log; an entry
        // that is moved to a later time counts a little longer.
        let newest = self.entries.get(tail as usize).copied();
        let at_us = at_us.max(newest.map_or(0, |entry| entry.at_us));
        match newest {
            Some(entry) if rule.is_one_entry(entry.at_us, at_us) => {
                self.entries[tail as usize].at_us = at_us;
                self.entries[tail as usize].cost = entry.cost.saturating_add(cost);
                self.logs[log].sum += u64::from(entry.cost.saturating_add(cost) - entry.cost);
            }
            _ => log = self.append(log, at_us, cost, now_us),
        }
        (log, EntryRef { at_us, birth })
    }

    /// Notes that a spend counts by this rule, even if none of its units took effect.
    pub(in crate::memory) fn counts_by(&mut self, (hash, rule): (u64, &SlidingLog), now_us: u64) {
        if let Some(log) = self.current(hash, now_us) {
            self.is_spent_by(log, rule, now_us);
        }
    }

    fn is_spent_by(&mut self, log: usize, rule: &SlidingLog, now_us: u64) {
        if self.spans.is_empty() {
            return;
        }
        // Future turns count for a whole period, too.
        let last_us = self.newest_us(log).max(now_us);
        if let Some(span) = self.spans.get_mut(log) {
            *span = span.spent_by(rule.period_us().get(), now_us, last_us);
        }
    }

    /// Spends at once or not at all, and returns whether it did and the remaining units, from one look at the log, which has no state.
    /// `None` if that is not enough: for a cost of 0 or a cost that can never fit, in debt, and if keys inherit.
    pub(in crate::memory) fn spend_now(&mut self, hash: u64, now_us: u64, cost: u64) -> Option<Looked> {
        let rule = self.rule;
        let limit = rule.limit();
        if cost == 0 || cost > limit || !self.left.is_empty() || self.takes_quotas {
            return None;
        }
        let known = self.current(hash, now_us);
        let (head, sum) = known.map_or((NIL, 0), |log| (self.logs[log].head, self.logs[log].sum));
        let room = limit.checked_sub(sum)?;
        if let Some(log) = known.filter(|_| cost > room) {
            let opens_us = rule.slot(self.chain(head), sum, now_us, cost).opens_us;
            return Some(self.looked(log, (false, now_us), opens_us));
        }
        let (log, _) = self.enter_in(known, (hash, cost, &rule), now_us, now_us);
        // Some units are back when the oldest entry is over, and one is enough.
        let oldest = self.entries.get(self.logs[log].head as usize);
        let more_us = oldest.map_or(now_us, |entry| self.over_us(entry.at_us));
        let looked = self.looked(log, (true, now_us), more_us);
        self.tidy(now_us);
        Some(looked)
    }

    /// Spends one unit if another one fits after it, and returns whether it did; never if keys inherit or bring quotas.
    pub(in crate::memory) fn spend_one_of_several(&mut self, hash: u64, now_us: u64) -> bool {
        let rule = self.rule;
        let known = self.current(hash, now_us);
        let sum = known.map_or(0, |log| self.logs[log].sum);
        if sum.saturating_add(1) >= rule.limit() || !self.left.is_empty() || self.takes_quotas {
            return false;
        }
        self.enter_in(known, (hash, 1, &rule), now_us, now_us);
        self.tidy(now_us);
        true
    }

    fn looked(&self, log: usize, (passed, now_us): (bool, u64), available_us: u64) -> Looked {
        let state = State::new(self.until_us(log, now_us), self.logs[log].sum);
        self.rule.looked_at(passed, (state, now_us), available_us.saturating_sub(now_us))
    }

    /// Gives back `cost` that was spent `ago_us` before, from the newest entry of that time on; if that is unknown, from
    /// the newest entry. It walks the log.
    pub(in crate::memory) fn refund(
        &mut self,
        (hash, rule): (u64, &SlidingLog),
        now_us: u64,
        ago_us: Option<u64>,
        cost: u64,
    ) {
        let Some(log) = self.current(hash, now_us) else { return };
        // Turns that have not come yet count as spent just now.
        let latest_us = ago_us.map_or(u64::MAX, |ago_us| now_us.saturating_sub(ago_us));
        let spent: u64 = self
            .chain(self.logs[log].head)
            .take_while(|&(at_us, _)| !rule.is_later_entry(at_us, latest_us))
            .map(|(_, cost)| cost)
            .sum();
        let mut keep = spent.saturating_sub(cost);
        self.thin(log, |at_us, cost| {
            if rule.is_later_entry(at_us, latest_us) {
                return cost;
            }
            let stays = keep.min(cost);
            keep -= stays;
            stays
        });
    }

    /// Gives back up to `cost` units of one entry.
    pub(in crate::memory) fn give_back(
        &mut self,
        (hash, rule): (u64, &SlidingLog),
        entered: EntryRef,
        cost: u64,
        now_us: u64,
    ) {
        if self.entered((hash, rule), entered, now_us) == 0 {
            return;
        }
        if let Some(log) = self.current(hash, now_us) {
            self.thin(log, |at_us, units| {
                if rule.is_one_entry(at_us, entered.at_us) { units.saturating_sub(cost) } else { units }
            });
        }
    }

    /// Forgets the oldest units until at most this many are left, but keeps at least the last spend of the newest entry.
    pub(in crate::memory) fn keep_newest(&mut self, hash: u64, now_us: u64, most: u64) {
        let Some(log) = self.current(hash, now_us) else { return };
        let mut over = self.logs[log].sum.saturating_sub(most);
        while over > 0 {
            let head = self.logs[log].head;
            let Some(&LogUnits { cost, next, .. }) = self.entries.get(head as usize) else { return };
            let gone = narrow(over).min(cost);
            over -= u64::from(gone);
            self.logs[log].sum -= u64::from(gone);
            self.entries[head as usize].cost -= gone;
            if gone == cost {
                self.logs[log].head = next;
                self.free_entry(head);
            }
        }
    }

    /// Keeps as many units of each entry, from the oldest on, as `keep` says.
    fn thin(&mut self, log: usize, mut keep: impl FnMut(u64, u64) -> u64) {
        let (mut at, mut tail) = (self.logs[log].head, NIL);
        while let Some(&LogUnits { at_us, cost, next }) = self.entries.get(at as usize) {
            let stays = narrow(keep(at_us, cost.into())).min(cost);
            self.logs[log].sum -= u64::from(cost - stays);
            self.entries[at as usize].cost = stays;
            if stays == 0 {
                match self.entries.get_mut(tail as usize) {
                    Some(previous) => previous.next = next,
                    None => self.logs[log].head = next,
                }
                self.free_entry(at);
            } else {
                tail = at;
            }
            at = next;
        }
        self.logs[log].tail = tail;
        if tail == NIL {
            self.close(log);
        }
    }

    /// Forgets the key.
    pub(in crate::memory) fn reset(&mut self, hash: u64) {
        if let Some(&log) = self.index.get(&hash) {
            self.close(log as usize);
        }
    }

    /// Restores the key's log from a copy.
    pub(in crate::memory) fn restore(&mut self, hash: u64, (entries, birth, span): &LogCopy, now_us: u64) {
        self.reset(hash);
        let rule = self.rule;
        if let Some(log) = self.enter_all((hash, &rule), entries, *span, now_us) {
            self.logs[log].birth = *birth;
        }
    }

    /// Continues another log of the key under this rule.
    pub(in crate::memory) fn follow(
        &mut self,
        (hash, rule): (u64, &SlidingLog),
        (entries, _, span): &LogCopy,
        now_us: u64,
    ) {
        self.tidy(now_us);
        if let Some(log) = self.enter_all((hash, rule), entries, *span, now_us) {
            self.is_spent_by(log, rule, now_us);
            self.drop_over(log, now_us);
        }
    }

    /// Enters entries that are kept for this time, and returns the log's position. Entries that are over are not dropped in between:
    /// a longer period may keep them.
    fn enter_all(
        &mut self,
        (hash, rule): (u64, &SlidingLog),
        entries: &[(u64, u64)],
        span: LogSpan,
        now_us: u64,
    ) -> Option<usize> {
        let mut log = self.current(hash, now_us);
        for &(at_us, cost) in entries {
            log = Some(self.enter_in(log, (hash, cost, rule), now_us, at_us).0);
        }
        if let Some(kept) = log.and_then(|log| self.spans.get_mut(log)) {
            *kept = span;
        }
        log
    }

    /// Drops the oldest entry of a log. Under `OnFull::Inherit` its units count on as part of the next entry,
    /// for longer than necessary.
    pub(super) fn drop_oldest(&mut self, log: usize) {
        let head = self.logs[log].head;
        let Some(&LogUnits { cost, next, .. }) = self.entries.get(head as usize) else { return };
        let log = &mut self.logs[log];
        match self.entries.get_mut(next as usize).filter(|_| !self.left.is_empty()) {
            // Under `OnFull::Inherit`, it counts as long as the next entry.
            Some(next) if next.cost.checked_add(cost).is_some() => next.cost += cost,
            _ => log.sum -= u64::from(cost),
        }
        log.head = next;
        if next == NIL {
            log.tail = NIL;
        }
        self.free_entry(head);
    }
}
