//! Takes a request to its permits.
//!
//! The request goes from limit to limit, in the order of the layer: first it gets its key, which may have to be looked up in
//! the layer's queue; then a permit, at once or in the queue of the `InFlight`. The two queues are
//! separate, so that slow look-ups take no place from requests that wait for permits. All requests take
//! their permits in the same order, so that no two requests wait for each other.
#![expect(unnameable_types, reason = "they are parts of a future that has a name")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::UPGRADE;
use http::{Method, Request, Response, StatusCode};
use sluicegate_core::Key;
use sluicegate_core::in_flight::{InFlight, NoPermit, NoPermitKind, Permit};
use smallvec::SmallVec;

use crate::guard::lookup::Lookup;
use crate::guard::{Gate, Next, Place, Step, sealed};
use crate::in_flight::layer::PermitSettings;
use crate::in_flight::limits::LimitPlaces;
use crate::in_flight::{HeldPermit, InFlightLayer, InFlightLimit, InFlightLimits, PermitBody, PermitWait};
use crate::key::missing::Keyed;
use crate::key::{Extraction, MissingKey, RequestView};
use crate::respond::headers::say_in_flight;
use crate::respond::{HeaderFields, Refusal, RefusalReason, Respond, spread};

/// The wait of a request, and how far it has come.
#[derive(Debug)]
pub struct PermitProgress {
    way: PermitWay,
    on: On,
}

/// The layer bounds the time and the places of a wait for a key. The limit's longest wait and the queue of the `InFlight` bound
/// the wait for a permit.
#[derive(Debug)]
enum On {
    Key(Lookup<Extraction>),
    Permit(Key, PermitWait),
}

/// A request on its way: the limits that it began with, how far it has come, and the permits that it has.
#[derive(Debug)]
struct PermitWay {
    limits: Arc<InFlightLimits>,
    /// The places of the limits that may apply to the request.
    places: LimitPlaces,
    next: usize,
    held: Option<HeldPermit>,
    /// The limits of the permits, with the keys.
    keys: SmallVec<[(usize, Key); 1]>,
}

/// A request that may be served, with its permits if it is counted.
#[derive(Debug)]
pub struct PermitPass {
    held: Option<HeldPermit>,
    headers: HeaderFields,
    /// The limits that it has met.
    limits: Arc<InFlightLimits>,
}

type PermitStep<B, E> = Step<PermitPass, Box<PermitProgress>, Result<Response<PermitBody<B>>, E>>;

/// Either the step is known, or there is a next limit.
type OnTheWay<B, E> = ControlFlow<PermitStep<B, E>, PermitWay>;

impl PermitWay {
    /// Whether the request has a permit of the same `InFlight` for the same key already, so that it does not wait for itself.
    fn has(&self, key: &Key) -> bool {
        let Some(limit) = self.limit(self.next) else { return false };
        let is_same =
            |other: usize| self.limit(other).is_some_and(|other| other.in_flight.is(&limit.in_flight));
        self.keys.iter().any(|(other, held)| held == key && is_same(*other))
    }

    /// The limit at this step.
    fn limit(&self, step: usize) -> Option<&InFlightLimit> {
        self.limits.each.get(usize::try_from(*self.places.get(step)?).ok()?)
    }
}

