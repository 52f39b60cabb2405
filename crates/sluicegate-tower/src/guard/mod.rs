//! The frame of all layers of this crate: the service and the future of a call that may have to wait.
//!
//! Each layer defines what a call waits for, when it is refused, and what follows from its response. Everything else is here:
//! only the service that was polled ready is called, a waiting call keeps no readiness from others and takes one
//! of a bounded number of places, and a dropped call gives back everything that it holds.
//!
//! ```
//! use sluicegate_core::{MemoryStore, Policy};
//! use sluicegate_tower::call::CallLimitLayer;
//! use sluicegate_tower::guard::Guarded;
//! use tower::{Layer, Service, ServiceExt};
//!
//! struct Job {
//!     tenant: u64,
//! }
//!
//! /// A service behind a layer has a name that can be written into a field: no box is needed.
//! struct Office<S> {
//!     printer: Guarded<S, CallLimitLayer<fn(&Job) -> u64>>,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pages = Policy::gcra("pages", "100/h").on(&MemoryStore::new())?;
//! let layer = CallLimitLayer::new(pages, (|job: &Job| job.tenant) as fn(&Job) -> u64);
//! let print = tower::service_fn(|_: Job| async { Ok::<_, std::io::Error>("printed") });
//! let mut office = Office { printer: layer.layer(print) };
//! assert_eq!(office.printer.ready().await?.call(Job { tenant: 7 }).await?, "printed");
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//! - *Readiness*: the service that was polled ready is the one that is called. A call that waits
//!   gives up its readiness and polls a clone when its turn has come, so that waiting calls hold no
//!   place of an inner `ConcurrencyLimit`.
//! - *Errors*: errors of the service are not changed. Each layer decides whether a refusal is a response or an error.
//! - *Bounds*: a call that waits takes a place, and without a place it is refused at once.
//! - *Drop*: a call that is dropped while it waits leaves nothing behind.
//!
//! # When not to use it
//! Do not use it for layers of your own: [`Gate`] is sealed. It is public only so that services behind a
//! layer can be named.

pub(crate) mod gate;
pub(crate) mod service;

pub use self::gate::Gate;
pub(crate) use self::gate::sealed;
#[doc(hidden)]
pub use self::gate::sealed::Sealed;
#[doc(hidden)]
pub use self::gate::{GateAnswer, Next, Step};
#[doc(hidden)]
pub use self::gate::{Lookup, NotFound, Waits};
#[doc(hidden)]
pub use self::service::Place;
pub use self::service::{Guarded, ResponseFuture};
