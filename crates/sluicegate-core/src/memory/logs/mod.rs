//! Bounded storage of sliding logs.
//!
//! A log is a chain of entries, and all logs of a quota take their entries from shards of fixed
//! size. One lock guards a shard with its logs, its entries and its free list; a decision holds it
//! while it walks one chain. An entry that is over is freed by the next request of its key, and two
//! other logs are tidied at each spend, so that keys that never return free their room as well.
//!
//! A single log may fill a sixteenth of the entries, the size of its shard. So one key cannot push
//! out more than its own shard, and floods are treated as in tables: of 16 logs drawn at
//! random, the least indebted makes room.
//!
//! Entries and logs are taken from the room of a shard, and the least indebted log makes room when it is full.

mod shard;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

pub(super) use self::shard::{EntryRef, LogCopy, Shard};
use self::shard::{Log, LogSpan, LogUnits, NIL, link};
use crate::algorithm::SlidingLog;
use crate::policy::OnFull;
use crate::support::lock;

/// The sliding logs of a quota's keys, in shards with a fixed number of keys and of entries each.
///
/// Keys with only expired entries are removed a few at a time as others spend. When a shard is full, the
/// least indebted among a few makes room; they are drawn at random, so that the order of arrival does not select them.
pub(super) struct Logs {
    shards: Box<[Mutex<Shard>]>,
}

const SHARDS: usize = 16;

impl Logs {
    /// Room for this many keys and entries. `seed` selects at random the candidates for eviction.
    pub(super) fn new(
        rule: SlidingLog,
        (keys, entries): (usize, usize),
        (on_full, takes_quotas): (OnFull, bool),
        seed: u64,
        evictions: &Arc<AtomicU64>,
    ) -> Self {
        let room = (keys.div_ceil(SHARDS), entries.div_ceil(SHARDS));
        let shard = |number: u64| {
            Mutex::new(Shard::new(
                rule,
                room,
                (on_full, takes_quotas),
                seed.wrapping_add(number),
                Arc::clone(evictions),
            ))
        };
        Self { shards: (0..SHARDS as u64).map(shard).collect() }
    }

    /// The longest log that a store of `entries` entries can hold.
    pub(super) fn longest(entries: usize) -> usize {
        entries.div_ceil(SHARDS)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a remainder by 16")]
    pub(super) fn shard_of(hash: u64) -> usize {
        (hash % SHARDS as u64) as usize
    }

    pub(super) fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        // The code of a shard does not panic; after a panic, its numbers would still be usable.
        lock(&self.shards[shard])
    }

    pub(super) fn in_use(&self, now_us: u64) -> usize {
        (0..SHARDS).map(|shard| self.lock(shard).in_use(now_us)).sum()
    }
}

/// The number of other logs that a spend checks for expired entries.
const TIDIED_PER_SPEND: usize = 2;

/// The time for which expired logs are kept: if the clock is set back a little, they are found again.
const TIDIED_AFTER_US: u64 = 60_000_000;

/// The number of logs from which the least indebted is chosen when a shard is full: all of them, if there are no more.
const CANDIDATES: usize = 16;

impl Shard {
    /// The entry with which the log of an unknown key begins: all units left to it, at the time of the newest.
    fn inherited(&self, hash: u64, now_us: u64) -> Option<(u64, u64)> {
        let left = *self.left.get(self.heirs_of(hash))?;
        (left.1 > 0 && !self.rule.is_over(left.0, now_us)).then_some(left)
    }

    /// Leaves the units of a log that makes room to the keys that share its place.
    fn leave(&mut self, log: usize, now_us: u64) {
        let Log { hash, sum, tail, .. } = self.logs[log];
        let newest_us = self.entries.get(tail as usize).map_or(0, |entry| entry.at_us);
        let (before_us, before) = self.inherited(hash, now_us).unwrap_or_default();
        let heirs = self.heirs_of(hash);
        if let Some(left) = self.left.get_mut(heirs) {
            *left = (newest_us.max(before_us), sum.max(before));
        }
    }

    /// The place that a key shares with others: each of them inherits the units that another leaves.
    fn heirs_of(&self, hash: u64) -> usize {
        (((hash >> 32) * self.left.len() as u64) >> 32) as usize
    }

    fn chain(&self, mut at: u32) -> impl Iterator<Item = (u64, u64)> {
        std::iter::from_fn(move || {
            let entry = self.entries.get(at as usize)?;
            at = entry.next;
            Some((entry.at_us, u64::from(entry.cost)))
        })
    }

    /// When the last entry of a log is over.
    fn until_us(&self, log: usize, now_us: u64) -> u64 {
        self.newest_us(log).saturating_add(self.period_us(log, now_us))
    }

    /// The time of the last entry of a log.
    fn newest_us(&self, log: usize) -> u64 {
        self.newest(log).map_or(0, |(at_us, _)| at_us)
    }

    /// The time and cost of the last entry of a log.
    fn newest(&self, log: usize) -> Option<(u64, u64)> {
        let entry = self.entries.get(self.logs[log].tail as usize)?;
        Some((entry.at_us, entry.cost.into()))
    }

