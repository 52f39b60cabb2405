//! The way from a store to Redis: [`Line`].

use std::time::Duration;

use sluicegate_core::clock::{Clock, SystemClock};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::connection::Supervised;

/// The way from a store to Redis: everything that outlives a call. A call takes clones of what it needs, because the store may be
/// dropped while it is under way.
pub(super) struct Line {
    pub(super) connection: Supervised,
    pub(super) clock: Option<Box<dyn Clock>>,
    /// How long a request may take.
    pub(super) deadline: Duration,
    /// Where the store was made, and its connections live.
    pub(super) runtime: Handle,
}

impl Line {
    /// When a request that begins now has to be decided: while the store waits for its first connection, after that wait.
    pub(super) fn deadline(&self) -> Instant {
        self.connection.state().starting().unwrap_or_else(Instant::now) + self.deadline
    }

    /// The time of a clock that the store was given; none if the server's counts.
    pub(super) fn clock_us(&self) -> Option<u64> {
        self.clock.as_ref().map(|clock| clock.now_us())
    }

    /// The time, as nearly as this process knows it.
    pub(super) fn about_now_us(&self) -> u64 {
        self.clock_us().unwrap_or_else(|| SystemClock::new().now_us())
    }
}
