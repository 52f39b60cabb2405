//! The promises of the crate, tried from outside: one binary, a folder for each room of `src`. Time moves only by hand, or
//! is tokio's paused time; where sockets are, it is not looked at.
//!
//! A test that needs a process of its own, for instance for what is logged once in it, runs `alone`. Tests that count
//! allocations have another allocator, and so are in the binary beside this one.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

mod bandwidth;
mod call;
mod defer;
mod exits;
mod guard;
mod in_flight;
mod key;
mod limits;
mod outgoing;
mod rate_limit;
mod request_fields;
mod respond;
mod settle;
mod support;
