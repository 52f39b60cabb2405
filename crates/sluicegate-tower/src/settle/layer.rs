//! Limits that settle by the body of the response: [`SettlingLayer`], the [`Tap`] that reads the costs as the body passes, and the
//! [`Reserve`] that a request spends before its cost is known.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use sluicegate_core::ConfigError;
use smallvec::SmallVec;
use tower_layer::Layer;

use super::rule::{CostSource, OnAbort, Settle, number_in};
use crate::admission::meter::Meter;
use crate::bandwidth::{PacedBody, Pacer};
use crate::guard::{Gate, Guarded, Next, Place, Step, sealed};
use crate::json::{EventStream, FieldPath, JsonScanner};
use crate::key::RequestView;
use crate::key::text::header_name;
use crate::limits::{Admitted, LimitsHandle};
use crate::rate_limit::{LayerWait, RateLimitLayer};
use crate::request_fields::RequestFields;
use crate::respond::{ProblemJson, Respond};

/// A [`RateLimitLayer`] that reads the bodies of responses as they pass, for limits that [settle](crate::Limit::settle) by them, and applies
/// their [bandwidth](crate::bandwidth) limits: made by [`RateLimitLayer::settling`].
///
/// The body type of responses is [`SettlingBody`] instead of the inner service's. A response that settles nothing passes
/// through without being read.
pub struct SettlingLayer<R = ProblemJson>(RateLimitLayer<R>);

impl<R> SettlingLayer<R> {
    /// The limits of this layer, to inspect them, to explain a request, and to swap them while the layer serves.
    pub fn limits_handle(&self) -> LimitsHandle {
        self.0.limits_handle()
    }
}

impl<R> From<RateLimitLayer<R>> for SettlingLayer<R> {
    fn from(layer: RateLimitLayer<R>) -> Self {
        Self(layer)
    }
}

impl<S, R> Layer<S> for SettlingLayer<R> {
    type Service = Guarded<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded::new(inner, Self(self.0.apart()))
    }
}

impl<R> sealed::Sealed for SettlingLayer<R> {}

