//! Gets the permits of a request.
//!
//! The request goes from limit to limit, in the order of the layer: first it gets its key, which may have to be looked up in
//! the layer's queue; then a permit, at once or in the queue of the `InFlight`. The two queues are
//! separate, so that slow lookups take no place from requests that wait for permits. All requests take
//! their permits in the same order, so that no two requests wait for each other.
#![expect(unnameable_types, reason = "they are parts of a future that has a name")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use sluicegate_core::Key;
use sluicegate_in_flight::adaptive::Outcome;
use sluicegate_in_flight::{Acquire, InFlight, NoPermit, NoPermitKind, Permit, PermitRequest};
use smallvec::SmallVec;
use tokio::time::Sleep;

use super::limit::LimitPlaces;
use crate::frames::upgrades;
use crate::guard::gate::Lookup;
use crate::guard::{Gate, Next, Place, Step, sealed};
use crate::in_flight::layer::PermitSettings;
use crate::in_flight::{HeldPermit, InFlightLayer, InFlightLimit, InFlightLimits, PermitBody};
use crate::key::missing::Keyed;
use crate::key::{Extraction, MissingKey, RequestView};
use crate::respond::headers::{expose_all, say_in_flight};
use crate::respond::refusal::is_refused;
use crate::respond::stop::Stop;
use crate::respond::{HeaderFields, Refusal, RefusalReason, Respond, stop};
use crate::trace;
use crate::trace::WaitSpan;

/// A request that has to wait, with its progress.
#[derive(Debug)]
pub struct PermitProgress {
    way: PermitWay,
    stage: PermitStage,
}

/// The layer bounds the time and the places of a wait for a key. The limit's longest wait and the queue of the `InFlight` bound
/// the wait for a permit.
#[derive(Debug)]
enum PermitStage {
    Key(Lookup<Extraction>),
    Permit(Key, Box<PermitWait>),
}

/// The reason why a request does not proceed now.
enum PermitHalt {
    Waits(PermitStage),
    Refused(Box<PermitStop>),
}

/// The reason why a request is refused.
enum PermitStop {
    /// The limit of concurrent requests is reached.
    Full(InFlight),
    /// The service is overloaded, and will have cleared its queue after this time.
    Overloaded(InFlight, Duration),
    /// A reason shared with other layers.
    Other(Stop),
}

/// A request in progress: the limits that it began with, its current step, and its permits.
#[derive(Debug)]
struct PermitWay {
    limits: Arc<InFlightLimits>,
    /// The indices of the limits that may apply to the request.
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
    /// Whether scripts of other origins may read the fields.
    exposes: bool,
    /// The limits that it has passed.
    limits: Arc<InFlightLimits>,
}

impl PermitWay {
    fn new(limits: Arc<InFlightLimits>, request: RequestView<'_>) -> Self {
        let places = limits.applying(request);
        Self { limits, places, next: 0, held: None, keys: SmallVec::new() }
    }

    /// Goes from limit to limit until the request has all permits.
    fn meet(&mut self, request: RequestView<'_>) -> Result<(), PermitHalt> {
        while let Some(limit) = self.limit(self.next) {
            if limit.applies_to(request) {
                match limit.key.extract(request).now() {
                    Ok(found) => self.keyed(found, request)?,
                    Err(pending) => return Err(PermitHalt::Waits(PermitStage::Key(Lookup::new(pending)))),
                }
            } else {
                self.next += 1;
            }
        }
        Ok(())
    }

    /// Continues with the key: takes a permit, or waits for one.
    fn keyed(&mut self, found: Result<Key, MissingKey>, request: RequestView<'_>) -> Result<(), PermitHalt> {
        let Some(limit) = self.limit(self.next) else { return Ok(()) };
        let key = match limit.when_missing.read(found, || limit.in_flight.name().to_owned()) {
            Keyed::Key(key) if !self.has(&key) => key,
            Keyed::Key(_) | Keyed::Skipped(_) => {
                self.next += 1;
                return Ok(());
            }
            Keyed::Rejected(missing, status) => {
                return Err(PermitHalt::Refused(Box::new(PermitStop::Other(Stop::MissingKey(
                    missing, status,
                )))));
            }
        };
        match PermitWait::begin(limit.request(&key, request), limit.longest) {
            Ok(result) => self.acquired(key, result),
            Err(wait) => Err(PermitHalt::Waits(PermitStage::Permit(key, wait))),
        }
    }

