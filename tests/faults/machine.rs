//! What this machine does to a test: how much memory the process has, how busy the machine is with other things, and how many
//! scenarios run on it at once.

use std::alloc::System;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Condvar, Mutex, Once, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sluicegate_tests::servers::Server;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

/// Scenarios at once: each is mostly waiting, and more of them would be late on two cores.
pub(crate) const AT_ONCE: usize = 4;

/// The time between two calls of the control.
const TICK: Duration = Duration::from_millis(5);

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

/// Calls to a server that nothing befalls: when each began, and how long it took.
static CONTROL: Mutex<Vec<(Instant, Duration)>> = Mutex::new(Vec::new());

/// From now on asks a server of its own every five milliseconds: what a bare call takes on this machine at the time of a test.
pub(crate) fn watch() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        std::thread::spawn(|| {
            let server = Server::start();
            let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("the server is up");
            stream.set_nodelay(true).expect("it is a socket");
            loop {
                let begun = Instant::now();
                sleep(TICK);
                stream.write_all(b"PING\r\n").expect("nothing befalls this server");
                stream.read_exact(&mut [0; 7]).expect("nothing befalls this server");
                let took = begun.elapsed().saturating_sub(TICK);
                CONTROL.lock().unwrap().push((begun, took));
            }
        });
    });
}

/// How many times as long as on an idle machine a scenario may take between two moments, or how many times as many calls it may miss:
/// one more for each five milliseconds in which one of a hundred calls of the control was late, and at most forty.
pub(crate) fn strain(from: Instant, to: Instant) -> u32 {
    let control = CONTROL.lock().unwrap();
    let calls = control.iter().filter(|(begun, took)| *begun < to && *begun + *took + TICK > from);
    let mut times: Vec<_> = calls.map(|(_, took)| *took).collect();
    times.sort_unstable();
    let slow = times.len().checked_sub(1 + times.len() / 100).map_or(Duration::ZERO, |index| times[index]);
    u32::try_from(1 + slow.as_millis() / TICK.as_millis()).map_or(40, |strain| strain.min(40))
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
