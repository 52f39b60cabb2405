//! Limits in front of a service: [`RateLimitLayer`].
//!
//! The layer uses [`Limits`](crate::limits::Limits): it decides with them, turns a refusal into a response,
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
//! # Traces
//! The `tracing` span that is current when a layer decides gets the decision, once its request is answered or dropped, if the span declares
//! `rate_limit.outcome`. It gets the following fields if it declares them; they stay empty if no limit in force applies to the request.
//!
//! | field | value |
//! |---|---|
//! | `rate_limit.outcome` | [`allowed`, `rejected`, `impossible`, `suspended`](sluicegate_core::Outcome::as_str); `delayed` for a request that waits for its turn; for a refusal without a decision [the reason](sluicegate_core::store::Undecided::as_str), or `outage` |
//! | `rate_limit.policy` | the policy that refused, or else the tightest one; with nested layers, of all of them |
//! | `rate_limit.remaining` | the units left in its quota |
//! | `rate_limit.decided_by` | [`store`, `lease`, `cache`, `fallback`, `outage`](sluicegate_core::store::DecidedBy::as_str) |
//! | `rate_limit.wait_ms` | the wait for its turn, or the wait sent to a refused client, in milliseconds |
//!
//! ```
//! use tracing::field::Empty;
//!
//! // For `TraceLayer::new_for_http().make_span_with(..)`, in front of the limits.
//! fn span(request: &http::Request<()>) -> tracing::Span {
//!     tracing::info_span!(
//!         "request",
//!         method = %request.method(),
//!         rate_limit.outcome = Empty,
//!         rate_limit.policy = Empty,
//!         rate_limit.wait_ms = Empty,
//!     )
//! }
//! # span(&http::Request::new(()));
//! ```
//!
//! A wait for a turn is a span of its own, `rate_limit.wait` at level `INFO` with the target `sluicegate::wait`. It has the policy, the wait
//! as decided, and `rate_limit.ended_by`: `turn`, or `given_up` if the request was dropped before. [Calls](crate::call) and
//! `outgoing` ones have this span, too; the span around them, which may be that of a request, gets no fields.
//!
//! Spans of the same level and target are `in_flight.wait`, the wait for a permit of `in_flight`, with the name of the limit in
//! `rate_limit.policy` and `rate_limit.ended_by` (`permit`, `refused` or `given_up`); and `bandwidth.wait`, from the first wait of a body for
//! its [bandwidth](crate::bandwidth) to its end, with `rate_limit.policy` and the sum of its waits in `rate_limit.wait_ms`.
//!
//! # When not to use it
//! - Without a service to put it around: [`Limits::decide`](crate::limits::Limits::decide) takes any request.
//! - For calls that are not HTTP ([`call`](crate::call)), and to bound concurrent work (`in_flight`).

mod builder;
mod gate;
mod layer;
mod within;

pub use self::builder::{RateLimitLayerBuilder, Responding};
pub(crate) use self::gate::LayerWait;
pub use self::layer::RateLimitLayer;
pub use crate::admission::meter::{Meter, Standing};
pub use crate::respond::decided::Decided;
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub use crate::respond::extractor::NotLimited;

/// A service behind a [`RateLimitLayer`].
///
/// It works for every request and response body. A denial is a response, never an error, and the inner service is then not
/// called.
pub type RateLimit<S, R = crate::respond::ProblemJson> = crate::guard::Guarded<S, RateLimitLayer<R>>;
