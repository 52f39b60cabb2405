//! Beyond a plain HTTP server: other services, other protocols, the client's side, and what lasts longer than a call.
//! Time is tokio's paused time, or is not looked at: sockets and paused time do not go together.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

mod calls;
mod connections;
mod downloads;
mod growth;
mod grpc;
mod in_flight;
mod outgoing;
mod pipelining;
mod queues;
mod readiness;
#[path = "../strict/mod.rs"]
mod strict;
mod support;
mod upgrades;
mod waits;
