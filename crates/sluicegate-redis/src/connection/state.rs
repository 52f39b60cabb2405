//! The live connection and its health: state that requests and the supervisor share.
//!
//! ```text
//!                  publish                      closed by the peer
//! no connection ------------> live connection ------------------------> mending
//!   ^      ^                        |                                      |
//!   |      |   given up: it failed  |                                      |
//!   |      +------------------------+                                      |
//!   +----------------------------------------------------------------------+
//!               settle: the attempt that followed has failed
//! ```
//!
//! Until a moment after the store was made, requests wait for the first connection. While it is *mending*, requests wait for the attempt within their deadlines. Otherwise requests
//! without a connection fail at once, and the supervisor keeps trying. A Cluster's connection is not
//! dropped before there is a better one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::clock::ServerClock;
use super::server::Connection;

/// The parts of a cluster's slots. Each part counts its timeouts, because answers from other nodes prove nothing about a
/// node that hangs.
const PARTS: usize = 64;

/// The part that a hash slot belongs to.
pub(crate) fn part_of(slot: u16) -> usize {
    usize::from(slot) * PARTS / 16_384
}

/// State that requests and the supervisor share.
pub(crate) struct ConnectionState {
    pub(super) live: ArcSwapOption<Live>,
    /// Whether this is a cluster, whose connection stays in use until there is a better one: a node that fails is no reason to
    /// refuse the keys of the others.
    pub(crate) is_cluster: bool,
    /// The number of the last attempt to connect.
    attempts: AtomicU64,
    /// The last connection that was found to be broken.
    broken: AtomicU64,
    lost: Notify,
    /// The end of the wait for the first connection.
    starts_until: Instant,
    /// Whether there has been a connection, or requests do not wait for one.
    has_started: AtomicBool,
    /// Whether the first attempt after a lost connection is under way.
    mending: AtomicBool,
    /// Notified when there is a connection, or the attempt has failed.
    settled: Notify,
    /// The error of the last attempt to connect, if it failed.
    problem: ArcSwapOption<String>,
    /// The clock of the server that has each part of the slots.
    pub(crate) clocks: [ServerClock; PARTS],
    /// Quotas about which the script's verdict differed from that of this process.
    pub(crate) disagreements: AtomicU64,
}

/// A connection, and its health as seen by calls.
pub(super) struct Live {
    pub(super) connection: Arc<dyn Connection>,
    pub(super) generation: u64,
    /// Timeouts in a row, for each part of the slots; an answer sets its part back to 0.
    pub(super) timeouts: [AtomicU32; PARTS],
    /// Whether any answer came since the last check.
    pub(super) answered: AtomicBool,
}

impl ConnectionState {
    /// No connection yet.
    pub(crate) fn new(is_cluster: bool, starts_until: Instant) -> Self {
        Self {
            live: ArcSwapOption::empty(),
            is_cluster,
            attempts: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            lost: Notify::new(),
            starts_until,
            has_started: AtomicBool::new(false),
            mending: AtomicBool::new(false),
            settled: Notify::new(),
            problem: ArcSwapOption::empty(),
            clocks: std::array::from_fn(|_| ServerClock::new()),
            disagreements: AtomicU64::new(0),
        }
    }

    /// Forgets the connection of a supervisor that has ended with its runtime: the connection has ended, too. Requests wait for the
    /// immediate attempt of the next supervisor.
    pub(crate) fn begin_again(&self) {
        if self.attempts.load(Ordering::Relaxed) > 0 {
            // Release: see `closed`.
            self.mending.store(true, Ordering::Release);
            self.live.store(None);
        }
    }

