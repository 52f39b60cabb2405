//! Calls to other servers, at the pace that they and we allow: [`OutgoingLayer`].

mod advice;
mod gate;
mod holds;
mod layer;
mod wire;

pub use self::layer::OutgoingLayer;
pub use self::wire::{HttpWire, Wire};
