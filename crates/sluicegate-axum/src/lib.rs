//! Rate limits on axum routes and routers, and the decision in handlers.
//!
//! This crate is part of `sluicegate`, which re-exports all of it; use that crate.
//!
//! ```
//! use axum::Router;
//! use axum::routing::{get, post};
//! use sluicegate_axum::{Decided, RateLimitExt};
//! use sluicegate_core::{MemoryStore, Policy};
//! use sluicegate_tower::{Limit, RateLimitLayer};
//!
//! async fn search(decided: Decided) -> String {
//!     format!("{} searches left", decided.remaining())
//! }
//!
//! let store = MemoryStore::new();
//! let searches = Policy::token_bucket("search", "10/s burst 20").on(&store)?;
//! let app: Router = Router::new()
//!     .route("/login", post(|| async { "hello" }).rate_limit(Policy::sliding_counter("login", "5/min").on(&store)?))
//!     .route("/search", get(search).rate_limit(RateLimitLayer::new(searches).decided()))
//!     // For all routes above: together with their own limits.
//!     .rate_limit(Limit::new(Policy::gcra("api", "200/min").on(&store)?))
//!     // Routes that are added later are exempt.
//!     .route("/health", get(|| async { "ok" }));
//! # Ok::<(), sluicegate_core::ConfigError>(())
//! ```
//!
//! Add routes that need another limit *instead* of the router's [after it](RateLimitExt#a-default-for-routes-without-a-limit-of-their-own).
//!
//! # When to use it
//! - In front of routes, method routers and whole routers: [`RateLimitExt::rate_limit`].
//! - On single handlers, next to their code: the attribute [`rate_limited`] (feature `macros`).
//! - In handlers that show or log the state of the client's quotas: the extractor [`Decided`], behind a layer that is
//!   [`decided()`](sluicegate_tower::RateLimitLayer::decided), or in a handler with the attribute.
//!
//! # When not to use it
//! - Around a server that is not only an axum router: put `RateLimitLayer` of `sluicegate_tower` into its
//!   stack.
//! - For calls that the service makes itself, and for jobs without HTTP: `sluicegate_tower` has layers
//!   for both.
//! - As the only protection of a login by address: add a limit per account, since many clients share an
//!   address, and one attacker has many.
//!
//! # Features
//! | feature | what it adds |
//! |---|---|
//! | `macros` | [`rate_limited`], the attribute for handlers, and [`RateLimitStore`], their store |
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "macros")]
mod attribute;
mod ext;
mod from_parts;
mod into_layer;

#[cfg(feature = "macros")]
pub use sluicegate_macros::rate_limited;

#[cfg(feature = "macros")]
pub use self::attribute::{Attributed, RateLimitStore};
pub use self::ext::RateLimitExt;
pub use self::from_parts::key_from_extractor;
pub use self::into_layer::IntoRateLimitLayer;
#[doc(inline)]
pub use sluicegate_tower::rate_limit::{Decided, NotLimited};

/// For the expansion of [`rate_limited`] only: no part of the API.
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod __private {
    pub use axum::extract::State;
    pub use axum::response::Response;
    pub use sluicegate_core::{Algorithm, Policy};
    pub use sluicegate_tower::Limit;
    pub use sluicegate_tower::key::OnMissingKey;

    pub use crate::attribute::{
        Arguments, Attribute, Direct, Draft, Extracting, Fallback, Fallible, IntoKey, Limited, NoState, Skip,
        Source, Via, any, check_future, check_response, reject, response,
    };
}
