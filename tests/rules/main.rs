//! Rules at work: a gateway, reloads under load, files as they are swapped and broken, and signals, over real sockets and in
//! processes of their own.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

mod fleet;
mod folder;
mod gateway;
mod load;
mod own;
mod page;
mod replayed;
mod rooms;
mod sighup;
#[path = "../it/support.rs"]
#[expect(dead_code, reason = "another binary needs the rest")]
mod support;
mod swaps;
mod terms;
mod tokens;
