//! Counters that many threads add to at once without waiting for each other's cache lines: [`Lanes`].

use std::array;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use metrics::{Histogram, Key};
use sluicegate_core::clock::Clock;
use sluicegate_core::store::Store;
use sluicegate_core::support::{self, lock};

use crate::metrics::{histogram, recorder};

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

// The recent durations of answers: [`Durations`].

const MINUTE_US: u64 = 60_000_000;

/// The number of buckets per power of two.
const EACH: usize = 8;

/// Buckets from 8 ns, which includes everything faster, up to two minutes.
const BUCKETS: usize = 35 * EACH;

/// The durations of the last one to two minutes, in buckets that are an eighth wide at most.
///
/// Two minutes are kept: when a new minute begins, the older one is cleared. Threads that record at that moment may
/// lose a few counts in thousands, so that no request waits for another one.
pub(super) struct Durations {
    /// The number of the current minute.
    minute: AtomicU64,
    minutes: [[AtomicU32; BUCKETS]; 2],
}

impl Durations {
    pub(super) fn new() -> Self {
        Self { minute: AtomicU64::new(0), minutes: array::from_fn(|_| array::from_fn(|_| AtomicU32::new(0))) }
    }

    /// Counts an answer by its duration.
    pub(super) fn record(&self, lasted: Duration, now_us: u64) {
        let minute = self.turn_to(now_us);
        // Relaxed, here and below: the counts order nothing else.
        minute[bucket(lasted)].fetch_add(1, Ordering::Relaxed);
    }

    /// The shortest time within which `part` of a hundred answers came.
    pub(super) fn percentile(&self, part: u64, now_us: u64) -> Option<Duration> {
        self.turn_to(now_us);
        let count = |bucket: usize| {
            self.minutes.iter().map(|minute| u64::from(minute[bucket].load(Ordering::Relaxed))).sum::<u64>()
        };
        let counts: [u64; BUCKETS] = array::from_fn(count);
        let total: u64 = counts.iter().sum();
        let enough = (total * part).div_ceil(100);
        let mut sum = 0;
        let last = counts.iter().position(|count| {
            sum += count;
            sum >= enough
        });
        last.filter(|_| total > 0).map(end)
    }

    /// The counts of the current minute.
    fn turn_to(&self, now_us: u64) -> &[AtomicU32; BUCKETS] {
        let minute = now_us / MINUTE_US;
        let before = self.minute.load(Ordering::Relaxed);
        let [even, odd] = &self.minutes;
        let (now, other) = if minute.is_multiple_of(2) { (even, odd) } else { (odd, even) };
        if minute + 1 == before {
            // Another thread has turned since this one looked at the clock.
            return now;
        }
        // Only one of the threads that see the new minute clears.
        if minute != before && self.minute.swap(minute, Ordering::Relaxed) != minute {
            clear(now);
            if minute != before + 1 {
                clear(other);
            }
        }
        now
    }
}

fn clear(counts: &[AtomicU32; BUCKETS]) {
    counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
}

/// The bucket of a duration: its power of two, and the three bits below it.
fn bucket(lasted: Duration) -> usize {
    let ns = u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX).max(EACH as u64);
    let power = ns.ilog2() - EACH.ilog2();
    let eighths = u64::from(power) * EACH as u64 + (ns >> power) % EACH as u64;
    usize::try_from(eighths).map_or(BUCKETS - 1, |bucket| bucket.min(BUCKETS - 1))
}

/// The upper bound of a bucket.
fn end(bucket: usize) -> Duration {
    let (power, eighth) = (bucket / EACH, bucket % EACH);
    Duration::from_nanos((EACH as u64 + eighth as u64 + 1) << power)
}

/// The duration of an answer, and the number of answers that it stands for.
#[derive(Clone, Copy)]
pub(super) struct Took {
    pub(super) lasted: Duration,
    pub(super) weight: usize,
}

impl Took {
    /// The duration of an answer that has just come.
    pub(super) fn since(begun: Instant, weight: usize) -> Self {
        Self { lasted: begun.elapsed(), weight }
    }
}

// Durations that are exported at once: [`Timing`].

