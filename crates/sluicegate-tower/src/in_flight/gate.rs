//! The way of a request to its permit.
//!
//! First its key, which may have to be looked up in the layer's queue; then a permit, at once or in
//! the queue of the `InFlight`. The two queues are apart, so that slow look-ups take no place from
//! those who wait for permits.
#![expect(unnameable_types, reason = "they are parts of a future that has a name")]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::header::UPGRADE;
use http::{Method, Request, Response, StatusCode};
use sluicegate_core::Key;
use sluicegate_core::in_flight::{Acquire, NoPermit, Permit};
use tokio::time::Sleep;

use crate::guard::lookup::Lookup;
use crate::guard::{Gate, Next, Place, Step, sealed};
use crate::in_flight::layer::Shared;
use crate::in_flight::{HeldPermit, InFlightLayer, PermitBody};
use crate::key::missing::Keyed;
use crate::key::{Extraction, MissingKey, RequestView};
use crate::respond::headers::say_in_flight;
use crate::respond::{HeaderFields, Refusal, RefusalReason, Respond};

/// What a request waits for.
///
/// The key's wait has a bound in time and in places, the permit's is bounded by the layer's longest
/// wait and the queue of the `InFlight`.
#[derive(Debug)]
pub enum Wait {
    Key(Lookup<Extraction>),
    Permit(Key, Acquire, Pin<Box<Sleep>>),
}

/// A request that may be served, with its permit if it is counted.
#[derive(Debug)]
pub struct Entered {
    permit: Option<HeldPermit>,
    headers: HeaderFields,
}

type Led<B, E> = Step<Entered, Wait, Result<Response<PermitBody<B>>, E>>;

impl<R> Shared<R> {
    fn keyed<B, E>(&self, found: Result<Key, MissingKey>, request: RequestView<'_>) -> Led<B, E>
    where
        R: Respond<B>,
    {
        let key = match self.when_missing.read(found, || self.in_flight.name().to_owned()) {
            Keyed::Key(key) => key,
            Keyed::Skipped(_) => return self.go(None),
            Keyed::Rejected(missing, status) => {
                return self.refuse(RefusalReason::MissingKey(&missing, status), request);
            }
        };
        let Some(longest) = self.longest else {
            return self.acquired(self.in_flight.try_acquire(&key), request);
        };
        match self.in_flight.acquire(&key).now() {
            Ok(result) => self.acquired(result, request),
            Err(acquire) => Step::Wait(Wait::Permit(key, acquire, Box::pin(tokio::time::sleep(longest)))),
        }
    }

    fn acquired<B, E>(&self, result: Result<Permit, NoPermit>, request: RequestView<'_>) -> Led<B, E>
    where
        R: Respond<B>,
    {
        match result {
            Ok(permit) => self.go(Some(HeldPermit::new(permit))),
            Err(_) => self.refuse(RefusalReason::ConcurrencyExceeded(&self.in_flight), request),
        }
    }

    fn go<B, E>(&self, permit: Option<HeldPermit>) -> Led<B, E> {
        Step::Go(Entered { permit, headers: self.headers })
    }

    fn refuse<B, E>(&self, reason: RefusalReason<'_>, request: RequestView<'_>) -> Led<B, E>
    where
        R: Respond<B>,
    {
        let refused = Refusal::new(reason, request).answer(&*self.respond, true);
        let mut response = refused.map(|body| PermitBody::new(body, None));
        if let RefusalReason::ConcurrencyExceeded(in_flight) = reason {
            say_in_flight(response.headers_mut(), self.headers, in_flight, 0);
        }
        Step::Refuse(Ok(response))
    }
}

impl<R> sealed::Sealed for InFlightLayer<R> {}

impl<B, ResB, E, R: Respond<ResB>> Gate<Request<B>, Response<ResB>, E> for InFlightLayer<R> {
    type Response = Response<PermitBody<ResB>>;
    type Error = E;
    type Wait = Wait;
    type Pass = Entered;

    fn begin(&self, request: &Request<B>, _: &mut Place) -> Next<Self, Request<B>, Response<ResB>, E> {
        let request = RequestView::from(request);
        match self.shared.key.extract(request).now() {
            Ok(found) => self.shared.keyed(found, request),
            Err(pending) => Step::Wait(Wait::Key(Lookup::new(pending))),
        }
    }

    fn poll(
        &self,
        wait: &mut Wait,
        request: &Request<B>,
        place: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Request<B>, Response<ResB>, E>> {
        let (shared, request) = (&self.shared, RequestView::from(request));
        Poll::Ready(match wait {
            Wait::Key(lookup) => match ready!(lookup.poll(cx, &shared.waits, place)) {
                Ok(found) => {
                    // Permits are waited for in a queue of their own.
                    *place = Place::default();
                    shared.keyed(found, request)
                }
                Err(not_found) => shared.refuse(not_found.into(), request),
            },
            Wait::Permit(key, acquire, sleep) => {
                // The permit first: one that comes with the last moment is not refused.
                if let Poll::Ready(result) = Pin::new(acquire).poll(cx) {
                    return Poll::Ready(shared.acquired(result, request));
                }
                ready!(sleep.as_mut().poll(cx));
                shared.in_flight.waited_in_vain(&*key);
                shared.refuse(RefusalReason::ConcurrencyExceeded(&shared.in_flight), request)
            }
        })
    }

    fn enter(&self, pass: &mut Entered, request: &mut Request<B>) {
        let upgrades = request.method() == Method::CONNECT || request.headers().contains_key(UPGRADE);
        if let Some(permit) = pass.permit.as_ref().filter(|_| upgrades) {
            // For whoever will have the connection.
            permit.clone().enter(request.extensions_mut());
        }
    }

    fn after(pass: Entered, mut response: Response<ResB>) -> Self::Response {
        let Entered { permit, headers } = pass;
        if let Some(held) = &permit {
            let permit = held.permit();
            say_in_flight(response.headers_mut(), headers, permit.in_flight(), permit.remaining());
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                // For layers and servers that carry on with the connection themselves.
                held.clone().enter(response.extensions_mut());
            }
        }
        response.map(|body| PermitBody::new(body, permit))
    }

    fn failed(error: E) -> E {
        error
    }
}
