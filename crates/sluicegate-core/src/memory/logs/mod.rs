//! The bounded home of sliding logs.

mod room;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::holds::{Hold, Identity};
use crate::algorithm::{SlidingLog, Slot};
use crate::policy::OnFull;

/// The sliding logs of a quota's keys, in shards with a fixed number of keys and of entries each.
///
/// Keys whose entries are all over are taken out a few at a time as others spend. When a shard is full, the
/// least indebted among a few makes room; they are drawn at random, so that no order of arrival chooses them.
pub(super) struct Logs {
    shards: Box<[Mutex<Shard>]>,
}

const SHARDS: usize = 16;

/// Logs that a spend looks at beside its own, to find those that are over.
const TIDIED_PER_SPEND: usize = 2;

/// Logs among which the least indebted is chosen when a shard is full.
const CANDIDATES: usize = 16;

/// Keys of a shard that share what one of them leaves.
const HEIRS: usize = 8;

const NIL: u32 = u32::MAX;

impl Logs {
    /// Room for so many keys and entries. `seed` chooses at random which keys are looked at when there is no room.
    pub(super) fn new(
        rule: SlidingLog,
        (keys, entries): (usize, usize),
        on_full: OnFull,
        seed: u64,
        evictions: &Arc<AtomicU64>,
    ) -> Self {
        let room = (keys.div_ceil(SHARDS), entries.div_ceil(SHARDS));
        let shard = |number: u64| {
            Mutex::new(Shard::new(rule, room, on_full, seed.wrapping_add(number), Arc::clone(evictions)))
        };
        Self { shards: (0..SHARDS as u64).map(shard).collect() }
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

    pub(super) fn in_use(&self, now_us: u64) -> usize {
        (0..SHARDS).map(|shard| self.lock(shard).in_use(now_us)).sum()
    }
}

pub(super) struct Shard {
    rule: SlidingLog,
    /// Where a key's log is.
    index: HashMap<u64, u32, BuildHasherDefault<Identity>>,
    /// Without gaps, so that one is drawn at random in one step.
    logs: Vec<Log>,
    most_logs: usize,
    entries: Vec<Entry>,
    most_entries: usize,
    free_entry: u32,
    hand: usize,
    random: u64,
    births: u32,
    /// What logs that made room have left to others, by the hash; empty if they are forgotten.
    left: Box<[(u64, u64)]>,
    evictions: Arc<AtomicU64>,
}

/// One key's log: a chain of entries, oldest first.
#[derive(Clone, Copy)]
struct Log {
    hash: u64,
    sum: u64,
    head: u32,
    tail: u32,
    birth: u32,
}

/// Units that were admitted at one moment. A free entry links to the next free one.
#[derive(Clone, Copy)]
struct Entry {
    at_us: u64,
    cost: u32,
    next: u32,
}

/// Where the units of a spend are to be found again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entered {
    pub(super) at_us: u64,
    /// Which log of the key: another one after it was empty, or was forgotten.
    pub(super) birth: u32,
}

#[expect(clippy::cast_possible_truncation, reason = "`Shard::new` bounds all positions below u32::MAX")]
fn link(position: usize) -> u32 {
    position as u32
}

fn narrow(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}

