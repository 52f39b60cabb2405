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
//! # `status.json`
//! The page as data. A field may be added at any time; what is there stays what it is while `version` is 1.
//!
//! ```json
//! {"version": 1, "at": "2026-11-21T15:00:00.000Z", "instance": "web-3", "uptime_seconds": 11520,
//!  "stores": [
//!    {"name": "redis", "state": "ok", "breaker": "closed", "opened": 0,
//!     "errors": {"timeout": 0, "unavailable": 0, "protocol": 0},
//!     "fallback_decisions": 0, "fallback_seconds": 0, "unsettled_keys": 0,
//!     "keys": 812, "slots": 187000, "evictions": 0}],
//!  "policies": [
//!    {"name": "login", "algorithm": "sliding-counter",
//!     "quotas": [{"label": "login", "limit": 10, "period_seconds": 60, "burst": 10}],
//!     "mode": "enforce", "hidden": false,
//!     "override": {"by": "ada", "until": "2026-11-21T15:40:00.000Z", "version": 1795272000000000,
//!                  "shared": true, "own_quotas": ["5/min"], "own_mode": "enforce"},
//!     "on_exceeded": "deny", "on_outage": "local",
//!     "per_second": {"allowed": 12.4, "rejected": 0.3, "delayed": 0.0, "suspended": 0.0},
//!     "minutes": [{"at": "2026-11-21T14:59:00.000Z", "allowed": 720, "rejected": 18}],
//!     "waiting": 0, "suspended_seen": 2,
//!     "offenders": [{"key": "203.0.113.9", "kind": "address", "ref": "5f0c…", "rejected": 9120,
//!                    "error": 12, "share": 0.61, "suspended_until": null}]}],
//!  "events": [{"at": "2026-11-21T14:40:00.000Z", "what": "quota_changed", "policy": "login",
//!              "from": "5/min", "to": "10/min"}]}
//! ```
//!
//! | field | what it says |
//! |---|---|
//! | `state` | `ok`; `fallback` while a part of the store is not asked; `down` |
//! | `breaker` | `closed`, `half_open`, `open`: that of the part that does worst |
//! | `keys`, `slots` | keys in debt in the table in memory, or in that of the fallback, and how many fit |
//! | `mode` | `enforce`, `shadow` or `off` |
//! | `override` | what an operator has made of the policy, until when, and what is back then; `null` if nobody has |
//! | `per_second` | the mean of the last 10 seconds |
//! | `minutes` | the last 60 whole minutes, the oldest first |
//! | `suspended_seen` | keys that were refused as suspended in the last minute |
//! | `offenders` | the keys that were refused most in the last 5 to 10 minutes; a count is at most `error` too high |
//! | `kind` | `address` and `name` in clear, or `digest` |
//! | `ref` | a word that stands for the key in look-ups |
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
mod notices;
mod page;
mod route;
mod scope;

pub use self::builder::StatusPageBuilder;
pub use self::page::StatusPage;
