//! The promises of a room, tried from outside. Time moves only by hand.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

mod across;
mod bounds;
#[cfg(feature = "deferred")]
mod deferred;
mod layer;
mod memory;
mod support;
