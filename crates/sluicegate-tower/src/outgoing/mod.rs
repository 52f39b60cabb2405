//! Calls to other servers, at the pace that both sides allow: [`OutgoingLayer`].
//!
//! The layer heeds servers' advice and spaces calls. It does not retry calls, and does not limit our own clients.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::convert::Infallible;
//! use std::time::Duration;
//! use http::{Request, Response};
//! use sluicegate_tower::call::CallError;
//! use sluicegate_tower::outgoing::OutgoingLayer;
//! use tower::{Layer, Service, ServiceExt, service_fn};
//!
//! // A service in place of a client, whose server has no units left for a minute.
//! let client = service_fn(|_: Request<()>| async {
//!     Ok::<_, Infallible>(Response::builder().header("ratelimit", r#""api";r=0;t=60"#).body(()).unwrap_or_default())
//! });
//! let mut client = OutgoingLayer::new().longest_wait(Duration::from_secs(5)).layer(client);
//! let request = || Request::get("https://api.example.org/").body(());
//! client.ready().await?.call(request()?).await?;
//! let refused = client.ready().await?.call(request()?).await;
//! assert!(matches!(refused, Err(CallError::HeldOff(wait)) if wait == Duration::from_secs(60)));
//! # Ok(())
//! # }
//! ```
//!
//! # When not to use it
//! If calls should fail rather than wait, ask the limiter before the call. Retries need
//! another layer, such as `RetryAfter` for `reqwest`: this one makes no call twice.
//!
//! # Clients
//! | client | with |
//! |---|---|
//! | a tower service with types of the `http` crate, such as hyper's client | `ServiceBuilder::new().layer(OutgoingLayer::new())` |
//! | `reqwest`, feature `reqwest` | `reqwest_middleware::ClientBuilder::new(client).with(OutgoingLayer::new())`, and then `client.get(url)` as before |
//! | a tower service with other types | [`OutgoingLayer::reading`] |

mod advice;
mod gate;
mod holds;
mod layer;
#[cfg(feature = "reqwest")]
mod reqwest;
mod wire;

pub use self::layer::OutgoingLayer;
#[cfg(feature = "reqwest")]
#[cfg_attr(docsrs, doc(cfg(feature = "reqwest")))]
pub use self::reqwest::RetryAfter;
pub use self::wire::{HttpWire, Wire};