/// A histogram of durations.
pub(super) struct Timing {
    series: Key,
    bound: ArcSwapOption<BoundHistogram>,
}

/// The handle of the histogram, and its recorder.
struct BoundHistogram {
    recorder: usize,
    handle: Histogram,
}

impl Timing {
    pub(super) fn of(series: Key) -> Self {
        Self { series, bound: ArcSwapOption::empty() }
    }

    /// Records a duration `weight` times.
    pub(super) fn record(&self, lasted: Duration, weight: usize) {
        let recorder = recorder();
        let bound = self.bound.load();
        match &*bound {
            Some(bound) if bound.recorder == recorder => bound.handle.record_many(lasted, weight),
            _ => {
                let handle = histogram(&self.series);
                handle.record_many(lasted, weight);
                self.bound.store(Some(BoundHistogram { recorder, handle }.into()));
            }
        }
    }
}

// The clock that a store decides by: [`TimeOf`].

/// The time by the clock of a store. The reference is weak, because the store owns the listeners that ask for the time.
pub(super) struct TimeOf(Weak<dyn Store>);

impl TimeOf {
    pub(super) fn store(store: &Arc<dyn Store>) -> Arc<dyn Clock> {
        Arc::new(Self(Arc::downgrade(store)))
    }
}

impl Clock for TimeOf {
    fn now_us(&self) -> u64 {
        self.0.upgrade().map_or(0, |store| store.now_us())
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

#[cfg(test)]
mod durations_tests {
    use super::*;

    #[test]
    fn a_percentile_is_at_most_an_eighth_too_high() {
        for lasted in [1, 9, 100, 999, 123_456, 5_000_000, 99_999_999_999].map(Duration::from_nanos) {
            let durations = Durations::new();
            assert_eq!(durations.percentile(99, 7), None);
            durations.record(lasted, 7);
            let told = durations.percentile(99, 7).unwrap();
            let least = lasted.max(Duration::from_nanos(EACH as u64));
            assert!(
                told > least && told <= least + least / 8 + Duration::from_nanos(1),
                "{lasted:?}: {told:?}"
            );
        }
        let durations = Durations::new();
        for _ in 0..2 {
            durations.record(Duration::from_secs(1_000), 7);
        }
        assert!(
            durations.percentile(50, 7).unwrap() > Duration::from_secs(120),
            "the last bucket has all above it"
        );
    }

    #[test]
    fn one_slow_answer_of_a_hundred_is_not_the_99th() {
        let durations = Durations::new();
        for _ in 0..99 {
            durations.record(Duration::from_micros(100), 7);
        }
        durations.record(Duration::from_secs(1), 7);
        assert!(durations.percentile(99, 7).unwrap() < Duration::from_micros(113));
        durations.record(Duration::from_secs(1), 7);
        assert!(durations.percentile(99, 7).unwrap() > Duration::from_secs(1));
    }

    #[test]
    fn a_thread_that_is_late_at_a_border_of_minutes_wipes_nothing() {
        let durations = Durations::new();
        for now_us in [MINUTE_US, MINUTE_US - 1] {
            durations.record(Duration::from_secs(1), now_us);
        }
        assert!(durations.percentile(1, MINUTE_US).is_some());
        let counts = durations.minutes.iter().flatten().map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts.sum::<u32>(), 2);
    }

    #[test]
    fn a_minute_and_the_one_before_it_are_remembered() {
        let durations = Durations::new();
        let (slow, fast) = (Duration::from_millis(8), Duration::from_micros(8));
        let told = |minute: u64| durations.percentile(99, minute * MINUTE_US);
        durations.record(slow, 10 * MINUTE_US);
        durations.record(fast, 11 * MINUTE_US);
        assert!(told(11).unwrap() > slow);
        assert!(told(12).unwrap() < slow, "the first is forgotten");
        assert_eq!(told(13), None);
        durations.record(slow, 13 * MINUTE_US);
        assert_eq!(told(20), None, "after a pause both are");
        durations.record(slow, 20 * MINUTE_US);
        durations.record(slow, 4 * MINUTE_US);
        assert!(told(4).is_some(), "a clock that is set back begins anew");
    }
}
