//! From asks to decisions: [`Decider`].
//!
//! | file | does |
//! |---|---|
//! | `ask` | the ask about one key, as the script needs it |
//! | `caller`, `batch`, `request` | send requests to Redis, alone or with others |
//! | `command`, `lua/`, `reply`, `bucket` | the script, its input, and its output |
//! | `cross_slot` | requests whose keys live in several slots of a Cluster |
//! | `probe` | checks that the server can run the script |
//!
//! A call begins when the store is asked, with a first poll of its future, and
//! the store's runtime finishes it if that future is dropped. So a decision does not depend on
//! its caller, and a client that hangs up does not undo a charge.

mod ask;
mod batch;
mod bucket;
mod caller;
mod command;
mod cross_slot;
mod probe;
mod reply;
mod request;

use std::sync::Arc;

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::{Ask, DecisionFuture};
use sluicegate_core::{ConfigError, StoreError};

use self::ask::KeyAsk;
use self::caller::Caller;
use super::client::RedisClient;
use super::key::Tags;
use crate::connection::Probe;

/// Decides requests by the script.
pub(super) struct Decider(Arc<Caller>);

impl Decider {
    /// The commands that check whether the server can run the script.
    ///
    /// # Errors
    /// Only errors of a policy, which this crate does not cause.
    pub(super) fn probe(prefix: &str) -> Result<Probe, ConfigError> {
        probe::probe(prefix)
    }

    /// # Panics
    /// Outside of a tokio runtime.
    pub(super) fn start(client: Arc<RedisClient>) -> Self {
        Self(Arc::new(Caller::start(client)))
    }

    /// Decides one request: in one call, or in several if its keys live in several slots of a Cluster.
    pub(super) fn decide(&self, asks: &[Ask<'_>], tags: &Tags) -> DecisionFuture {
        let asks = match KeyAsk::each(asks, tags, || self.0.client.about_now_us()) {
            Ok(asks) => asks,
            Err(error) => return DecisionFuture::ready(Err(error)),
        };
        let client = &self.0.client;
        if client.connection.state().is_cluster && !asks.iter().all(|ask| ask.lives_with(&asks[0])) {
            let task = client.runtime.spawn(cross_slot::decide(Arc::clone(&self.0), asks));
            return DecisionFuture::pending(async {
                task.await.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable)))
            });
        }
        self.0.begin(asks)
    }
}
