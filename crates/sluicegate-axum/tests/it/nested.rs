//! Routers inside of routers, and the paths that none of their routes has.

use axum::Router;
use axum::http::{Method, StatusCode};
use axum::routing::get;
use sluicegate_axum::RateLimitExt;
use sluicegate_core::{MemoryStore, Policy, RateLimiter};
use sluicegate_tower::key::RequestPath;
use sluicegate_tower::limits::path_in;
use sluicegate_tower::{Limit, RateLimitLayer};

use crate::support::{request, send, statuses, store};

fn limiter(store: &MemoryStore, name: &str) -> RateLimiter {
    Policy::gcra(name, "2/min").on(store).unwrap()
}

fn routes() -> Router {
    Router::new().route("/users", get(|| async { "ada" }))
}

#[tokio::test]
async fn a_nested_limit_leaves_paths_without_a_route_to_the_router_around_it() {
    let app = Router::new().nest("/api", routes().rate_limit(limiter(&store(), "api")));
    assert_eq!(statuses(&app, "/api/users", 3).await, [200, 200, 429]);
    // axum answers them with the fallback of the outermost router, so whoever scans for paths is not counted here.
    assert_eq!(statuses(&app, "/api/nowhere", 3).await, [404, 404, 404]);
}

#[tokio::test]
async fn a_limit_on_the_router_around_it_covers_them() {
    let store = store();
    let app = Router::new().nest("/api", routes()).rate_limit(limiter(&store, "all"));
    assert_eq!(statuses(&app, "/api/nowhere", 3).await, [404, 404, 429]);
    assert_eq!(statuses(&app, "/nowhere", 1).await, [429]);
}

#[tokio::test]
async fn a_fallback_of_the_nested_router_puts_them_under_its_limit() {
    let nested = routes().fallback(|| async { StatusCode::NOT_FOUND }).rate_limit(limiter(&store(), "api"));
    let app = Router::new().nest("/api", nested);
    assert_eq!(statuses(&app, "/api/nowhere", 2).await, [404, 404]);
    assert_eq!(statuses(&app, "/api/users", 1).await, [429], "they share the bucket of its routes");
    assert_eq!(statuses(&app, "/nowhere", 3).await, [404; 3]);
}

/// axum gives a merged router one fallback: scans for unknown paths once spent the limit of the logins, in one order of `merge`.
#[tokio::test]
async fn a_limit_on_routes_covers_these_alone_in_either_order_of_merge() {
    let limited = || routes().rate_limit_routes(limiter(&store(), "api"));
    let rest = || Router::new().route("/", get(|| async {}));
    for app in [rest().merge(limited()), limited().merge(rest())] {
        assert_eq!(statuses(&app, "/nowhere", 3).await, [404; 3]);
        assert_eq!(statuses(&app, "/", 3).await, [200; 3]);
        let mut post = request("/users", 1, None);
        *post.method_mut() = Method::POST;
        assert_eq!(send(&app, post).await.status, 405);
        assert_eq!(
            statuses(&app, "/users", 2).await,
            [200, 429],
            "a wrong method is a request for the route"
        );
    }
    let app = Router::new().route("/users", get(|| async {}).rate_limit_routes(limiter(&store(), "api")));
    let mut post = request("/users", 1, None);
    *post.method_mut() = Method::POST;
    assert_eq!(send(&app, post).await.status, 405);
    assert_eq!(statuses(&app, "/users", 3).await, [200, 200, 429]);
}

#[tokio::test]
async fn conditions_of_a_nested_limit_see_the_whole_path() {
    let layer = RateLimitLayer::builder(limiter(&store(), "api"))
        .exempt(path_in(["/api/users"]).unwrap())
        .exempt(path_in(["/open/*"]).unwrap())
        .build()
        .unwrap();
    let nested = || Router::new().nest("/v1", routes()).merge(routes()).rate_limit(layer.clone());
    let app = Router::new().nest("/api", nested()).nest("/open", nested()).nest("/other", nested());
    assert_eq!(statuses(&app, "/api/users", 3).await, [200; 3]);
    assert_eq!(statuses(&app, "/open/v1/users", 3).await, [200; 3]);
    assert_eq!(statuses(&app, "/api/v1/users", 2).await, [200; 2]);
    // It was stripped to "/users" on its way, which is nobody's exemption.
    assert_eq!(statuses(&app, "/other/users", 1).await, [429]);
}

#[tokio::test]
async fn a_nested_key_by_path_tells_the_routers_apart() {
    let layer = RateLimitLayer::new(Limit::new(limiter(&store(), "api")).key(RequestPath::new()));
    let nested = || routes().rate_limit(layer.clone());
    let app = Router::new().nest("/one", nested()).nest("/two", nested());
    assert_eq!(statuses(&app, "/one/users", 3).await, [200, 200, 429]);
    assert_eq!(statuses(&app, "/two/users", 1).await, [200]);
}
