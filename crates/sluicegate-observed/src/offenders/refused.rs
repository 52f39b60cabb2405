//! The refused keys, counted by many threads at once: [`RefusedKeys`].

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

use sluicegate_core::key::KeyRef;

use super::cut::CutKey;
use super::in_turn::InTurn;
use crate::lock::lock;
use crate::thread::{self, PLACES};

/// The refusals that a thread keeps before it waits for the list.
const LATE: usize = 16;

/// The refused keys of a policy.
///
/// Each refusal may change any place of the list, so the list has one lock. In a flood threads would spend most of their time waiting for
/// it: a thread that finds it locked keeps this refusal and its next fifteen, and counts them together.
#[derive(Debug)]
pub(super) struct RefusedKeys {
    counted: Mutex<InTurn>,
    /// For each [place](thread::place) of threads; made when one first finds the list locked.
    late: OnceLock<Box<[LateRefusals; PLACES]>>,
}

/// Aligned, so that no cache line belongs to two places. Its lock is only taken under the lock of the list, or alone.
#[derive(Debug, Default)]
#[repr(align(64))]
struct LateRefusals(Mutex<Vec<LateRefusal>>);

#[derive(Debug)]
struct LateRefusal {
    digest: u64,
    key: CutKey,
    note: u64,
    at_us: u64,
}

impl RefusedKeys {
    /// An empty list, with room for this many keys.
    pub(super) fn new(room: usize) -> Self {
        Self { counted: Mutex::new(InTurn::new(room)), late: OnceLock::new() }
    }

    /// Counts a refusal of a key.
    pub(super) fn count(&self, key: KeyRef<'_>, note: u64, now_us: u64) {
        let digest = key.digest();
        let refusal = || LateRefusal { digest, key: CutKey::of(key), note, at_us: now_us };
        let own = self.late.get().map(|late| &late[thread::place()]);
        // All the room is used, so that threads meet less often.
        if own.is_some_and(|own| own.keep(1..LATE, refusal)) {
            return;
        }
        let has_kept = || self.late.get_or_init(Box::default)[thread::place()].keep(0..LATE, refusal);
        let mut counted = match self.counted.try_lock() {
            Ok(counted) => counted,
            Err(TryLockError::Poisoned(counted)) => counted.into_inner(),
            Err(TryLockError::WouldBlock) if has_kept() => return,
            Err(TryLockError::WouldBlock) => lock(&self.counted),
        };
        if let Some(own) = own {
            own.count_in(&mut counted, now_us);
        }
        counted.count(digest, || CutKey::of(key), note, now_us);
    }

    /// The list with all refusals so far.
    pub(super) fn counted(&self, now_us: u64) -> MutexGuard<'_, InTurn> {
        let mut counted = lock(&self.counted);
        for late in self.late.get().into_iter().flat_map(|late| late.iter()) {
            late.count_in(&mut counted, now_us);
        }
        counted
    }

    /// The key that is listed with this digest.
    pub(super) fn find(&self, digest: u64) -> Option<CutKey> {
        lock(&self.counted).find(digest).copied()
    }

    /// The memory that it takes on the heap, before any thread found the list locked.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        lock(&self.counted).bytes()
    }
}

impl LateRefusals {
    /// Keeps a refusal if this many are kept already; `false` if not.
    fn keep(&self, if_kept: Range<usize>, refusal: impl FnOnce() -> LateRefusal) -> bool {
        let mut late = lock(&self.0);
        let keeps = if_kept.contains(&late.len());
        if keeps {
            late.push(refusal());
        }
        keeps
    }

    fn count_in(&self, counted: &mut InTurn, now_us: u64) {
        for LateRefusal { digest, key, note, at_us } in lock(&self.0).drain(..) {
            counted.count_late(digest, key, note, (at_us, now_us));
        }
    }
}
