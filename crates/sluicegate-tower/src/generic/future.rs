//! The future of a limited call: [`CallFuture`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::generic::{Admission, CallError};

pin_project! {
    /// The response of a [`CallLimit`](crate::CallLimit).
    ///
    /// # Cancel safety
    /// Dropped before the decision, it may have spent or not, as [`Store`](sluicegate_core::Store) says. Dropped while
    /// it waits for its turn, the turn is given back. Dropped while the inner service works, what was spent stays spent.
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
        Waiting { admission: Box<Admission>, call: Option<(S, Req)> },
        Calling { #[pin] inner: F },
        Refused { error: Option<CallError<E>> },
    }
}

impl<S, Req> CallFuture<S, Req>
where
    S: Service<Req>,
{
    pub(crate) fn waiting(admission: Box<Admission>, service: S, request: Req) -> Self {
        Self { state: State::Waiting { admission, call: Some((service, request)) } }
    }

    #[inline]
    pub(crate) fn calling(inner: S::Future) -> Self {
        Self { state: State::Calling { inner } }
    }

    pub(crate) fn refused(error: CallError<S::Error>) -> Self {
        Self { state: State::Refused { error: Some(error) } }
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
                StateProj::Waiting { admission, call } => match ready!(admission.poll(cx)) {
                    Ok(_) => {
                        let (mut service, request) =
                            call.take().expect("a waiting call is replaced when its wait ends");
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
