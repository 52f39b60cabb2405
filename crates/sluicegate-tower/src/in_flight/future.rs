//! The response future: [`InFlightFuture`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use sluicegate_core::Key;
use sluicegate_core::in_flight::{Acquire, NoPermit, Permit};
use tokio::time::Sleep;
use tower_service::Service;

use crate::guard::Place;
use crate::guard::lookup::Lookup;
use crate::in_flight::layer::Shared;
use crate::in_flight::service::carry;
use crate::in_flight::{HeldPermit, PermitBody};
use crate::key::missing::OnMissingKey;
use crate::key::{Extraction, MissingKey, RequestView};
use crate::respond::refusal::Respond;

/// What a request has to wait for.
pub(crate) enum Entry {
    /// With the place of a request that waits for its key.
    Key(Lookup<Extraction>, Place),
    Permit(Acquire, Pin<Box<Sleep>>),
}

/// What a step led to.
pub(crate) enum Next<B> {
    /// On to the inner service, without a permit if this request is not counted.
    Go(Option<HeldPermit>),
    Refuse(Response<PermitBody<B>>),
    /// In a box, for it is large and rare.
    Wait(Box<Entry>),
}

impl Entry {
    /// Goes as far as it can without waiting.
    pub(crate) fn begin<R: Respond<B>, B>(shared: &Shared<R>, request: RequestView<'_>) -> Next<B> {
        match shared.key.extract(request).now() {
            Ok(found) => found_key(shared, request, found),
            Err(pending) => Next::Wait(Box::new(Self::Key(Lookup::new(pending), Place::default()))),
        }
    }

    fn poll<R: Respond<B>, B>(
        &mut self,
        cx: &mut Context<'_>,
        shared: &Shared<R>,
        request: RequestView<'_>,
    ) -> Poll<Next<B>> {
        loop {
            let next = match self {
                Self::Key(lookup, place) => match ready!(lookup.poll(cx, &shared.waits, place)) {
                    Ok(found) => found_key(shared, request, found),
                    Err(reason) => Next::Refuse(shared.unserved(reason, request)),
                },
                Self::Permit(acquire, sleep) => {
                    // The permit first: one that comes with the last moment is not refused.
                    if let Poll::Ready(result) = Pin::new(acquire).poll(cx) {
                        entered(shared, request, result)
                    } else {
                        ready!(sleep.as_mut().poll(cx));
                        Next::Refuse(shared.too_many(request))
                    }
                }
            };
            match next {
                Next::Wait(following) => *self = *following,
                next => return Poll::Ready(next),
            }
        }
    }
}

fn found_key<R: Respond<B>, B>(
    shared: &Shared<R>,
    request: RequestView<'_>,
    found: Result<Key, MissingKey>,
) -> Next<B> {
    let key = match found {
        Ok(key) => key,
        Err(missing) => match shared.on_missing_key(&missing) {
            OnMissingKey::Skip => return Next::Go(None),
            OnMissingKey::Reject(status) => return Next::Refuse(shared.keyless(&missing, status, request)),
            OnMissingKey::Share => Key::shared(),
        },
    };
    let Some(longest) = shared.longest else {
        return entered(shared, request, shared.in_flight.try_acquire(&key));
    };
    match shared.in_flight.acquire(&key).now() {
        Ok(result) => entered(shared, request, result),
        Err(acquire) => Next::Wait(Box::new(Entry::Permit(acquire, Box::pin(tokio::time::sleep(longest))))),
    }
}

fn entered<R: Respond<B>, B>(
    shared: &Shared<R>,
    request: RequestView<'_>,
    result: Result<Permit, NoPermit>,
) -> Next<B> {
    match result {
        Ok(permit) => Next::Go(Some(HeldPermit::new(permit))),
        Err(_) => Next::Refuse(shared.too_many(request)),
    }
}

