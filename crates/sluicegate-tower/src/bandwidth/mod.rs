//! Bytes a second of bodies, down and up: [`Limit::bandwidth`](crate::Limit::bandwidth).
//!
//! The policy of such a limit counts bytes. A request spends none of them; its body takes bytes in pieces as they pass, and waits for its
//! turn if there are none. Pieces of one key pass in the order in which they were requested, so that all bodies of a key get equal
//! shares.
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
//! // Two megabytes pass at once, and each further megabyte takes a second.
//! response.into_body().collect().await?;
//! assert!(downloads.peek("everybody").await?.remaining() < 2_000_000);
//! # Ok(())
//! # }
//! ```
//!
//! # Pieces
//! A piece is the number of bytes that the policy gives in a tenth of a second, from 1 to 64 KiB, but at most half of each burst. Timers count in
//! milliseconds, so a burst of less than a hundredth of a second makes bodies slower than the quota says. The burst goes to the bodies that ask
//! first. Bytes are never copied. Trailers, and frames without data, pass at once. The layer counts the bytes that it sees: compressed bytes if
//! an inner layer compresses the body.
//!
//! # Outages
//! While the store does not answer, the policy's [`OnOutage`](sluicegate_core::OnOutage) applies: bodies keep to the local share, pass
//! as fast as they can, or stop and ask again each second.
//!
//! # Changes
//! A body follows each change of its policy while it passes: another quota, another mode, an operator's override. A policy in shadow mode delays
//! no body; each body that it would have delayed counts as delayed in its
//! [counts](crate::RateLimitLayer::shadow_counts).
//!
//! # When not to use it
//! - For an amount, such as 10 GB a month: a body would stop until the next month. A limit that [settles by
//!   bytes](crate::settle::Settle::bytes) refuses requests instead.
//! - For bytes of connections or packets: only bodies are counted, without heads and without the overhead of TLS and HTTP/2.

mod body;
mod pace;

pub(crate) use self::body::UploadSlot;
pub use self::body::{Direction, PacedBody, UploadLayer, Uploads};
pub(crate) use self::pace::{Paced, Pacer};
