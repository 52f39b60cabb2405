//! Sends requests to Redis: [`Caller`].

use std::sync::Arc;

use sluicegate_core::store::DecisionFuture;
use tokio::time::Instant;

use super::ask::KeyAsk;
use super::batch::Batcher;
use super::request::{ScriptRequest, call};
use crate::connection::part_of;
use crate::store::client::RedisClient;

/// Sends requests, alone or with others.
pub(super) struct Caller {
    pub(super) client: Arc<RedisClient>,
    batches: Batcher,
}

impl Caller {
    /// # Panics
    /// Outside of a tokio runtime.
    pub(super) fn start(client: Arc<RedisClient>) -> Self {
        let batches = Batcher::start(Arc::clone(client.connection.state()));
        Self { client, batches }
    }

    /// Decides asks of keys in one slot, in one call, which other requests may share. It begins at once, and continues
    /// even if its future is dropped.
    pub(super) fn begin(&self, asks: Vec<KeyAsk>) -> DecisionFuture {
        let request = self.request(asks, self.client.deadline());
        DecisionFuture::begun(&self.client.runtime, self.batches.decide(request))
    }

    /// Decides the asks of one slot for a request in several slots, by this deadline and in a call of its own. It begins at once, and
    /// continues even if its future is dropped.
    pub(super) fn ask(self: &Arc<Self>, asks: Vec<KeyAsk>, deadline: Instant) -> DecisionFuture {
        let (caller, request) = (Arc::clone(self), self.request(asks, deadline));
        DecisionFuture::begun(&self.client.runtime, async move {
            let connection = caller.client.connection.state();
            call(connection, part_of(request.slot()), &[&request]).await?.decision(&request.asks)
        })
    }

    fn request(&self, asks: Vec<KeyAsk>, deadline: Instant) -> ScriptRequest {
        ScriptRequest { asks, time: self.client.clock_us(), deadline }
    }
}
