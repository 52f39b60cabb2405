//! Counters that many threads add to at once without waiting for each other's cache lines: [`Lanes`].

use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::thread::{self, LANES};

/// Some counters, in a lane for each of the first threads that add to them, and one for all other threads.
///
/// A thread is the only writer of its lane, so that adding costs a load and a store; a sum reads all lanes.
pub(super) struct Lanes<const COUNTERS: usize> {
    own: [OnceLock<Box<CounterLane<COUNTERS>>>; LANES],
    shared: CounterLane<COUNTERS>,
}

/// Aligned, so that no cache line belongs to two lanes.
#[repr(align(64))]
struct CounterLane<const COUNTERS: usize>([AtomicU64; COUNTERS]);

impl<const COUNTERS: usize> Lanes<COUNTERS> {
    pub(super) fn new() -> Self {
        Self { own: array::from_fn(|_| OnceLock::new()), shared: CounterLane::new() }
    }

    /// Adds to these counters.
    #[inline(always)]
    pub(super) fn add(&self, counts: impl IntoIterator<Item = (usize, u64)>) {
        // Relaxed, here and below: a count orders nothing else. A lock orders successive owners of a lane.
        match thread::lane() {
            Some(own) => {
                let lane = self.own[own].get_or_init(|| Box::new(CounterLane::new()));
                for (counter, by) in counts {
                    let count = &lane.0[counter];
                    count.store(count.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
                }
            }
            None => {
                for (counter, by) in counts {
                    self.shared.0[counter].fetch_add(by, Ordering::Relaxed);
                }
            }
        }
    }

    /// The sums of all counters. They are not a snapshot: threads keep counting while they are read.
    pub(super) fn sums(&self) -> [u64; COUNTERS] {
        let own = self.own.iter().filter_map(OnceLock::get).map(|lane| &**lane);
        own.chain([&self.shared]).fold([0; COUNTERS], |sums, lane| {
            array::from_fn(|counter| sums[counter].wrapping_add(lane.0[counter].load(Ordering::Relaxed)))
        })
    }
}

impl<const COUNTERS: usize> CounterLane<COUNTERS> {
    fn new() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn no_count_is_lost_with_more_threads_than_lanes_one_after_another_or_at_once() {
        let (lanes, barrier) = (Lanes::<2>::new(), Barrier::new(LANES * 2));
        for _ in 0..3 {
            thread::scope(|scope| {
                for _ in 0..LANES * 2 {
                    scope.spawn(|| {
                        barrier.wait();
                        for _ in 0..1_000 {
                            lanes.add([(0, 1), (1, 3)]);
                        }
                        // None ends before all have drawn their tickets.
                        barrier.wait();
                    });
                }
            });
        }
        assert_eq!(lanes.sums(), [3, 9].map(|by| by * 2 * LANES as u64 * 1_000));
    }
}
