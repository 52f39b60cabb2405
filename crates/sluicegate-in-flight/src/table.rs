//! Permits held per key, and the queue for them.
//!
//! One lock for each of 64 parts. A key's permits, its queue and the change of their number are all
//! decided under the lock of its part, and wakers are called after it is released: a waker may
//! drop a permit, which takes the lock. A [`QueuePlace`] has a lock of its own, taken inside the part's.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use foldhash::quality::RandomState;
use sluicegate_core::key::{Key, KeyRef};
use smallvec::SmallVec;

use crate::NoPermitKind;
use crate::permit::{PermitOf, PermitReply, SeatOf};
use crate::place::QueuePlace;

/// Keys with permits in use, in parts that are locked separately. A key's part is chosen by a seeded hash.
pub(super) struct PermitTable {
    /// The permits of each key.
    pub(super) number: AtomicU64,
    parts: Box<[Mutex<TablePart>]>,
    seed: RandomState,
    queue: usize,
    queue_in_all: usize,
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
    pub(super) fn new(permits: u64, (queue, queue_in_all): (usize, usize)) -> Self {
        let parts = (0..PARTS).map(|_| Mutex::default()).collect();
        let (number, seed) = (AtomicU64::new(permits), RandomState::default());
        Self { number, parts, seed, queue, queue_in_all, waiting: AtomicUsize::new(0) }
    }

    /// Takes a permit, or waits for one if `waits`.
    pub(super) fn ask(&self, key: KeyRef<'_>, waits: bool) -> PermitReply {
        let key = key.to_key();
        let mut part = self.lock(&key);
        // Under the lock: a change of the number visits this part afterwards.
        let permits = self.number.load(Ordering::Relaxed);
        let held = part.entry(key).or_default();
        // If the number was raised just now, waiting requests may not have their permits yet.
        if held.in_use < permits && held.queue.is_empty() {
            held.in_use += 1;
            return PermitReply::Taken(PermitOf::Each);
        }
        if !waits {
            return PermitReply::Full(NoPermitKind::Permits);
        }
        // Relaxed: only the number counts, and one operation both checks and changes it.
        let in_all = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
            (waiting < self.queue_in_all && held.queue.len() < self.queue).then_some(waiting + 1)
        });
        if in_all.is_err() {
            return PermitReply::Full(NoPermitKind::Queue);
        }
        let place = Arc::<QueuePlace>::default();
        held.queue.push_back(Arc::clone(&place));
        PermitReply::Waiting(place, SeatOf::Each, None)
    }

    /// Puts a permit back.
    ///
    /// The first request in the queue gets it under the same lock, so that no other can take it in
    /// between.
    pub(super) fn leave(&self, key: KeyRef<'_>) {
        let key = key.to_key();
        let mut part = self.lock(&key);
        let Some(held) = part.get_mut(&key) else { return };
        held.in_use -= 1;
        let woken = self.serve(held, self.number.load(Ordering::Relaxed));
        if held.in_use == 0 {
            part.remove(&key);
            if part.is_empty() && part.capacity() > KEPT {
                *part = TablePart::default();
            }
        }
        drop(part);
        // Outside of the lock: a waker may take it.
        woken.into_iter().for_each(Waker::wake);
    }

    /// Gives free permits to waiting requests after a change of the number.
    pub(super) fn pass_on(&self) {
        for part in &self.parts {
            let mut woken: SmallVec<[Waker; 1]> = SmallVec::new();
            for held in lock(part).values_mut() {
                woken.extend(self.serve(held, self.number.load(Ordering::Relaxed)));
            }
            woken.into_iter().for_each(Waker::wake);
        }
    }

    /// Gives free permits to the first requests in the queue; returns the wakers to call.
    fn serve(&self, held: &mut KeyPermits, permits: u64) -> SmallVec<[Waker; 1]> {
        let mut woken = SmallVec::new();
        while held.in_use < permits
            && let Some(next) = held.queue.pop_front()
        {
            held.in_use += 1;
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            woken.extend(next.give());
        }
        woken
    }

    /// Leaves the queue, or passes on the permit that was given in the meantime.
    pub(super) fn give_up(&self, key: KeyRef<'_>, place: &Arc<QueuePlace>) {
        let key = key.to_key();
        let mut part = self.lock(&key);
        // Under the lock of the part, so that it is not given a permit after this.
        if place.end() {
            drop(part);
            return self.leave(key.as_ref());
        }
        let Some(held) = part.get_mut(&key) else { return };
        if let Some(position) = held.queue.iter().position(|other| Arc::ptr_eq(other, place)) {
            held.queue.remove(position);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn in_use(&self, key: KeyRef<'_>) -> u64 {
        let key = key.to_key();
        self.lock(&key).get(&key).map_or(0, |held| held.in_use)
    }

    pub(super) fn in_use_in_all(&self) -> u64 {
        self.parts.iter().map(|part| lock(part).values().map(|held| held.in_use).sum::<u64>()).sum()
    }

    pub(super) fn keys(&self) -> usize {
        self.parts.iter().map(|part| lock(part).len()).sum()
    }

    /// The number of keys that fit without growing, in parts that had more than a few.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.parts.iter().map(|part| lock(part).capacity()).filter(|room| *room > KEPT).sum()
    }

    fn lock(&self, key: &Key) -> MutexGuard<'_, TablePart> {
        // The map hashes with a seed of its own, so keys of one part do not share its places.
        let hash = self.seed.hash_one(key.as_bytes());
        lock(&self.parts[usize::try_from(hash % PARTS as u64).unwrap_or(0)])
    }
}

/// No code panics while it holds one of these locks, so the protected data is consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