impl<R> PermitSettings<R> {
    /// Goes from limit to limit, until the request has to wait.
    fn go_on<B, E>(&self, mut way: PermitWay, request: RequestView<'_>) -> PermitStep<B, E>
    where
        R: Respond<B>,
    {
        while way.next < way.places.len() {
            let Some(limit) = way.limit(way.next) else {
                way.next += 1;
                continue;
            };
            if !limit.applies_to(request) {
                way.next += 1;
                continue;
            }
            way = match limit.key.extract(request).now() {
                Ok(found) => match self.keyed(way, found, request) {
                    ControlFlow::Continue(way) => way,
                    ControlFlow::Break(step) => return step,
                },
                Err(pending) => return waiting(way, On::Key(Lookup::new(pending))),
            };
        }
        let headers = self.headers_of(&way);
        Step::Go(PermitPass { held: way.held, headers, limits: way.limits })
    }

    /// Continues with the key: takes a permit, or waits for one.
    fn keyed<B, E>(
        &self,
        mut way: PermitWay,
        found: Result<Key, MissingKey>,
        request: RequestView<'_>,
    ) -> OnTheWay<B, E>
    where
        R: Respond<B>,
    {
        let Some(limit) = way.limit(way.next) else {
            way.next += 1;
            return ControlFlow::Continue(way);
        };
        let key = match limit.when_missing.read(found, || limit.in_flight.name().to_owned()) {
            Keyed::Key(key) if !way.has(&key) => key,
            Keyed::Key(_) | Keyed::Skipped(_) => {
                way.next += 1;
                return ControlFlow::Continue(way);
            }
            Keyed::Rejected(missing, status) => {
                return ControlFlow::Break(self.refuse(
                    &way,
                    RefusalReason::MissingKey(&missing, status),
                    request,
                ));
            }
        };
        match PermitWait::begin(limit.request(&key, request), limit.longest) {
            Ok(result) => self.acquired(way, key, result, request),
            Err(wait) => ControlFlow::Break(waiting(way, On::Permit(key, wait))),
        }
    }

    fn acquired<B, E>(
        &self,
        mut way: PermitWay,
        key: Key,
        result: Result<Permit, NoPermit>,
        request: RequestView<'_>,
    ) -> OnTheWay<B, E>
    where
        R: Respond<B>,
    {
        let permit = match (result, way.limit(way.next)) {
            (Ok(permit), _) => permit,
            (Err(none), Some(limit)) => {
                return ControlFlow::Break(self.refuse(&way, reason(&none, &limit.in_flight), request));
            }
            (Err(_), None) => return ControlFlow::Continue(way),
        };
        way.held = Some(HeldPermit::new(permit, way.held.take()));
        if way.next + 1 < way.places.len() {
            way.keys.push((way.next, key));
        }
        way.next += 1;
        ControlFlow::Continue(way)
    }

    /// The fields of responses: those that the limits name, or else the layer's.
    fn headers_of(&self, way: &PermitWay) -> HeaderFields {
        way.limits.headers.unwrap_or(self.headers)
    }

    fn refuse<B, E>(
        &self,
        way: &PermitWay,
        reason: RefusalReason<'_>,
        request: RequestView<'_>,
    ) -> PermitStep<B, E>
    where
        R: Respond<B>,
    {
        let mut refusal = Refusal::new(reason, request).in_form(self.headers_of(way).form());
        if let RefusalReason::Overloaded(..) = reason {
            // As much again at most, and a second or two in any case: clients that were refused together come back apart.
            let spread = Duration::from_secs(refusal.retry_after_seconds().unwrap_or(1).max(2));
            refusal = refusal.later_by(spread::seconds(Some(&spread::up_to(spread))));
        }
        let refused = refusal.answer(self.respond.respond(&refusal), true);
        let mut response = refused.map(|body| PermitBody::new(body, None));
        if let RefusalReason::ConcurrencyExceeded(in_flight) = reason {
            say_in_flight(response.headers_mut(), self.headers_of(way).form(), true, in_flight, 0);
        }
        Step::Refuse(Ok(response))
    }
}

impl<R> sealed::Sealed for InFlightLayer<R> {}

impl<B, ResB, E, R: Respond<ResB>> Gate<Request<B>, Response<ResB>, E> for InFlightLayer<R> {
    type Response = Response<PermitBody<ResB>>;
    type Error = E;
    type Wait = Box<PermitProgress>;
    type Pass = PermitPass;