impl<R, B, ResB, E> Gate<Request<B>, Response<ResB>, E> for SettlingLayer<R>
where
    R: Respond<ResB>,
    ResB: Body,
{
    type Response = Response<SettlingBody<ResB>>;
    type Error = E;
    type Wait = LayerWait<ResB>;
    type Pass = Admitted;

    #[inline]
    fn ready<T>(&self, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        Gate::<Request<B>, Response<ResB>, E>::ready(&self.0, poll)
    }

    #[inline]
    fn begin(&self, request: &Request<B>, place: &mut Place) -> Next<Self, Request<B>, Response<ResB>, E> {
        passing(self.0.begin(request, place))
    }

    fn poll(
        &self,
        wait: &mut Self::Wait,
        request: &mut Request<B>,
        place: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Request<B>, Response<ResB>, E>> {
        self.0.poll(wait, request, place, cx).map(passing)
    }

    #[inline]
    fn enter(&self, pass: &mut Admitted, request: &mut Request<B>) {
        Gate::<Request<B>, Response<ResB>, E>::enter(&self.0, pass, request);
    }

    #[inline]
    fn after(pass: Admitted, response: Response<ResB>) -> Self::Response {
        pass.leave_settling(response)
    }

    fn failed(error: E) -> E {
        error
    }
}

/// Gives the refusal of a step a body that settles nothing.
fn passing<P, W, B, E>(
    step: Step<P, W, Result<Response<B>, E>>,
) -> Step<P, W, Result<Response<SettlingBody<B>>, E>> {
    match step {
        Step::Go(pass) => Step::Go(pass),
        Step::Wait(wait) => Step::Wait(wait),
        Step::Refuse(answer) => Step::Refuse(answer.map(|response| response.map(SettlingBody::plain))),
    }
}

impl<R> Clone for SettlingLayer<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

sluicegate_core::debug_as!(SettlingLayer<R>, layer => layer.0);

/// Reads a response as it passes, and settles the request when it has ended. If it is dropped before that, it settles as for an aborted response.
#[derive(Debug)]
pub(crate) struct Tap {
    accounts: SmallVec<[TapAccount; 1]>,
    /// `None` once all is settled.
    meter: Option<Meter>,
    bytes: u64,
    /// The length of the body, if the head states it: a server may not ask a body for more than that.
    length: Option<u64>,
    /// `None` if no field is read, or if the body is compressed.
    json: Option<JsonScanner>,
    events: Option<EventStream>,
}

/// An account of the request that the response settles.
#[derive(Debug)]
struct TapAccount {
    /// Its index in the meter.
    place: usize,
    settle: Arc<Settle>,
    /// One per source.
    told: SmallVec<[ToldCost; 2]>,
}

/// The number of a source, or the place to find it.
#[derive(Debug)]
enum ToldCost {
    Number(Option<u64>),
    /// The places of its fields in the JSON scanner.
    Json(Range<usize>),
    /// The places of its fields in the scanner of events.
    Sse(Range<usize>),
    Bytes,
}

impl Tap {
    /// Begins to read a response with this head. `accounts` are indexes in the meter, each with its settlement.
    pub(crate) fn new(
        meter: Meter,
        accounts: impl Iterator<Item = (usize, Arc<Settle>)>,
        head: &HeaderMap,
    ) -> Self {
        Self::reading(meter, accounts.collect(), head)
    }

    fn reading(meter: Meter, accounts: Vec<(usize, Arc<Settle>)>, head: &HeaderMap) -> Self {
        let (mut json, mut sse) = (Vec::new(), Vec::new());
        let mut told = |source: &CostSource| match source {
            CostSource::Header(name) => ToldCost::Number(number_in(head, name)),
            CostSource::Trailer(_) => ToldCost::Number(None),
            CostSource::Json(fields) => ToldCost::Json(append(&mut json, fields)),
            CostSource::Sse(fields) => ToldCost::Sse(append(&mut sse, fields)),
            CostSource::Bytes => ToldCost::Bytes,
        };
        let accounts = accounts.into_iter().map(|(place, settle)| {
            let told = settle.sources.iter().map(&mut told).collect();
            TapAccount { place, settle, told }
        });
        let accounts = accounts.collect();
        let is_plain = !is_encoded(head);
        Self {
            accounts,
            meter: Some(meter),
            bytes: 0,
            length: number_in(head, &CONTENT_LENGTH),
            json: (is_plain && !json.is_empty()).then(|| JsonScanner::new(json)),
            events: (is_plain && !sse.is_empty()).then(|| EventStream::new(sse)),
        }
    }

    /// Reads a piece of the body.
    pub(crate) fn data(&mut self, data: &[u8]) {
        self.bytes = self.bytes.saturating_add(data.len() as u64);
        if let Some(json) = &mut self.json {
            json.feed(data);
        }
        if let Some(events) = &mut self.events {
            events.feed(data);
        }
    }

    pub(crate) fn trailers(&mut self, trailers: &HeaderMap) {
        for TapAccount { settle, told, .. } in &mut self.accounts {
            for (source, told) in settle.sources.iter().zip(told) {
                if let CostSource::Trailer(name) = source {
                    *told = ToldCost::Number(number_in(trailers, name));
                }
            }
        }
    }

    /// Settles the accounts: the response has ended.
    pub(crate) fn complete(mut self) {
        self.settle(true);
    }

    fn settle(&mut self, is_complete: bool) {
        let Some(meter) = self.meter.take() else { return };
        meter.settle_each(|place| {
            let account = self.accounts.iter().find(|account| account.place == place)?;
            if is_complete || account.settle.on_abort == OnAbort::Seen { self.cost(account) } else { None }
        });
    }

    /// The cost that the response has stated, from the first source that has a number.
    fn cost(&self, account: &TapAccount) -> Option<u64> {
        account.settle.sources.iter().zip(&account.told).find_map(|(source, told)| match (source, told) {
            (_, ToldCost::Number(number)) => *number,
            (CostSource::Json(prices), ToldCost::Json(places)) => {
                sum(prices, self.json.as_ref()?.found(places.clone()))
            }
            (CostSource::Sse(prices), ToldCost::Sse(places)) => {
                sum(prices, self.events.as_ref()?.found(places.clone()))
            }
            (_, ToldCost::Bytes) => Some(self.bytes),
            _ => None,
        })
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let is_complete = self.length.is_some_and(|length| length > 0 && length == self.bytes);
        self.settle(is_complete);
    }
}

/// Whether a body is encoded, so that no field in it can be read.
pub(crate) fn is_encoded(head: &HeaderMap) -> bool {
    let encodings =
        head.get_all(CONTENT_ENCODING).iter().flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
    let mut encodings = encodings.map(<[u8]>::trim_ascii);
    encodings.any(|encoding| !encoding.is_empty() && !encoding.eq_ignore_ascii_case(b"identity"))
}

/// Appends the paths of these fields, and returns their places.
fn append(paths: &mut Vec<FieldPath>, fields: &[(FieldPath, i64)]) -> Range<usize> {
    let begin = paths.len();
    paths.extend(fields.iter().map(|(path, _)| path.clone()));
    begin..paths.len()
}

/// The cost of the found numbers at these prices, at least 0; `None` if there is no number.
fn sum(prices: &[(FieldPath, i64)], found: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    let costs = prices
        .iter()
        .zip(found)
        .filter_map(|((_, price), found)| Some(i128::from(found?) * i128::from(*price)));
    let cost = costs.reduce(i128::saturating_add)?;
    Some(u64::try_from(cost.max(0)).unwrap_or(u64::MAX))
}

pin_project! {
    /// The body of a response that settles its request and keeps to its bandwidth: see [`SettlingLayer`](super::SettlingLayer).
    ///
    /// It passes on each frame of the inner body unchanged, and at once unless a [bandwidth](crate::bandwidth) limit delays it. Data of a
    /// type other than [`Bytes`] is copied.
    ///
    /// # Cancel safety
    /// If it is dropped before it has ended, the request is settled as [`OnAbort`](super::OnAbort) says.
    #[derive(Debug, Default)]
    pub struct SettlingBody<B> {
        #[pin]
        body: PacedBody<B>,
        // `None` if there is nothing left to settle.
        tap: Option<Box<Tap>>,
    }
}

impl<B> SettlingBody<B> {
    /// A body that settles nothing.
    pub(crate) fn plain(body: B) -> Self {
        Self { body: PacedBody::new(body, None), tap: None }
    }
}

impl<B: Body> SettlingBody<B> {
    pub(crate) fn new(body: B, mut tap: Option<Box<Tap>>, pace: Option<Pacer>) -> Self {
        // A server may not ask for a frame of an empty body.
        if body.is_end_stream() {
            complete(&mut tap);
        }
        Self { body: PacedBody::new(body, pace), tap }
    }
}

impl<B: Body> Body for SettlingBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.project();
        let mut body = this.body;
        let frame = ready!(body.as_mut().poll_frame(cx));
        if let Some(tap) = this.tap {
            match &frame {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        tap.data(data);
                    } else if let Some(trailers) = frame.trailers_ref() {
                        tap.trailers(trailers);
                    }
                    // Servers may not ask for more once a body says that it has ended.
                    if body.is_end_stream() {
                        complete(this.tap);
                    }
                }
                Some(Err(_)) => *this.tap = None,
                None => complete(this.tap),
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body that settles nothing, so that outer layers can answer with this type as well.
impl<B: From<Bytes>> From<Bytes> for SettlingBody<B> {
    fn from(bytes: Bytes) -> Self {
        Self::plain(bytes.into())
    }
}

fn complete(tap: &mut Option<Box<Tap>>) {
    if let Some(tap) = tap.take() {
        tap.complete();
    }
}

/// The units that a request reserves, as stated in the request; see [`Limit::reserve`](crate::Limit::reserve).
///
/// ```
/// use sluicegate_tower::settle::Reserve;
///
/// // A request without the field reserves 4,096 units, and no request more than 32,768.
/// let reserve = Reserve::header("x-max-tokens", 4096)?.at_most(32_768);
/// # let _ = reserve;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it does nothing until a limit has it"]
pub struct Reserve {
    said: ReserveSource,
    missing: u64,
    at_least: u64,
    at_most: Option<u64>,
}

/// The place in the request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReserveSource {
    Header(HeaderName),
    Field(String),
    Bytes,
}

