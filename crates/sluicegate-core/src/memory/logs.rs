//! The bounded home of sliding logs.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::bucket::fullness;
use crate::algorithm::{SlidingLog, Slot};

/// Sliding logs of all keys, in shards with a fixed number of keys and of entries each, allocated once.
///
/// Keys whose entries are all over are taken out a few at a time as others spend. When a shard is full, the
/// least indebted among the next few makes room.
pub(super) struct Logs {
    shards: Box<[Mutex<Shard>]>,
}

const SHARDS: usize = 16;

/// Logs that a spend looks at beside its own, to find those that are over.
const TIDIED_PER_SPEND: usize = 2;

/// Logs among which the least indebted is chosen when a shard is full.
const CANDIDATES: usize = 16;

const NIL: u32 = u32::MAX;

impl Logs {
    pub(super) fn new(keys: usize, entries: usize) -> Self {
        Self {
            shards: (0..SHARDS)
                .map(|_| Mutex::new(Shard::new(keys.div_ceil(SHARDS), entries.div_ceil(SHARDS))))
                .collect(),
        }
    }

    /// The longest log that a store with so many entries can hold.
    pub(super) fn longest(entries: usize) -> usize {
        entries.div_ceil(SHARDS)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a remainder by 16")]
    pub(super) fn shard_of(hash: u64) -> usize {
        (hash % SHARDS as u64) as usize
    }

    pub(super) fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        // A shard's own code does not panic; should it ever, its numbers are still numbers.
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn evictions(&self) -> u64 {
        (0..SHARDS).map(|shard| self.lock(shard).evictions).sum()
    }

    pub(super) fn in_use(&self, now_us: u64) -> usize {
        (0..SHARDS).map(|shard| self.lock(shard).in_use(now_us)).sum()
    }
}

/// The map's keys are hashes already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only hashes are hashed");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

pub(super) struct Shard {
    index: HashMap<u64, u32, BuildHasherDefault<Identity>>,
    logs: Vec<Log>,
    entries: Vec<Entry>,
    free_log: u32,
    free_entry: u32,
    hand: usize,
    evictions: u64,
}

/// One key's log: a chain of entries, oldest first.
#[derive(Clone, Copy)]
struct Log {
    hash: u64,
    period_us: u64,
    limit: u64,
    sum: u64,
    head: u32,
    tail: u32,
}

const FREE: Log = Log { hash: 0, period_us: 0, limit: 1, sum: 0, head: NIL, tail: NIL };

/// Units that were admitted at one moment. A free entry or log links to the next free one by `next` or `head`.
#[derive(Clone, Copy)]
struct Entry {
    at_us: u64,
    cost: u32,
    next: u32,
}

#[expect(clippy::cast_possible_truncation, reason = "`Shard::new` bounds all positions below u32::MAX")]
fn link(position: usize) -> u32 {
    position as u32
}

impl Shard {
    fn new(keys: usize, entries: usize) -> Self {
        let (keys, entries) = (keys.clamp(1, NIL as usize - 1), entries.clamp(1, NIL as usize - 1));
        let next =
            |position: usize, count: usize| if position + 1 < count { link(position + 1) } else { NIL };
        let free = |position| Log { head: next(position, keys), ..FREE };
        Self {
            index: HashMap::with_capacity_and_hasher(keys, BuildHasherDefault::default()),
            logs: (0..keys).map(free).collect(),
            entries: (0..entries).map(|at| Entry { at_us: 0, cost: 0, next: next(at, entries) }).collect(),
            free_log: 0,
            free_entry: 0,
            hand: 0,
            evictions: 0,
        }
    }

    /// How many logs hold an entry that is not over.
    fn in_use(&self, now_us: u64) -> usize {
        self.index.values().filter(|&&log| self.until_us(log) > now_us).count()
    }

    /// When `cost` would pass if nothing else arrived.
    pub(super) fn slot(&mut self, hash: u64, rule: &SlidingLog, now_us: u64, cost: u64) -> Slot {
        let Some(log) = self.current(hash, now_us) else {
            return rule.slot(std::iter::empty(), 0, now_us, cost);
        };
        let log = &self.logs[log as usize];
        rule.slot(self.chain(log.head), log.sum, now_us, cost)
    }

    /// Enters `cost` as admitted at `at_us`.
    pub(super) fn spend(&mut self, hash: u64, rule: &SlidingLog, now_us: u64, at_us: u64, cost: u64) {
        if cost == 0 {
            return;
        }
        self.tidy(now_us);
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        let log = match self.current(hash, now_us) {
            Some(log) => log,
            None => self.open(hash, rule, now_us),
        };
        // Neither a clock that is a little behind another thread's nor a turn given out ahead may unsort the log; an entry
        // that is moved up counts a little longer for it.
        let tail = self.logs[log as usize].tail;
        let newest = self.entries.get(tail as usize).copied();
        let at_us = at_us.max(newest.map_or(0, |entry| entry.at_us));
        match newest {
            Some(entry) if entry.at_us == at_us => {
                self.entries[tail as usize].cost = entry.cost.saturating_add(cost);
                self.logs[log as usize].sum += u64::from(entry.cost.saturating_add(cost) - entry.cost);
            }
            _ => self.append(log, at_us, cost, now_us),
        }
    }

