//! Counters that many threads add to at once without waiting for each other's cache lines: [`Lanes`].

use std::array;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use sluicegate_core::support::{self, lock};

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
        match lane() {
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

// State of each thread: the lane that it counts in ([`lane`]), its place among others ([`place`]), and the sampling of decisions
// ([`one_in_64`]).
//
// Every decision reads them, so they are plain cells that need no set-up and no check whether they still exist.

/// Threads that have a lane of their own; all others share one.
const LANES: usize = 64;

/// Places at which threads meet only a few others.
pub(super) const PLACES: usize = 16;

/// One decision in this many is sampled.
pub(super) const ONE_IN: usize = 64;

thread_local! {
    static LANE: Cell<ThreadLane> = const { Cell::new(ThreadLane::Undrawn) };
    static TICKET: LaneGuard = const { LaneGuard };
    static CHANCE: Cell<Chance> = const { Cell::new(Chance { left: 0, random: 0 }) };
}

/// A bit for each lane that has an owner.
static TAKEN: Mutex<u64> = Mutex::new(0);

/// The number of threads that had no lane of their own.
static SHARED: AtomicUsize = AtomicUsize::new(0);

#[derive(Clone, Copy)]
enum ThreadLane {
    Undrawn,
    Own(usize),
    /// None is its own; the number is that of its place.
    Shared(usize),
}

/// Gives the lane back when its thread ends. The next thread that takes it continues its counts: they belong to
/// the lane, and the lock by which a lane changes its owner orders the writes of both threads.
struct LaneGuard;

/// The number of decisions until the next sample, and the state of the random numbers.
#[derive(Clone, Copy)]
struct Chance {
    left: u64,
    random: u64,
}

/// The lane of this thread, which no other thread writes to, if one was free.
#[inline]
fn lane() -> Option<usize> {
    match LANE.get() {
        ThreadLane::Own(lane) => Some(lane),
        ThreadLane::Shared(_) => None,
        ThreadLane::Undrawn => draw().ok(),
    }
}

/// A place below [`PLACES`], which this thread shares with as few others as possible.
#[inline]
pub(super) fn place() -> usize {
    let number = match LANE.get() {
        ThreadLane::Own(number) | ThreadLane::Shared(number) => number,
        ThreadLane::Undrawn => draw().unwrap_or_else(|number| number),
    };
    number % PLACES
}

/// Draws a lane; if all are taken, `Err` with the number of a place.
#[cold]
fn draw() -> Result<usize, usize> {
    // A thread that is about to end would not give it back.
    let own = TICKET.try_with(|_| {
        let mut taken = lock(&TAKEN);
        let own = (0..LANES).find(|lane| *taken >> lane & 1 == 0);
        if let Some(lane) = own {
            *taken |= 1 << lane;
        }
        own
    });
    // Relaxed: a number that orders nothing else.
    let own = own.ok().flatten().ok_or_else(|| SHARED.fetch_add(1, Ordering::Relaxed));
    LANE.set(own.map_or_else(ThreadLane::Shared, ThreadLane::Own));
    own
}

impl Drop for LaneGuard {
    fn drop(&mut self) {
        // Before another thread may take it.
        if let ThreadLane::Own(lane) = LANE.get() {
            LANE.set(ThreadLane::Shared(lane));
            *lock(&TAKEN) &= !(1 << lane);
        }
    }
}

/// True one time in 64, at random: with a fixed interval, one of two alternating clients would never be sampled.
#[inline]
pub(super) fn one_in_64() -> bool {
    let Chance { left, random } = CHANCE.get();
    if left > 0 {
        CHANCE.set(Chance { left: left - 1, random });
        return false;
    }
    is_its_turn(random)
}

#[cold]
fn is_its_turn(mut random: u64) -> bool {
    if random == 0 {
        // Each of a thread's first decisions has the same chance, because the thread may not make many.
        random = support::random() | 1;
        let left = (random >> 32) % ONE_IN as u64;
        if left > 0 {
            CHANCE.set(Chance { left: left - 1, random });
            return false;
        }
    }
    // Marsaglia's xorshift, which is never 0.
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    // Skips up to 126 decisions, 63 on average.
    CHANCE.set(Chance { left: (random >> 32) % (2 * ONE_IN as u64 - 1), random });
    true
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

#[cfg(test)]
mod thread_tests {
    use super::*;

    #[test]
    fn about_one_in_64_is_taken_of_each_that_take_turns() {
        let mut taken = [0; 2];
        for turn in 0..128_000 {
            taken[turn % 2] += u32::from(one_in_64());
        }
        // A thousand each, and thirty are more than one standard deviation.
        assert!(taken.iter().all(|taken| (700..1_300).contains(taken)), "{taken:?}");
    }
}
