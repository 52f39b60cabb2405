//! Costs that a response states: tokens of a language model, rows of a query, bytes of a download.
//!
//! A limit with a [`Settle`] spends its cost as a reservation, and finds the true cost in the response. The difference is given back or
//! charged: units that do not fit become a debt, and later requests are refused until it is paid off. Bodies are read as they pass, and never
//! collected.
//!
//! ```
//! use std::convert::Infallible;
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::{BodyExt, Full};
//! use sluicegate_core::{Key, MemoryStore, Policy};
//! use sluicegate_tower::settle::Settle;
//! use sluicegate_tower::{Limit, RateLimitLayer};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = service_fn(|_: Request<()>| async {
//!     let answer = r#"{"choices": ["42"], "usage": {"total_tokens": 17}}"#;
//!     Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(answer))))
//! });
//! let tokens = Policy::fixed_window("tokens", "10000/min").on(&MemoryStore::new())?;
//! let limit = Limit::new(tokens.clone())
//!     .key(Key::from("everybody"))
//!     .cost(500)?
//!     .settle(Settle::json("usage.total_tokens")?);
//! let service = RateLimitLayer::new(limit).settling().layer(model);
//!
//! let response = service.oneshot(Request::new(())).await?;
//! assert_eq!(tokens.peek("everybody").await?.remaining(), 9_500, "the body has not been read yet");
//! response.into_body().collect().await?;
//! assert_eq!(tokens.peek("everybody").await?.remaining(), 9_983);
//! # Ok(())
//! # }
//! ```
//!
//! # When not to use it
//! - If the request states its cost, use [`Limit::cost_fn`](crate::Limit::cost_fn).
//! - If your handler knows the cost, use its [`Meter`](crate::Meter).
//! - If the status of the response says whether the request counts, use [`Limit::refund_if`](crate::Limit::refund_if).
//!
//! # Costs that are not found
//! The reservation stays spent if the response lacks the number, if the body is compressed (`Content-Encoding`; the log says so once),
//! and if no response came. If the response ends early, [`OnAbort`] sets the cost.

pub(crate) mod layer;
mod rule;

pub use self::layer::{Reserve, SettlingBody, SettlingLayer};
pub use self::rule::{OnAbort, Prices, Settle};
