//! Limits that four processes share by real servers: what they admit together, whatever befalls one of them or the server.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

mod crowd;
mod faults;
mod instance;
mod permits;
mod soak;
mod steady;
mod stop;
