//! Changes of a key's log: entries are added, given back and removed.
//!
//! Every change keeps the chain sorted and the sum right. Units of one moment are one entry, so a burst
//! in a microsecond takes one entry, whatever its size; with a resolution, units of one part of the period are one entry.

use super::shard::{EntryRef, Log, LogCopy, LogSpan, LogUnits, NIL, Shard, narrow};
use crate::algorithm::{Looked, SlidingLog, State};

impl Shard {
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
