//! A handler's own code behind the layer of its limits, and what answers instead.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::limited::{Extract, Handed, Limited};
use super::respond::SetAside;
use super::source::Attribute;

impl<A: Send + 'static, X> Limited<A, X> {
    /// Puts the handler's own code behind its limits.
    pub async fn run<F, R>(self, attribute: &'static Attribute, handler: F) -> Response
    where
        F: FnOnce(A) -> R + Send + 'static,
        R: Future<Output: IntoResponse> + Send + 'static,
    {
        match self.0 {
            Handed::Question(asked) => attribute.answer(&asked),
            Handed::Request { request, extract, .. } => {
                Held::new(extract, handler).behind(attribute, request).await
            }
        }
    }

    /// As `run`, with another handler that answers what the limits decide against.
    pub async fn run_or<F, R, T, H>(self, attribute: &'static Attribute, handler: F, fallback: H) -> Response
    where
        F: FnOnce(A) -> R + Send + 'static,
        R: Future<Output: IntoResponse> + Send + 'static,
        H: Fallback<T, X>,
    {
        match self.0 {
            Handed::Question(asked) => attribute.answer(&asked),
            Handed::Request { request, extract, state } => {
                let held = Held::new(extract, handler);
                let mut response = held.clone().behind(attribute, request).await;
                match response.extensions_mut().remove::<SetAside>() {
                    Some(SetAside(parts)) => {
                        let request = Request::from_parts(parts, held.body());
                        instead_of(response, fallback.call(request, state).await)
                    }
                    None => response,
                }
            }
        }
    }
}

/// What `fallback = ..` takes: a handler, with the state that the one in front of it takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no fallback for this handler",
    label = "not a handler with the state `{X}`",
    note = "a fallback is an `async fn` as axum's handlers are; for a `State<..>` in it, the limited handler has to take the state as well, if only as `_: State<..>`"
)]
pub trait Fallback<T, X>: Handler<T, X> {}

// Otherwise the compiler would only say that it is no `Handler`.
#[diagnostic::do_not_recommend]
impl<T, X, H: Handler<T, X>> Fallback<T, X> for H {}

/// The fallback's response with what the refusal says about the limits. Where both have a field, the fallback's counts.
fn instead_of(refused: Response, mut response: Response) -> Response {
    let (mut refused, _) = refused.into_parts();
    if response.status().is_success() {
        // A client that has its answer is not to come back for it.
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

/// A handler's own code with the body that it is to get: as a service that is called once, so that a layer can stand in
/// front of it. The clones share what they hold.
struct Held<A, F>(Arc<Mutex<Inside<A, F>>>);

struct Inside<A, F> {
    body: Body,
    /// Until the request is let through.
    code: Option<(Extract<A>, F)>,
}

impl<A, F, R> Held<A, F>
where
    A: Send + 'static,
    F: FnOnce(A) -> R + Send + 'static,
    R: Future<Output: IntoResponse> + Send + 'static,
{
    fn new(extract: Extract<A>, handler: F) -> Self {
        Self(Arc::new(Mutex::new(Inside { body: Body::empty(), code: Some((extract, handler)) })))
    }

    async fn behind(self, attribute: &'static Attribute, request: Request) -> Response {
        let Some(layer) = attribute.layer(request.extensions()) else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        let (parts, body) = request.into_parts();
        self.with(|inside| inside.body = body);
        let response = layer.layer(self).call(Request::from_parts(parts, Body::empty())).await;
        response.unwrap_or_else(|never| match never {})
    }

    fn body(&self) -> Body {
        self.with(|inside| mem::take(&mut inside.body))
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut Inside<A, F>) -> T) -> T {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The future of the handler's response: in a box, as axum makes it.
type Answer = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

impl<A, F, R> Service<Request> for Held<A, F>
where
    A: Send + 'static,
    F: FnOnce(A) -> R + Send + 'static,
    R: Future<Output: IntoResponse> + Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Answer {
        let (body, code) = self.with(|inside| (mem::take(&mut inside.body), inside.code.take()));
        Box::pin(async move {
            let (extract, handler) = code.expect("a request is let through once");
            let request = request.map(|_| body);
            Ok(match extract(request).await {
                Ok(arguments) => handler(arguments).await.into_response(),
                Err(rejection) => rejection,
            })
        })
    }
}

impl<A, F> Clone for Held<A, F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A, F> fmt::Debug for Held<A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

/// What axum makes of what a handler returns.
pub fn response<R: IntoResponse>(returned: R) -> Response {
    returned.into_response()
}

/// Compiles for what axum answers with.
pub fn check_response<R: IntoResponse>() {}

/// Compiles for what a server can run on any thread.
pub fn check_future<F: Future + Send>(_: F) {}

/// An argument for a call that is compiled and never made.
pub fn any<T>() -> T {
    unreachable!("code that only checks types is never run")
}