pin_project! {
    /// The response of a [`LimitInFlight`](crate::in_flight::LimitInFlight).
    ///
    /// # Cancel safety
    /// Dropping it at any time leaves the queue or gives the permit back.
    ///
    /// # Panics
    /// When polled again after it was ready, and when it has to wait outside of a tokio runtime that has its timer enabled.
    pub struct InFlightFuture<S, B, R, ResB>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B, R, ResB, S::Future>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, B, R, ResB, F> {
        // In a box, for it is large and rare.
        Waiting { waiting: Option<Box<Waiting<S, B, R>>> },
        Calling { #[pin] inner: F, permit: Option<HeldPermit>, shared: Arc<Shared<R>> },
        Refused { response: Option<Response<PermitBody<ResB>>> },
    }
}

/// A request that the inner service cannot be called with yet.
struct Waiting<S, B, R> {
    /// What it waits for before it is let through. After that, it waits for the inner service to be ready.
    entry: Option<Box<Entry>>,
    permit: Option<HeldPermit>,
    request: Request<B>,
    service: S,
    shared: Arc<Shared<R>>,
}

impl<S, B, R, ResB> InFlightFuture<S, B, R, ResB>
where
    S: Service<Request<B>>,
{
    pub(crate) fn waiting(
        entry: Box<Entry>,
        request: Request<B>,
        service: S,
        shared: Arc<Shared<R>>,
    ) -> Self {
        let (entry, permit) = (Some(entry), None);
        let waiting = Some(Box::new(Waiting { entry, permit, request, service, shared }));
        Self { state: State::Waiting { waiting } }
    }

    pub(crate) fn calling(inner: S::Future, permit: Option<HeldPermit>, shared: Arc<Shared<R>>) -> Self {
        Self { state: State::Calling { inner, permit, shared } }
    }

    pub(crate) fn refused(response: Response<PermitBody<ResB>>) -> Self {
        Self { state: State::Refused { response: Some(response) } }
    }
}

impl<S, B, R, ResB> Future for InFlightFuture<S, B, R, ResB>
where
    S: Service<Request<B>, Response = Response<ResB>>,
    R: Respond<ResB>,
{
    type Output = Result<Response<PermitBody<ResB>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let following = match state.as_mut().project() {
                StateProj::Waiting { waiting } => {
                    let pending = waiting.as_mut().expect("a waiting request is replaced when its wait ends");
                    let Waiting { entry, permit, request, service, shared, .. } = &mut **pending;
                    if let Some(waited) = entry {
                        match ready!(waited.poll(cx, shared, RequestView::from(&*request))) {
                            Next::Go(found) => (*entry, *permit) = (None, found),
                            Next::Refuse(response) => {
                                state.set(State::Refused { response: Some(response) });
                                continue;
                            }
                            Next::Wait(_) => {
                                unreachable!("`Entry::poll` returns when nothing is left to wait for")
                            }
                        }
                    }
                    ready!(service.poll_ready(cx))?;
                    let Some(waiting) = waiting.take() else { continue };
                    let Waiting { permit, mut request, mut service, shared, .. } = *waiting;
                    carry(&mut request, permit.as_ref());
                    State::Calling { inner: service.call(request), permit, shared }
                }
                StateProj::Calling { inner, permit, shared } => {
                    let mut response = ready!(inner.poll(cx))?;
                    let permit = permit.take();
                    if let Some(permit) = &permit {
                        shared.mark(response.headers_mut(), permit.permit().remaining());
                        if response.status() == http::StatusCode::SWITCHING_PROTOCOLS {
                            // For layers and servers that carry on with the connection themselves.
                            permit.clone().enter(response.extensions_mut());
                        }
                    }
                    return Poll::Ready(Ok(response.map(|body| PermitBody::new(body, permit))));
                }
                StateProj::Refused { response } => {
                    let response =
                        response.take().expect("a response future is polled until it is ready, once");
                    return Poll::Ready(Ok(response));
                }
            };
            state.set(following);
        }
    }
}

impl<S, B, R, ResB> fmt::Debug for InFlightFuture<S, B, R, ResB>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Waiting { .. } => "InFlightFuture(waiting)",
            State::Calling { .. } => "InFlightFuture(calling)",
            State::Refused { .. } => "InFlightFuture(refused)",
        })
    }
}
