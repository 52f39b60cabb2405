//! What all layers have in common: readiness, lookups, queues, connections.

pub(crate) mod connections;
mod gates;
mod lookups;
mod pipelining;
mod queues;
mod readiness;
mod waits;
