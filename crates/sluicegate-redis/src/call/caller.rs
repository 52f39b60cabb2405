//! The way from a store to Redis: [`Caller`].
//!
//! It holds everything that outlives a call: the connection, the queue for shared calls, the clock,
//! the deadline and the runtime. A call takes clones of what it needs, because the store may be
//! dropped while it is under way.

use std::time::Duration;

use sluicegate_core::clock::{Clock, SystemClock};
use sluicegate_core::store::DecisionFuture;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::batch::Batches;
use super::request::{Answer, Request, call};
use crate::ask::KeyAsk;
use crate::connection::{Supervised, part_of};

/// The way from a store to Redis.
pub(crate) struct Caller {
    pub(crate) connection: Supervised,
    pub(crate) batches: Batches,
    pub(crate) clock: Option<Box<dyn Clock>>,
    pub(crate) deadline: Duration,
    /// Where the store was made, and its connections live.
    pub(crate) runtime: Handle,
}

impl Caller {
    /// When a request that begins now has to be decided.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// The time, as nearly as this process knows it.
    pub(crate) fn about_now_us(&self) -> u64 {
        self.clock.as_ref().map_or_else(|| SystemClock::new().now_us(), |clock| clock.now_us())
    }

    /// Decides asks of keys that live together, in one call, which other requests may share. It begins at once, and goes on
    /// whether or not anybody waits for it.
    pub(crate) fn begin(&self, asks: Vec<KeyAsk>) -> DecisionFuture {
        let request = self.request(asks, self.deadline());
        DecisionFuture::begun(&self.runtime, self.batches.decide(request))
    }

    /// Decides the asks of one slot of a request that other slots decide, too, by this deadline and in a call of its own.
    pub(crate) async fn ask(&self, asks: Vec<KeyAsk>, deadline: Instant) -> Answer {
        let request = self.request(asks, deadline);
        call(self.connection.state(), part_of(request.slot()), &[&request]).await?.decision(&request.asks)
    }

    fn request(&self, asks: Vec<KeyAsk>, deadline: Instant) -> Request {
        Request { asks, time: self.clock.as_ref().map(|clock| clock.now_us()), deadline }
    }
}