    /// Gives back `cost` that was spent `ago_us` before, from the newest entry of that time on. Walks the log.
    pub(super) fn refund(&mut self, hash: u64, now_us: u64, ago_us: u64, cost: u64) {
        let Some(log) = self.current(hash, now_us) else { return };
        // Turns that have not come yet are among what was spent just now.
        let latest_us = if ago_us == 0 { u64::MAX } else { now_us.saturating_sub(ago_us) };
        let head = self.logs[log as usize].head;
        let spent: u64 =
            self.chain(head).take_while(|&(at_us, _)| at_us <= latest_us).map(|(_, cost)| cost).sum();
        let (mut keep, mut tail, mut at) = (spent.saturating_sub(cost), NIL, head);
        self.logs[log as usize].sum -= spent - keep;
        while let Some(&Entry { at_us, cost, next }) = self.entries.get(at as usize) {
            if at_us <= latest_us {
                let stays = keep.min(u64::from(cost));
                keep -= stays;
                self.entries[at as usize].cost = u32::try_from(stays).unwrap_or(u32::MAX);
            }
            if self.entries[at as usize].cost == 0 {
                match self.entries.get_mut(tail as usize) {
                    Some(previous) => previous.next = next,
                    None => self.logs[log as usize].head = next,
                }
                self.free_entry(at);
            } else {
                tail = at;
            }
            at = next;
        }
        self.logs[log as usize].tail = tail;
        if tail == NIL {
            self.close(log);
        }
    }

    /// Forgets the key.
    pub(super) fn reset(&mut self, hash: u64) {
        if let Some(&log) = self.index.get(&hash) {
            self.close(log);
        }
    }

    /// Units that would pass now.
    pub(super) fn remaining(&mut self, hash: u64, rule: &SlidingLog, now_us: u64) -> u64 {
        let Some(log) = self.current(hash, now_us) else { return rule.limit() };
        rule.limit().saturating_sub(self.logs[log as usize].sum)
    }

    /// The units that are counted, if any are.
    pub(super) fn used(&mut self, hash: u64, now_us: u64) -> Option<u64> {
        self.current(hash, now_us).map(|log| self.logs[log as usize].sum)
    }

    /// Microseconds until the log is empty.
    pub(super) fn reset_after_us(&mut self, hash: u64, now_us: u64) -> u64 {
        self.current(hash, now_us).map_or(0, |log| self.until_us(log).saturating_sub(now_us))
    }

    /// The key's log without the entries that are over; none if nothing is left.
    fn current(&mut self, hash: u64, now_us: u64) -> Option<u32> {
        let log = *self.index.get(&hash)?;
        self.drop_over(log, now_us).then_some(log)
    }

    /// Frees the entries that are over, and the log if none is left. Says whether one is.
    fn drop_over(&mut self, log: u32, now_us: u64) -> bool {
        let Log { period_us, mut head, mut sum, .. } = self.logs[log as usize];
        while let Some(&Entry { at_us, cost, next }) = self.entries.get(head as usize) {
            if at_us.saturating_add(period_us) > now_us {
                break;
            }
            sum -= u64::from(cost);
            self.free_entry(head);
            head = next;
        }
        (self.logs[log as usize].head, self.logs[log as usize].sum) = (head, sum);
        if head == NIL {
            self.close(log);
        }
        head != NIL
    }

    fn chain(&self, mut at: u32) -> impl Iterator<Item = (u64, u64)> {
        std::iter::from_fn(move || {
            let entry = self.entries.get(at as usize)?;
            at = entry.next;
            Some((entry.at_us, u64::from(entry.cost)))
        })
    }

    fn until_us(&self, log: u32) -> u64 {
        let log = &self.logs[log as usize];
        self.entries.get(log.tail as usize).map_or(0, |entry| entry.at_us.saturating_add(log.period_us))
    }

    fn open(&mut self, hash: u64, rule: &SlidingLog, now_us: u64) -> u32 {
        while self.free_log == NIL {
            self.make_room(NIL, now_us);
        }
        let log = self.free_log;
        self.free_log = self.logs[log as usize].head;
        self.logs[log as usize] =
            Log { hash, period_us: rule.period_us().get(), limit: rule.limit(), ..FREE };
        self.index.insert(hash, log);
        log
    }

    fn append(&mut self, log: u32, at_us: u64, cost: u32, now_us: u64) {
        while self.free_entry == NIL {
            self.make_room(log, now_us);
        }
        let entry = self.free_entry;
        self.free_entry = self.entries[entry as usize].next;
        self.entries[entry as usize] = Entry { at_us, cost, next: NIL };
        let tail = std::mem::replace(&mut self.logs[log as usize].tail, entry);
        match self.entries.get_mut(tail as usize) {
            Some(previous) => previous.next = entry,
            None => self.logs[log as usize].head = entry,
        }
        self.logs[log as usize].sum += u64::from(cost);
    }

