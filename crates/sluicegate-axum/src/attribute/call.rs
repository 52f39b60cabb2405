//! A handler's own code as a service, so that a layer can stand in front of it.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};
use tower_service::Service;

use super::source::Attribute;

/// The future of every handler that is a function: in a box, as axum makes it.
pub type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A handler with its limits; implemented by `#[rate_limited]` for a type of its own.
///
/// `S` is the router's state, and `M` how the last argument is extracted: both are found by inference, as for every
/// handler.
pub trait Limits<S, M>: 'static {
    /// What the attribute says.
    fn attribute() -> &'static Attribute;

    /// Extracts the arguments, and runs the handler's own code.
    fn call(request: Request, state: S) -> Answer;
}

/// Calls a handler's own code as axum would.
pub fn run<T, H, S>(handler: H, request: Request, state: S) -> Answer
where
    H: Handler<T, S, Future = Answer>,
{
    handler.call(request, state)
}

/// Compiles for what axum answers with.
pub fn check_response<R: IntoResponse>() {}

/// Compiles for what a server can run on any thread.
pub fn check_future<F: Future + Send>(_: F) {}

/// An argument for a call that is compiled and never made.
pub fn any<T>() -> T {
    unreachable!("code that only checks types is never run")
}

/// The handler's own code, always ready.
pub(super) struct Call<L, S, M> {
    state: S,
    handler: PhantomData<fn(M) -> L>,
}

impl<L, S, M> Call<L, S, M> {
    pub(super) fn new(state: S) -> Self {
        Self { state, handler: PhantomData }
    }
}

impl<L, S: Clone, M> Clone for Call<L, S, M> {
    fn clone(&self) -> Self {
        Self::new(self.state.clone())
    }
}

impl<L, S: Clone, M> Service<Request> for Call<L, S, M>
where
    L: Limits<S, M>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Calling;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Calling {
        Calling(L::call(request, self.state.clone()))
    }
}

/// A handler's response, which is never an error.
pub(super) struct Calling(Answer);

impl Future for Calling {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map(Ok)
    }
}

impl<L, S, M> fmt::Debug for Call<L, S, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call")
    }
}

impl fmt::Debug for Calling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Calling")
    }
}
