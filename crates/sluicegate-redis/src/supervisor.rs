//! What looks after a connection: it connects, and connects again, for ever.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisError};
use tokio::time::{Instant, sleep, timeout};

use crate::link::{Connection, State};
use crate::target::{Closed, Target};

/// A cluster is not asked for its nodes more often than this.
const CLUSTER_KEPT_FOR: Duration = Duration::from_secs(1);

/// A connection that lived as long was a good one: the next attempt begins at once.
const GOOD_AFTER: Duration = Duration::from_secs(1);

const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// At most two attempts a second by each instance of a fleet, and at most a second until a server that is back is found.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Connects, probes, publishes, and waits for the connection to be lost; for ever.
pub(crate) async fn supervise<P>(state: Arc<State>, target: Target, probe: P)
where
    P: Fn() -> Cmd + Send + Sync + 'static,
{
    let probe = Arc::new(probe);
    let mut generation = 0;
    let mut pause = Duration::ZERO;
    let mut warned = false;
    loop {
        generation += 1;
        let closed = {
            // Weak: the connection keeps this, and is kept by the state, which would then outlive the store.
            let state = Arc::downgrade(&state);
            Closed::new(move || {
                if let Some(state) = state.upgrade() {
                    state.closed(generation);
                }
            })
        };
        let problem = match attempt(&target, Arc::clone(&probe), closed).await {
            Ok(connection) => {
                if warned {
                    tracing::info!(%target, "connected to Redis again");
                    warned = false;
                }
                let since = Instant::now();
                state.publish(connection, generation);
                if state.is_cluster {
                    sleep(CLUSTER_KEPT_FOR).await;
                }
                state.until_broken(generation).await;
                if since.elapsed() >= GOOD_AFTER {
                    pause = Duration::ZERO;
                } else if !pause.is_zero() {
                    // A server that closes every new connection is not to be asked in a tight loop.
                    state.settle();
                    sleep(jittered(pause)).await;
                }
                pause = longer(pause);
                continue;
            }
            Err(problem) => problem,
        };
        state.drop_if_silent();
        state.settle();
        if !warned {
            tracing::warn!(%target, problem, "cannot connect to Redis; trying again in the background");
            warned = true;
        }
        pause = longer(pause);
        sleep(jittered(pause)).await;
    }
}

/// One attempt, in a task of its own: should what connects panic, it is this attempt that ends, and not the supervisor.
async fn attempt<P>(target: &Target, probe: Arc<P>, closed: Closed) -> Result<Arc<dyn Connection>, String>
where
    P: Fn() -> Cmd + Send + Sync + 'static,
{
    let within = target.connects_within();
    let target = target.clone();
    let task = tokio::spawn(async move { timeout(within, connect(&target, &*probe, closed)).await });
    match task.await {
        Ok(Ok(Ok(connection))) => Ok(connection),
        Ok(Ok(Err(error))) => Err(error.to_string()),
        Ok(Err(_)) => Err(format!("no answer within {within:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// A connection is ready when it can run the script: a replica, a full or a loading server all answer `PING`.
async fn connect(
    target: &Target,
    probe: &(impl Fn() -> Cmd + Send + Sync),
    closed: Closed,
) -> Result<Arc<dyn Connection>, RedisError> {
    let connection = target.connect(closed).await?;
    connection.send(probe()).await?;
    Ok(connection)
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE)
}

/// Between half of a pause and all of it, so that a fleet does not come back in step.
fn jittered(pause: Duration) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(0) % 1_000;
    pause / 2 + pause / 2 * u32::try_from(random).unwrap_or(0) / 1_000
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
