//! The status page: who is limited, by which policy and why, whether the store is the cause, and what to do about it.
//!
//! This crate is part of `sluicegate`, which re-exports all of it behind the feature `status`; use that one.
//!
//! [`StatusPage`] is a service of plain `http` to put behind a router: in axum with `nest_service`. The server draws all of it, and
//! it works without scripts.
//!
//! ```
//! use axum::Router;
//! use sluicegate_observed::Observed;
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
//! # Reading it
//! | question | where it stands |
//! |---|---|
//! | Is the store the cause? | The head: its state, its breaker, its p99. "In fallback" means that policies decide by what they say of an [outage](sluicegate_core::OnOutage). |
//! | Which policy refuses? | The table: rejected a second, and the red bars of the last hour. Numbers in brackets are those of a policy that is only tried out. |
//! | Whom does it refuse? | "Most rejected": the keys of the last 5 to 10 minutes, each with its share of the refusals. |
//! | Who comes close without being refused? | "Asks most" below it, with the part that each has left, and the column "near". |
//! | Why was this one refused? | "Look up a key": as the request that it sent, or by the key itself. |
//! | Who changed something? | "Events", with the name of the operator. |
//!
//! Then there is something to be done: reset the key, suspend it for a time, change a quota or a mode for an hour, or let all
//! policies only be tried out. A change ends by itself, so that nobody has to remember it. A [waiting room](StatusPageBuilder::room) is
//! paused, opened or set to another rate until it is changed again.
//!
//! # Where to put it
//! Wherever its guard can know its visitors. A router may cut off the path in front of it or not: the page's own links and forms
//! are relative. The example above puts it beside the service. A listener of its own, that only the inner network reaches, keeps
//! it away from clients altogether:
//!
//! ```
//! use axum::Router;
//! use sluicegate_core::MemoryStore;
//! use sluicegate_observed::Observed;
//! use sluicegate_status::StatusPage;
//! use tokio::net::TcpListener;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Observed::named("inner", MemoryStore::new())?;
//! let page = StatusPage::new(&store).guard(|_| Some("whoever is here")).secret([7; 32]).host("10.0.0.9").build()?;
//! let inner = TcpListener::bind("127.0.0.1:0").await?;
//! let app = Router::new().fallback_service(page);
//! tokio::spawn(async move { axum::serve(inner, app).await });
//! # Ok(())
//! # }
//! ```
//!
//! Put it outside of the service's own limits: whoever looks into a flood must not be refused because of it. In axum a route that
//! is added after the layer is not under it.
//!
//! It is a [`Service`](tower_service::Service) of any request body, whose responses have a `String` as their body and which never
//! fails. Without axum it is called as every other service, and the body turned into that of the server:
//!
//! ```
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use sluicegate_core::MemoryStore;
//! use sluicegate_observed::Observed;
//! use sluicegate_status::StatusPage;
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Observed::named("plain", MemoryStore::new())?;
//! let page = StatusPage::new(&store).unguarded_and_read_only().build()?;
//! let page = ServiceBuilder::new().map_response(|page: Response<String>| page.map(Bytes::from)).service(page);
//! let shown = page.oneshot(Request::get("/").body(String::new())?).await?;
//! assert!(shown.body().starts_with(b"<!DOCTYPE html>"));
//! # Ok(())
//! # }
//! ```
//!
//! # Several instances
//! Behind a balancer each load of the page may be another instance's: its head says which. To look at one of them, put a listener of
//! its own beside each, as above. The sum over all of them is a matter of [metrics](sluicegate_observed::METRICS).
//!
//! Instances that share a store, and have one [secret](StatusPageBuilder::secret), are one page otherwise: what is looked up, reset,
//! suspended, released or changed on one of them is so for all, and a form of one is taken by another.
//!
//! # While the store is away
//! The page needs no store to be shown: all that it counts is here. A look-up says "the store gives no answer" or, for policies that
//! decide by themselves in an outage, where the key stands in this instance's share. Resetting, suspending and changing answer 503:
//! whoever does that wants it to be so everywhere. Notices, rates and offenders go on.
//!
//! # In the log
//! | target | level | what |
//! |---|---|---|
//! | `sluicegate::audit` | info | who has reset, suspended or released a key, and changed a policy or a waiting room, with the names of both; a key as its kind lets it be shown |
//!
//! The page itself logs no look-up and no load. For that there is a layer of `tower-http` in front, and nothing secret is in the
//! address that it writes down.
//!
//! # What it costs
//! Nothing until it is loaded: what it shows is counted by [`Observed`](sluicegate_observed::Observed) anyway. A load adds up
//! counters, walks the table of the store and draws some kilobytes of HTML, once and for one visitor. Lists have fixed lengths: 64
//! offenders and askers for each policy, of which the page shows ten, 100 events, 32 notices, 60 minutes.
//!
//! # Which numbers are whose
//! Rates, minutes, offenders and events are those of the instance that answers. Where a key stands is asked of its store, so that
//! it is what all instances know where they share one. A change of a policy is an
//! [override](sluicegate_core::limiter::Overrides) in the store: on a shared one all instances have it within 5 s, and the page
//! says "this instance only" otherwise. The page of any instance acts on a key that another one has listed, if both have the same
//! [secret](StatusPageBuilder::secret).
//!
//! # Who may see it, and what is kept secret
//! A page without a guard is not built. With [`unguarded_and_read_only`](StatusPageBuilder::unguarded_and_read_only) all keys are
//! digests, and nothing can be looked up or changed:
//!
//! ```
//! use http::{Request, StatusCode};
//! use sluicegate_observed::Observed;
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
//! | somebody | is stopped by |
//! |---|---|
//! | opens the page without leave | the [guard](StatusPageBuilder::guard): 403, before anything is looked at |
//! | has an operator's browser send a form from a page of theirs | `Sec-Fetch-Site` or `Origin`, which the browser writes, and the token, which they cannot read |
//! | has stolen a token | it is good for its operator only, for an hour, and from the page's own origin only |
//! | lets a name of theirs resolve to this server, so that browsers take their page for ours | the list of [hosts](StatusPageBuilder::host): 421 |
//! | puts the page into a frame and has an operator click on it | `frame-ancestors 'none'` |
//! | calls a key, a header or a tenant `<script>` | all text is escaped, and the page may run no script: `default-src 'none'` |
//! | reads addresses in logs of proxies, or in the history of a browser | look-ups and changes are POSTs: nothing secret is in an address, and `Referrer-Policy: no-referrer` |
//! | looks over a shoulder, or at a screenshot | values that are typed in are not shown again, and a key is shown as its [kind](sluicegate_core::key::KeyKind) allows: addresses and names in clear, all else as a digest |
//! | sits at the same browser later | `Cache-Control: no-store`, and fields that the browser does not remember |
//! | reads what a form carries | a key is a sealed word there, which only instances with the same secret read |
//! | makes up millions of keys | lists have a fixed length, and so have names in them |
//! | sends a long body | 413 above 16 KiB |
//!
//! It is not stopped here: an operator whom the guard lets in may do all that the page does, and is named in the events and in the
//! log (target `sluicegate::audit`). Passwords, and how often somebody may try them, are matters of a layer in front. So is TLS,
//! without which browsers send no `Sec-Fetch-Site`, but on `localhost`.
//!
//! # `status.json`
//! The page as data. A field may be added at any time; what is there stays what it is while `version` is 1. Moments are those of
//! RFC 3339 in UTC, and numbers are since the start of the instance unless a row says otherwise.
//!
//! ```json
//! {"version": 1, "at": "2026-11-21T15:00:00.000Z", "instance": "web-3", "uptime_seconds": 11520,
//!  "notices": [{"about": "rules.yaml", "since": "2026-11-21T14:02:00.000Z", "text": "line 3: .."}],
//!  "stores": [
//!    {"name": "redis", "state": "ok", "breaker": "closed", "p99_ms": 0.4, "opened": 0,
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
//!     "minutes": [{"at": "2026-11-21T14:59:00.000Z", "allowed": 720, "rejected": 18, "near": 7}],
//!     "waiting": 0, "suspended_seen": 2,
//!     "offenders": [{"key": "203.0.113.9", "kind": "address", "ref": "5f0c…", "rejected": 9120,
//!                    "error": 12, "share": 0.61, "suspended_until": null}]}],
//!  "rooms": [{"name": "sale", "mode": "metered", "rate": "500/s", "waiting": 12000, "active": null,
//!             "admitted": 88000, "passed_over": 1700, "wait_seconds": 24}],
//!  "events": [{"at": "2026-11-21T14:40:00.000Z", "what": "quota_changed", "policy": "login",
//!              "from": "5/min", "to": "10/min"}]}
//! ```
//!
//! | field | what it says |
//! |---|---|
//! | `at`, `uptime_seconds` | when this was put together, and for how long the first of the stores has been observed |
//! | `instance` | who answers: [`instance`](StatusPageBuilder::instance) |
//! | `notices` | what the application [says](StatusPage::notice); without a guard only about what, and since when |
//!
//! Of each store:
//!
//! | field | what it says |
//! |---|---|
//! | `name` | as it was [observed](sluicegate_observed::Observed::named) |
//! | `state` | `ok`; `fallback` while a part of the store is not asked; `down` after a call without an answer, where nothing decides in its place |
//! | `breaker` | `closed`, `half_open`, `open`: that of the part that does worst |
//! | `p99_ms` | in how many milliseconds 99 of 100 answers came in the last one to two minutes; at most an eighth too high, and not there if none was timed |
//! | `opened` | how often a breaker has opened |
//! | `errors` | calls that got no answer: not in time, not reached, or answered by something that is none |
//! | `fallback_decisions`, `fallback_seconds` | decisions that were made without the store, and how long a part of it was not asked |
//! | `unsettled_keys` | keys with spending that the store does not know of yet |
//! | `keys`, `slots` | keys in debt in the table in memory, or in that of the fallback, and how many fit |
//! | `evictions` | keys that were forgotten before they were at rest, because the table was full: raise its size |
//!
//! Of each policy:
//!
//! | field | what it says |
//! |---|---|
//! | `name`, `algorithm`, `quotas` | the policy in force, with what an override has made of it; a quota's `label` is its name in header fields |
//! | `mode` | `enforce`, `shadow` (it counts and refuses nobody) or `off` (it is not asked) |
//! | `hidden` | whether clients are told nothing of it |
//! | `override` | what an operator has made of the policy, until when, and what is back then; `null` if nobody has |
//! | `override.version` | to be sent with a change that replaces or withdraws it |
//! | `override.shared` | whether all instances have it, or this one only |
//! | `on_exceeded`, `on_outage` | what becomes of a request that finds no room: `deny` or `wait`; and of one while the store is away: `local`, `allow`, `deny`, or a quota |
//! | `per_second` | the mean of the last 10 seconds |
//! | `minutes` | the last 60 whole minutes, the oldest first; `allowed` are those that waited as well, `rejected` those of suspended keys as well; `near` are those of the allowed ones that left less than a fifth |
//! | `waiting` | requests that wait for their turn now |
//! | `suspended_seen` | keys that were refused here as suspended in the last minute |
//! | `offenders` | the keys that were refused most in the last 5 to 10 minutes: all with more than 1 in 64 of the refusals are among them |
//!
//! Of each offender:
//!
//! | field | what it says |
//! |---|---|
//! | `key`, `kind` | an `address` or a `name` in clear, or a `digest` |
//! | `ref` | a word that stands for the key in look-ups, on every instance with the same secret |
//! | `rejected`, `error` | how often it was refused; the count is at most `error` too high, and never too low |
//! | `share` | which part of the policy's refusals that is, 0 to 1 |
//! | `suspended_until` | until when it is suspended, as far as this instance has seen it refused so; or `null` |
//!
//! Of each waiting room:
//!
//! | field | what it says |
//! |---|---|
//! | `name`, `rate` | the room, and the rate in force |
//! | `mode` | `metered`, at the rate; `paused`, nobody enters; `open`, everybody does |
//! | `waiting`, `active` | visitors that wait; visitors that are inside, or `null` where their number has no bound |
//! | `admitted`, `passed_over` | visitors that were let in, and places that were passed over, since the room began |
//! | `wait_seconds` | the estimated wait of a visitor that comes now, the longest of all; `null` while the room is paused |
//!
//! Of each event, the youngest last:
//!
//! | `what` | `by`, `from`, `to` |
//! |---|---|
//! | `quota_changed`, `mode_changed`, `policy_replaced` | the operator, if it was one; what was in force before, and what is now |
//! | `room_rate_changed`, `room_mode_changed` | the operator; what was in force before, and what is now; `room` is its name. A change by another instance or by the application is no event |
//! | `suspended`, `released` | the operator, or `by hand`; for how long |
//! | `breaker_opened`, `breaker_closed` | the last failure |
//! | `fallback_began`, `fallback_ended` | how long it lasted |
//! | `settled` | how many debts of an outage were charged to the store, and how many are left |
//!
//! # When not to use it
//! For alarms and for history: those are what metrics are for. The page shows an hour, to a person.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod action;
mod desk;
mod document;
mod instant;
mod page;
mod scope;
mod secret;

pub use self::desk::StatusPageBuilder;
pub use self::page::StatusPage;
