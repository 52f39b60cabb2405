//! The promises of the crate, tried from outside: one binary, a folder for each room of `src`. Time moves only by hand.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod deny_cache;
mod elsewhere;
mod leased;
mod order;
mod quotas;
mod regional;
mod sharded;
mod support;
mod waits;
