//! The status page shows which keys are limited, by which policy and why, and whether the store is the cause, and lets operators act.
//!
//! This crate is part of `sluicegate`, which re-exports all of it behind the feature `status`; use that crate.
//!
//! [`StatusPage`] is a service of plain `http` to put behind a router, in axum with `nest_service`. The server renders the page, and it
//! works without scripts.
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
//! | question | where to look |
//! |---|---|
//! | What is happening, in a sentence? | At the top: which requests are refused, of which key and since when, unusual traffic, and how the store answers; with the first steps as buttons. |
//! | Is the store the cause? | The head: its state, its breaker if it is not closed, and the time within which 99 of 100 answers come. "In fallback" means that each policy's [`OnOutage`](sluicegate_core::OnOutage) decides. |
//! | Which policy refuses? | The table: refused per second, and the red bars of the last hour. "If it were enforced" marks a policy in shadow mode. |
//! | Which keys does it refuse? | "Most refused keys": the keys of the last 5 to 10 minutes, each with its share of the refusals. |
//! | Whose budget runs out, and when? | "Budgets": the keys that have used most of a quota of the calendar, with a bar, and when it is used up at the pace of the period so far. |
//! | Which keys come close without being refused? | "Keys that ask most" below it, with the part that each key has left, and the column "close to the limit". |
//! | Why was this request refused? | "Look up a key": by the request that it sent, or by the key itself. |
//! | Who changed something? | "Events", with the name of the operator. |
//!
//! Then act: reset the key, suspend it or give it other quotas for a time, change a quota or a mode for an hour, or put all policies into shadow mode. A change
//! ends by itself, so no operator has to undo it. A [waiting room](StatusPageBuilder::room) is paused, opened or set to another rate until
//! the next change.
//!
//! # Where to put it
//! Put the page where its guard can identify visitors. A router may strip the path in front of it or not: the page's own links and forms are
//! relative. The example above serves it together with the service. A separate listener that only the internal network reaches hides it from
//! clients:
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
//! Put it outside the service's own limits, so that a flood does not lock out the operator. In axum, add its route after the layer.
//!
//! It is an infallible [`Service`](tower_service::Service) for any request body, with a `String` as the body of its responses.
//! Without axum, call it like any other service, and convert the body into the body type of the server:
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
//! Behind a balancer each load of the page may come from another instance; the head names it. To look at one instance, give each a
//! listener of its own, as above. [Metrics](sluicegate_observed::METRICS) have the sum over all instances.
//!
//! Instances that share a store and one [secret](StatusPageBuilder::secret) otherwise act as one page: a look-up, a reset, a suspension, a
//! release or a change on one of them applies to all, and each accepts the forms of the others.
//!
//! # While the store is away
//! The page works without the store, because this process has all of its counts. The head says when the store last
//! answered, and each policy what it does now. A look-up says "the store gives no answer" or, for policies that decide locally in an outage,
//! shows the key's status in this instance's share, and says so. Resetting, suspending and changing answer 503, because
//! they have to apply everywhere. Notices, rates and offenders continue.
//!
//! # In the log
//! | target | level | content |
//! |---|---|---|
//! | `sluicegate::audit` | info | resets, suspensions and releases of keys, and changes of policies and waiting rooms, with the names of the operator and of the subject; a key as its kind lets it be shown. Of suspensions by refusals, 60 a minute, and the number of the others |
//!
//! The page itself logs no look-up and no load. A layer of `tower-http` in front can do that, and the logged address contains no secret.
//!
//! # What it costs
//! The page costs nothing until it is loaded: [`Observed`](sluicegate_observed::Observed) counts everything anyway. A load adds up
//! counters, walks the table of the store and renders some kilobytes of HTML, once for each visitor. Lists have fixed lengths: 64
//! offenders and askers and 16 budgets for each policy, of which the page shows ten, 40 events of each kind, 32 notices, 60 minutes.
//!
//! # Which numbers are whose
//! Rates, minutes, offenders and events are those of the instance that answers. A request is let in or refused once, by all its policies
//! together, and is in the numbers of each of them: no sum over policies is a number of requests. The status of a key comes from its store, so it is the same
//! for all instances that share that store. A change of a policy is an [override](sluicegate_core::limiter::Overrides) in the store: on a
//! shared one all instances have it within 5 s, and the page says "this instance only" otherwise. The page of any instance acts on a key
//! that another one has listed, if both have the same [secret](StatusPageBuilder::secret).
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
//! | a person who | is stopped by |
//! |---|---|
//! | opens the page without permission | the [guard](StatusPageBuilder::guard): 403, before anything is read |
//! | makes an operator's browser send a form from another site | `Sec-Fetch-Site` or `Origin`, which the browser writes, and the token, which the other site cannot read |
//! | has stolen a token | a token is valid for its operator only, for an hour, and from the page's own origin only |
//! | points a foreign host name at this server, so that browsers take a foreign page for this one | the list of [hosts](StatusPageBuilder::host): 421 |
//! | puts the page into a frame and has an operator click on it | `frame-ancestors 'none'` |
//! | calls a key, a header or a tenant `<script>` | all text is escaped, and the page may run no script: `default-src 'none'` |
//! | reads addresses in logs of proxies, or in the history of a browser | look-ups and changes are POSTs: nothing secret is in an address, and `Referrer-Policy: no-referrer` |
//! | looks over a shoulder, or at a screenshot | typed values are not shown again, and a key is shown as its [kind](sluicegate_core::key::KeyKind) allows: addresses and names in clear, all other keys as a digest |
//! | uses the same browser later | `Cache-Control: no-store`, and fields that the browser does not remember |
//! | reads the content of a form | keys in forms are encrypted, and only instances with the same secret can read them |
//! | makes up millions of keys | lists and the names in them have a fixed length |
//! | sends a long body | 413 above 16 KiB |
//!
//! One thing is not stopped: an operator whom the guard lets in may do everything on the page, and is named in the events and in the
//! log (target `sluicegate::audit`). A layer in front handles passwords, the number of attempts, and TLS; without TLS
//! browsers send no `Sec-Fetch-Site`, except on `localhost`.
//!
//! # `status.json`
//! The JSON is the page as data. A field may be added at any time; existing fields keep their meaning while `version` is 1. Moments are in RFC
//! 3339 and UTC, and numbers count since the start of the instance unless a row says otherwise.
//!
//! ```json
//! {"version": 1, "at": "2026-11-21T15:00:00.000Z", "instance": "web-3", "uptime_seconds": 11520,
//!  "notices": [{"about": "rules.yaml", "since": "2026-11-21T14:02:00.000Z", "text": "line 3: .."}],
//!  "stores": [
//!    {"name": "redis", "state": "ok", "breaker": "closed", "opened": 0,
//!     "errors": {"timeout": 0, "unavailable": 0, "protocol": 0},
//!     "p99_ms": 0.4, "answered_at": "2026-11-21T14:59:59.998Z", "replicas": 4,
//!     "fallback_decisions": 0, "fallback_seconds": 0, "unsettled_keys": 0,
//!     "keys": 812, "slots": 187000, "evictions": 0, "events_dropped": 0, "undecided": {"missing_key": 3}}],
//!  "policies": [
//!    {"name": "login", "algorithm": "sliding-counter",
//!     "quotas": [{"label": "login", "limit": 10, "period_seconds": 60, "burst": 10}],
//!     "mode": "enforce", "hidden": false,
//!     "override": {"by": "ada", "until": "2026-11-21T15:40:00.000Z", "version": 1795272000000000,
//!                  "shared": true, "own_quotas": ["5/min"], "own_mode": "enforce"},
//!     "on_exceeded": "deny", "on_outage": "local",
//!     "per_second": {"allowed": 12.4, "rejected": 0.3, "delayed": 0.0, "suspended": 0.0, "other_refused": 1.0,
//!                    "outage": 0.0},
//!     "minutes": [{"at": "2026-11-21T14:59:00.000Z", "allowed": 720, "rejected": 18, "other_refused": 60,
//!                  "outage": 0, "near": 7}],
//!     "waiting": 0, "suspended_seen": 2,
//!     "offenders": [{"key": "203.0.113.9", "kind": "address", "ref": "5f0c…", "rejected": 9120,
//!                    "error": 12, "share": 0.61, "suspended_until": null}],
//!     "budgets": [{"key": "acme", "kind": "name", "ref": "91ab…", "label": "tokens",
//!                  "used": 620000, "limit": 1000000, "from": "2026-11-01T00:00:00.000Z",
//!                  "until": "2026-12-01T00:00:00.000Z", "used_up_at": null}]}],
//!  "in_flight": [{"name": "uploads", "permits": 2, "in_use": 7,
//!                 "totals": {"allowed": 88000, "delayed": 0, "rejected": 120, "impossible": 0, "suspended": 0,
//!                            "other_refused": 0, "outage": 0, "error": 0},
//!                 "per_second": {"allowed": 2.0, "rejected": 0.5, "delayed": 0.0, "suspended": 0.0,
//!                                "other_refused": 0.0, "outage": 0.0},
//!                 "minutes": []}],
//!  "adaptive": [{"name": "api", "algorithm": "gradient", "mode": "enforce", "at_least": 1, "at_most": 500,
//!                "limit": 57, "in_flight": 44, "latency_ms": 23.1,
//!                "waiting": {"critical_plus": 0, "critical": 0, "sheddable_plus": 0, "sheddable": 3},
//!                "shed": {"critical_plus": 0, "critical": 0, "sheddable_plus": 12, "sheddable": 840},
//!                "would_shed": {"critical_plus": 0, "critical": 0, "sheddable_plus": 0, "sheddable": 0},
//!                "minutes": [null, {"limit": 55, "latency_ms": 22.8}]}],
//!  "rooms": [{"name": "sale", "mode": "metered", "rate": "500/s", "waiting": 12000, "active": null,
//!             "admitted": 88000, "passed_over": 1700, "wait_seconds": 24}],
//!  "events": [{"at": "2026-11-21T14:40:00.000Z", "what": "quota_changed", "policy": "login",
//!              "from": "5/min", "to": "10/min"},
//!             {"at": "2026-11-21T14:50:00.000Z", "until": "2026-11-21T14:50:14.000Z", "what": "outage",
//!              "to": "the store cannot be reached", "outage": {"decisions": 240, "charged": 8, "left": 0}}]}
//! ```
//!
//! | field | content |
//! |---|---|
//! | `at`, `uptime_seconds` | the moment of the answer, and the time for which the first of the stores has been observed |
//! | `instance` | the instance that answers: [`instance`](StatusPageBuilder::instance) |
//! | `notices` | the [notices](StatusPage::notice) of the application; without a guard only their subjects and times |
//!
//! Each store has:
//!
//! | field | content |
//! |---|---|
//! | `name` | the name under which it is [observed](sluicegate_observed::Observed::named) |
//! | `state` | `ok`; `fallback` while a part of the store is not asked; `down` after a call without an answer, if nothing decides in its place |
//! | `breaker` | `closed`, `half_open`, `open`: the worst of its parts |
//! | `p99_ms` | the milliseconds within which 99 of 100 of its answers came in the last one to two minutes; at most an eighth too high, and absent if none was timed. Decisions that are made without the store do not count |
//! | `answered_at` | the time of its last answer that was timed, or `null`: all of a remote store are timed, and one in 64 of a store in memory |
//! | `replicas` | the number of instances among which an outage divides each quota; `null` if nothing divides them |
//! | `opened` | the number of times that a breaker has opened; a trial that fails is no opening |
//! | `errors` | calls without an answer: `timeout`, not in time; `unavailable`, not reached; `protocol`, an invalid answer |
//! | `fallback_decisions`, `fallback_seconds` | decisions that were made without the store, and the time for which a part of it was not asked |
//! | `unsettled_keys` | keys whose spending the store has not been told yet |
//! | `keys`, `slots` | keys that have spent something, in the table in memory or in that of the fallback, and the number that fits |
//! | `evictions` | keys that were forgotten before they were at rest, because the table was full: raise its size |
//! | `events_dropped` | events that did not fit into the queues of the application |
//! | `undecided` | requests that its layers let in or refused without asking it, by [reason](sluicegate_core::store::Undecided) |
//!
//! Each policy has:
//!
//! | field | content |
//! |---|---|
//! | `name`, `algorithm`, `quotas` | the policy in force, overrides included; a quota's `label` is its name in header fields |
//! | `mode` | `enforce`, `shadow` (it counts but refuses no request) or `off` (it is not asked) |
//! | `hidden` | whether it is hidden from clients |
//! | `override` | the override that an operator has put on the policy, its end, and the policy that returns then; `null` if there is none |
//! | `override.version` | to be sent with a change that replaces or withdraws it |
//! | `override.new_keys` | the quotas of new keys, if the override is only for them and all others keep the policy's |
//! | `override.shared` | whether all instances have it, or only this one |
//! | `on_exceeded`, `on_outage` | the treatment of a request without room: `deny` or `wait`; and of a request while the store is down: `local`, `allow`, `deny`, or a quota |
//! | `in_outage` | what it does with requests now; only while its store does not answer |
//! | `per_second` | the mean of the last 10 seconds: requests that were let in at once (`allowed`) or after a wait (`delayed`), that this policy refused (`rejected`) or whose key is `suspended`, for which it had room but which another policy of the request refused (`other_refused`), and that it refused because the store did not answer (`outage`) |
//! | `minutes` | the last 60 whole minutes, the oldest first; `allowed` includes requests that waited, `rejected` those of suspended keys; `near` counts requests that were let in and left less than a fifth |
//! | `waiting` | requests that wait for their turn now |
//! | `suspended_seen` | keys that were refused here as suspended in the last minute |
//! | `offenders` | the keys that were refused most in the last 5 to 10 minutes: all with more than 1 in 64 of the refusals are among them |
//! | `budgets` | the keys that have used most of their budgets, which are quotas of the calendar, in the periods under way: at most 16 |
//!
//! Each budget has:
//!
//! | field | content |
//! |---|---|
//! | `key`, `kind`, `ref` | as for an offender |
//! | `label` | the quota |
//! | `used`, `limit` | the used units of the limit, including reserved ones; the limit is the key's own, if it has one |
//! | `from`, `until` | the period |
//! | `used_up_at` | the moment at which the budget is used up at the pace of the period so far; `null` if the period ends before |
//!
//! Each offender has:
//!
//! | field | content |
//! |---|---|
//! | `key`, `kind` | an `address` or a `name` in clear, or a `digest` |
//! | `ref` | a word that stands for the key in look-ups, on every instance with the same secret |
//! | `rejected`, `error` | the number of its refusals; the count is at most `error` too high, and never too low |
//! | `share` | its part of the policy's refusals, 0 to 1 |
//! | `suspended_until` | the end of its suspension, if this instance has refused it as suspended; or `null` |
//!
//! Each limit on requests at once that is counted here (of all limits of the process by its first observed store, unless
//! [another one](sluicegate_observed::Observed::in_flight) counts them) has, under `in_flight`:
//!
//! | field | what it says |
//! |---|---|
//! | `name`, `permits` | the limit, and the number of its permits: for each key, or for all together if it adapts |
//! | `in_use` | permits in use on this instance |
//! | `totals`, `per_second`, `minutes` | requests that got a permit (`allowed`) and those that were refused (`rejected`), as for a policy |
//!
//! Each of them that [adapts](sluicegate_in_flight::InFlight::adaptive) has:
//!
//! | field | what it says |
//! |---|---|
//! | `name`, `algorithm`, `at_least`, `at_most` | the limit, its algorithm and its bounds |
//! | `mode` | `enforce`, `shadow` (it counts but refuses no request) or `off` |
//! | `limit`, `in_flight` | the number of requests that may be under way at once now, and the number that are |
//! | `latency_ms` | the median duration of the service in the last window, without the wait for a permit |
//! | `waiting`, `shed` | requests that wait now, and requests refused since it was built, by class |
//! | `would_shed` | requests that it would have refused while it was in shadow mode |
//! | `minutes` | the last 60 minutes, the oldest first: limit and latency at the end of each; `null` if nothing was answered |
//!
//! Each of them whose permits instances [share](sluicegate_in_flight::InFlightBuilder::on) has, under `shared`:
//!
//! | field | what it says |
//! |---|---|
//! | `name`, `permits` | the limit, and the number of requests of a key that may be under way on all instances together |
//! | `in_use`, `keys`, `waiting` | requests under way on this instance, their keys, and requests that wait here |
//! | `held`, `instances` | for the key with the fewest permits left on this instance: the number of permits out, and of instances that hold them |
//! | `store` | `ok`, or `down` while it does not answer |
//! | `answered_seconds`, `lease_seconds` | the time since the store's last answer, or `null`; and the time after which the permits of a silent instance go to others |
//! | `lost` | permits that went to others while their requests were under way here, since the limit was built |
//!
//! Each waiting room has:
//!
//! | field | content |
//! |---|---|
//! | `name`, `rate` | the room, and the rate in force |
//! | `mode` | `metered`: visitors enter at the rate; `paused`: no visitor enters; `open`: all visitors enter |
//! | `waiting`, `active` | visitors that wait; visitors that are inside, or `null` if their number has no bound |
//! | `admitted`, `passed_over` | visitors that were let in, and places that were passed over, since the room began |
//! | `wait_seconds` | the estimated wait of a visitor that comes now, the longest of all; `null` while the room is paused |
//!
//! Each event has, the youngest last:
//!
//! | `what` | `by`, `from`, `to` |
//! |---|---|
//! | `quota_changed`, `mode_changed`, `policy_replaced` | the operator, if it was one; the policy before, and now |
//! | `room_rate_changed`, `room_mode_changed` | the operator; the value before, and now; `room` is its name. A change by another instance or by the application is no event |
//! | `suspended`, `released` | the operator, or `by hand`; the length |
//! | `outage` | the first failure, from the time `at` which the store is given up `until` it decides again. Under `outage`: the `decisions` that were made without it; the keys whose spending it was told afterwards (`charged`), and those that are `left` |
//! | `settled` | the number of keys whose spending without the store was charged to it outside of such an outage, and the number that is left |
//!
//! # When not to use it
//! Use metrics for alarms and for history. The page shows the last hour to a person.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod action;
mod document;
mod handler;
mod page;
mod secret;

pub use self::handler::StatusPageBuilder;
pub use self::page::StatusPage;
