//! Runs a handler's own code behind its limits, or a fallback; and returns its limits on demand: [`Attributed`].

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use axum::body::Body;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use sluicegate_tower::limits::Refused;
use sluicegate_tower::respond::Refusal;

use super::limited::{AskedAttribute, Extract, Handed, Limited, Skip, answer};
use super::source::{Attribute, MadeLimits};
use super::store::RateLimitStore;

impl<A: Send + 'static, X> Limited<A, X> {
    /// Puts the handler's own code behind its limits.
    ///
    /// # Cancel safety
    /// As for the layer's [`ResponseFuture`](sluicegate_tower::guard::ResponseFuture): a turn that has not come is given back.
    pub async fn run<F, R>(self, attribute: &'static Attribute, handler: F) -> Response
    where
        F: FnOnce(A) -> R + Send + 'static,
        R: Future<Output: IntoResponse> + Send + 'static,
    {
        match self.through(attribute, handler).await {
            Ok(response) => response,
            Err(stopped) => stopped.refused.respond(&stopped.parts, &*stopped.made.respond),
        }
    }

    /// As `run`, with another handler that answers requests which the limits refuse.
    ///
    /// # Cancel safety
    /// As for `run`.
    pub async fn run_or<F, R, T, H>(self, attribute: &'static Attribute, handler: F, fallback: H) -> Response
    where
        F: FnOnce(A) -> R + Send + 'static,
        R: Future<Output: IntoResponse> + Send + 'static,
        H: Fallback<T, X>,
    {
        let Stopped { refused, mut parts, body, state, made } = match self.through(attribute, handler).await {
            Ok(response) => return response,
            Err(stopped) => *stopped,
        };
        match refused.refusal(&parts).decided().cloned() {
            // No limit has decided: for example, a key is missing.
            None => refused.respond(&parts, &*made.respond),
            Some(decided) => {
                let bare = |refusal: &Refusal<'_>| refusal.status().into_response();
                let refused = refused.respond(&parts, &bare);
                parts.extensions.insert(decided);
                let response = fallback.call(Request::from_parts(parts, body), state).await;
                instead_of(refused, response)
            }
        }
    }

    /// The response, unless the limits refuse the request.
    async fn through<F, R>(
        self,
        attribute: &'static Attribute,
        handler: F,
    ) -> Result<Response, Box<Stopped<X>>>
    where
        F: FnOnce(A) -> R + Send + 'static,
        R: Future<Output: IntoResponse> + Send + 'static,
    {
        let (request, extract, state) = match self.0 {
            Handed::Question(asked) => return Ok(answer(&asked, attribute)),
            Handed::Request { request, extract, state } => (request, extract, state),
        };
        let Some(made) = RateLimitStore::made(request.extensions(), attribute) else {
            return Ok(unlimited());
        };
        let (mut parts, body) = request.into_parts();
        match made.limits.decide(&parts).await {
            Ok(mut admitted) => {
                admitted.enter(&mut parts.extensions);
                Ok(admitted.leave(serve(Request::from_parts(parts, body), extract, handler).await))
            }
            Err(refused) => Err(Box::new(Stopped { refused, parts, body, state, made })),
        }
    }
}

/// A refused request, with everything that an answer may need.
struct Stopped<X> {
    refused: Box<Refused>,
    parts: Parts,
    body: Body,
    state: X,
    made: Arc<MadeLimits>,
}

/// A value of `fallback = ..`: a handler, with the state that the limited handler takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no fallback for this handler",
    label = "not a handler with the state `{X}`",
    note = "a fallback is an `async fn` as axum's handlers are; for a `State<..>` in it, the limited handler has to take the state as well, if only as `_: State<..>`"
)]
pub trait Fallback<T, X>: Handler<T, X> {}

// Otherwise the compiler would only report that it is no `Handler`.
#[diagnostic::do_not_recommend]
impl<T, X, H: Handler<T, X>> Fallback<T, X> for H {}

/// The response to a request whose limits cannot be made; the log has the reason.
fn unlimited() -> Response {
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// The response of the handler's own code.
async fn serve<A, F, R>(request: Request, extract: Extract<A>, handler: F) -> Response
where
    F: FnOnce(A) -> R,
    R: Future<Output: IntoResponse>,
{
    match extract(request).await {
        Ok(arguments) => handler(arguments).await.into_response(),
        Err(rejection) => rejection,
    }
}

/// The fallback's response with the refusal's header fields. If both have a field, the fallback's counts.
fn instead_of(refused: Response, mut response: Response) -> Response {
    let (mut refused, _) = refused.into_parts();
    if response.status().is_success() {
        // A client that got an answer need not come back.
        refused.headers.remove(RETRY_AFTER);
    }
    for name in refused.headers.keys() {
        if !response.headers().contains_key(name) {
            for value in refused.headers.get_all(name) {
                response.headers_mut().append(name, value.clone());
            }
        }
    }
    response.extensions_mut().extend(refused.extensions);
    response
}

/// The response that axum makes from a handler's return value.
pub fn response<R: IntoResponse>(returned: R) -> Response {
    returned.into_response()
}

/// Compiles for types that axum can respond with.
pub fn check_response<R: IntoResponse>() {}

/// Compiles for futures that a server can run on any thread.
pub fn check_future<F: Future + Send>(_: F) {}

/// An argument for a call that is compiled and never made.
pub fn any<T>() -> T {
    unreachable!("code that only checks types is never run")
}

/// A handler that has a `#[rate_limited]` attribute, for [`RateLimitStore::open`](super::RateLimitStore::open).
///
/// The attribute implements it; the compiler infers `T`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no handler with a `#[rate_limited]` attribute",
    label = "not `#[rate_limited]`"
)]
pub trait Attributed<T>: sealed::Sealed<T> {}

impl<H: sealed::Sealed<T>, T> Attributed<T> for H {}

/// Asks a handler for its attribute: the handler is called, returns the attribute, and runs none of its own code.
pub(super) fn ask<H: Attributed<T>, T>(handler: H) -> Option<&'static Attribute> {
    let asked = AskedAttribute::default();
    handler.ask(Arc::clone(&asked));
    asked.get().copied()
}

mod sealed {
    use super::{AskedAttribute, Context, Future, Handed, Limited, Skip, Waker, pin};

    #[expect(unnameable_types, reason = "whoever cannot name it cannot implement it")]
    pub trait Sealed<T> {
        fn ask(self, asked: AskedAttribute);
    }

    macro_rules! attributed {
        ($($skip:ident)*) => {
            impl<F, R, A, X> Sealed<($($skip,)* Limited<A, X>,)> for F
            where
                F: FnOnce($($skip,)* Limited<A, X>) -> R,
                R: Future,
            {
                fn ask(self, asked: AskedAttribute) {
                    let answer = self($($skip,)* Limited(Handed::Question(asked)));
                    // Without a request it need not wait, and without an answer there is no attribute.
                    _ = pin!(answer).poll(&mut Context::from_waker(Waker::noop()));
                }
            }
        };
    }

    attributed!();
    attributed!(Skip);
    attributed!(Skip Skip);
    attributed!(Skip Skip Skip);
    attributed!(Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip);
}
