//! State of each thread: the lane that it counts in ([`lane`]), its place among others ([`place`]), and the sampling of decisions
//! ([`one_in_64`]).
//!
//! Every decision reads them, so they are plain cells that need no set-up and no check whether they still exist.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lock::lock;

/// Threads that have a lane of their own; all others share one.
pub(super) const LANES: usize = 64;

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
pub(super) fn lane() -> Option<usize> {
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
        random = RandomState::new().hash_one(0) | 1;
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
