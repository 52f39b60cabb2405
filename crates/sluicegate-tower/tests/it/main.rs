//! The promises of the crate, tried from outside: one binary, a folder for each room of `src`. Time moves only by hand, or
//! is tokio's paused time; where sockets are, it is not looked at.
//!
//! Beside it are the tests that need a process of their own: they count its allocations, or what is said once in it.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

mod call;
mod guard;
mod in_flight;
mod key;
mod limits;
mod outgoing;
mod rate_limit;
mod respond;
mod support;
