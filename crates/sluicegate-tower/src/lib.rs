//! Rate limits in front of any [tower] service that speaks `http`.
//!
//! A [`RateLimitLayer`] takes one or more [`Limit`]s: a [`RateLimiter`](sluicegate_core::RateLimiter), a
//! [`KeyExtractor`] that says whose bucket it is, and a cost. Requests that exceed a limit are refused with 429 and
//! a problem body, or wait for their turn, if the policy says so; all responses say where the client stands.
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
//! use sluicegate_tower::{Header, Limit, RateLimitLayer};
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let hello = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello")))) });
//! let per_key = Policy::gcra("per-key", "1/min").on(&MemoryStore::new())?;
//! let limit = Limit::new(per_key).key(Header::new("x-api-key")?);
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
//! # Where to put it
//! Outside of what is expensive (authentication that asks a database), inside of CORS: a browser hides a 429 that has
//! no CORS fields. Nothing that a client writes into headers is trusted, unless a [`Header`] extractor is told to.
//!
//! # Features
//! | feature | what it adds |
//! |---|---|
//! | `axum` | [`PeerIp`] sees axum's `ConnectInfo<SocketAddr>` |
//!
//! [tower]: https://docs.rs/tower
#![cfg_attr(docsrs, feature(doc_cfg))]

mod accept;
mod asks;
mod builder;
mod conditions;
mod decide;
mod extract;
mod future;
mod gate;
mod headers;
mod join;
mod key;
mod layer;
mod limit;
mod lines;
mod mark;
mod meter;
mod plan;
mod predicate;
mod problem;
mod queue;
mod refusal;
mod service;
mod shadow;
mod shared;
mod simple;
mod tiers;
mod trial;

pub use self::builder::RateLimitLayerBuilder;
pub use self::extract::{Constant, FromExtension, Header, KeyFn, PeerAddr, PeerIp, key_fn};
pub use self::future::ResponseFuture;
pub use self::headers::{Headers, LegacyReset};
pub use self::key::{Extraction, KeyExtractor, MissingKey, Or};
pub use self::layer::RateLimitLayer;
pub use self::limit::{Limit, OnMissingKey};
pub use self::meter::Meter;
pub use self::predicate::{method_in, path_in, preflight};
pub use self::problem::ProblemJson;
pub use self::refusal::{Reason, Refusal, Respond};
pub use self::service::RateLimit;
pub use self::shadow::ShadowCount;
pub use self::simple::SimpleJson;
pub use self::tiers::{Tiers, TiersBuilder};
