//! Reserved turns: units that were spent before a turn do not come back until it has come.
//!
//! They are kept for all keys of a bucket together, in three words. That is coarse: a request that
//! waits for another limit, or in a queue, stops the refunds of other keys for as long as it waits.
//! It errs on the safe side, and costs nothing if no policy waits.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::algorithm::{Rule, State};

/// The latest turns that were reserved for any key of a bucket.
///
/// A level drains only to zero, and a window knows nothing of the window before. Units that a request gives back leave a gap
/// before the turns that were reserved after it; a new request that got the gap would proceed at the time of the last of these
/// turns.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The latest turn that waits for this bucket: until then, the bucket is more than full.
    own_us: AtomicU64,
    /// The latest turn that waits for another bucket, or in a queue: until then, this bucket may be at any level.
    other_us: AtomicU64,
}

impl Ahead {
    /// Notes a turn of a key in this state.
    pub(super) fn add(&self, rule: &Rule, state: State, now_us: u64, at_us: u64, cost: u64) {
        let is_own = !rule.is_queue() && rule.slot(state, now_us, cost).departs_us >= at_us;
        let turns = if is_own { &self.own_us } else { &self.other_us };
        // Relaxed, as below: a thread that has seen the state of the key has held the lock of its set.
        turns.fetch_max(at_us, Ordering::Relaxed);
    }

    /// The latest turn of any key.
    pub(super) fn latest_us(&self) -> u64 {
        self.own_us.load(Ordering::Relaxed).max(self.other_us.load(Ordering::Relaxed))
    }

    /// Notes the turns of a bucket whose keys this one inherits.
    pub(super) fn inherit(&self, from: &Self) {
        self.other_us.fetch_max(from.latest_us(), Ordering::Relaxed);
    }

    /// Whether a reserved turn of a key in this state may depend on the units to be given back.
    pub(super) fn may_depend(&self, rule: &Rule, state: State, now_us: u64) -> bool {
        let waits_here = || rule.outstanding(state, now_us) > rule.capacity();
        self.other_us.load(Ordering::Relaxed) > now_us
            || self.own_us.load(Ordering::Relaxed) > now_us && waits_here()
    }
}