    /// The time for which the entries of a log are kept, in microseconds.
    fn period_us(&self, log: usize, now_us: u64) -> u64 {
        self.spans.get(log).map_or_else(|| self.rule.period_us().get(), |span| span.at(now_us))
    }

    fn over_us(&self, at_us: u64) -> u64 {
        at_us.saturating_add(self.rule.period_us().get())
    }

    /// Begins the log of a key without one, and makes room for it first. Its birth number distinguishes
    /// it from earlier logs of the same key: their receipts give nothing back here.
    fn open(&mut self, hash: u64, now_us: u64) -> usize {
        while self.logs.len() >= self.most_logs {
            self.make_room(None, now_us);
        }
        self.births = self.births.wrapping_add(1);
        self.index.insert(hash, link(self.logs.len()));
        self.logs.push(Log { hash, sum: 0, head: NIL, tail: NIL, birth: self.births });
        if self.takes_quotas {
            self.spans.push(LogSpan::default());
        }
        self.logs.len() - 1
    }

    /// Adds an entry to a log, and returns the log's new position.
    fn append(&mut self, mut log: usize, at_us: u64, cost: u32, now_us: u64) -> usize {
        while self.free_entry == NIL && self.entries.len() >= self.most_entries {
            let hash = self.logs[log].hash;
            self.make_room(Some(hash), now_us);
            // Another log that made room may have moved it.
            log = self.index.get(&hash).map_or(log, |log| *log as usize);
        }
        let entry = LogUnits { at_us, cost, next: NIL };
        let place = match self.entries.get_mut(self.free_entry as usize) {
            Some(free) => {
                let place = self.free_entry;
                self.free_entry = free.next;
                *free = entry;
                place
            }
            None => {
                self.entries.push(entry);
                link(self.entries.len() - 1)
            }
        };
        let own = &mut self.logs[log];
        match self.entries.get_mut(own.tail as usize) {
            Some(previous) => previous.next = place,
            None => own.head = place,
        }
        own.tail = place;
        own.sum += u64::from(cost);
        log
    }

    fn free_entry(&mut self, entry: u32) {
        self.entries[entry as usize].next = self.free_entry;
        self.free_entry = entry;
    }

    /// Frees a log with its entries. The last log takes its place, so positions of logs do not
    /// survive this call.
    fn close(&mut self, log: usize) {
        let Log { hash, mut head, .. } = self.logs[log];
        while let Some(&LogUnits { next, .. }) = self.entries.get(head as usize) {
            self.free_entry(head);
            head = next;
        }
        self.index.remove(&hash);
        self.logs.swap_remove(log);
        if self.takes_quotas {
            self.spans.swap_remove(log);
        }
        if let Some(moved) = self.logs.get(log) {
            self.index.insert(moved.hash, link(log));
        }
    }

    /// Looks at the next few logs and frees those that are over. Each log of a shard is visited in turn,
    /// without a background task.
    fn tidy(&mut self, now_us: u64) {
        let now_us = now_us.saturating_sub(TIDIED_AFTER_US);
        for _ in 0..TIDIED_PER_SPEND.min(self.logs.len()) {
            // Without a division; the first of the two may have been the last log.
            self.hand = if self.hand + 1 < self.logs.len() { self.hand + 1 } else { 0 };
            if self.hand < self.logs.len() {
                self.drop_over(self.hand, now_us);
            }
        }
    }

    /// Frees the least indebted of a few logs, one drawn at random from each of as many parts of the shard, but not `spared`. The caller repeats it until there is enough
    /// room; a single log never fills the shard, because `Logs::longest` bounds its length.
    fn make_room(&mut self, spared: Option<u64>, now_us: u64) {
        let spared = spared.and_then(|hash| self.index.get(&hash)).map(|log| *log as usize);
        let others = self.logs.len() - usize::from(spared.is_some());
        let mut least: Option<((u64, u64), usize)> = None;
        let candidates = CANDIDATES.min(others);
        for part in 0..candidates {
            let [from, to] = [part, part + 1].map(|part| part * others / candidates);
            let drawn = from + self.draw(to - from);
            let log = if spared.is_some_and(|spared| drawn >= spared) { drawn + 1 } else { drawn };
            if !self.drop_over(log, now_us) {
                return;
            }
            let debt = (self.logs[log].sum, self.until_us(log, now_us));
            if least.is_none_or(|(smallest, _)| debt < smallest) {
                least = Some((debt, log));
            }
        }
        match (least, spared) {
            (Some((_, log)), _) => {
                self.leave(log, now_us);
                self.close(log);
            }
            // Only a debt can make one log outgrow its shard: it gives up its own oldest entry.
            (None, Some(log)) => self.drop_oldest(log),
            (None, None) => {}
        }
        self.evictions.fetch_add(1, Ordering::Relaxed);
    }

    /// A number below `count`: xorshift, seeded so that clients cannot predict it.
    fn draw(&mut self, count: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (((self.random >> 32) * count as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests;
