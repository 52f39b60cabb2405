//! axum's extractors as key extractors.

use std::any::type_name;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use sluicegate_core::Key;
use sluicegate_tower::KeyExtractor;
use sluicegate_tower::key::{Extraction, MissingKey, extract_fn};

/// A key extractor from any extractor of a handler: a session, a user, a path's parameters.
///
/// `state` is the router's state, or `()` for extractors without state. `E` may wait, for example for a session store; a request that `E`
/// rejects has no key, and with 500 it has none [by mistake](MissingKey::mistake). `E` works on a copy of the request's head, made for every
/// request (all header fields and extensions are cloned), so what it puts into the extensions does not reach the handler. Keys are
/// [secrets](sluicegate_tower::key::KeyKind::Secret), unless [`of_kind`](KeyExtractor::of_kind) says otherwise.
///
/// ```
/// use axum::extract::{FromRef, FromRequestParts, Path};
/// use axum::http::{StatusCode, request::Parts};
/// use sluicegate_axum::key_from_extractor;
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::{KeyExtractor, Limit, PeerIp};
///
/// #[derive(Clone)]
/// struct Sessions;
///
/// struct User { id: u64 }
///
/// impl<S: Send + Sync> FromRequestParts<S> for User
/// where
///     Sessions: FromRef<S>,
/// {
///     type Rejection = StatusCode;
///
///     async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, StatusCode> {
///         let sessions = Sessions::from_ref(state);
///         // Asks the sessions for the cookie.
/// #       let _ = (parts, sessions);
///         Err(StatusCode::UNAUTHORIZED)
///     }
/// }
///
/// let by_user = key_from_extractor(Sessions, |user: User| user.id).or(PeerIp::new());
/// let limit = Limit::new(Policy::gcra("user", "100/min").on(&MemoryStore::new())?).key(by_user);
///
/// // One bucket per project, on routes like "/projects/{project}".
/// let by_project = key_from_extractor((), |Path(project): Path<String>| project);
/// # fn check(_: impl KeyExtractor) {}
/// # check(by_project);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
pub fn key_from_extractor<E, S, F, K>(state: S, find: F) -> impl KeyExtractor + Clone
where
    E: FromRequestParts<S> + 'static,
    S: Clone + Send + Sync + 'static,
    F: Fn(E) -> K + Send + Sync + 'static,
    K: Into<Key>,
{
    let find = Arc::new(find);
    extract_fn(move |request| {
        let (mut parts, state, find) = (request.to_parts(), state.clone(), Arc::clone(&find));
        Extraction::pending(async move {
            // The rejection may contain input from the client, so it is not repeated.
            let found = E::from_request_parts(&mut parts, &state).await;
            let missing = |rejection: E::Rejection| match rejection.into_response().status() {
                // Such as a missing `Extension`.
                StatusCode::INTERNAL_SERVER_ERROR => MissingKey::mistake(format!(
                    "the extractor {} answers 500: the layers that it needs have to be around the limit (added after it)",
                    type_name::<E>()
                )),
                _ => MissingKey::new(format!("the request has no {}", type_name::<E>()))
                    .telling("the request does not say who is asking"),
            };
            found.map(|found| find(found).into()).map_err(missing)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use axum::Router;
    use axum::body::Body;
    use axum::extract::{FromRef, Path};
    use axum::http::Request;
    use axum::http::request::Parts;
    use axum::routing::get;
    use sluicegate_core::{MemoryStore, Policy, RateLimiter};
    use sluicegate_tower::Limit;
    use sluicegate_tower::key::OnMissingKey;
    use tower::ServiceExt;

    use super::*;
    use crate::RateLimitExt;

    #[derive(Clone)]
    struct Sessions(Arc<HashMap<&'static str, u64>>);

    #[derive(Clone)]
    struct App {
        sessions: Sessions,
    }

    impl FromRef<App> for Sessions {
        fn from_ref(app: &App) -> Self {
            app.sessions.clone()
        }
    }

    struct User(u64);

    impl<S: Send + Sync> FromRequestParts<S> for User
    where
        Sessions: FromRef<S>,
    {
        type Rejection = StatusCode;

        async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, StatusCode> {
            tokio::task::yield_now().await;
            let session = parts.headers.get("x-session").and_then(|value| value.to_str().ok());
            let Sessions(sessions) = Sessions::from_ref(state);
            session
                .and_then(|session| sessions.get(session))
                .map(|id| Self(*id))
                .ok_or(StatusCode::UNAUTHORIZED)
        }
    }

    fn limiter() -> RateLimiter {
        Policy::gcra("user", "2/min").on(MemoryStore::new()).unwrap()
    }

    async fn status(app: &Router, path: &str, session: &str) -> StatusCode {
        let request = Request::get(path).header("x-session", session).body(Body::empty()).unwrap();
        app.clone().oneshot(request).await.unwrap().status()
    }

    #[tokio::test]
    async fn a_session_that_has_to_be_looked_up_makes_the_key() {
        let app = App { sessions: Sessions(Arc::new([("s1", 7), ("s2", 7), ("s3", 8)].into())) };
        let by_user = key_from_extractor(app.clone(), |User(id): User| id);
        let limiter = limiter();
        let limit = Limit::new(limiter.clone()).key(by_user.clone().or(Key::from("nobody")));
        let router = Router::new().route("/", get(|| async {}).rate_limit(limit)).with_state(app);
        let mut statuses = Vec::new();
        for session in ["s1", "s2", "s1", "s3", "none"] {
            statuses.push(status(&router, "/", session).await.as_u16());
        }
        assert_eq!(statuses, [200, 200, 429, 200, 200], "two sessions of one user have one bucket");
        assert_eq!(limiter.peek("nobody").await.unwrap().remaining(), 1);
    }

    #[tokio::test]
    async fn a_request_that_the_extractor_rejects_has_no_key() {
        let app = App { sessions: Sessions(Arc::default()) };
        let by_user = key_from_extractor(app, |User(id): User| id);
        let limit =
            Limit::new(limiter()).key(by_user).on_missing_key(OnMissingKey::Reject(StatusCode::FORBIDDEN));
        let router = Router::new().route("/", get(|| async {}).rate_limit(limit));
        assert_eq!(status(&router, "/", "s1").await, StatusCode::FORBIDDEN);
    }

    #[tokio::test]
    async fn an_extension_that_no_layer_added_is_a_mistake_of_the_server() {
        let by_user = key_from_extractor((), |axum::Extension(id): axum::Extension<u64>| id);
        let router =
            Router::new().route("/", get(|| async {}).rate_limit(Limit::new(limiter()).key(by_user)));
        assert_eq!(status(&router, "/", "").await, StatusCode::INTERNAL_SERVER_ERROR);
        let late = router.layer(axum::Extension(7_u64));
        assert_eq!(status(&late, "/", "").await, StatusCode::OK);
    }

    #[tokio::test]
    async fn the_parameters_of_a_path_make_the_key() {
        let by_project = key_from_extractor((), |Path(project): Path<u64>| project);
        let limit = Limit::new(limiter()).key(by_project);
        let router = Router::new().route("/projects/{project}", get(|| async {}).rate_limit(limit));
        let mut statuses = Vec::new();
        for path in ["/projects/1", "/projects/01", "/projects/1?x", "/projects/2"] {
            statuses.push(status(&router, path, "").await.as_u16());
        }
        assert_eq!(statuses, [200, 200, 429, 200]);
    }
}
