//! `.rate_limit(..)` on routes and routers.

use std::convert::Infallible;
use std::panic::Location;

use axum::Router;
use axum::body::Body;
use axum::routing::MethodRouter;
#[cfg(feature = "macros")]
use sluicegate_core::store::IntoStore;
use sluicegate_tower::bandwidth::UploadLayer;
use sluicegate_tower::respond::Respond;

#[cfg(feature = "macros")]
use crate::attribute::RateLimitStore;
use crate::into_layer::IntoRateLimitLayer;

/// Puts limits on routes.
///
/// `limit` is a [`RateLimiter`], which counts peer addresses; a [`Limit`], which has a key and a cost of its own; or
/// a whole [`RateLimitLayer`].
///
/// Serve the router with `into_make_service_with_connect_info::<SocketAddr>()`, so that the peer address is known; without
/// it, a limit by peer address answers 500. In tests, put `.layer(MockConnectInfo(address))` around the limits instead.
///
/// # Order
/// Like every axum layer, a limit applies to what was added before it: to the routes of a router, and to the methods of a
/// route. On a router without routes it covers nothing, and logs a warning. A method that is added later has no limit, and
/// axum does not warn:
///
/// ```
/// use axum::Router;
/// use axum::routing::get;
/// use sluicegate_axum::RateLimitExt;
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let limit = Policy::gcra("notes", "5/min").on(&MemoryStore::new())?;
/// let app: Router = Router::new()
///     // One bucket for both methods.
///     .route("/notes", get(|| async { "all" }).post(|| async { "stored" }).rate_limit(limit.clone()))
///     // Only for reading: `post` comes after the limit.
///     .route("/drafts", get(|| async { "all" }).rate_limit(limit).post(|| async { "stored" }));
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
///
/// Limits on a route and on the router around it
/// both apply; the router's limit does not count a request that the route's limit refuses. A request that the router's limit refuses
/// does not reach the route's limit, which may name a longer wait afterwards: see [`RateLimitLayer`].
///
/// # A default for routes without a limit of their own
/// `.rate_limit(default)` covers the routes that were added before it. Add a route with a limit of its own instead
/// after it, and only that limit covers the route:
///
/// ```
/// use axum::Router;
/// use axum::routing::{get, post};
/// use sluicegate_axum::RateLimitExt;
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let store = MemoryStore::new();
/// let default = Policy::gcra("default", "100/min").on(&store)?;
/// let login = Policy::sliding_counter("login", "5/min").on(&store)?;
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .route("/search", get(|| async { "found nothing" }))
///     // One bucket of 100 a minute for `/` and `/search`, and for paths that no route has.
///     .rate_limit(default)
///     // 5 a minute, and nothing of the 100.
///     .route("/login", post(|| async { "welcome" }).rate_limit(login))
///     // None at all.
///     .route("/health", get(|| async { "ok" }));
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
///
/// The default also covers paths without a route, as long as no `.fallback(..)` is added after it.
///
/// If a route cannot be added later, because it belongs to a router from elsewhere, exempt its path. The route cannot exempt itself:
/// the limit of a router decides before axum reaches the route.
///
/// ```
/// use axum::Router;
/// use axum::routing::get;
/// use sluicegate_axum::RateLimitExt;
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::RateLimitLayer;
/// use sluicegate_tower::limits::path_in;
///
/// # fn routes() -> Router {
/// #     Router::new().route("/health", get(|| async { "ok" }))
/// # }
/// let limit = Policy::gcra("default", "100/min").on(&MemoryStore::new())?;
/// let limit = RateLimitLayer::builder(limit).exempt(path_in(["/health"])?).build()?;
/// let app: Router = routes().rate_limit(limit);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
///
/// # Merged routers
/// `.rate_limit(..)` also covers the router's fallback. axum gives a merged router one fallback, which may be the limited one, so that
/// any unknown path spends from that limit. `.rate_limit_routes(..)` covers the routes alone:
///
/// | a request for | `.rate_limit(..)` | `.rate_limit_routes(..)` |
/// |---|---|---|
/// | one of the routes | counts | counts |
/// | a method that the route does not have (405) | counts | counts on a router, and not on a single route |
/// | a path without a route (404), also of a router merged with this one | may count | does not count |
/// | best for | the whole application, against scans | a group of routes, such as logins |
///
/// ```
/// use axum::Router;
/// use axum::routing::{get, post};
/// use sluicegate_axum::RateLimitExt;
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let logins: Router = Router::new()
///     .route("/login", post(|| async { "welcome" }))
///     .route("/reset", post(|| async { "a mail is under way" }))
///     .rate_limit_routes(Policy::sliding_counter("login", "5/min").on(&MemoryStore::new())?);
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).merge(logins);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
///
/// # Nested routers
/// A limit on a router that is then nested covers its routes. The outer router answers paths below the prefix without a
/// route, unlimited unless it has a limit itself. Give the nested router a fallback of its own, before the
/// limit, and the limit covers these paths as well:
///
/// ```
/// use axum::Router;
/// use axum::http::StatusCode;
/// use axum::routing::get;
/// use sluicegate_axum::RateLimitExt;
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let api: Router = Router::new()
///     .route("/users", get(|| async { "ada" }))
///     .fallback(|| async { StatusCode::NOT_FOUND })
///     .rate_limit(Policy::gcra("api", "100/min").on(&MemoryStore::new())?);
/// let app: Router = Router::new().nest("/api", api);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
///
/// Only axum's routes and routers implement it.
///
/// [`RateLimiter`]: sluicegate_core::RateLimiter
/// [`Limit`]: sluicegate_tower::Limit
/// [`RateLimitLayer`]: sluicegate_tower::RateLimitLayer
pub trait RateLimitExt: Sized + sealed::Sealed {
    /// Puts a limit in front of everything that this route or router has so far.
    #[must_use]
    #[track_caller]
    fn rate_limit<R: Respond<Body>>(self, limit: impl IntoRateLimitLayer<R>) -> Self;

