//! The future of a response: [`ResponseFuture`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::key::RequestView;
use crate::rate_limit::gate::{Gate, Next, Step};
use crate::rate_limit::mark::Marked;
use crate::rate_limit::meter::Meter;
use crate::rate_limit::shared::Shared;
use crate::respond::refusal::Respond;

pin_project! {
    /// The response of [`RateLimit`](crate::rate_limit::RateLimit).
    ///
    /// # Cancel safety
    /// Dropped before the decision, it may have spent or not, as [`Store`](sluicegate_core::Store) says. Dropped while it
    /// waits for its turn, the turn is given back. Dropped when the turn has come, be the inner service ready or not, what
    /// was spent stays spent: otherwise clients could dodge their limit by hanging up.
    ///
    /// # Panics
    /// When polled again after it was ready, and when it has to wait for a key, a tier or a turn outside of a tokio
    /// runtime that has its timer enabled.
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
        // In a box, for it is large and rare.
        Waiting { waiting: Option<Box<Waiting<S, B, R>>> },
        Calling { #[pin] inner: F, passed: Option<Passed<R>> },
        Refused { response: Option<T> },
    }
}

/// A request that the inner service cannot be called with yet.
struct Waiting<S, B, R> {
    /// What it waits for before it is let through. After that, it waits for the inner service to be ready.
    step: Option<Box<Step>>,
    marked: Option<Box<Marked>>,
    gate: Gate,
    request: Request<B>,
    service: S,
    shared: Arc<Shared<R>>,
}

/// A request that was let through, and whose response is to be marked.
pub(crate) struct Passed<R> {
    marked: Box<Marked>,
    shared: Arc<Shared<R>>,
}

impl<S, B, R> ResponseFuture<S, B, R>
where
    S: Service<Request<B>>,
{
    pub(crate) fn waiting(
        step: Box<Step>,
        gate: Gate,
        request: Request<B>,
        service: S,
        shared: Arc<Shared<R>>,
    ) -> Self {
        let (step, marked) = (Some(step), None);
        let waiting = Some(Box::new(Waiting { step, marked, gate, request, service, shared }));
        Self { state: State::Waiting { waiting } }
    }

    #[inline]
    pub(crate) fn calling(inner: S::Future, passed: Option<Passed<R>>) -> Self {
        Self { state: State::Calling { inner, passed } }
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

impl<R> Passed<R> {
    /// Shows a request to its handlers as passed, with what was decided if its response is to be marked.
    #[inline]
    pub(crate) fn enter<B>(
        marked: Option<Box<Marked>>,
        request: &mut Request<B>,
        shared: &Arc<Shared<R>>,
    ) -> Option<Self> {
        if shared.meters {
            // A request that no limit counted has a meter too, so that handlers need not care.
            let meter = marked.as_ref().and_then(|marked| marked.meter.clone()).unwrap_or_default();
            Meter::enter(&meter, request.extensions_mut());
        }
        let marked = marked?;
        if shared.extensions
            && let Some(decided) = &marked.decided
        {
            request.extensions_mut().insert(decided.clone());
        }
        Some(Self { marked, shared: Arc::clone(shared) })
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
                    let Waiting { step, marked, gate, request, service, shared, .. } = &mut **pending;
                    if let Some(waited) = step {
                        match ready!(gate.poll(waited, cx, shared, RequestView::from(&*request))) {
                            // A turn that has come leaves its queue here, whenever the inner service is ready.
                            Next::Go(found) => (*step, *marked) = (None, found),
                            Next::Refuse(response) => {
                                state.set(State::Refused { response: Some(response) });
                                continue;
                            }
                            Next::Wait(_) => {
                                unreachable!("`Gate::poll` returns when nothing is left to wait for")
                            }
                        }
                    }
                    ready!(service.poll_ready(cx))?;
                    let Some(waiting) = waiting.take() else { continue };
                    let Waiting { marked, mut request, mut service, shared, .. } = *waiting;
                    let passed = Passed::enter(marked, &mut request, &shared);
                    state.set(State::Calling { inner: service.call(request), passed });
                }
                StateProj::Calling { inner, passed } => {
                    let mut response = ready!(inner.poll(cx))?;
                    if let Some(Passed { mut marked, shared }) = passed.take() {
                        if shared.refunds {
                            response = marked.refund(&shared, response);
                        }
                        marked.mark(&shared, &mut response);
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
