//! Turns that are out: what was spent before them does not come back while they are.
//!
//! Kept for all keys of a bucket together, in three words. That is coarse: a request that
//! waits for another limit, or in a queue, stops the refunds of other keys for as long as it waits.
//! It errs to the safe side and costs nothing where no policy waits.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::algorithm::{Rule, State};

/// How far ahead turns of any key of a bucket were given out.
///
/// A level drains to nothing at most, and a window knows nothing of the one before. Units that a request gives back leave a hole
/// before the turns that were given out when it was there; given to a request that came after them, it would let that one
/// go at the time of the last.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The latest turn that waits for this bucket: until then, the bucket is more than full.
    own_us: AtomicU64,
    /// The latest one that waits for another bucket, or in a queue: until then, it may be anything.
    other_us: AtomicU64,
    /// The latest departure of all, of those that only hold units, too.
    latest_us: AtomicU64,
}

impl Ahead {
    /// Notes a turn of a key in this state.
    pub(super) fn add(&self, rule: &Rule, state: State, now_us: u64, at_us: u64, cost: u64) {
        let is_own = !rule.is_queue() && rule.slot(state, now_us, cost).departs_us >= at_us;
        let turns = if is_own { &self.own_us } else { &self.other_us };
        // Relaxed, as below: whoever has seen the state of the key has had the lock of its set.
        turns.fetch_max(at_us, Ordering::Relaxed);
        self.note(at_us);
    }

    /// Notes a departure.
    pub(super) fn note(&self, at_us: u64) {
        self.latest_us.fetch_max(at_us, Ordering::Relaxed);
    }

    /// The latest departure of any key.
    pub(super) fn latest_us(&self) -> u64 {
        self.latest_us.load(Ordering::Relaxed)
    }

    /// Notes the turns of a bucket whose keys this one inherits.
    pub(super) fn inherit(&self, from: &Self) {
        self.other_us.fetch_max(from.latest_us(), Ordering::Relaxed);
        self.note(from.latest_us());
    }

    /// Whether a turn of a key in this state may be out that was reckoned with what is given back.
    pub(super) fn may_depend(&self, rule: &Rule, state: State, now_us: u64) -> bool {
        let waits_here = || rule.outstanding(state, now_us) > rule.capacity();
        self.other_us.load(Ordering::Relaxed) > now_us
            || self.own_us.load(Ordering::Relaxed) > now_us && waits_here()
    }
}
