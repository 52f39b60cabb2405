//! The supervisor of a connection: it connects and reconnects forever.
//!
//! ```text
//! attempt -> probe -> publish -> until it is broken -+
//!    ^                                               |
//!    +--- pause, longer each time, half by chance ---+
//! ```
//!
//! An attempt runs in a task of its own with a bound on its time, so that neither a panic in a
//! client library nor a server that accepts and stays silent ends the supervisor.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::support::random;
use tokio::time::{Instant, sleep, timeout};

use super::failure;
use super::server::{Closed, Connection, Target};
use super::state::{ConnectionState, Probe};

/// The shortest interval between two checks of the nodes of a cluster.
const CLUSTER_KEPT_FOR: Duration = Duration::from_secs(1);

/// The lifetime after which a connection counts as good: then the next attempt starts at once.
const GOOD_AFTER: Duration = Duration::from_secs(1);

const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause: it allows each instance at most two attempts a second, and finds a server that is back within a second.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Connects, probes, publishes, and waits for the connection to be lost, forever.
///
/// Pauses between attempts double from 50 ms to 1 s, and half of each is random, so that a fleet
/// does not reconnect in step. After a connection that has lived for a second, the next attempt
/// begins at once.
pub(crate) async fn supervise(state: Arc<ConnectionState>, target: Target, probe: Arc<Probe>) {
    let mut pause = Duration::ZERO;
    let mut log = OutageLog { target: target.to_string(), said: Vec::new(), last: None };
    loop {
        let generation = state.next_generation();
        let closed = {
            // Weak, because a strong reference would be a cycle through the connection, and the state would outlive the store.
            let state = Arc::downgrade(&state);
            Closed::new(move || {
                if let Some(state) = state.upgrade() {
                    state.closed(generation);
                }
            })
        };
        let problem = match attempt(&target, Arc::clone(&probe), closed).await {
            Ok(connection) => {
                log.connected();
                let since = Instant::now();
                state.publish(connection, generation);
                if state.is_cluster {
                    sleep(CLUSTER_KEPT_FOR).await;
                }
                state.until_broken(generation).await;
                if since.elapsed() >= GOOD_AFTER {
                    pause = Duration::ZERO;
                } else if !pause.is_zero() {
                    // Prevents a tight loop with a server that closes every new connection.
                    state.settle();
                    sleep(jittered(pause)).await;
                }
                pause = longer(pause);
                continue;
            }
            Err(problem) => problem,
        };
        state.drop_if_silent();
        state.failed(&problem);
        log.failed(problem);
        pause = longer(pause);
        sleep(jittered(pause)).await;
    }
}

/// Lines written to the log since the connection was lost.
struct OutageLog {
    target: String,
    said: Vec<String>,
    last: Option<Instant>,
}

impl OutageLog {
    /// The most problems that are logged until there is a connection.
    const MOST: usize = 8;

    /// Logs each problem once, and at most one a second: a restarting server is first absent, then loads, and then may have
    /// lost its users.
    fn failed(&mut self, problem: String) {
        let is_soon = self.last.is_some_and(|last| last.elapsed() < Duration::from_secs(1));
        if is_soon || self.said.len() >= Self::MOST || self.said.contains(&problem) {
            return;
        }
        let target = &self.target;
        tracing::warn!(target, problem, "cannot connect to Redis; trying again in the background");
        self.said.push(problem);
        self.last = Some(Instant::now());
    }

    fn connected(&mut self) {
        if !self.said.is_empty() {
            tracing::info!(target = self.target, "connected to Redis again");
            self.said.clear();
            self.last = None;
        }
    }
}

/// One attempt, in a task of its own, so that a panic while connecting ends only the attempt, and not the supervisor.
async fn attempt(target: &Target, probe: Arc<Probe>, closed: Closed) -> Result<Arc<dyn Connection>, String> {
    let within = target.connects_within();
    let target = target.clone();
    let task = tokio::spawn(async move { timeout(within, connect(&target, &probe, closed)).await });
    match task.await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(format!("no answer within {within:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// A new connection that has passed the probe.
async fn connect(target: &Target, probe: &Probe, closed: Closed) -> Result<Arc<dyn Connection>, String> {
    let connection = target.connect(closed).await.map_err(|error| failure::explain(&error))?;
    probe.run(&*connection).await?;
    Ok(connection)
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE)
}

/// A random time between half of a pause and all of it, so that a fleet does not reconnect in step.
fn jittered(pause: Duration) -> Duration {
    pause / 2 + pause / 2 * u32::try_from(random() % 1_000).unwrap_or(0) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_second_so_that_there_are_at_most_two_attempts_in_one() {
        let pauses: Vec<_> = std::iter::successors(Some(Duration::ZERO), |pause| Some(longer(*pause)))
            .take(8)
            .map(|pause| pause.as_millis())
            .collect();
        assert_eq!(pauses, [0, 50, 100, 200, 400, 800, 1_000, 1_000]);
        for _ in 0..100 {
            let pause = jittered(LONGEST_PAUSE);
            assert!(pause >= LONGEST_PAUSE / 2 && pause <= LONGEST_PAUSE, "{pause:?}");
        }
    }
}
