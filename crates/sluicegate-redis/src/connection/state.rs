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
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::{Cmd, Value};
use sluicegate_core::StoreError;
use sluicegate_core::clock::micros;
use sluicegate_core::error::StoreErrorKind;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use super::failure;
use super::failure::{Remedy, is_no_script, is_on_the_way, remedy, store_error};
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

/// The clock of a server: its time at a moment of this process.
///
/// A server writes its time into a reply after the call was sent and before the reply came. The estimate moves only as far as a reply
/// shows it to be wrong: so it is exact to the time that the fastest calls spend on their way, follows a clock that is set or drifts with the
/// next reply, and a reply that was late says nothing false.
pub(crate) struct ServerClock {
    /// A moment of this process, and the server's time then; 0 if there was no reply yet.
    begun: Instant,
    begun_us: AtomicU64,
}

impl ServerClock {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), begun_us: AtomicU64::new(0) }
    }

    /// The server's time at this moment, in microseconds.
    pub(crate) fn at(&self, moment: Instant) -> Option<u64> {
        // Relaxed, here and below: one number, which orders nothing else.
        let begun_us = self.begun_us.load(Ordering::Relaxed);
        (begun_us > 0).then(|| begun_us.saturating_add(self.since_us(moment)))
    }

    /// Notes that it was `server_us` there between these two moments.
    pub(crate) fn note(&self, sent: Instant, server_us: u64, received: Instant) {
        let [least, most] = [received, sent].map(|moment| server_us.saturating_sub(self.since_us(moment)));
        let known = self.begun_us.load(Ordering::Relaxed);
        // At first the least: a deadline that is too early by the way of a reply is that of the calls whose replies are late.
        let begun_us = if known == 0 { least } else { known.clamp(least, most.max(least)) };
        if begun_us != known {
            self.begun_us.store(begun_us, Ordering::Relaxed);
        }
    }

    fn since_us(&self, moment: Instant) -> u64 {
        micros(moment.checked_duration_since(self.begun).unwrap_or(Duration::ZERO))
    }
}

/// Commands in order, each with a check of its reply. They carry the scripts' texts, so that the server knows the scripts
/// from then on, and the first requests need not send them.
#[derive(Default)]
pub(crate) struct Probe(Vec<(Cmd, ReplyCheck)>);

/// Returns the problem of a reply.
type ReplyCheck = Box<dyn Fn(&Value) -> Result<(), String> + Send + Sync>;

impl Probe {
    pub(crate) fn step(
        &mut self,
        command: Cmd,
        judge: impl Fn(&Value) -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.0.push((command, Box::new(judge)));
    }

    /// A connection is ready when the scripts run and give the right replies. A `PING` is not enough: a replica, a full or a loading
    /// server, and a server whose user lacks a right, all answer it.
    ///
    /// # Errors
    /// The error of the first command that failed, in words for a log.
    pub(super) async fn run(&self, connection: &dyn Connection) -> Result<(), String> {
        for (command, judge) in &self.0 {
            let reply = connection.send(command.clone()).await.map_err(|error| failure::explain(&error))?;
            judge(&reply)?;
        }
        Ok(())
    }
}

/// Timeouts in a row after which a connection counts as dead, although the kernel still considers it open.
const TIMEOUTS_IN_A_ROW: u32 = 3;

/// The pause before a command is sent again while its slot moves from one node of a cluster to another.
const SLOT_PAUSE: Duration = Duration::from_millis(4);

/// How a command names its script: by digest, or by its text if the server does not know the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptName {
    Digest,
    Text,
}

