//! How many requests of a key are under way at once: [`InFlightLayer`].

mod body;
mod future;
mod layer;
mod respond;
mod service;

pub use self::body::{HeldPermit, PermitBody};
pub use self::future::InFlightFuture;
pub use self::layer::InFlightLayer;
pub use self::respond::InFlightProblem;
pub use self::service::LimitInFlight;
