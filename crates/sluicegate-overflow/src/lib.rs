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
//! // The second has to wait for ten seconds, and is told to ask after two thirds of them.
//! let second = shop.oneshot(Request::get("/").body(())?).await?;
//! assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
//! assert_eq!(second.headers()["retry-after"], "7");
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
//! # What a visitor is told
//! Its place and its wait are the most: they count all visitors before it as if they came, and it enters earlier by those that do not come. They
//! are exact while all come and the rate does not change. A visitor that had missed its turn and comes back takes the next one, so all others
//! enter a turn later.
//!
//! # How exact the rate is
//! Turns are spaced, and unused turns are not saved up: no second has more than the rate allows. The line calls visitors a second ahead and holds
//! them until their turns, so that hardly a turn is lost while three of ten visitors do not come: a fiftieth at most. It calls at most half as
//! many again as the rate. If a share `n` above a third does not come, `1.5 (1 - n)` of the rate enters, and a line is through in two thirds of
//! the time that it takes if all come. At less than two turns a second nobody is held ahead, and each visitor that does not come costs up to two
//! thirds of its turn. In tests, 20,000 visitors of whom a third leaves enter at 200 a second within a hundredth, and of whom two fifths leave
//! within an eighth.
//!
//! # What it costs
//! | | |
//! |---|---|
//! | a waiting visitor | 24 to 48 bytes in memory, 53 measured if places are counted by client; no connection and no thread |
//! | polls of a visitor | 2 + log<sub>3</sub> of its wait in seconds, including the first |
//! | polls of all | the rate times that number for the longest wait, and each visitor's first: 7 times the rate in a line of two minutes, 8 in one of ten, 10 in one of an hour |
//! | a request with a pass | a keyed hash; the line is not asked |
//!
//! The bounds of polls do not hold:
//! - in a pause: each visitor asks once a minute, however slow the rate is;
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
