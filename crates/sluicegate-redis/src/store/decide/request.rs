//! One call of the script: for one request, or for several independent requests.

use sluicegate_core::{Decision, StoreError};
use tokio::time::Instant;

use super::ask::KeyAsk;
use super::command::{command, expires};
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
/// last of them. The reply has their decisions in this order. A request that the server gets to later, because it was stopped or busy, is not
/// carried out: its caller has decided without it.
pub(super) async fn call<'a>(
    connection: &'a ConnectionState,
    part: usize,
    requests: &[&ScriptRequest],
) -> Result<ScriptReply<'a>, StoreError> {
    let begun = Instant::now();
    let (time, deadline) = requests.last().map_or((None, begun), |last| (last.time, last.deadline));
    let asks = || requests.iter().map(|request| &*request.asks);
    // That of the first, and none by an injected clock.
    let first =
        requests.iter().filter(|request| expires(&request.asks)).map(|request| request.deadline).min();
    let (clock, first) = (&connection.clocks[part], first.filter(|_| time.is_none()));
    let deadline_us = || first.and_then(|first| clock.at(first)).unwrap_or(u64::MAX);
    let command = |name| command(name, asks(), time, deadline_us());
    let reply = connection.send(part, command, deadline).await?;
    let mut reply = ScriptReply::read(&reply, &connection.disagreements)?;
    reply.part = part;
    if time.is_none() {
        clock.note(begun, reply.now_us, Instant::now());
    }
    Ok(reply)
}
