//! The future of a limited call: [`CallFuture`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::call::{Admission, CallError, Refused};
use crate::guard::queue::{Place, Queue};

pin_project! {
    /// The response of a [`CallLimit`](crate::call::CallLimit).
    ///
    /// # Cancel safety
    /// Dropped before the decision, it may have spent or not, as [`Store`](sluicegate_core::Store) says. Dropped while
    /// it waits for its turn, the turn is given back. Dropped when the turn has come, be the inner service ready or not,
    /// what was spent stays spent.
    ///
    /// # Panics
    /// When polled again after it was ready, and when it has to wait for a turn outside of a tokio runtime that has its
    /// timer enabled.
    pub struct CallFuture<S, Req>
    where
        S: Service<Req>,
    {
        #[pin]
        state: State<S, Req, S::Future, S::Error>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, Req, F, E> {
        Waiting { waiting: Waiting, call: Option<(S, Req)> },
        Calling { #[pin] inner: F },
        Refused { error: Option<CallError<E>> },
    }
}

/// A call that cannot be made yet.
pub(crate) struct Waiting {
    /// What it waits for before it is let through. After that, it waits for the inner service to be ready.
    pub(crate) admission: Option<Box<Admission>>,
    pub(crate) place: Option<Place>,
    pub(crate) queue: Queue,
}

impl<S, Req> CallFuture<S, Req>
where
    S: Service<Req>,
{
    pub(crate) fn waiting(waiting: Waiting, service: S, request: Req) -> Self {
        Self { state: State::Waiting { waiting, call: Some((service, request)) } }
    }

    #[inline]
    pub(crate) fn calling(inner: S::Future) -> Self {
        Self { state: State::Calling { inner } }
    }

    pub(crate) fn refused(error: CallError<S::Error>) -> Self {
        Self { state: State::Refused { error: Some(error) } }
    }
}

const REPLACED: &str = "a waiting call is replaced when its wait ends";

impl Waiting {
    /// Waits until the call may be made.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refused>> {
        if let Some(admission) = &mut self.admission {
            ready!(admission.poll(cx, &self.queue, &mut self.place))?;
            // A turn that has come leaves its queue here, whenever the inner service is ready.
            self.admission = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S, Req> Future for CallFuture<S, Req>
where
    S: Service<Req>,
{
    type Output = Result<S::Response, CallError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let following = match state.as_mut().project() {
                StateProj::Waiting { waiting, call } => match ready!(waiting.poll(cx)) {
                    Ok(()) => {
                        let (service, _) = call.as_mut().expect(REPLACED);
                        ready!(service.poll_ready(cx)).map_err(CallError::Inner)?;
                        let (mut service, request) = call.take().expect(REPLACED);
                        State::Calling { inner: service.call(request) }
                    }
                    Err(refused) => State::Refused { error: Some(refused.into()) },
                },
                StateProj::Calling { inner } => return inner.poll(cx).map_err(CallError::Inner),
                StateProj::Refused { error } => {
                    let error = error.take().expect("a call is polled until it is ready, once");
                    return Poll::Ready(Err(error));
                }
            };
            state.set(following);
        }
    }
}

impl<S, Req> fmt::Debug for CallFuture<S, Req>
where
    S: Service<Req>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Waiting { .. } => "CallFuture(waiting)",
            State::Calling { .. } => "CallFuture(calling)",
            State::Refused { .. } => "CallFuture(refused)",
        })
    }
}
