//! Sends requests to Redis: [`Caller`].

use std::sync::Arc;

use sluicegate_core::store::DecisionFuture;
use tokio::time::Instant;

use super::ask::KeyAsk;
use super::batch::Batches;
use super::request::{Answer, Request, call};
use crate::connection::part_of;
use crate::store::line::Line;

/// Sends requests, alone or with others.
pub(super) struct Caller {
    pub(super) line: Arc<Line>,
    batches: Batches,
}

impl Caller {
    /// # Panics
    /// Outside of a tokio runtime.
    pub(super) fn start(line: Arc<Line>) -> Self {
        let batches = Batches::start(Arc::clone(line.connection.state()));
        Self { line, batches }
    }

    /// Decides asks of keys in one slot, in one call, which other requests may share. It begins at once, and continues
    /// even if its future is dropped.
    pub(super) fn begin(&self, asks: Vec<KeyAsk>) -> DecisionFuture {
        let request = self.request(asks, self.line.deadline());
        DecisionFuture::begun(&self.line.runtime, self.batches.decide(request))
    }

    /// Decides the asks of one slot for a request in several slots, by this deadline and in a call of its own.
    pub(super) async fn ask(&self, asks: Vec<KeyAsk>, deadline: Instant) -> Answer {
        let request = self.request(asks, deadline);
        call(self.line.connection.state(), part_of(request.slot()), &[&request])
            .await?
            .decision(&request.asks)
    }

    fn request(&self, asks: Vec<KeyAsk>, deadline: Instant) -> Request {
        Request { asks, time: self.line.clock_us(), deadline }
    }
}
