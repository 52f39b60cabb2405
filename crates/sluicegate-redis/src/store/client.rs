//! The connection and the runtime that a store calls Redis with: [`RedisClient`].

use std::time::Duration;

use sluicegate_core::clock::{Clock, SystemClock};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::connection::Supervised;

/// The connection of a store, its clock and its bounds: everything that outlives a call. A call clones the parts that it needs, because the
/// store may be dropped during the call.
pub(super) struct RedisClient {
    pub(super) connection: Supervised,
    pub(super) clock: Option<Box<dyn Clock>>,
    /// The longest time that a request may take.
    pub(super) deadline: Duration,
    /// The runtime in which the store was made, and in which its connections live.
    pub(super) runtime: Handle,
}

impl RedisClient {
    /// The deadline of a request that begins now. While the store waits for its first connection, the time
    /// counts from the end of that wait.
    pub(super) fn deadline(&self) -> Instant {
        self.connection.state().starting().unwrap_or_else(Instant::now) + self.deadline
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
