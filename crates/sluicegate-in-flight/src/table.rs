//! A fixed number of permits for each key in this process, and the queue for them: [`PermitTable`].
//!
//! One lock for each of 64 parts. A key's permits, its queue and the change of their number are all
//! decided under the lock of its part, and wakers are called after it is released: a waker may
//! drop a permit, which takes the lock. A [`QueuePlace`] has a lock of its own, taken inside the part's.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use foldhash::quality::RandomState;
use sluicegate_core::key::Key;
use sluicegate_core::support::lock;

use crate::pool::{
    FixedPermits, Move, NoPermitKind, PermitAsk, PermitPool, PermitRecord, PermitReply, QueuePlace, Seat,
    Wakers,
};

/// Keys with permits in use, in parts that are locked separately. A key's part is chosen by a seeded hash.
pub(super) struct PermitTable {
    /// The permits of each key.
    number: AtomicU64,
    parts: Box<[Mutex<TablePart>]>,
    seed: RandomState,
    /// As built: its number may have changed since.
    fixed: FixedPermits,
    waiting: AtomicUsize,
}

type TablePart = HashMap<Key, KeyPermits, RandomState>;

/// Permits held for one key, and the queue for them. Keys without permits in use are removed. Requests
/// wait only while all permits are taken, except for the moment in which a higher number is passed
/// on.
#[derive(Default)]
struct KeyPermits {
    in_use: u64,
    queue: VecDeque<Arc<QueuePlace>>,
}

const PARTS: usize = 64;
/// An empty part frees its memory if it has had more keys than this.
const KEPT: usize = 16;

impl PermitTable {
    pub(super) fn new(fixed: FixedPermits) -> Self {
        Self {
            number: AtomicU64::new(fixed.number),
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            seed: RandomState::default(),
            fixed,
            waiting: AtomicUsize::new(0),
        }
    }

    /// Puts a permit back.
    ///
    /// The first request in the queue gets it under the same lock, so that no other can take it in
    /// between.
    fn put_back_one(&self, key: &Key) {
        let mut part = self.lock(key);
        let Some(held) = part.get_mut(key) else { return };
        held.in_use -= 1;
        let woken = self.serve(held, self.number.load(Ordering::Relaxed));
        if held.in_use == 0 {
            part.remove(key);
            if part.is_empty() && part.capacity() > KEPT {
                *part = TablePart::default();
            }
        }
        drop(part);
        // Outside of the lock: a waker may take it.
        woken.into_iter().for_each(Waker::wake);
    }

    /// Gives free permits to waiting requests after a change of the number.
    fn pass_on(&self) {
        for part in &self.parts {
            let mut woken = Wakers::new();
            for held in lock(part).values_mut() {
                woken.extend(self.serve(held, self.number.load(Ordering::Relaxed)));
            }
            woken.into_iter().for_each(Waker::wake);
        }
    }

    /// Gives free permits to the first requests in the queue; returns the wakers to call.
    fn serve(&self, held: &mut KeyPermits, permits: u64) -> Wakers {
        let mut woken = Wakers::new();
        while held.in_use < permits
            && let Some(next) = held.queue.pop_front()
        {
            held.in_use += 1;
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            woken.extend(next.give());
        }
        woken
    }

    /// The number of keys that fit without growing, in parts that had more than a few.
    #[cfg(test)]
    fn room(&self) -> usize {
        self.parts.iter().map(|part| lock(part).capacity()).filter(|room| *room > KEPT).sum()
    }

    fn lock(&self, key: &Key) -> MutexGuard<'_, TablePart> {
        // The map hashes with a seed of its own, so keys of one part do not share its places.
        let hash = self.seed.hash_one(key.as_bytes());
        lock(&self.parts[usize::try_from(hash % PARTS as u64).unwrap_or(0)])
    }
}