impl Shard {
    fn new(
        rule: SlidingLog,
        (keys, entries): (usize, usize),
        on_full: OnFull,
        seed: u64,
        evictions: Arc<AtomicU64>,
    ) -> Self {
        let [keys, entries] = [keys, entries].map(|room| room.clamp(1, NIL as usize - 1));
        let inherited = if on_full == OnFull::Inherit { keys.div_ceil(HEIRS) } else { 0 };
        Self {
            rule,
            // The room is taken now; its pages are touched as they are needed.
            index: HashMap::with_capacity_and_hasher(keys, BuildHasherDefault::default()),
            logs: Vec::with_capacity(keys),
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

    /// How many logs hold an entry that is not over.
    fn in_use(&self, now_us: u64) -> usize {
        self.logs.iter().filter(|log| self.until_us(log) > now_us).count()
    }

    /// When `cost` would pass if nothing else arrived, beside what is held.
    pub(super) fn slot(&mut self, hash: u64, held: &[Hold], now_us: u64, cost: u64) -> Slot {
        let (head, sum, inherited) = match self.current(hash, now_us) {
            Some(log) => (self.logs[log].head, self.logs[log].sum, None),
            None => (NIL, 0, self.inherited(hash, now_us)),
        };
        let sum = inherited.map_or(sum, |(_, cost)| cost);
        // What is held counts from now on, and until a period after its departure: as a turn does.
        let mut turns = held.iter().map(|hold| (hold.until_us, hold.units)).peekable();
        let mut entries = inherited.into_iter().chain(self.chain(head)).peekable();
        let all = std::iter::from_fn(|| match (entries.peek(), turns.peek()) {
            (Some((entry_us, _)), Some((turn_us, _))) if turn_us < entry_us => turns.next(),
            (None, _) => turns.next(),
            _ => entries.next(),
        });
        self.rule.slot(all, sum.saturating_add(super::holds::units(held)), now_us, cost)
    }

    /// Enters `cost` as admitted at `at_us`, after what the key inherits, and says where.
    pub(super) fn spend(&mut self, hash: u64, now_us: u64, at_us: u64, cost: u64) -> Entered {
        if cost == 0 {
            return Entered::default();
        }
        self.tidy(now_us);
        if !self.knows(hash, now_us)
            && let Some((left_us, left)) = self.inherited(hash, now_us)
        {
            self.enter(hash, now_us, left_us, left);
        }
        self.enter(hash, now_us, at_us, cost)
    }

    fn enter(&mut self, hash: u64, now_us: u64, at_us: u64, cost: u64) -> Entered {
        let cost = narrow(cost);
        let log = match self.current(hash, now_us) {
            Some(log) => log,
            None => self.open(hash, now_us),
        };
        let Log { tail, birth, .. } = self.logs[log];
        // Neither a clock that is a little behind another thread's nor a turn given out ahead may unsort the log; an entry
        // that is moved up counts a little longer for it.
        let newest = self.entries.get(tail as usize).copied();
        let at_us = at_us.max(newest.map_or(0, |entry| entry.at_us));
        match newest {
            Some(entry) if entry.at_us == at_us => {
                self.entries[tail as usize].cost = entry.cost.saturating_add(cost);
                self.logs[log].sum += u64::from(entry.cost.saturating_add(cost) - entry.cost);
            }
            _ => self.append(hash, at_us, cost, now_us),
        }
        Entered { at_us, birth }
    }

    /// Gives back `cost` that was spent `ago_us` before, from the newest entry of that time on; if that is not known, from
    /// the newest one. Walks the log.
    pub(super) fn refund(&mut self, hash: u64, now_us: u64, ago_us: Option<u64>, cost: u64) {
        let Some(log) = self.current(hash, now_us) else { return };
        // Turns that have not come yet are among what was spent just now.
        let latest_us = ago_us.map_or(u64::MAX, |ago_us| now_us.saturating_sub(ago_us));
        let spent: u64 = self
            .chain(self.logs[log].head)
            .take_while(|&(at_us, _)| at_us <= latest_us)
            .map(|(_, cost)| cost)
            .sum();
        let mut keep = spent.saturating_sub(cost);
        self.thin(log, |at_us, cost| {
            if at_us > latest_us {
                return cost;
            }
            let stays = keep.min(cost);
            keep -= stays;
            stays
        });
    }

    /// The units of that entry which are still there; none if it is over, or the key was forgotten since.
    pub(super) fn entered(&mut self, hash: u64, entered: Entered, now_us: u64) -> u64 {
        let Some(log) = self.current(hash, now_us) else { return 0 };
        if self.logs[log].birth != entered.birth {
            return 0;
        }
        let found = self.chain(self.logs[log].head).find(|&(at_us, _)| at_us == entered.at_us);
        found.map_or(0, |(_, cost)| cost)
    }

    /// Gives back up to `cost` units of one entry.
    pub(super) fn give_back(&mut self, hash: u64, entered: Entered, cost: u64, now_us: u64) {
        if self.entered(hash, entered, now_us) == 0 {
            return;
        }
        if let Some(log) = self.current(hash, now_us) {
            self.thin(
                log,
                |at_us, units| {
                    if at_us == entered.at_us { units.saturating_sub(cost) } else { units }
                },
            );
        }
    }

    /// Leaves of each entry, from the oldest on, so many units as `keep` says.
    fn thin(&mut self, log: usize, mut keep: impl FnMut(u64, u64) -> u64) {
        let (mut at, mut tail) = (self.logs[log].head, NIL);
        while let Some(&Entry { at_us, cost, next }) = self.entries.get(at as usize) {
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
    pub(super) fn reset(&mut self, hash: u64) {
        if let Some(&log) = self.index.get(&hash) {
            self.close(log as usize);
        }
    }

    /// The units that are counted.
    pub(super) fn used(&mut self, hash: u64, now_us: u64) -> u64 {
        match self.current(hash, now_us) {
            Some(log) => self.logs[log].sum,
            None => self.inherited(hash, now_us).map_or(0, |(_, cost)| cost),
        }
    }

    /// Microseconds until the log is empty.
    pub(super) fn reset_after_us(&mut self, hash: u64, now_us: u64) -> u64 {
        let until_us = match self.current(hash, now_us) {
            Some(log) => self.until_us(&self.logs[log]),
            None => self.inherited(hash, now_us).map_or(0, |(at_us, _)| self.over_us(at_us)),
        };
        until_us.saturating_sub(now_us)
    }

    /// Whether the key has a log of its own.
    pub(super) fn knows(&mut self, hash: u64, now_us: u64) -> bool {
        self.current(hash, now_us).is_some()
    }

    /// The entries of a key's log, or the one that it would begin with.
    pub(super) fn entries(&mut self, hash: u64, now_us: u64) -> Vec<(u64, u64)> {
        let (entries, _) = self.copy(hash, now_us);
        if entries.is_empty() { self.inherited(hash, now_us).into_iter().collect() } else { entries }
    }

    /// The times and costs of a key's entries, oldest first, and which log it is.
    pub(super) fn copy(&mut self, hash: u64, now_us: u64) -> (Vec<(u64, u64)>, u32) {
        match self.current(hash, now_us) {
            Some(log) => (self.chain(self.logs[log].head).collect(), self.logs[log].birth),
            None => (Vec::new(), 0),
        }
    }

    /// The key's log as it was when it was copied.
    pub(super) fn restore(&mut self, hash: u64, (entries, birth): &(Vec<(u64, u64)>, u32), now_us: u64) {
        self.reset(hash);
        for &(at_us, cost) in entries {
            self.enter(hash, now_us, at_us, cost);
        }
        if let Some(&log) = self.index.get(&hash) {
            self.logs[log as usize].birth = *birth;
        }
    }

    /// The key's log without the entries that are over; none if nothing is left.
    fn current(&mut self, hash: u64, now_us: u64) -> Option<usize> {
        let log = *self.index.get(&hash)? as usize;
        self.drop_over(log, now_us).then_some(log)
    }

    /// Frees the entries that are over, and the log if none is left. Says whether one is.
    fn drop_over(&mut self, log: usize, now_us: u64) -> bool {
        let Log { mut head, mut sum, .. } = self.logs[log];
        while let Some(&Entry { at_us, cost, next }) = self.entries.get(head as usize) {
            if !self.rule.is_over(at_us, now_us) {
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

    fn drop_oldest(&mut self, log: usize) {
        let head = self.logs[log].head;
        let Some(&Entry { cost, next, .. }) = self.entries.get(head as usize) else { return };
        let log = &mut self.logs[log];
        match self.entries.get_mut(next as usize).filter(|_| !self.left.is_empty()) {
            // Where nothing is forgotten, it counts as long as the next one.
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