impl Reserve {
    /// The number in a field of the request, or `missing` if there is no such field.
    ///
    /// # Errors
    /// When `name` cannot be the name of a field.
    pub fn header(name: &str, missing: u64) -> Result<Self, ConfigError> {
        Ok(Self::by(ReserveSource::Header(header_name(name)?), missing))
    }

    /// The number in a field of the request's JSON, such as `max_tokens`, or `missing` if there is no such field. It needs a
    /// [`RequestFieldsLayer`](crate::request_fields::RequestFieldsLayer) around the limits that reads this field.
    ///
    /// # Errors
    /// When `field` is not the path of a JSON field.
    pub fn json(field: &str, missing: u64) -> Result<Self, ConfigError> {
        let path = FieldPath::parse(field)?;
        Ok(Self::by(ReserveSource::Field(path.to_string()), missing))
    }

    /// The bytes of the request's body, up to these, which a body of unknown length reserves. A
    /// [`RequestFieldsLayer`](crate::request_fields::RequestFieldsLayer::count_bytes) around the limits that counts bytes knows the length of chunked bodies too.
    /// Without it, `Content-Length` says it, and a request without that field has no body if it is a GET, HEAD, OPTIONS, TRACE or DELETE, and one of unknown
    /// length otherwise.
    pub fn bytes(at_most: u64) -> Self {
        Self::by(ReserveSource::Bytes, 0).at_most(at_most)
    }

