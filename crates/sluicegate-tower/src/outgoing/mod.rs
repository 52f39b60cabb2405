//! Calls to other servers, at the pace that they and we allow: [`OutgoingLayer`].

mod advice;
mod future;
mod holds;
mod layer;
mod wire;

pub use self::future::OutgoingFuture;
pub use self::layer::{Outgoing, OutgoingLayer};
pub use self::wire::{HttpWire, Wire, WireFn};