impl ConnectionState {
    /// Sends the command that calls a script, by digest, or by its text if the server does not know the digest; `part` is the
    /// part of the slots that the command is for.
    ///
    /// - A server without the script answers `NOSCRIPT`, has done nothing, and is sent the text.
    /// - A node of a Cluster that does not have the slot (any more) has done nothing either, so there is one
    ///   more attempt, after a pause of a few milliseconds.
    /// - Everything else is the answer, or an error. Nothing that may have been carried out is sent
    ///   again.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unavailable`] marked as unsent when there is no connection,
    /// [`StoreErrorKind::Timeout`] after the deadline, otherwise the kind of the server's error;
    /// each names the part of the slots.
    pub(crate) async fn send(
        &self,
        part: usize,
        command: impl Fn(ScriptName) -> Cmd,
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        // Nothing was sent yet, so there is nothing that could be sent twice.
        let live = match self.live.load_full() {
            Some(live) => Some(live),
            None => {
                self.started().await;
                self.mended(deadline).await
            }
        };
        let Some(live) = live else {
            let problem = "there is no connection to Redis";
            return Err(StoreError::with_source(StoreErrorKind::Unavailable, problem).in_part(part).unsent());
        };
        let call = async {
            let mut again = true;
            let mut name = ScriptName::Digest;
            loop {
                match live.connection.send(command(name)).await {
                    Err(error) if is_no_script(&error) && name == ScriptName::Digest => {
                        name = ScriptName::Text;
                    }
                    // A slot is moving, and the client's own retry failed, too.
                    Err(error) if again && is_on_the_way(&error) => {
                        again = false;
                        sleep(SLOT_PAUSE).await;
                    }
                    result => break result,
                }
            }
        };
        match timeout_at(deadline, call).await {
            Ok(Ok(value)) => {
                // Relaxed, here and below: counts and marks order nothing else.
                live.timeouts[part].store(0, Ordering::Relaxed);
                live.answered.store(true, Ordering::Relaxed);
                Ok(value)
            }
            Ok(Err(error)) => {
                self.note(&live, part, remedy(&error));
                Err(store_error(error).in_part(part))
            }
            Err(_) => {
                self.note(&live, part, Remedy::Count);
                Err(StoreError::new(StoreErrorKind::Timeout).in_part(part))
            }
        }
    }

    /// Applies the result of a call to its connection.
    ///
    /// A timeout alone proves nothing: the server may be busy for a moment. Three without an answer
    /// in between mean that the connection or its server is dead. On a Cluster they
    /// are counted per part of the slots, because the other nodes still answer.
    fn note(&self, live: &Live, part: usize, remedy: Remedy) {
        let replace = match remedy {
            Remedy::Keep => false,
            // The cluster client mends the connection to a single node by itself, most of the time.
            Remedy::Replace if !self.is_cluster => true,
            Remedy::Count | Remedy::Replace => {
                live.timeouts[part].fetch_add(1, Ordering::Relaxed);
                // Counted over all parts: a caller that rarely uses each part would need seconds for three in one of them.
                let open = live.timeouts.iter().map(|timeouts| timeouts.load(Ordering::Relaxed));
                open.fold(0, u32::saturating_add) >= TIMEOUTS_IN_A_ROW
            }
        };
        // Only the connection that failed is given up, not the one that came after it.
        if replace && self.generation() == Some(live.generation) {
            if !self.is_cluster {
                self.live.store(None);
            }
            self.give_up(live.generation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_to_the_way_of_the_fastest_call_and_follows_a_clock_that_is_set() {
        let clock = ServerClock::new();
        let at = |ms| clock.begun + Duration::from_millis(ms);
        assert_eq!(clock.at(at(1)), None);
        // (sent, the server's time, received), then the server's time at 1 s, in ms.
        for (sent, server, received, known) in [
            (10, 5_012, 15, 5_997),   // 2 ms there, 3 ms back
            (20, 5_021, 22, 5_999),   // 1 ms back: that much closer
            (30, 5_032, 90, 5_999),   // a slow reply tells nothing
            (100, 5_160, 160, 6_000), // a slow call neither, except that its reply came at once
            (200, 3_201, 202, 4_001), // set back by two seconds
            (300, 9_301, 302, 9_999), // and set forward
        ] {
            clock.note(at(sent), server * 1_000, at(received));
            assert_eq!(clock.at(at(1_000)), Some(known * 1_000), "after {server}");
        }
    }
}