    fn by(said: ReserveSource, missing: u64) -> Self {
        Self { said, missing, at_least: 1, at_most: None }
    }

    /// Sets the fewest units that a request reserves, even if it states less. Default: 1; with 0 the limit does not apply to a
    /// request that states 0.
    pub fn at_least(mut self, units: u64) -> Self {
        self.at_least = units;
        self
    }

    /// Sets the most units that a request reserves, even if it states more; a value that is not a whole number (`2000.0` and `2e3` are
    /// 2000), and a body that cannot be read, reserve these, too. Default: no bound; a
    /// request is then refused with 403 if it states more than the limit ever lets pass at once.
    pub fn at_most(mut self, units: u64) -> Self {
        self.at_most = Some(units);
        self
    }

    /// The units of a request.
    pub(crate) fn of(&self, request: RequestView<'_>) -> u64 {
        let number = match &self.said {
            ReserveSource::Header(name) => {
                let mut values = request.headers.get_all(name).iter();
                // Of two numbers, a service may read either.
                values.next().map(|_| number_in(request.headers, name).filter(|_| values.next().is_none()))
            }
            ReserveSource::Field(field) => RequestFields::of(request).and_then(|fields| {
                let is_there = !fields.is_readable() || fields.has(field);
                is_there.then(|| fields.number(field))
            }),
            ReserveSource::Bytes => {
                Some(RequestFields::of(request).map_or_else(|| stated_bytes(request), RequestFields::bytes))
            }
        };
        match number {
            Some(Some(number)) => number.min(self.at_most.unwrap_or(u64::MAX)).max(self.at_least),
            Some(None) => self.at_most.unwrap_or(self.missing),
            None => self.missing,
        }
    }
}

/// The bytes of a body as the head of its request states them.
fn stated_bytes(request: RequestView<'_>) -> Option<u64> {
    let has_no_body = request.method.is_safe() || request.method == Method::DELETE;
    match request.headers.contains_key(CONTENT_LENGTH) {
        true => number_in(request.headers, &CONTENT_LENGTH),
        false => (has_no_body && !request.headers.contains_key(TRANSFER_ENCODING)).then_some(0),
    }
}
