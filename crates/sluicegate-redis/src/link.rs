//! A connection that somebody looks after: requests use it or do without, and never wait for it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::{Cmd, RedisError, RedisFuture, Value};
use sluicegate_core::{StoreError, StoreErrorKind};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::failure::{Remedy, is_no_script, remedy, store_error};
use crate::target::Target;

/// A live connection; clones share it.
pub(crate) trait Connection: Send + Sync + 'static {
    /// Sends a command and waits for its reply.
    fn send(&self, command: Cmd) -> RedisFuture<'static, Value>;
}

/// Timeouts in a row after which a connection is taken for dead, although the kernel still believes in it.
const TIMEOUTS_IN_A_ROW: u32 = 3;

/// Parts of a cluster's slots for each of which timeouts are counted: the two thirds of the answers that come from other
/// nodes say nothing about the one that hangs.
pub(crate) const PARTS: usize = 64;

/// A cluster is not asked for its nodes more often than this.
const CLUSTER_KEPT_FOR: Duration = Duration::from_secs(1);

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A supervised connection to one target.
pub(crate) struct Link {
    state: Arc<State>,
    supervisor: AbortHandle,
}

struct State {
    live: ArcSwapOption<Live>,
    /// A cluster's connection is used on until there is a better one: a node that fails is no reason to refuse the keys
    /// of the others.
    is_cluster: bool,
    /// The last connection that was found to be broken.
    broken: AtomicU64,
    lost: Notify,
    up: Notify,
}

struct Live {
    connection: Arc<dyn Connection>,
    generation: u64,
    timeouts: [AtomicU32; PARTS],
    /// Whether anything was answered since it was last looked at.
    answered: AtomicBool,
}

impl Link {
    /// Begins to connect in the background, and goes on for ever.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(crate) fn start(target: Target, probe: impl Fn() -> Cmd + Send + Sync + 'static) -> Self {
        let state = Arc::new(State {
            live: ArcSwapOption::empty(),
            is_cluster: target.is_cluster(),
            broken: AtomicU64::new(0),
            lost: Notify::new(),
            up: Notify::new(),
        });
        let supervisor = tokio::spawn(supervise(Arc::clone(&state), target, probe)).abort_handle();
        Self { state, supervisor }
    }

    /// Whether there is a connection now.
    pub(crate) fn is_up(&self) -> bool {
        self.state.live.load().is_some()
    }

    /// Waits until there is a connection.
    pub(crate) async fn up(&self) {
        loop {
            let up = self.state.up.notified();
            if self.is_up() {
                return;
            }
            up.await;
        }
    }

    /// Sends `command`, or `text` if the server does not know the script that `command` names; `part` is the part of
    /// the slots that both are for.
    pub(crate) fn send(
        &self,
        part: usize,
        command: Cmd,
        text: impl FnOnce() -> Cmd + Send + 'static,
        within: Duration,
    ) -> impl Future<Output = Result<Value, StoreError>> + Send + 'static {
        let live = self.state.live.load_full();
        let state = Arc::clone(&self.state);
        async move {
            let Some(live) = live else {
                return Err(StoreError::with_source(
                    StoreErrorKind::Unavailable,
                    "there is no connection to Redis",
                ));
            };
            let call = async {
                match live.connection.send(command).await {
                    Err(error) if is_no_script(&error) => live.connection.send(text()).await,
                    result => result,
                }
            };
            match timeout(within, call).await {
                Ok(Ok(value)) => {
                    // Relaxed, here and below: counts and marks order nothing else.
                    live.timeouts[part].store(0, Ordering::Relaxed);
                    live.answered.store(true, Ordering::Relaxed);
                    Ok(value)
                }
                Ok(Err(error)) => {
                    state.note(&live, part, remedy(&error));
                    Err(store_error(error))
                }
                Err(_) => {
                    state.note(&live, part, Remedy::Count);
                    Err(StoreError::new(StoreErrorKind::Timeout))
                }
            }
        }
    }
}

impl State {
    /// Acts on what a call learned about its connection.
    fn note(&self, live: &Live, part: usize, remedy: Remedy) {
        let replace = match remedy {
            Remedy::Keep => false,
            // The cluster client mends the connection to a single node by itself, most of the time.
            Remedy::Replace if !self.is_cluster => true,
            Remedy::Count | Remedy::Replace => {
                live.timeouts[part].fetch_add(1, Ordering::Relaxed);
                // Together: a caller that leaves each part alone for a while would take seconds for three in one of them.
                let open = live.timeouts.iter().map(|timeouts| timeouts.load(Ordering::Relaxed));
                open.fold(0, u32::saturating_add) >= TIMEOUTS_IN_A_ROW
            }
        };
        // Only the connection that failed is given up, not the one that came after it.
        if replace && self.live.load().as_ref().is_some_and(|current| current.generation == live.generation) {
            if !self.is_cluster {
                self.live.store(None);
            }
            self.broken.fetch_max(live.generation, Ordering::Relaxed);
            self.lost.notify_one();
        }
    }

    fn publish(&self, connection: Arc<dyn Connection>, generation: u64) {
        self.live.store(Some(Arc::new(Live {
            connection,
            generation,
            timeouts: [const { AtomicU32::new(0) }; PARTS],
            answered: AtomicBool::new(false),
        })));
        self.up.notify_waiters();
    }

    async fn until_broken(&self, generation: u64) {
        while self.broken.load(Ordering::Relaxed) < generation {
            self.lost.notified().await;
        }
    }
}

/// Connects, probes, publishes, and waits for the connection to be lost; for ever.
async fn supervise(state: Arc<State>, target: Target, probe: impl Fn() -> Cmd) {
    let mut generation = 0;
    let mut pause = FIRST_PAUSE;
    let mut warned = false;
    let within = target.connects_within();
    loop {
        let problem = match timeout(within, connect(&target, &probe)).await {
            Ok(Ok(connection)) => {
                if warned {
                    tracing::info!(%target, "connected to Redis again");
                }
                (pause, warned) = (FIRST_PAUSE, false);
                generation += 1;
                state.publish(connection, generation);
                if state.is_cluster {
                    sleep(CLUSTER_KEPT_FOR).await;
                }
                state.until_broken(generation).await;
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {within:?}"),
        };
        // What is left of a cluster is used as long as it answers.
        if state.live.load().as_ref().is_some_and(|live| !live.answered.swap(false, Ordering::Relaxed)) {
            state.live.store(None);
        }
        if !warned {
            tracing::warn!(%target, problem, "cannot connect to Redis; trying again in the background");
            warned = true;
        }
        sleep(jittered(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// A connection is ready when it can run the script: a replica, a full or a loading server all answer `PING`.
async fn connect(target: &Target, probe: &impl Fn() -> Cmd) -> Result<Arc<dyn Connection>, RedisError> {
    let connection = target.connect().await?;
    connection.send(probe()).await?;
    Ok(connection)
}

/// Between half of a pause and all of it, so that a fleet does not come back in step.
fn jittered(pause: Duration) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(0) % 1_000;
    pause / 2 + pause / 2 * u32::try_from(random).unwrap_or(0) / 1_000
}

impl Drop for Link {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("is_up", &self.is_up()).finish()
    }
}
