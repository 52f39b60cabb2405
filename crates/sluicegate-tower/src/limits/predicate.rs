//! Which requests something applies to: questions about a request, ready to be used with
//! [`exempt`](crate::rate_limit::RateLimitLayerBuilder::exempt), [`deny`](crate::rate_limit::RateLimitLayerBuilder::deny) and
//! [`Limit::only_if`](crate::Limit::only_if).

use std::future::Future;
use std::pin::Pin;

use http::Method;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};

use crate::key::RequestView;

/// A question about a request.
pub(crate) type Predicate = Box<dyn Fn(RequestView<'_>) -> bool + Send + Sync>;

/// A question whose answer may have to be waited for.
pub(crate) type LaterPredicate = Box<dyn Fn(RequestView<'_>) -> Answer + Send + Sync>;

/// An answer that has not come.
pub(crate) type Answer = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Who does not come to the limits at all.
#[derive(Default)]
pub(crate) struct Door {
    pub(crate) exempt: Vec<Predicate>,
    pub(crate) exempt_later: Vec<LaterPredicate>,
    pub(crate) deny: Vec<Predicate>,
}

/// What the door does with a request.
pub(crate) enum Entry {
    ToTheLimits,
    PastTheLimits,
    Refused,
    /// To be known when this is: it holds for requests that are exempt.
    Asking(Answer),
}

impl Door {
    pub(crate) fn is_empty(&self) -> bool {
        self.exempt.is_empty() && self.exempt_later.is_empty() && self.deny.is_empty()
    }

    pub(crate) fn entry(&self, request: RequestView<'_>) -> Entry {
        if self.exempt.iter().any(|holds| holds(request)) {
            return Entry::PastTheLimits;
        }
        if self.exempt_later.is_empty() {
            return self.entry_of(false, request);
        }
        let answers: Vec<_> = self.exempt_later.iter().map(|holds| holds(request)).collect();
        Entry::Asking(Box::pin(async move {
            for answer in answers {
                if answer.await {
                    return true;
                }
            }
            false
        }))
    }

    /// The way of a request of which it is known whether it is exempt.
    pub(crate) fn entry_of(&self, is_exempt: bool, request: RequestView<'_>) -> Entry {
        match () {
            () if is_exempt => Entry::PastTheLimits,
            () if self.deny.iter().any(|holds| holds(request)) => Entry::Refused,
            () => Entry::ToTheLimits,
        }
    }
}

/// Whether the method of a request is one of these.
pub fn method_in(
    methods: impl IntoIterator<Item = Method>,
) -> impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static {
    let methods: Vec<Method> = methods.into_iter().collect();
    move |request: RequestView<'_>| methods.contains(request.method)
}

/// Whether a request is a browser's question whether it may ask: `OPTIONS` with `Origin` and
/// `Access-Control-Request-Method`.
///
/// Usually the CORS layer is outside of the limits and answers it. Where it is not, exempting such requests keeps them
/// from spending the quota of the request that follows. Anybody can send them, so what answers them should be cheap.
pub fn preflight() -> impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static {
    |request: RequestView<'_>| {
        request.method == Method::OPTIONS
            && request.headers.contains_key(ORIGIN)
            && request.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    }
}
