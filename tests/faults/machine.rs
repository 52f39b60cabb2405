//! What this machine does to a test: how much memory the process has, how late the machine itself is, and how many
//! scenarios run on it at once.

use std::alloc::System;
use std::sync::{Condvar, Mutex, Once, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

/// Scenarios at once: each is mostly waiting, and more of them would be late on two cores.
pub(crate) const AT_ONCE: usize = 4;

/// Shorter delays are not worth noting.
const WORTH_NOTING: Duration = Duration::from_millis(2);

static RUNNING: Mutex<usize> = Mutex::new(0);
static DONE: Condvar = Condvar::new();

/// A scenario's turn, until it is dropped.
pub(crate) struct Turn(());

/// Waits until there is room for one more scenario.
pub(crate) fn turn() -> Turn {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut running =
        DONE.wait_while(running, |running| *running >= AT_ONCE).unwrap_or_else(PoisonError::into_inner);
    *running += 1;
    Turn(())
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        DONE.notify_one();
    }
}

/// When the machine was late, and by how much.
static LATE: Mutex<Vec<(Instant, Duration)>> = Mutex::new(Vec::new());

/// Measures from now on how late the machine wakes a bare thread that has nothing to do with the program under test:
/// what everything on it is late by is no fault of the program's.
pub(crate) fn watch() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        std::thread::spawn(|| {
            loop {
                let begun = Instant::now();
                sleep(Duration::from_millis(2));
                let late = begun.elapsed().saturating_sub(Duration::from_millis(2));
                if late > WORTH_NOTING {
                    LATE.lock().unwrap().push((begun, late));
                }
            }
        });
    });
}

/// How late the machine was between two moments, in all.
pub(crate) fn lateness(from: Instant, to: Instant) -> Duration {
    late_between(from, to).into_iter().sum()
}

/// How late a call may be for the machine's sake: it is woken by its timer or its connection, by the task that it waits
/// for, and by its own, and each of them may be as late as the bare thread was.
pub(crate) fn lateness_of_call(from: Instant, to: Instant) -> Duration {
    3 * lateness(from, to)
}

/// How late the machine was at its worst between two moments.
pub(crate) fn worst_lateness(from: Instant, to: Instant) -> Duration {
    late_between(from, to).into_iter().max().unwrap_or_default()
}

fn late_between(from: Instant, to: Instant) -> Vec<Duration> {
    let late = LATE.lock().unwrap();
    let overlaps = |(begun, late): &&(Instant, Duration)| *begun < to && *begun + *late > from;
    late.iter().filter(overlaps).map(|(_, late)| *late).collect()
}

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What this process has allocated and not given back, in bytes. What the system shows of it is what the allocator keeps
/// for later as well, and grows with every runtime up to some hundred MiB.
pub(crate) fn memory() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

/// The same before the first scenario.
pub(crate) fn memory_before() -> usize {
    static BEFORE: OnceLock<usize> = OnceLock::new();
    *BEFORE.get_or_init(memory)
}

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes panics on threads with this name, and the message.
pub(crate) fn panics_of(thread: &str) -> Vec<String> {
    PANICS.lock().unwrap().iter().filter(|panic| panic.starts_with(thread)).cloned().collect()
}

/// Keeps a note of every panic from now on.
pub(crate) fn note_panics() {
    static NOTING: OnceLock<()> = OnceLock::new();
    NOTING.get_or_init(|| {
        // In place of the report with a back trace, for which 80 MiB of this program's text would be loaded: the scenarios
        // beside the one that fails would fail for it.
        std::panic::set_hook(Box::new(|panic| {
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            eprintln!("{thread}: {panic}");
            PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{thread}: {panic}"));
        }));
    });
}
