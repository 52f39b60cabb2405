//! Limits on concurrent requests of a key: [`InFlightLayer`].
//!
//! They are for requests that take long: uploads, downloads, streams, reports. A rate limits how often requests begin, but not how
//! long they last; for many short requests it is the better limit.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::convert::Infallible;
//! use std::time::Duration;
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use sluicegate_in_flight::InFlight;
//! use sluicegate_tower::in_flight::InFlightLayer;
//! use sluicegate_tower::key::HeaderKey;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! let reports = InFlight::new("reports", 1)?;
//! let layer = InFlightLayer::new(reports.clone())
//!     .key(HeaderKey::new("x-tenant")?)
//!     .wait_up_to(Duration::from_secs(2));
//! let report = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
//! let request = || Request::get("/report").header("x-tenant", "t1").body(());
//!
//! // A request is in flight while its permit is held, and the next one waits in vain.
//! let held = reports.try_acquire("t1")?;
//! assert_eq!(layer.layer(report).oneshot(request()?).await?.status(), 429);
//! drop(held);
//! assert_eq!(layer.layer(report).oneshot(request()?).await?.status(), 200);
//! # Ok(())
//! # }
//! ```
//!
//! # When not to use it
//! - For a bound over all instances of a service, unless the `InFlight` is [on a store](sluicegate_in_flight::InFlightBuilder::on)
//!   that they share: other permits are counted per process.
//! - For work that continues after the response, unless a [`HeldPermit`] is kept for it.
//! - For many short requests: a rate is the right limit.

mod body;
mod explain;
mod gate;
mod layer;
mod limit;

pub use self::body::{HeldPermit, PermitBody};
pub use self::explain::{InFlightExplained, PermitExplained};
pub(crate) use self::gate::PermitWait;
pub use self::layer::InFlightLayer;
pub use self::limit::{InFlightHandle, InFlightLimit, InFlightLimits};
