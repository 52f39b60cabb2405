//! The connection and the runtime that a store calls Redis with: [`RedisClient`].

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::StoreError;
use sluicegate_core::clock::{Clock, SystemClock};
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::KeptTask;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::connection::ConnectionState;

/// The connection of a store, its clock and its bounds: everything that outlives a call. A call clones the parts that it needs, because the
/// store may be dropped during the call.
pub(super) struct RedisClient {
    pub(super) connection: Arc<ConnectionState>,
    /// Connects, reads what instances share, and sends requests that waited.
    pub(super) background: KeptTask,
    pub(super) clock: Option<Box<dyn Clock>>,
    /// The longest time that a request may take.
    pub(super) deadline: Duration,
}

impl RedisClient {
    /// The runtime in which the connection lives: the one on which the store was made, or after its end that of a later caller.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unavailable`] when that has ended, and the caller is on none.
    pub(super) fn runtime(&self) -> Result<Handle, StoreError> {
        self.background.keep()
    }

    /// Waits until there is a connection.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unavailable`] when there is no connection `within` this time, with the error of the last attempt.
    pub(super) async fn connected(&self, within: Duration) -> Result<(), StoreError> {
        self.runtime()?;
        timeout(within, self.connection.up()).await.map_err(|_| {
            let problem =
                self.connection.problem().map_or_else(String::new, |problem| format!(": {problem}"));
            let problem = format!("there is no connection to Redis{problem}");
            StoreError::with_source(StoreErrorKind::Unavailable, problem).unsent()
        })
    }

    /// Whether there is a connection now.
    pub(super) fn is_connected(&self) -> bool {
        self.background.is_running() && self.connection.is_up()
    }

    /// The deadline of a request that begins now. While the store waits for its first connection, the time
    /// counts from the end of that wait.
    pub(super) fn deadline(&self) -> Instant {
        self.connection.starting().unwrap_or_else(Instant::now) + self.deadline
    }

    /// The time of the store's own clock, or `None` if the server's clock counts.
    pub(super) fn clock_us(&self) -> Option<u64> {
        self.clock.as_ref().map(|clock| clock.now_us())
    }

    /// The time, as closely as this process knows it.
    pub(super) fn about_now_us(&self) -> u64 {
        self.clock_us().unwrap_or_else(|| SystemClock::new().now_us())
    }
}
