//! The status page: who is limited, by which policy and why, whether the store is the cause, and what to do about it.
//!
//! This crate is part of `sluicegate`, which re-exports all of it behind the feature `status`; use that one.
//!
//! [`StatusPage`] is a service of plain `http` to put behind a router: in axum with `nest_service`. The server draws all of it, and
//! it works without scripts.
//!
//! ```
//! use axum::Router;
//! use sluicegate_core::observed::Observed;
//! use sluicegate_core::{MemoryStore, Policy};
//! use sluicegate_status::StatusPage;
//! use sluicegate_tower::RateLimitLayer;
//!
//! let store = Observed::named("memory", MemoryStore::new())?;
//! let layer = RateLimitLayer::new(Policy::gcra("api", "100/min").on(&store)?);
//!
//! let page = StatusPage::new(&store)
//!     .limits("api", layer.limits_handle())
//!     // An authentication in front has left a name.
//!     .guard(|request| request.headers.get("x-authenticated-user")?.to_str().ok().map(str::to_owned))
//!     .secret(*b"32 bytes at random, from a vault")
//!     .origin("https://ops.example.org")
//!     .build()?;
//! let app: Router = Router::new()
//!     .nest_service("/status", page.clone())
//!     .route_service("/status.json", page);
//! # Ok::<(), sluicegate_core::ConfigError>(())
//! ```
//!
//! # Which numbers are whose
//! Rates, minutes and events are those of the instance that answers. Where a key stands is asked of its store, so that it is what
//! all instances know where they share one. A change of a policy is an [override](sluicegate_core::limiter::Overrides) in the
//! store: on a shared one all instances have it within 5 s, and the page says "this instance only" otherwise.
//!
//! # Who may see it, and what is kept secret
//! A page without a guard is not built. With [`unguarded_and_read_only`](StatusPageBuilder::unguarded_and_read_only) all keys are
//! digests, and nothing can be looked up or changed:
//!
//! ```
//! use http::{Request, StatusCode};
//! use sluicegate_core::observed::Observed;
//! use sluicegate_core::{MemoryStore, Policy};
//! use sluicegate_status::StatusPage;
//! use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Observed::named("read-only", MemoryStore::new())?;
//! let login = Policy::gcra("login", "5/min").on(&store)?;
//! let page = StatusPage::new(&store).unguarded_and_read_only().build()?;
//!
//! let shown = page.clone().oneshot(Request::get("/status.json").body(String::new())?).await?;
//! assert!(shown.body().contains(r#""name":"login""#));
//! let form = Request::post("/").header("content-type", "application/x-www-form-urlencoded").body(String::new())?;
//! assert_eq!(page.oneshot(form).await?.status(), StatusCode::FORBIDDEN);
//! # Ok(())
//! # }
//! ```
//!
//! - Changes and look-ups are POSTs with a token that is signed by the page's [secret](StatusPageBuilder::secret) for its visitor,
//!   and good for an hour. Nothing secret is ever in an address.
//! - They come from the page itself: the browser says `Sec-Fetch-Site: same-origin`, as all do under `https` and on `localhost`, or
//!   else `Origin` is one that the page [knows](StatusPageBuilder::origin). A request names a [host](StatusPageBuilder::host) that
//!   the page knows.
//! - Values that are typed in are not shown again. A key that is found is shown as its [kind](sluicegate_core::key::KeyKind) allows,
//!   and stands in forms as a sealed word, which any instance with the same secret reads.
//! - No script runs, nothing is loaded from elsewhere, no other page frames it, and nothing is kept in caches.
//!
//! # When not to use it
//! For alarms and for history: those are what metrics are for. The page shows an hour, to a person.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod action;
mod answer;
mod builder;
mod desk;
mod document;
mod fault;
mod html;
mod input;
mod instant;
mod page;
mod scope;

pub use self::builder::StatusPageBuilder;
pub use self::page::StatusPage;