    /// Puts a limit in front of the routes that this router has so far, or the methods of this route, and of nothing else: unknown
    /// paths do not count, [before and after a `merge`](#merged-routers).
    ///
    /// # Panics
    /// On a `MethodRouter` without methods, as axum's `route_layer`.
    #[must_use]
    #[track_caller]
    fn rate_limit_routes<R: Respond<Body>>(self, limit: impl IntoRateLimitLayer<R>) -> Self;

    /// Sets the store for the limits of handlers with a `#[rate_limited]` attribute, for everything that this
    /// route or router has so far. For more settings use [`RateLimitStore`] as a layer.
    #[cfg(feature = "macros")]
    #[must_use]
    #[track_caller]
    fn with_rate_limits(self, store: impl IntoStore) -> Self;
}

/// Puts a layer on routes, with what their bodies need around it.
macro_rules! limited {
    ($routes:expr, $method:ident, $layer:expr) => {{
        let layer = $layer;
        let uploads = layer.holds_requests().then(|| UploadLayer::new(&layer.limits_handle()));
        // Bodies are read only for limits that need it, because that boxes each body once more.
        let limited: Self = match layer.reads_bodies() {
            true => $routes.$method(layer.settling()),
            false => $routes.$method(layer),
        };
        match uploads {
            Some(uploads) => limited.$method(uploads),
            None => limited,
        }
    }};
}

impl<S> RateLimitExt for MethodRouter<S, Infallible>
where
    S: Clone + Send + Sync + 'static,
{
    fn rate_limit<R: Respond<Body>>(self, limit: impl IntoRateLimitLayer<R>) -> Self {
        limited!(self, layer, limit.into_layer())
    }

    fn rate_limit_routes<R: Respond<Body>>(self, limit: impl IntoRateLimitLayer<R>) -> Self {
        limited!(self, route_layer, limit.into_layer())
    }

    #[cfg(feature = "macros")]
    fn with_rate_limits(self, store: impl IntoStore) -> Self {
        self.layer::<_, Infallible>(RateLimitStore::new(store))
    }
}

impl<S> RateLimitExt for Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    #[track_caller]
    fn rate_limit<R: Respond<Body>>(self, limit: impl IntoRateLimitLayer<R>) -> Self {
        warn_without_routes(&self, "rate_limit");
        limited!(self, layer, limit.into_layer())
    }

    #[track_caller]
    fn rate_limit_routes<R: Respond<Body>>(self, limit: impl IntoRateLimitLayer<R>) -> Self {
        warn_without_routes(&self, "rate_limit_routes");
        // axum panics for a layer that covers no route.
        if !self.has_routes() {
            return self;
        }
        limited!(self, route_layer, limit.into_layer())
    }

    #[cfg(feature = "macros")]
    #[track_caller]
    fn with_rate_limits(self, store: impl IntoStore) -> Self {
        warn_without_routes(&self, "with_rate_limits");
        self.layer(RateLimitStore::new(store))
    }
}

/// Warns of a limit on a router without routes, which covers nothing. axum does not tell whether the router has
/// a fallback of its own, so this is only a line in the log.
#[track_caller]
fn warn_without_routes<S: Clone + Send + Sync + 'static>(router: &Router<S>, method: &str) {
    if !router.has_routes() {
        tracing::error!(
            "`.{method}(..)` at {} is on a router without routes, and covers no route that is added later: write it after \
             the routes, `Router::new().route(..).{method}(..)`; for a fallback alone, write \
             `.layer(..)` with the layer of it",
            Location::caller()
        );
    }
}

/// Seals the trait, so that methods can be added to it.
mod sealed {
    #[expect(unnameable_types, reason = "whoever cannot name it cannot implement it")]
    pub trait Sealed {}
}

impl<S> sealed::Sealed for MethodRouter<S, Infallible> {}
impl<S> sealed::Sealed for Router<S> {}
