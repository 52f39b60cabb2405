//! Keys by what a request is for.

use http::{Method, Uri};
use sluicegate_core::Key;
use sluicegate_tower::key::{RequestMethod, RequestPath};

use super::parts::{anonymous, found};

fn path(uri: &'static str) -> Key {
    let mut parts = anonymous(&[]);
    parts.uri = Uri::from_static(uri);
    found(&RequestPath::new(), &parts).unwrap()
}

#[test]
fn b50_and_b51_a_path_is_one_bucket_however_it_is_spelled() {
    for spelling in [
        "/login",
        "//login",
        "/./login",
        "/login/",
        "/login;x=1",
        "/%6cogin",
        "/login?x",
        "http://host/login",
        "/a/../login",
    ] {
        assert_eq!(path(spelling), "/login".into(), "{spelling}");
    }
    // Another resource, or none: the server would have to decode the slash to take it for the same.
    assert_eq!(path("/login%2f"), "/login%2F".into());
    assert_eq!(path("/LOGIN"), "/LOGIN".into());
    assert_eq!(path("*"), "*".into());
}

#[test]
fn b52_head_counts_as_get_and_unknown_methods_as_one() {
    let key = |method: &[u8]| {
        let mut parts = anonymous(&[]);
        parts.method = Method::from_bytes(method).unwrap();
        found(&RequestMethod, &parts).unwrap()
    };
    assert_eq!(key(b"HEAD"), key(b"GET"));
    assert_eq!(key(b"PROPFIND"), key(b"X-17"));
    // Methods are case-sensitive, so this is another one.
    assert_eq!(key(b"get"), key(b"X-17"));
    let all = [&b"GET"[..], b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"CONNECT", b"TRACE", b"X-17"];
    let keys: std::collections::HashSet<_> = all.map(key).into();
    assert_eq!(keys.len(), all.len());
}

#[cfg(feature = "axum")]
mod routes {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::body::Body;
    use axum::routing::any;
    use http::{Request, StatusCode};
    use sluicegate_core::{Key, MemoryStore, Policy};
    use sluicegate_tower::key::{Extraction, RequestView, Route};
    use sluicegate_tower::{KeyExtractor, Limit, RateLimitLayer};
    use tower::ServiceExt;

    /// Remembers what it found.
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<Result<Key, String>>>>);

    impl KeyExtractor for Seen {
        fn extract(&self, request: RequestView<'_>) -> Extraction {
            let found = Route.extract(request).now().unwrap();
            self.0.lock().unwrap().push(found.clone().map_err(|missing| missing.to_string()));
            found.into()
        }
    }

    async fn route(
        path: &str,
        app: fn(RateLimitLayer) -> Router,
    ) -> (StatusCode, Option<Result<Key, String>>) {
        let seen = Seen::default();
        let limiter = Policy::gcra("route", "100/min").on(MemoryStore::new()).unwrap();
        let app = app(RateLimitLayer::new(Limit::new(limiter).key(seen.clone())));
        let status = app.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap().status();
        let key = seen.0.lock().unwrap().pop();
        (status, key)
    }

    async fn ok() {}

    fn on_router(layer: RateLimitLayer) -> Router {
        let users = Router::new().route("/{id}", any(ok));
        Router::new().route("/login", any(ok)).nest("/users", users).layer(layer)
    }

    #[tokio::test]
    async fn b50_a_route_is_one_bucket_and_no_spelling_leads_round_it() {
        for (path, name) in [
            ("/login", "/login"),
            ("/login?x=/users/1", "/login"),
            ("/users/7", "/users/{id}"),
            ("/users/8%2f", "/users/{id}"),
        ] {
            assert_eq!(route(path, on_router).await, (StatusCode::OK, Some(Ok(name.into()))), "{path}");
        }
        for path in ["//login", "/./login", "/login/", "/login;x=1", "/LOGIN"] {
            let (status, key) = route(path, on_router).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
            assert!(key.unwrap().unwrap_err().contains("no route"), "{path}");
        }
    }

    #[tokio::test]
    async fn limits_on_a_route_and_on_a_nested_router_see_the_whole_route() {
        let on_route =
            |layer| Router::new().route("/login", any(ok).layer::<_, std::convert::Infallible>(layer));
        assert_eq!(route("/login", on_route).await.1, Some(Ok("/login".into())));
        let nested = |layer| Router::new().nest("/users", Router::new().route("/{id}", any(ok)).layer(layer));
        assert_eq!(route("/users/7", nested).await.1, Some(Ok("/users/{id}".into())));
    }
}
