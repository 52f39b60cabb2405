//! From asks to decisions: [`Decider`].
//!
//! | file | purpose |
//! |---|---|
//! | `ask` | the ask about one key, as the script needs it |
//! | `batch`, `request` | send requests to Redis, alone or with others |
//! | `script`, `lua/`, `command`, `reply`, `bucket` | the script, its input, and its output |
//! | `cross_slot` | requests with keys in several slots of a Cluster |
//! | `probe` | checks that the server can run the script |
//!
//! A call starts when the store is asked, with a first poll of its future, and
//! the store's runtime finishes it if that future is dropped. So a decision does not depend on
//! its caller, and a client that hangs up does not undo a charge.

mod ask;
mod batch;
mod bucket;
mod command;
mod cross_slot;
mod probe;
mod reply;
mod request;
mod script;

use std::sync::Arc;

use sluicegate_core::store::{Ask, DecisionFuture};
use tokio::time::Instant;

use self::ask::KeyAsk;
pub(super) use self::batch::{Batcher, gather};
pub(super) use self::probe::probe;
use self::request::{ScriptRequest, call};
pub(super) use self::script::KINDS;
use super::client::RedisClient;
use super::key::Tags;
use crate::connection::part_of;

/// Decides requests with the script, alone or with others.
pub(super) struct Decider {
    client: Arc<RedisClient>,
    batcher: Batcher,
}

impl Decider {
    pub(super) fn new(client: Arc<RedisClient>, batcher: Batcher) -> Self {
        Self { client, batcher }
    }

    /// Decides one request: in one call, which others may share, or in several if its keys are in several slots of a Cluster.
    pub(super) fn decide(self: &Arc<Self>, asks: &[Ask<'_>], tags: &Tags) -> DecisionFuture {
        let client = &self.client;
        let asks = match KeyAsk::each(asks, tags, || client.about_now_us()) {
            Ok(asks) => asks,
            Err(error) => return DecisionFuture::ready(Err(error)),
        };
        let runtime = match client.runtime() {
            Ok(runtime) => runtime,
            Err(ended) => return DecisionFuture::ready(Err(ended)),
        };
        if client.connection.is_cluster && !asks.iter().all(|ask| ask.lives_with(&asks[0])) {
            return DecisionFuture::begun(&runtime, cross_slot::decide(Arc::clone(self), asks));
        }
        let request = self.request(asks, client.deadline());
        self.batcher.decide(request, &runtime)
    }

    /// Decides the asks of one slot for a request in several slots, by this deadline and in a call of its own. It begins at once, and
    /// continues even if its future is dropped.
    fn ask(self: &Arc<Self>, asks: Vec<KeyAsk>, deadline: Instant) -> DecisionFuture {
        let (connection, request) = (Arc::clone(&self.client.connection), self.request(asks, deadline));
        DecisionFuture::begun_here(async move {
            call(&connection, part_of(request.slot()), &[&request]).await?.decision(&request.asks)
        })
    }

    fn request(&self, asks: Vec<KeyAsk>, deadline: Instant) -> ScriptRequest {
        ScriptRequest { asks, time: self.client.clock_us(), deadline }
    }
}
