//! Bytes a second of bodies, down and up: [`Limit::bandwidth`](crate::Limit::bandwidth).
//!
//! The policy of such a limit is in bytes. A request spends nothing of it; its body takes the bytes in pieces as they pass, and waits for its
//! turn where there are none. Pieces of one key go in the order in which they were asked for, so that all bodies of a key have the same part of
//! it.
//!
//! ```
//! use std::convert::Infallible;
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::{BodyExt, Full};
//! use sluicegate_core::{Key, MemoryStore, Policy};
//! use sluicegate_tower::bandwidth::Direction;
//! use sluicegate_tower::{Limit, RateLimitLayer};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = service_fn(|_: Request<()>| async {
//!     Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(vec![0; 1_500_000]))))
//! });
//! let downloads = Policy::gcra("downloads", "1MB/s burst 2MB").on(&MemoryStore::new())?;
//! let limit = Limit::new(downloads.clone()).key(Key::from("everybody")).bandwidth(Direction::Down);
//! let service = RateLimitLayer::new(limit).settling().layer(file);
//!
//! let response = service.oneshot(Request::new(())).await?;
//! assert_eq!(downloads.peek("everybody").await?.remaining(), 2_000_000, "no byte has passed yet");
//! // Two megabytes pass at once, and each one more in a second.
//! response.into_body().collect().await?;
//! assert!(downloads.peek("everybody").await?.remaining() < 2_000_000);
//! # Ok(())
//! # }
//! ```
//!
//! # Pieces
//! A piece is as many bytes as the policy gives in a tenth of a second, from 1 to 64 KiB, but at most half of each burst. Timers count in
//! milliseconds, so a burst of less than a hundredth of a second makes bodies slower than the quota says. The burst goes to the bodies that ask
//! first. Bytes are never copied. Trailers, and frames without data, pass at once. The bytes are those of the body where the layer stands: compressed ones if
//! the body is compressed further in.
//!
//! # Outages
//! While the store does not answer, bodies do as the policy's [`OnOutage`](sluicegate_core::OnOutage) says: they keep to the local share, go on
//! as fast as they can, or stand still and ask again each second.
//!
//! # Changes
//! A body follows each change of its policy, also in the middle: other numbers, another mode, an operator's override. A policy in shadow holds
//! no body; each body that it would have held counts as delayed among its
//! [counts](crate::RateLimitLayer::shadow_counts).
//!
//! # When not to use it
//! - For an amount, such as 10 GB a month: a body would stand still until the next month. A limit that [settles by
//!   bytes](crate::settle::Settle::bytes) refuses requests instead.
//! - For bytes of connections or packets: bodies alone are counted, without heads and without what TLS and HTTP/2 add.

mod body;
mod direction;
mod pace;
mod upload;

pub use self::body::PacedBody;
pub use self::direction::Direction;
pub(crate) use self::pace::{Paced, Pacer};
pub(crate) use self::upload::UploadSlot;
pub use self::upload::{UploadLayer, Uploads};
