//! Keys by the target of a request: [`Route`] and [`RequestMethod`].

use http::Method;

#[cfg(feature = "axum")]
use crate::key::MissingKey;
use crate::key::{Extraction, KeyExtractor, KeyKind, RequestView};

/// One bucket per route of an axum router, such as `/users/{id}`: its name, not the path that the client wrote.
///
/// Prefer it to keys by path, because a route has only one spelling: `//login`, `/%6cogin` and `/LOGIN` match the
/// route or none. Requests without a route, which get 404, have no key.
///
/// The router sets the route, so put the limit on the router or on a route, not around the router.
///
/// ```
/// use sluicegate_tower::PeerIp;
/// use sluicegate_tower::key::Route;
///
/// // Each client has a bucket for every route.
/// let key = (Route, PeerIp::new());
/// # fn check(_: impl sluicegate_tower::KeyExtractor) {}
/// # check(key);
/// ```
#[cfg(feature = "axum")]
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "there is nothing to set")]
pub struct Route;

#[cfg(feature = "axum")]
impl KeyExtractor for Route {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        match request.route() {
            Some(route) => Extraction::found(route),
            None => {
                let reason = "the request has no route: put the limit on the router, not around it";
                MissingKey::new(reason).telling("no route is known for this request").into()
            }
        }
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Name
    }
}

/// One bucket per method. `HEAD` counts as `GET`, because it costs as much; all methods that HTTP does not define
/// count as one.
///
/// Alone, all clients share its buckets; combine it: `(PeerIp::new(), RequestMethod)`.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "there is nothing to set")]
pub struct RequestMethod;

impl KeyExtractor for RequestMethod {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        Extraction::found(match *request.method {
            Method::GET | Method::HEAD => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::DELETE => "DELETE",
            Method::PATCH => "PATCH",
            Method::OPTIONS => "OPTIONS",
            Method::CONNECT => "CONNECT",
            Method::TRACE => "TRACE",
            _ => "other",
        })
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Name
    }
}