    /// Continues with the permit, or with the reason why there is none.
    fn acquired(&mut self, key: Key, result: Result<Permit, NoPermit>) -> Result<(), PermitHalt> {
        let permit = result.map_err(|none| PermitHalt::Refused(Box::new(self.stop(&none))))?;
        self.held = Some(HeldPermit::new(permit, self.held.take()));
        if self.next + 1 < self.places.len() {
            self.keys.push((self.next, key));
        }
        self.next += 1;
        Ok(())
    }

    fn stop(&self, none: &NoPermit) -> PermitStop {
        match (self.limit(self.next), none.kind(), none.retry_after()) {
            (None, ..) | (_, NoPermitKind::Outage, _) => {
                PermitStop::Other(Stop::Plain(RefusalReason::Outage))
            }
            (Some(limit), _, Some(drains_in)) => PermitStop::Overloaded(limit.in_flight.clone(), drains_in),
            (Some(limit), _, None) => PermitStop::Full(limit.in_flight.clone()),
        }
    }

    /// Whether the request already has a permit of the same `InFlight` for the same key, so that it does not wait for itself.
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

impl PermitStop {
    /// The reason for the responder.
    fn reason(&self) -> RefusalReason<'_> {
        match self {
            Self::Full(in_flight) => RefusalReason::ConcurrencyExceeded(in_flight),
            Self::Overloaded(in_flight, drains_in) => RefusalReason::Overloaded(in_flight, *drains_in),
            Self::Other(stop) => stop.reason(),
        }
    }
}

impl<R> PermitSettings<R> {
    fn headers_of(&self, way: &PermitWay) -> HeaderFields {
        way.limits.headers.unwrap_or(self.headers)
    }

    /// Lets the request proceed with its permits.
    fn pass(&self, way: &mut PermitWay) -> PermitPass {
        let (held, headers) = (way.held.take(), self.headers_of(way));
        PermitPass { held, headers, exposes: self.exposes, limits: Arc::clone(&way.limits) }
    }

    fn refuse<B>(
        &self,
        way: &PermitWay,
        stop: &PermitStop,
        request: RequestView<'_>,
    ) -> Response<PermitBody<B>>
    where
        R: Respond<B>,
    {
        let (form, reason) = (self.headers_of(way).form(), stop.reason());
        let status = way.limit(way.next).and_then(|limit| limit.refuse_with);
        let mut refusal = Refusal::new(reason, request).with_status(status).in_form(form);
        if let RefusalReason::Overloaded(..) = reason {
            // At most as long again, and at least a second or two: so clients that were refused together come back at different times.
            let spread = Duration::from_secs(refusal.retry_after_seconds().unwrap_or(1).max(2));
            refusal = refusal.later_by(stop::seconds(Some(&stop::up_to(spread))));
        }
        let refused = refusal.answer(self.respond.respond(&refusal), true);
        let mut response = refused.map(|body| PermitBody::new(body, None));
        if let RefusalReason::ConcurrencyExceeded(in_flight) = reason {
            say_in_flight(response.headers_mut(), form, true, in_flight, 0);
        }
        if self.exposes {
            expose_all(response.headers_mut());
        }
        response
    }
}

impl<R> sealed::Sealed for InFlightLayer<R> {}

impl<B, ResB, E, R: Respond<ResB>> Gate<Request<B>, Response<ResB>, E> for InFlightLayer<R> {
    type Response = Response<PermitBody<ResB>>;
    type Error = E;
    type Wait = Box<PermitProgress>;
    type Pass = PermitPass;

    fn begin(&self, request: &Request<B>, _: &mut Place) -> Next<Self, Request<B>, Response<ResB>, E> {
        let request = RequestView::from(request);
        let mut way = PermitWay::new(self.limits(), request);
        match way.meet(request) {
            Ok(()) => Step::Go(self.shared.pass(&mut way)),
            Err(PermitHalt::Waits(stage)) => Step::Wait(Box::new(PermitProgress { way, stage })),
            Err(PermitHalt::Refused(stop)) => Step::Refuse(Ok(self.shared.refuse(&way, &stop, request))),
        }
    }

