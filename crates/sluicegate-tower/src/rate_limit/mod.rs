//! Limits in front of a service: [`RateLimitLayer`].
//!
//! The layer uses [`Limits`](crate::limits::Limits): it decides by them, turns a refusal into a response,
//! and writes fields into the responses of allowed requests. Its builder is theirs, with a
//! responder.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use http::{Request, Response};
//! use sluicegate_core::{Key, MemoryStore, Policy};
//! use sluicegate_tower::respond::{HeaderFields, Refusal};
//! use sluicegate_tower::{Limit, RateLimitLayer};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! let layer = RateLimitLayer::new(Policy::gcra("api", "100/min").on(&store)?); // the defaults
//!
//! let search = Limit::new(Policy::gcra("search", "10/min").on(&store)?).key(Key::from("all")).cost(10)?;
//! let layer = RateLimitLayer::builder(search)
//!     .headers(HeaderFields::Ietf)
//!     .respond(|refusal: &Refusal| {
//!         let mut response = Response::new("a moment, please");
//!         *response.status_mut() = refusal.status();
//!         response
//!     })
//!     .build()?;
//! let service = layer.layer(service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new("found")) }));
//!
//! assert_eq!(*service.clone().oneshot(Request::new(())).await?.body(), "found");
//! let refused = service.oneshot(Request::new(())).await?;
//! assert_eq!((*refused.body(), refused.headers().contains_key("ratelimit")), ("a moment, please", true));
//! # Ok(())
//! # }
//! ```
//!
//! # When not to use it
//! - Without a service to put it around: [`Limits::decide`](crate::limits::Limits::decide) takes any request.
//! - For calls that are not HTTP ([`call`](crate::call)), and to bound how much runs at once ([`in_flight`](crate::in_flight)).

mod builder;
mod gate;
mod layer;
mod not_built;
mod within;

pub use self::builder::{RateLimitLayerBuilder, Responding};
pub use self::layer::RateLimitLayer;
pub use crate::admission::meter::{Meter, Standing};
pub use crate::respond::decided::Decided;
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub use crate::respond::extractor::NotLimited;

/// A service behind a [`RateLimitLayer`].
///
/// Works for every request and response body. A denial is a response, never an error, and the inner service is then not
/// called.
pub type RateLimit<S, R = crate::respond::ProblemJson> = crate::guard::Guarded<S, RateLimitLayer<R>>;
