//! Rate limits in front of any [tower] service that speaks `http`.
//!
//! A [`RateLimitLayer`] takes one or more [`Limit`]s: a [`RateLimiter`](sluicegate_core::RateLimiter), a
//! [`KeyExtractor`] that names the bucket, and a cost. Requests that exceed a limit are refused with 429 and
//! a problem body, or wait for their turn if the policy says so; all responses show the state of the client's quotas.
//!
//! For axum, use the `sluicegate` crate, whose `.rate_limit(..)` puts this layer on routes and routers.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use bytes::Bytes;
//! use http::{Request, Response, StatusCode};
//! use http_body_util::Full;
//! use sluicegate_core::{MemoryStore, Policy};
//! use sluicegate_tower::{Limit, RateLimitLayer};
//! use sluicegate_tower::key::HeaderKey;
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let hello = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello")))) });
//! let per_key = Policy::gcra("per-key", "1/min").on(&MemoryStore::new())?;
//! let limit = Limit::new(per_key).key(HeaderKey::new("x-api-key")?);
//!
//! let mut service = ServiceBuilder::new().layer(RateLimitLayer::new(limit)).service(hello);
//!
//! let request = || Request::get("/").header("x-api-key", "k1").body(());
//! assert_eq!(service.ready().await?.call(request()?).await?.status(), StatusCode::OK);
//! let refused = service.ready().await?.call(request()?).await?;
//! assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert_eq!(refused.headers()["retry-after"], "60");
//! assert_eq!(refused.headers()["ratelimit"], r#""per-key";r=0;t=60"#);
//! # Ok(())
//! # }
//! ```
//!
//! # When to use it
//! - Each client gets a fair share of a service: a limit per key, address or user.
//! - A route costs more than others: a limit of its own, or a cost in units.
//! - Logins, password resets, payments: few tries per account, counted by a sliding log.
//!
//! # When not to use it
//! - Against floods that fill the network link or the kernel's tables: stop such floods before they reach
//!   the process.
//! - As authentication: a limit counts by the key that a client sends, and does not verify the key.
//! - To bound how much runs at once: use `in_flight`, and load shedding for an overloaded
//!   service.
//! - For calls that are not HTTP ([`call`]), and for calls to others (`outgoing`).
//!
//! # Where to put it
//! Put the layer outside of expensive layers (authentication that asks a database) and inside of CORS: a browser hides a 429
//! without CORS fields.
//!
//! # Whose bucket
//! No header that a client writes is trusted, unless an extractor is told to trust it.
//!
//! | key | for |
//! |---|---|
//! | [`PeerIp`] | clients that connect to this server directly; the default |
//! | [`ClientIp`] | clients behind named proxies |
//! | `ApiKey`, `Bearer`, `Cookie` | clients with a secret; kept only as a digest |
//! | `BearerJwt` | the subject of a verified token |
//! | [`key_from_extension`](key::key_from_extension), [`key_fn`](key::key_fn), [`extract_fn`](key::extract_fn) | the result of an authentication in front |
//! | `Route`, [`RequestMethod`](key::RequestMethod), [`RequestPath`](key::RequestPath) | the target of a request |
//! | [`HeaderKey`](key::HeaderKey) | a header that a trusted proxy writes |
//! | a [`Key`](sluicegate_core::Key) | all requests together |
//!
//! A tuple of extractors gives one bucket per combination; [`or`](KeyExtractor::or) asks the next extractor if one finds no key.
//!
//! # Features
//! | feature | what it adds |
//! |---|---|
//! | `axum` | [`PeerIp`] and [`ClientIp`] see axum's `ConnectInfo<SocketAddr>`; `Route` |
//! | `secrets` | `ApiKey`, `Bearer`, `Cookie`: keys from secrets, of which only a digest is kept |
//! | `jwt` | `BearerJwt`: verified JSON Web Tokens |
//! | `grpc` | `GrpcStatus` and `GrpcOr`, refusals that gRPC clients understand |
//! | `in-flight` | `InFlightLayer` and `CallInFlightLayer`, limits on how much is under way at once |
//! | `outgoing` | `OutgoingLayer`, calls to other servers at the pace that they and we allow |
//! | `reqwest` | the same for `reqwest`, whose `client.get(url)` stays as it is, and `RetryAfter` |
//!
//! [tower]: https://docs.rs/tower
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admission;
pub mod bandwidth;
pub mod call;
pub mod defer;
mod frames;
pub mod guard;
#[cfg(feature = "in-flight")]
#[cfg_attr(docsrs, doc(cfg(feature = "in-flight")))]
pub mod in_flight;
mod json;
pub mod key;
pub mod limits;
#[cfg(feature = "outgoing")]
#[cfg_attr(docsrs, doc(cfg(feature = "outgoing")))]
pub mod outgoing;
pub mod rate_limit;
pub mod request_fields;
pub mod respond;
pub mod room;
pub mod settle;
mod trace;

#[doc(inline)]
pub use self::key::{ClientIp, KeyExtractor, PeerIp};
#[doc(inline)]
pub use self::limits::Limit;
#[doc(inline)]
pub use self::rate_limit::{Meter, RateLimitLayer};
