//! Faults of the store: see the README beside this file for the faults, how each is made, and which test shows it.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

mod clocks;
mod cluster;
mod connection;
mod content;
mod harness;
mod load;
mod logs;
mod machine;
mod names;
mod oracle;
mod process;
mod proof;
mod proxy;
mod sentinel;
mod server;
mod tls;
