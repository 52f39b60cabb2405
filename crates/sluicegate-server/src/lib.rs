//! Serves the limits of a rules file over the network, for services that are not written in Rust and for proxies.
//!
//! This crate has only the protocols: policies, algorithms, stores, outages, metrics and the status page come from the other crates. The
//! command is `sluicegate serve` (crate `sluicegate-cli`); use the crate to embed the server in a program.
//!
//! ```
//! use sluicegate_core::MemoryStore;
//! use sluicegate_observed::Observed;
//! use sluicegate_rules::{Rules, RulesFile, Variables};
//! use sluicegate_server::Server;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = RulesFile::parse("rules.yaml", "
//! version: 1
//! policies: { mail: { quota: 10/h } }
//! rules: []
//! ", &Variables::none())?;
//! let store = Observed::named("memory", MemoryStore::new())?;
//! let rules = Rules::builder().open_all_policies().put(&store, file)?;
//!
//! let server = Server::builder(rules).http("127.0.0.1:0".parse()?).status(&store).bind().await?;
//! println!("ask http://{}/v1/check", server.http_address());
//! # let told_to_end = async {};
//! server.run(told_to_end).await;
//! # Ok(())
//! # }
//! ```
//!
//! # When not to use it
//! In a Rust service the layer decides in a microsecond and without a call: put [`Rules`](sluicegate_rules::Rules) in front of it. Several
//! instances of one service share limits through Redis, and need no server in between.
//!
//! # HTTP API
//! Requests and answers are JSON. `GET /openapi.json` is the document; it is generated from the types that read the requests.
//!
//! | path | does |
//! |---|---|
//! | `POST /v1/check` | spends, if allowed now |
//! | `POST /v1/peek` | reports whether the cost fits, and spends nothing |
//! | `POST /v1/reserve` | spends, if allowed within `wait`; answers when the turn comes, with a receipt |
//! | `POST /v1/settle` | states the actual cost of a reservation: the difference is charged or given back |
//! | `POST /v1/refund` | gives back units of a receipt, or of a key |
//! | `POST /v1/reset` | resets keys |
//! | `GET /healthz`, `/readyz` | whether the process runs; whether the store has answered once and the server is not shutting down |
//! | `GET /metrics`, `/status` | metrics, and the status page |
//!
//! A call names one policy, or several that spend all or none; or it describes a request for the rules; or it is a batch of such calls:
//!
//! ```json
//! {"policy": "login", "key": "ada", "cost": 1}
//! {"checks": [{"policy": "login", "key": "ada"}, {"policy": "address", "key": {"address": "192.0.2.7"}}]}
//! {"request": {"method": "POST", "path": "/login", "headers": {"x-user": "ada"}, "peer": "192.0.2.7"}}
//! {"batch": [{"policy": "mail", "key": "ada"}, {"policy": "mail", "key": "bob"}]}
//! ```
//!
//! The answer is 200, or 429 with `Retry-After`, the header fields that the rules file chooses and a problem body (RFC 9457), as the layer
//! answers: a client library that knows `Retry-After` needs nothing else. A batch is always 200, and each of its answers has a `status`.
//!
//! A check by name never waits; `/v1/reserve` waits for as long as the call says. A described request waits where its policy waits.
//! `refund_if`, `settle`, `bandwidth`, `in_flight` and waiting rooms have no effect here: they need the response or the connection of the request.
//! The log warns of rules that have them. A caller that learns the cost later asks at `/v1/reserve`, and states it at `/v1/settle`.
//!
//! # Proxies
//! A proxy asks before it forwards a request, and forwards it if the answer is 200. The server reads what the proxy says about the request
//! from peers that were [named](ServerBuilder::proxy); others get 403.
//!
//! | path | for | method, target and host from | a refusal is |
//! |---|---|---|---|
//! | `/proxy/nginx` | nginx `auth_request` | `X-Original-Method`, `X-Original-URI`, `Host` | 403, with its status in `X-Sluicegate-Status` |
//! | `/proxy/forward-auth` | Caddy `forward_auth`, Traefik `forwardAuth` | `X-Forwarded-Method`, `-Uri`, `-Host` | 429, as the client gets it |
//! | `/proxy/ext-authz` | Envoy `ext_authz` over HTTP, with this `path_prefix` | the request itself | 429, as the client gets it |
//!
//! A proxy may let requests pass while no server answers, so a refusal never has a status that the proxy takes for that:
//!
//! | proxy | takes for a server that is away | the server answers so |
//! |---|---|---|
//! | nginx | every status but 2xx, 401 and 403 | while it shuts down, and if nginx does not send the fields |
//! | Envoy `ext_authz` | 5xx | while it shuts down |
//! | Envoy's rate limit service | every status of gRPC | `UNAVAILABLE` if the store is away and no policy says what then; `UNAUTHENTICATED` without its secret; `DEADLINE_EXCEEDED` |
//! | Caddy, Traefik | none: they refuse whatever is not 2xx | |
//!
//! A refusal whose own status is one of them, such as 503 of a full queue or a `status` of the rules, has it in `X-Sluicegate-Status`. From nginx, the
//! length of the body comes in `X-Original-Content-Length`.
//!
//! The peer of the request is the last address in `X-Forwarded-For`, which the proxy appends; the rest of the field is what its peer sent,
//! and counts as `clients` of the rules file says. Without the field, a rule whose key is an address answers 500.
//!
//! # Envoy's rate limit service
//! On the [gRPC listener](ServerBuilder::grpc) the server answers `envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`, by rules that are
//! [about descriptors](sluicegate_rules#descriptors-of-envoy):
//!
//! ```yaml
//! version: 1
//! policies: { per-address: { quota: 10/s } }
//! rules:
//!   - { name: address, only_if: { domain: edge, descriptor: [{ remote_address: "*" }] }, limit: per-address, key: client }
//! ```
//!
//! | in the call | does |
//! |---|---|
//! | a descriptor to which no rule applies | is `OK`, with a full `limit_remaining` |
//! | bytes that are not UTF-8 | are the character for unknown ones, in domains, keys and values |
//! | a call that cannot be read or decided, or is above a [bound](Bounds) | is `OVER_LIMIT`, and has its reason in the body and once a second in the log |
//! | several descriptors | all spend or none does; [`Charge::Each`] charges as Envoy's own server does |
//! | `hits_addend` | multiplies the cost of each rule; a descriptor's own value takes precedence over the call's |
//! | `hits_addend` 0 of a descriptor | spends nothing, and says whether one hit would pass |
//! | `is_negative_hits` | gives the hits back |
//! | `limit` of a descriptor | is the quota of its key, for policies with `quota_by: descriptor` |
//!
//! Each descriptor has a status of its own, by its tightest limit. The header fields and the problem body of the answer are those that the layer
//! writes; Envoy adds them to its response. A call never waits for a turn. gRPC health reports the same state as `/readyz`.
//!
//! # Receipts
//! A receipt is a signed token that expires (after 15 minutes by default) and can be used once. It holds everything that a settlement
//! needs, so every instance with the same [secret](ServerBuilder::receipt_secret) and the same store can settle it. If the store is in
//! memory, or an instance decided by itself during an outage, only that instance can, and it lists such receipts up to a [bound](Bounds). A
//! receipt whose policy has another algorithm since answers 410.
//!
//! # Authentication
//! By default the server listens on the loopback address only. To listen elsewhere it needs a [secret](ServerBuilder::secret), client
//! certificates ([`Tls`]), or [permission](ServerBuilder::insecure_open) to be open. A caller that may check may also refund and reset.
//! Over gRPC the secret is in the metadata, as `authorization: Bearer`. gRPC health, `/healthz`, `/readyz` and `/openapi.json` need no secret; the status page takes it as the password.
//!
//! # Metrics
//! Beside those of the store and of the rules, `/metrics` has two of the server: `rate_limit_server_full_total` counts connections above their bound, by
//! `result` (`made_room`, `turned_away`), and `rate_limit_server_wrong_secrets_total` requests that showed no secret of it, or a wrong one.
//!
//! # Bounds
//! Bodies, batches, descriptors, connections, waiting requests and the time for a request have [bounds](Bounds), and a refusal names the bound.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod app;
mod asks;
mod builder;
mod connection;
mod grpc;
mod http;
mod places;
mod receipt;
mod tls;

pub use self::app::Charge;
pub use self::builder::{Bounds, ServeError, ServeErrorKind, Server, ServerBuilder};
pub use self::tls::Tls;
