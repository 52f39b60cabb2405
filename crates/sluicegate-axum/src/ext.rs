//! `.rate_limit(..)` on routes and routers.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::routing::MethodRouter;
use sluicegate_tower::{RateLimitLayer, Respond};

/// Puts limits on routes.
///
/// `limit` is a [`RateLimiter`], which counts peer addresses; a [`Limit`], which says whose bucket and at what cost; or
/// a whole [`RateLimitLayer`].
///
/// Serve the router with `into_make_service_with_connect_info::<SocketAddr>()`, so that the peer address is known.
///
/// Like every axum layer, a limit applies to what was added before it. Limits on a route and on the router around it
/// both apply; a request that the route's limit refuses is not counted by the router's.
///
/// [`RateLimiter`]: sluicegate_core::RateLimiter
/// [`Limit`]: sluicegate_tower::Limit
pub trait RateLimitExt: Sized {
    /// Puts a limit in front of all that this route or router has so far.
    #[must_use]
    fn rate_limit<R: Respond<Body>>(self, limit: impl Into<RateLimitLayer<R>>) -> Self;
}

impl<S> RateLimitExt for MethodRouter<S, Infallible>
where
    S: Clone + Send + Sync + 'static,
{
    fn rate_limit<R: Respond<Body>>(self, limit: impl Into<RateLimitLayer<R>>) -> Self {
        self.layer::<_, Infallible>(limit.into())
    }
}

impl<S> RateLimitExt for Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    fn rate_limit<R: Respond<Body>>(self, limit: impl Into<RateLimitLayer<R>>) -> Self {
        self.layer(limit.into())
    }
}
