//! Predicates on requests, for
//! [`exempt`](crate::rate_limit::RateLimitLayerBuilder::exempt), [`deny`](crate::rate_limit::RateLimitLayerBuilder::deny) and
//! [`Limit::only_if`](crate::Limit::only_if).

use http::Method;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};

use crate::key::RequestView;

/// A condition on a request.
pub(crate) type Predicate = Box<dyn Fn(RequestView<'_>) -> bool + Send + Sync>;

/// Whether the method of a request is one of these.
///
/// ```
/// use http::{Method, Request};
/// use sluicegate_tower::limits::method_in;
///
/// let writes = method_in([Method::POST, Method::PUT, Method::PATCH, Method::DELETE]);
/// assert!(writes((&Request::post("/").body(())?).into()));
/// assert!(!writes((&Request::get("/").body(())?).into()));
/// # Ok::<(), http::Error>(())
/// ```
pub fn method_in(
    methods: impl IntoIterator<Item = Method>,
) -> impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static {
    let methods: Vec<Method> = methods.into_iter().collect();
    move |request: RequestView<'_>| methods.contains(request.method)
}

/// Whether a request is a CORS preflight: `OPTIONS` with `Origin` and
/// `Access-Control-Request-Method`.
///
/// Usually the CORS layer is outside the limits and answers them. If it is not, exempting such requests keeps them
/// from spending the quota of the request that follows. Any client can send them, so answering them should be cheap.
pub fn preflight() -> impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static {
    |request: RequestView<'_>| {
        request.method == Method::OPTIONS
            && request.headers.contains_key(ORIGIN)
            && request.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    }
}
