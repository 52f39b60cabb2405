//! One call of the script: for one request, or for several independent requests.

use sluicegate_core::{Decision, StoreError};
use tokio::time::Instant;

use super::ask::KeyAsk;
use super::command::command;
use super::reply::ScriptReply;
use crate::connection::ConnectionState;

pub(super) type DecisionResult = Result<Decision, StoreError>;

/// One request and the data to send it.
///
/// The time of an injected clock is read when the request begins, not when it is sent; the server's
/// time is read by the script.
pub(super) struct ScriptRequest {
    /// The asks, whose keys all live in one slot.
    pub(super) asks: Vec<KeyAsk>,
    /// The time of an injected clock.
    pub(super) time: Option<u64>,
    pub(super) deadline: Instant,
}

impl ScriptRequest {
    pub(super) fn quotas(&self) -> usize {
        self.asks.iter().map(|ask| ask.prepared.rules.len()).sum()
    }

    /// The hash slot of all its keys on a Cluster.
    pub(super) fn slot(&self) -> u16 {
        self.asks.first().map_or(0, KeyAsk::slot)
    }
}

/// Calls the script for these requests, whose keys are in this part of the slots, at the time and until the deadline of the
/// last of them. The reply has their decisions in this order.
pub(super) async fn call<'a>(
    connection: &'a ConnectionState,
    part: usize,
    requests: &[&ScriptRequest],
) -> Result<ScriptReply<'a>, StoreError> {
    let (time, deadline) =
        requests.last().map_or_else(|| (None, Instant::now()), |last| (last.time, last.deadline));
    let asks = || requests.iter().map(|request| &*request.asks);
    let reply = connection.send(part, |name| command(name, asks(), time), deadline).await?;
    ScriptReply::read(&reply, &connection.disagreements)
}
