//! Limits for calls that are not HTTP: jobs, queries, messages, any [`Service`](tower_service::Service).
//!
//! A call that exceeds its limit fails with a [`CallError`], or waits for its turn if the policy waits. For HTTP, use
//! [`RateLimitLayer`](crate::RateLimitLayer), which answers refused requests with a response. `CallInFlightLayer` limits concurrent
//! calls.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::convert::Infallible;
//! use std::time::Duration;
//! use sluicegate_core::{MemoryStore, Policy};
//! use sluicegate_tower::call::{CallError, CallLimitLayer};
//! use tower::{Layer, Service, ServiceExt, service_fn};
//!
//! let mail = Policy::gcra("mail", "2/s burst 1").wait_up_to(Duration::from_secs(5)).on(&MemoryStore::new())?;
//! let layer = CallLimitLayer::new(mail, |recipient: &&str| recipient.to_string()).longest_queue(1);
//! let mut send = layer.layer(service_fn(|_: &str| async { Ok::<_, Infallible>("sent") }));
//! assert_eq!(send.ready().await?.call("ada").await?, "sent");
//! let waits = send.ready().await?.call("ada");
//! let refused = send.ready().await?.call("ada").await;
//! assert!(matches!(refused, Err(CallError::QueueFull(_))));
//! assert_eq!(waits.await?, "sent");
//! # Ok(())
//! # }
//! ```
//!
//! # When not to use it
//! - For HTTP: a client would get an error page of the server instead of a 429.
//! - If several limits have to be decided together: ask
//!   [`check_all`](sluicegate_core::limiter::check_all) in the service itself.

mod admission;
mod error;
#[cfg(feature = "in-flight")]
mod in_flight;
mod key;
mod layer;

#[cfg(feature = "outgoing")]
pub(crate) use self::admission::{CallAsk, CallWait, QueuedLimiter, notice};
pub use self::error::CallError;
#[cfg(feature = "in-flight")]
#[cfg_attr(docsrs, doc(cfg(feature = "in-flight")))]
pub use self::in_flight::{CallInFlightLayer, IsFault, NoFault};
pub use self::key::CallKey;
pub use self::layer::CallLimitLayer;