    fn begin(&self, request: &Request<B>, _: &mut Place) -> Next<Self, Request<B>, Response<ResB>, E> {
        let (limits, request) = (self.limits(), RequestView::from(request));
        let places = limits.applying(request);
        let way = PermitWay { limits, places, next: 0, held: None, keys: SmallVec::new() };
        self.shared.go_on(way, request)
    }

    fn poll(
        &self,
        wait: &mut Box<PermitProgress>,
        request: &mut Request<B>,
        place: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Request<B>, Response<ResB>, E>> {
        let (shared, request) = (&self.shared, RequestView::from(&*request));
        let PermitProgress { way, on } = &mut **wait;
        let begun = |way: &mut PermitWay| PermitWay {
            limits: Arc::clone(&way.limits),
            places: std::mem::take(&mut way.places),
            next: way.next,
            held: way.held.take(),
            keys: std::mem::take(&mut way.keys),
        };
        let way = match on {
            On::Key(lookup) => match ready!(lookup.poll(cx, &shared.waits, place)) {
                Ok(found) => {
                    // Permits are waited for in a queue of their own.
                    *place = Place::default();
                    shared.keyed(begun(way), found, request)
                }
                Err(not_found) => ControlFlow::Break(shared.refuse(way, not_found.into(), request)),
            },
            On::Permit(key, wait) => {
                let result = ready!(wait.poll(cx));
                shared.acquired(begun(way), key.clone(), result, request)
            }
        };
        Poll::Ready(match way {
            ControlFlow::Continue(way) => shared.go_on(way, request),
            ControlFlow::Break(step) => step,
        })
    }

    fn enter(&self, pass: &mut PermitPass, request: &mut Request<B>) {
        if let Some(then) = &pass.limits.then {
            request.extensions_mut().insert(then.clone());
        }
        let Some(held) = &pass.held else { return };
        let upgrades = request.method() == Method::CONNECT || request.headers().contains_key(UPGRADE);
        // For the code that will own the connection, and for a handler that stops when its permit is lost.
        if upgrades || held.permits().any(|permit| permit.in_flight().sharing().is_some()) {
            held.clone().enter(request.extensions_mut());
        }
    }

    fn after(pass: PermitPass, mut response: Response<ResB>) -> Self::Response {
        let PermitPass { held, headers, limits } = pass;
        if let Some(held) = &held {
            let permits: SmallVec<[&Permit; 2]> = held.permits().collect();
            for permit in permits.into_iter().rev() {
                if permit.in_flight().is_adaptive() {
                    // A number that is the service's own, and says nothing of the client.
                    limits.answered(permit, response.status(), response.headers());
                    continue;
                }
                say_in_flight(
                    response.headers_mut(),
                    headers.form(),
                    false,
                    permit.in_flight(),
                    permit.remaining(),
                );
            }
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                // For layers and servers that continue to use the connection themselves.
                held.clone().enter(response.extensions_mut());
            }
        }
        response.map(|body| PermitBody::new(body, held))
    }

    fn failed(error: E) -> E {
        error
    }

    fn failed_after(pass: PermitPass, error: E) -> E {
        pass.held.iter().flat_map(HeldPermit::permits).for_each(|permit| permit.answered(true));
        error
    }
}

/// The reason why a request has no permit of this limit.
fn reason<'a>(none: &NoPermit, in_flight: &'a InFlight) -> RefusalReason<'a> {
    match (none.kind(), none.retry_after()) {
        (NoPermitKind::Outage, _) => RefusalReason::Outage,
        (_, Some(drains_in)) => RefusalReason::Overloaded(in_flight, drains_in),
        (_, None) => RefusalReason::ConcurrencyExceeded(in_flight),
    }
}

/// Boxes the wait: few requests wait, so all others carry only a pointer for it.
fn waiting<B, E>(way: PermitWay, on: On) -> PermitStep<B, E> {
    Step::Wait(Box::new(PermitProgress { way, on }))
}
