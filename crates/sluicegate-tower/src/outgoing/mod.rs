//! Calls to other servers, at the pace that they and we allow: [`OutgoingLayer`].

mod advice;
mod future;
mod holds;
mod layer;
mod service;
mod wire;

pub use self::future::OutgoingFuture;
pub use self::layer::OutgoingLayer;
pub use self::service::Outgoing;
pub use self::wire::{HttpWire, Wire, WireFn};