impl PermitPool for PermitTable {
    fn ask(&self, ask: &PermitAsk<'_>) -> PermitReply {
        let mut part = self.lock(ask.key);
        // Under the lock: a change of the number visits this part afterwards.
        let permits = self.number.load(Ordering::Relaxed);
        let held = part.entry(ask.key.clone()).or_default();
        // If the number was raised just now, waiting requests may not have their permits yet.
        if held.in_use < permits && held.queue.is_empty() {
            held.in_use += 1;
            return PermitReply::Taken(PermitRecord::default());
        }
        if !ask.waits {
            return PermitReply::Full(NoPermitKind::Permits);
        }
        // Relaxed: only the number counts, and one operation both checks and changes it.
        let in_all = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
            (waiting < self.fixed.queue_in_all && held.queue.len() < self.fixed.queue).then_some(waiting + 1)
        });
        if in_all.is_err() {
            return PermitReply::Full(NoPermitKind::Queue);
        }
        let seat = Seat::default();
        held.queue.push_back(Arc::clone(&seat.place));
        PermitReply::Waiting(seat, None)
    }

    fn put_back(&self, key: &Key, _: &PermitRecord, _: bool) -> Move {
        self.put_back_one(key);
        Move::default()
    }

    fn give_up(&self, key: &Key, seat: &Seat, _: bool) {
        let mut part = self.lock(key);
        // Under the lock of the part, so that it is not given a permit after this.
        if seat.place.end() {
            drop(part);
            return self.put_back_one(key);
        }
        let Some(held) = part.get_mut(key) else { return };
        if let Some(position) = held.queue.iter().position(|other| Arc::ptr_eq(other, &seat.place)) {
            held.queue.remove(position);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    fn set_number(&self, permits: u64) -> Result<(), &'static str> {
        // Relaxed: decisions load it under the lock of a part, and `pass_on` visits each part after this.
        self.number.store(permits, Ordering::Relaxed);
        self.pass_on();
        Ok(())
    }

    fn in_use(&self, key: &Key) -> u64 {
        self.lock(key).get(key).map_or(0, |held| held.in_use)
    }

    fn in_use_in_all(&self) -> u64 {
        self.parts.iter().map(|part| lock(part).values().map(|held| held.in_use).sum::<u64>()).sum()
    }

    fn keys(&self) -> usize {
        self.parts.iter().map(|part| lock(part).len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: FixedPermits = FixedPermits { number: 1, queue: 10, queue_in_all: 10 };

    fn ask(table: &PermitTable, key: &Key, waits: bool) -> PermitReply {
        table.ask(&PermitAsk { key, class: crate::Class::default(), weight: 1, waits })
    }

    fn wait(table: &PermitTable, key: &Key) -> Seat {
        match ask(table, key, true) {
            PermitReply::Waiting(seat, _) => seat,
            _ => unreachable!("all permits are out, or others wait"),
        }
    }

    /// Between the increase of the permits and the moment at which waiting requests get them.
    #[test]
    fn nobody_overtakes_those_who_wait_when_there_are_more_permits() {
        let (table, ada) = (PermitTable::new(BOUNDS), Key::from("ada"));
        assert!(matches!(ask(&table, &ada, true), PermitReply::Taken(_)));
        let waiting = wait(&table, &ada);
        table.number.store(2, Ordering::Relaxed);
        assert!(matches!(ask(&table, &ada, false), PermitReply::Full(NoPermitKind::Permits)));
        let behind = wait(&table, &ada);
        table.pass_on();
        assert_eq!(table.in_use(&ada), 2);
        table.give_up(&ada, &waiting, false);
        assert_eq!(table.in_use(&ada), 2, "the next in the queue has it");
        table.give_up(&ada, &behind, false);
        assert_eq!(table.in_use(&ada), 1);
    }

    #[test]
    fn keys_without_permits_out_take_no_room() {
        let table = PermitTable::new(FixedPermits { number: 3, ..BOUNDS });
        let keys: Vec<_> = (0..1_000_u64).map(Key::from).collect();
        assert!(keys.iter().all(|key| matches!(ask(&table, key, false), PermitReply::Taken(_))));
        assert_eq!((table.keys(), table.remaining(&keys[7])), (1_000, 2));
        keys.iter().for_each(|key| _ = table.put_back(key, &PermitRecord::default(), true));
        assert_eq!((table.keys(), table.remaining(&keys[7]), table.room()), (0, 3, 0));
    }
}
