//! How many requests of a key are under way at once: [`InFlightLayer`].

mod body;
mod gate;
mod layer;

pub use self::body::{HeldPermit, PermitBody};
pub use self::layer::InFlightLayer;