    /// The number of the next connection.
    pub(super) fn next_generation(&self) -> u64 {
        self.attempts.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether there is a connection now.
    pub(crate) fn is_up(&self) -> bool {
        self.live.load().is_some()
    }

    /// Waits until there is a connection.
    pub(crate) async fn up(&self) {
        loop {
            let settled = self.settled.notified();
            if self.is_up() {
                return;
            }
            settled.await;
        }
    }

    /// Ends all waits for the first connection.
    pub(crate) fn start_without(&self) {
        self.has_started.store(true, Ordering::Relaxed);
    }

    /// The end of the wait for the first connection; `None` if there has been a connection, or the time is over.
    pub(crate) fn starting(&self) -> Option<Instant> {
        // Relaxed: a request that misses the mark finds the connection, or waits in vain.
        let waits = !self.has_started.load(Ordering::Relaxed) && Instant::now() < self.starts_until;
        waits.then_some(self.starts_until)
    }

    /// Waits for the first connection, until the moment shared by all requests.
    pub(super) async fn started(&self) {
        if let Some(until) = self.starting() {
            // The caller continues in the same way with or without a connection.
            _ = timeout_at(until, self.up()).await;
        }
    }

    /// Whether a request would be sent, or would wait for the current attempt.
    pub(crate) fn is_up_or_mending(&self) -> bool {
        // Acquire: see `closed`.
        self.mending.load(Ordering::Acquire) || self.live.load().is_some()
    }

    /// Notes that the peer has closed a connection, perhaps while it was idle. Requests that arrive now wait for the immediate
    /// attempt to replace it, but not for later attempts.
    pub(super) fn closed(&self, generation: u64) {
        if self.generation() == Some(generation) {
            // Release: a request that finds no connection after this finds the mark.
            self.mending.store(true, Ordering::Release);
            self.live.store(None);
        }
        self.give_up(generation);
    }

    pub(super) fn give_up(&self, generation: u64) {
        self.broken.fetch_max(generation, Ordering::Relaxed);
        self.lost.notify_one();
    }

    pub(super) fn generation(&self) -> Option<u64> {
        self.live.load().as_ref().map(|live| live.generation)
    }

    /// The result of the current attempt after a loss.
    pub(super) async fn mended(&self, deadline: Instant) -> Option<Arc<Live>> {
        loop {
            let settled = self.settled.notified();
            // Acquire: see `closed`. The mark is read first: once it is gone, the result is there.
            let mending = self.mending.load(Ordering::Acquire);
            let live = self.live.load_full();
            if live.is_some() || !mending || timeout_at(deadline, settled).await.is_err() {
                return live;
            }
        }
    }

    /// Puts a connection that has passed its probe into use. From here on requests find it.
    pub(super) fn publish(&self, connection: Arc<dyn Connection>, generation: u64) {
        self.live.store(Some(Arc::new(Live {
            connection,
            generation,
            timeouts: [const { AtomicU32::new(0) }; PARTS],
            answered: AtomicBool::new(false),
        })));
        self.start_without();
        if self.broken.load(Ordering::Relaxed) >= generation {
            // Closed between the probe's answer and now, so no request may find it.
            self.closed(generation);
        } else {
            self.settle();
        }
    }

    /// Notes that an attempt to connect has failed.
    pub(super) fn failed(&self, problem: &str) {
        self.problem.store(Some(Arc::new(problem.to_owned())));
        self.settle();
    }

    /// The reason why there is no connection, if it is known.
    pub(crate) fn problem(&self) -> Option<Arc<String>> {
        self.problem.load_full()
    }

    /// Drops the connection if no answer came; otherwise the rest of a cluster stays in use.
    pub(super) fn drop_if_silent(&self) {
        if self.live.load().as_ref().is_some_and(|live| !live.answered.swap(false, Ordering::Relaxed)) {
            self.live.store(None);
        }
    }

    /// Ends all waits: an attempt has ended, or there will be none for a while.
    pub(super) fn settle(&self) {
        self.mending.store(false, Ordering::Release);
        self.settled.notify_waiters();
    }

    /// Waits until this connection, or a later one, was found to be broken.
    pub(super) async fn until_broken(&self, generation: u64) {
        while self.broken.load(Ordering::Relaxed) < generation {
            self.lost.notified().await;
        }
    }
}
