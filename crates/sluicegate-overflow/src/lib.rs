//! A waiting room for flash sales: visitors get a fair place in line instead of a refusal.
//!
//! This crate is part of `sluicegate`, which re-exports all of it behind the feature `overflow`; use that crate.
//!
//! A [`WaitingRoom`] lets visitors in at a rate, first come, first served. A [`WaitingRoomLayer`] puts it in front of a service: a browser
//! gets a page that refreshes itself until its turn has come, any other client gets 503 with the reply as JSON.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use bytes::Bytes;
//! use http::{Request, Response, StatusCode};
//! use http_body_util::{BodyExt, Full};
//! use sluicegate_overflow::line::MemoryLine;
//! use sluicegate_overflow::{WaitingRoom, WaitingRoomLayer};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let room = WaitingRoom::builder("sale", "6/min").build(MemoryLine::new())?;
//! let shop = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("shop")))) });
//! let shop = WaitingRoomLayer::new(room.clone()).layer(shop);
//!
//! let first = shop.clone().oneshot(Request::get("/").body(())?).await?;
//! assert_eq!(first.status(), StatusCode::OK);
//!
//! // The second has to wait for ten seconds, and is told to ask halfway.
//! let second = shop.oneshot(Request::get("/").body(())?).await?;
//! assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
//! assert_eq!(second.headers()["retry-after"], "5");
//! let body = second.into_body().collect().await?.to_bytes();
//! assert!(str::from_utf8(&body)?.contains(r#""position":1"#), "{body:?}");
//! # Ok(())
//! # }
//! ```
//!
//! The line is in this process ([`MemoryLine`](line::MemoryLine)) or, with the feature `redis`, in a Redis that all instances of a service share
//! (`RedisLine`). Rate and mode then belong to that line: the last instance to set one sets it for all.
//!
//! # When to use it
//! Use it when more visitors come at once than the system behind can handle, and each of them wants to be served: sales, tickets,
//! registrations. A rate limit would refuse visitors at random, and those who reload most often would win.
//!
//! # When not to use it
//! - For an API whose clients retry by themselves: a rate limit with `Retry-After` is enough.
//! - Against a flood: each visitor costs a poll, and a place. Put a rate limit by address around it.
//!
//! # While visitors wait
//! [`set_rate`](WaitingRoom::set_rate) and [`set_mode`](WaitingRoom::set_mode) change the rate, pause the room and open it to all; operators
//! can do the same on the status page, which takes a room by `StatusPageBuilder::room`. With the feature `metrics`, a room exports
//! its numbers while requests come.
//!
//! # In a rules file
//! [`Rooms`] are the waiting rooms that a rules file of `sluicegate` names, by `on_exceeded: room`: operators write rates and conditions,
//! and a reload changes them while visitors wait. Code says where lines are kept, and gives the secrets:
//!
//! ```
//! use sluicegate_overflow::Rooms;
//! use sluicegate_overflow::line::MemoryLine;
//!
//! let rooms = Rooms::new(MemoryLine::new()).secrets("sixteen bytes or more", None);
//! // Then: Rules::builder().rooms(rooms.clone()).open(&store, "rules.yaml", Variables::environment())
//! let page = rooms.room("sale"); // for the status page
//! # _ = page;
//! ```
//!
//! # Work that may be done later
//! With the feature `deferred`, a `deferred::Deferral` keeps requests that exceed a limit, answers 202, and runs them when the limit has room; with
//! `deferred-redis` it keeps them in a Redis that instances share.
//!
//! # How good an estimate is
//! Position and wait assume that the share of visitors that come at their turn stays the same. When a crowd comes at once, none of its
//! visitors has been called yet: its first estimates are too long by the share that will leave, unless the room has seen a
//! crowd before. Later, nine of ten estimates are within a tenth of the true wait, or within a second, as long as the rate does not change.
//!
//! # How exact the rate is
//! Turns are spaced, and unused turns are not saved up: no second has more than the rate allows. The line calls visitors a second ahead and holds
//! them until their turns, so that no turn is lost while more visitors come than enter. Turns are lost only if too few visitors are there to
//! take them: in the first moments of a crowd, and at its end. In a test over sockets, 8,194 of 10,000 visitors enter at 400 a second within
//! a hundredth of a percent, and the others leave.
//!
//! # What it costs
//! | | |
//! |---|---|
//! | a waiting visitor | 24 to 48 bytes in memory, 53 measured if places are counted by client; no connection and no thread |
//! | polls of a visitor | 2 + log2 of its wait in seconds, including the first |
//! | polls of all | three times the rate a second, and each visitor's first |
//! | a request with a pass | a keyed hash; the line is not asked |
//!
//! The bounds of polls do not hold:
//! - in a pause: each visitor asks once or twice a minute, however slow the rate is;
//! - after an outage, a step of the clock, or a rate that was raised and lowered again: each visitor asks up to three more
//!   times, and visitors that come back together ask together.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "deferred")]
#[cfg_attr(docsrs, doc(cfg(feature = "deferred")))]
pub mod deferred;
mod layer;
pub mod line;
mod page;
mod reply;
mod room;
mod rooms;
mod ticket;

pub use self::layer::WaitingRoomLayer;
pub use self::reply::{Reason, Reply};
pub use self::room::{Pass, WaitingRoom, WaitingRoomBuilder};
pub use self::rooms::{NamedRoom, Rooms};
#[doc(inline)]
pub use sluicegate_tower::room::RoomError;
