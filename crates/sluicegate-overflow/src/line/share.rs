//! The share of places whose visitors come when it is their turn: [`ArrivalShare`].
//!
//! # How it is measured
//! Ranks are grouped into blocks of a quarter of a second. The last 40 blocks that are old enough count, so the share follows within ten
//! seconds; a block is old enough when three more were called after it. A held visitor counts when it comes, not when it enters.
//!
//! # Rounding
//! The share is rounded down to 1024ths, so that the gate is too fast rather than too slow: a visitor that is called too early is held, and
//! a turn without a called visitor is lost.

use std::collections::VecDeque;

use crate::line::pace::WHOLE;

/// Counts the visitors that have come, by blocks of ranks.
///
/// A visitor that leaves sends no sign. The only sign is a rank that was called and has not come for a while, so the newest blocks do not
/// count yet.
#[derive(Clone, Debug)]
pub(super) struct ArrivalShare {
    /// The ranks in a block: about those of a quarter of a second.
    block: u64,
    /// The number of the first block that is counted.
    first: u64,
    came: VecDeque<u64>,
    /// The share that was last known.
    known: u64,
}

/// The newest blocks, whose visitors may still come: most visitors are early, but networks delay some.
const YOUNG: u64 = 3;

/// The number of blocks that count.
const COUNTED: u64 = 40;

/// The least share: ranks are called at most eight times as fast as the rate.
const LEAST: u64 = WHOLE / 8;

impl ArrivalShare {
    /// Begins at this rank, at a rate of `a_second` turns a second.
    pub(super) fn new(rank: u64, a_second: u64) -> Self {
        let block = (a_second / 4).max(8);
        Self { block, first: (rank / block).saturating_add(1), came: VecDeque::new(), known: WHOLE }
    }

    /// Returns the share for another rate.
    pub(super) fn changed(&self, rank: u64, a_second: u64) -> Self {
        Self::again(rank, self.known, a_second)
    }

    /// Begins again at this rank, with this share.
    pub(super) fn again(rank: u64, known: u64, a_second: u64) -> Self {
        Self { known, ..Self::new(rank, a_second) }
    }

    /// The share in 1024ths.
    pub(super) fn get(&self) -> u64 {
        self.known
    }

    /// Notes that the visitor of this rank has come for the first time since it was due.
    pub(super) fn came(&mut self, rank: u64) {
        let Some(at) = (rank / self.block).checked_sub(self.first) else { return };
        // Due ranks are at most a handful of blocks ahead of the called ones, so this does not grow long.
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if at >= self.came.len() && at < 65_536 {
            self.came.resize(at.saturating_add(1), 0);
        }
        if let Some(came) = self.came.get_mut(at) {
            *came = came.saturating_add(1);
        }
    }

    /// Notes that all ranks below this one were called.
    pub(super) fn called(&mut self, rank: u64) {
        let end = (rank / self.block).saturating_sub(YOUNG);
        let begin = end.saturating_sub(COUNTED);
        while self.first < begin {
            self.first = self.first.saturating_add(1);
            if self.came.pop_front().is_none() {
                self.first = begin;
            }
        }
        let counted = end.saturating_sub(self.first);
        if counted == 0 {
            return;
        }
        let came: u64 = self.came.iter().take(usize::try_from(counted).unwrap_or(usize::MAX)).sum();
        let called = counted.saturating_mul(self.block);
        self.known = (came.saturating_mul(WHOLE) / called).clamp(LEAST, WHOLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_known_after_a_few_seconds_and_follows() {
        let mut share = ArrivalShare::new(0, 100);
        for rank in 0..2_000 {
            if rank % 5 != 0 {
                share.came(rank);
            }
            share.called(rank + 1);
            assert!(rank < 200 || share.get() == WHOLE * 4 / 5, "{rank}: {}", share.get());
        }
        (2_000..8_000).for_each(|rank| share.called(rank));
        assert_eq!(share.get(), LEAST);
        assert!(share.came.len() < 50);
    }
}