    fn free_entry(&mut self, entry: u32) {
        self.entries[entry as usize].next = self.free_entry;
        self.free_entry = entry;
    }

    fn free_entries(&mut self, mut at: u32) {
        while let Some(&Entry { next, .. }) = self.entries.get(at as usize) {
            self.free_entry(at);
            at = next;
        }
    }

    fn close(&mut self, log: u32) {
        let Log { hash, head, .. } = self.logs[log as usize];
        self.free_entries(head);
        self.index.remove(&hash);
        self.logs[log as usize] = Log { head: self.free_log, ..FREE };
        self.free_log = log;
    }

    /// A log that is in use has a tail, but for the one that is just being opened.
    fn next_in_use(&mut self) -> Option<u32> {
        self.hand = (self.hand + 1) % self.logs.len();
        (self.logs[self.hand].tail != NIL).then(|| link(self.hand))
    }

    fn tidy(&mut self, now_us: u64) {
        for _ in 0..TIDIED_PER_SPEND {
            if let Some(log) = self.next_in_use() {
                self.drop_over(log, now_us);
            }
        }
    }

    /// Frees the least indebted log among the next few that are in use, `spared` aside. The caller repeats it
    /// until it has what it lacks; a single full log cannot lack anything, for `Logs::longest` bounds its length.
    fn make_room(&mut self, spared: u32, now_us: u64) {
        let mut least: Option<((u64, u64), u32)> = None;
        let mut seen = 0;
        for _ in 0..self.logs.len() {
            let Some(log) = self.next_in_use().filter(|&log| log != spared) else { continue };
            if !self.drop_over(log, now_us) {
                return;
            }
            let Log { sum, limit, .. } = self.logs[log as usize];
            let debt = (fullness(sum, limit), self.until_us(log));
            if least.is_none_or(|(smallest, _)| debt < smallest) {
                least = Some((debt, log));
            }
            seen += 1;
            if seen == CANDIDATES {
                break;
            }
        }
        match least {
            Some((_, log)) => self.close(log),
            // Only a debt can make one log outgrow its shard: it gives up its own oldest entry.
            None => self.drop_oldest(spared),
        }
        self.evictions += 1;
    }

    fn drop_oldest(&mut self, log: u32) {
        let head = self.logs[log as usize].head;
        let Some(&Entry { cost, next, .. }) = self.entries.get(head as usize) else { return };
        self.logs[log as usize].sum -= u64::from(cost);
        self.logs[log as usize].head = next;
        if next == NIL {
            self.logs[log as usize].tail = NIL;
        }
        self.free_entry(head);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::Rule;
    use crate::{Algorithm, Quota};

    fn rule(limit: u64, period: Duration) -> SlidingLog {
        match Rule::new(Algorithm::SlidingLog, Quota::new(limit, period)) {
            Ok(Rule::SlidingLog(rule)) => rule,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_refund_takes_the_newest_entries() {
        let (mut shard, rule) = (Shard::new(4, 8), rule(10, Duration::from_micros(100)));
        for (at, cost) in [(1, 3), (2, 3), (3, 3)] {
            shard.spend(9, &rule, at, at, cost);
        }
        shard.refund(9, 3, 0, 4);
        let left: Vec<_> = shard.chain(shard.logs[shard.index[&9] as usize].head).collect();
        assert_eq!(left, [(1, 3), (2, 2)]);
        assert_eq!(shard.remaining(9, &rule, 3), 5);
        shard.refund(9, 3, 2, 1); // spent at 1
        assert_eq!(
            shard.chain(shard.logs[shard.index[&9] as usize].head).collect::<Vec<_>>(),
            [(1, 2), (2, 2)]
        );
        shard.refund(9, 3, 0, 99);
        assert_eq!((shard.remaining(9, &rule, 3), shard.index.len()), (10, 0));
    }

    #[test]
    fn a_full_shard_keeps_its_size_and_its_heavy_debtors() {
        let (mut shard, rule) = (Shard::new(8, 16), rule(16, Duration::from_micros(1_000)));
        for at in 1..=8 {
            shard.spend(1, &rule, at, 500 + at, 2);
        }
        for flood in 2..10_000_u64 {
            shard.spend(flood, &rule, 10, 10, 1);
            assert!(shard.index.len() <= 8);
        }
        assert_eq!(shard.remaining(1, &rule, 600), 0, "the debtor is still remembered");
        assert!(shard.evictions > 9_000);
        // Long after, every entry is free again.
        shard.spend(1, &rule, 1_000_000, 1_000_000, 1);
        for _ in 0..20 {
            shard.tidy(1_000_000);
        }
        let mut free = 0;
        let mut at = shard.free_entry;
        while let Some(entry) = shard.entries.get(at as usize) {
            (free, at) = (free + 1, entry.next);
        }
        assert_eq!((free, shard.index.len()), (15, 1));
    }
}
