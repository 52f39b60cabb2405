//! A supervised connection: requests use it or fail without it, and never wait for a server
//! that is down.
//!
//! | file | purpose |
//! |---|---|
//! | `supervisor` | connects, probes, publishes, waits for the loss; forever |
//! | `state` | state that requests and the supervisor share: the live connection, and marks of its problems |
//! | `send` | sends one command, and notes failures of the connection |
//! | `probe` | the commands that test whether a connection can decide |
//! | `failure` | the meaning of an error, for the request and for the connection |
//! | `server/` | the address of Redis, and how to connect: clients, TLS, pools |
//!
//! # Invariants
//! - A request never connects. It finds a connection or fails at once. There are two exceptions: shortly after the
//!   start it waits for the first connection, and after a loss announced by the peer it waits for the one
//!   attempt to reconnect.
//! - Connections are numbered. A call's failure affects only the connection that it used, so that ten
//!   late failures do not drop the next connection.
//! - No lock: the live connection is swapped atomically, and marks are counts.
//!
//! # Why not the client's own manager
//! `ConnectionManager` of the redis crate reconnects while a request waits, without a bound, and
//! does not recover from an authentication error. The cluster client stays with a primary that
//! hangs. Both were found by tests against failing servers.

mod failure;
mod server;
mod state;
mod supervisor;

pub(crate) use self::failure::is_of_moving_slot;
#[cfg(feature = "deadpool")]
pub use self::server::DeadPool;
pub(crate) use self::server::{ServerConnection, Target, TrustedCa};
pub(crate) use self::state::{ConnectionState, Probe, ScriptName, part_of};
pub(crate) use self::supervisor::supervise;
