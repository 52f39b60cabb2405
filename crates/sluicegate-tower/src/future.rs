//! The future of a response: [`ResponseFuture`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use sluicegate_core::Decision;
use tower_service::Service;

use crate::gate::{Gate, Next, Step};
use crate::layer::Shared;
use crate::refusal::Respond;

pin_project! {
    /// The response of [`RateLimit`](crate::RateLimit).
    ///
    /// # Cancel safety
    /// Dropped before the decision, it may have spent or not, as [`Store`](sluicegate_core::Store) says. Dropped while it
    /// waits for its turn, the turn is given back. Dropped while the inner service works, what was spent stays spent:
    /// otherwise clients could dodge their limit by hanging up.
    pub struct ResponseFuture<S, B, R>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B, R, S::Future, S::Response>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, B, R, F, T> {
        Waiting { waiting: Option<Waiting<S, B, R>> },
        Calling { #[pin] inner: F, passed: Option<Passed<R>> },
        Refused { response: Option<T> },
    }
}

/// A request that has not been decided, or whose turn has not come.
struct Waiting<S, B, R> {
    step: Step,
    gate: Gate,
    parts: Parts,
    body: B,
    service: S,
    shared: Arc<Shared<R>>,
}

/// A request that was let through, and whose response is to be marked.
struct Passed<R> {
    gate: Gate,
    decision: Decision,
    shared: Arc<Shared<R>>,
}

impl<S, B, R> ResponseFuture<S, B, R>
where
    S: Service<Request<B>>,
{
    pub(crate) fn waiting(
        step: Step,
        gate: Gate,
        request: Request<B>,
        service: S,
        shared: Arc<Shared<R>>,
    ) -> Self {
        let (parts, body) = request.into_parts();
        let waiting = Some(Waiting { step, gate, parts, body, service, shared });
        Self { state: State::Waiting { waiting } }
    }

    pub(crate) fn calling(
        service: &mut S,
        request: Request<B>,
        gate: Gate,
        decision: Option<Decision>,
        shared: &Arc<Shared<R>>,
    ) -> Self {
        Self { state: State::calling(service, request, gate, decision, shared) }
    }
}

impl<S, B, R, ResB> ResponseFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResB>>,
{
    pub(crate) fn refused(response: Response<ResB>) -> Self {
        Self { state: State::Refused { response: Some(response) } }
    }
}

impl<S, B, R> State<S, B, R, S::Future, S::Response>
where
    S: Service<Request<B>>,
{
    fn calling(
        service: &mut S,
        mut request: Request<B>,
        gate: Gate,
        decision: Option<Decision>,
        shared: &Arc<Shared<R>>,
    ) -> Self {
        // A layer that shows nothing does not even hold on to what was decided.
        let passed = decision.filter(|_| shared.marks_responses()).map(|decision| {
            if shared.extensions {
                request.extensions_mut().insert(decision.clone());
            }
            Passed { gate, decision, shared: Arc::clone(shared) }
        });
        Self::Calling { inner: service.call(request), passed }
    }
}

impl<S, B, R, ResB> Future for ResponseFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResB>>,
    R: Respond<ResB>,
{
    type Output = Result<S::Response, S::Error>;

    /// # Panics
    /// When polled again after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProj::Waiting { waiting } => {
                    let pending = waiting.as_mut().expect("a waiting request is replaced when its wait ends");
                    let Waiting { step, gate, parts, shared, .. } = pending;
                    let next = ready!(gate.poll(step, cx, shared, parts));
                    let Some(Waiting { step, gate, parts, body, mut service, shared }) = waiting.take()
                    else {
                        continue;
                    };
                    // The turn has come or is not wanted: it leaves its queue before the inner service is called.
                    drop(step);
                    let following = match next {
                        Next::Go(decision) => {
                            let request = Request::from_parts(parts, body);
                            State::calling(&mut service, request, gate, decision, &shared)
                        }
                        Next::Refuse(response) => State::Refused { response: Some(response) },
                        Next::Wait(_) => {
                            unreachable!("`Gate::poll` returns when nothing is left to wait for")
                        }
                    };
                    state.set(following);
                }
                StateProj::Calling { inner, passed } => {
                    let mut response = ready!(inner.poll(cx))?;
                    if let Some(Passed { gate, decision, shared }) = passed.take() {
                        gate.mark(&shared, decision, &mut response);
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProj::Refused { response } => {
                    let response =
                        response.take().expect("a response future is polled until it is ready, once");
                    return Poll::Ready(Ok(response));
                }
            }
        }
    }
}

impl<S, B, R> fmt::Debug for ResponseFuture<S, B, R>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Waiting { .. } => "ResponseFuture(waiting)",
            State::Calling { .. } => "ResponseFuture(calling)",
            State::Refused { .. } => "ResponseFuture(refused)",
        })
    }
}