    fn poll(
        &self,
        wait: &mut Box<PermitProgress>,
        request: &mut Request<B>,
        place: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Request<B>, Response<ResB>, E>> {
        let (shared, request) = (&self.shared, RequestView::from(&*request));
        let PermitProgress { way, stage } = &mut **wait;
        loop {
            let met = match stage {
                PermitStage::Key(lookup) => match ready!(lookup.poll(cx, &shared.waits, place)) {
                    Ok(found) => {
                        // Permits are waited for in a queue of their own.
                        *place = Place::default();
                        way.keyed(found, request)
                    }
                    Err(not_found) => {
                        Err(PermitHalt::Refused(Box::new(PermitStop::Other(Stop::Plain(not_found.into())))))
                    }
                },
                PermitStage::Permit(key, wait) => {
                    let result = ready!(wait.poll(cx));
                    way.acquired(key.clone(), result)
                }
            };
            return Poll::Ready(match met.and_then(|()| way.meet(request)) {
                Ok(()) => Step::Go(shared.pass(way)),
                Err(PermitHalt::Refused(stop)) => Step::Refuse(Ok(shared.refuse(way, &stop, request))),
                Err(PermitHalt::Waits(next)) => {
                    *stage = next;
                    continue;
                }
            });
        }
    }

    fn enter(&self, pass: &mut PermitPass, request: &mut Request<B>) {
        if let Some(then) = &pass.limits.then {
            request.extensions_mut().insert(then.clone());
        }
        let Some(held) = &pass.held else { return };
        // For the code that will own the connection, and for a handler that stops when its permit is lost.
        if upgrades(request) || held.permits().any(|permit| permit.in_flight().sharing().is_some()) {
            held.clone().enter(request.extensions_mut());
        }
    }

    fn after(pass: PermitPass, mut response: Response<ResB>) -> Self::Response {
        let PermitPass { held, headers, exposes, limits } = pass;
        if let Some(held) = &held {
            let is_refused = is_refused(response.extensions());
            let permits: SmallVec<[&Permit; 2]> = held.permits().collect();
            for permit in permits.into_iter().rev() {
                if permit.in_flight().is_adaptive() {
                    // The limit belongs to the service, and reveals nothing about the client. A refusal by a layer further in shows
                    // neither how long the service takes nor that it is overloaded.
                    match is_refused {
                        true => permit.unserved(),
                        false => limits.answered(permit, response.status(), response.headers()),
                    }
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
        if exposes {
            expose_all(response.headers_mut());
        }
        response.map(|body| PermitBody::new(body, held))
    }

    fn failed(error: E) -> E {
        error
    }

    fn failed_after(pass: PermitPass, error: E) -> E {
        pass.held.iter().flat_map(HeldPermit::permits).for_each(|permit| permit.answered(Outcome::Error));
        error
    }
}

/// A request that waits for a permit.
#[derive(Debug)]
#[expect(unnameable_types, reason = "it is a part of a future that has a name")]
pub struct PermitWait {
    /// `None` when it has ended.
    acquire: Option<Acquire>,
    /// `None` if the wait is for the answer of a store, which bounds its answers itself.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Empty if it waits only for the answer of a store.
    span: WaitSpan,
}

impl PermitWait {
    /// Asks for a permit. The request waits up to `longest`, or up to the bound of a limit that adapts, and otherwise not at all.
    ///
    /// # Errors
    /// The wait, if the answer is not known at once.
    pub(crate) fn begin(
        asks: PermitRequest,
        longest: Option<Duration>,
    ) -> Result<Result<Permit, NoPermit>, Box<Self>> {
        let waits = longest.is_some() || asks.in_flight().is_adaptive();
        let traced = (waits && trace::is_on()).then(|| asks.in_flight().clone());
        let acquire = if waits { asks.acquire() } else { asks.attempt() };
        acquire.now().map_err(|acquire| {
            let longest = [longest, acquire.longest()].into_iter().flatten().min();
            let sleep = longest.map(|longest| Box::pin(tokio::time::sleep(longest)));
            let span = traced.map_or_else(WaitSpan::default, |of| WaitSpan::for_permit(of.name()));
            Box::new(Self { acquire: Some(acquire), sleep, span })
        })
    }

    /// Waits for the permit.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, NoPermit>> {
        let Some(acquire) = &mut self.acquire else { return Poll::Pending };
        // The permit is polled first, so that a permit that comes at the last moment is taken.
        if let Poll::Ready(result) = Pin::new(acquire).poll(cx) {
            self.acquire = None;
            self.span.end(if result.is_ok() { "permit" } else { "refused" });
            return Poll::Ready(result);
        }
        let Some(sleep) = &mut self.sleep else { return Poll::Pending };
        ready!(sleep.as_mut().poll(cx));
        match self.acquire.take().and_then(Acquire::give_up) {
            Some(none) => {
                self.span.end("refused");
                Poll::Ready(Err(none))
            }
            None => Poll::Pending,
        }
    }
}
