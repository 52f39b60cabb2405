//! What all layers have in common: readiness, lookups, queues, connections.

pub(crate) mod connections;
pub(crate) mod gates;
pub(crate) mod lookups;
mod pipelining;
mod queues;
pub(crate) mod readiness;
mod waits;
