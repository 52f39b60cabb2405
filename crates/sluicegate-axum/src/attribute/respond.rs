//! The answer to a refused request: from the router's responder, or from the handler's fallback.

use std::fmt;
use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use sluicegate_tower::respond::{Refusal, Respond};

/// Any responder, so that the handlers of all routers have layers of one type; made by [`RateLimitStore`](super::RateLimitStore).
#[derive(Clone)]
pub struct BoxRespond(Arc<dyn Respond<Body>>);

impl BoxRespond {
    pub(super) fn new(respond: impl Respond<Body>) -> Self {
        Self(Arc::new(respond))
    }
}

impl Respond<Body> for BoxRespond {
    fn respond(&self, refusal: &Refusal<'_>) -> Response {
        self.0.respond(refusal)
    }
}

impl fmt::Debug for BoxRespond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxRespond")
    }
}

/// The request that was decided against, without its body: in the extensions of a response that nobody sees.
#[derive(Clone)]
pub(super) struct SetAside(pub(super) Parts);

/// Leaves it to the fallback to answer what was decided against.
pub(super) fn setting_aside(otherwise: BoxRespond) -> BoxRespond {
    BoxRespond::new(move |refusal: &Refusal<'_>| {
        let Some(decided) = refusal.decided() else { return otherwise.respond(refusal) };
        let mut parts = refusal.request().to_parts();
        parts.extensions.insert(decided.clone());
        let mut response = refusal.status().into_response();
        response.extensions_mut().insert(SetAside(parts));
        response
    })
}
