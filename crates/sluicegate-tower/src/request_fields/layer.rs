//! Reads the beginning of requests: [`RequestFieldsLayer`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, Request};
use http_body::Body;
use pin_project_lite::pin_project;
use sluicegate_core::ConfigError;
use tokio::time::Sleep;
use tower_layer::Layer;
use tower_service::Service;

use crate::frames::upgrades;
use crate::guard::service::Queue;
use crate::guard::{Gate, Guarded, Next, Place, ResponseFuture, Step, sealed};
use crate::json::FieldPath;
use crate::request_fields::{OnUnreadable, ReadBody, RequestFields};
use crate::settle::layer::is_encoded;

/// Reads fields of a request's JSON or form before the request continues, for limits inside this layer: see
/// [the module](crate::request_fields). The inner service gets a [`ReadBody`] with the whole body.
///
/// A request waits until its body has ended, is longer than the [bound](Self::at_most), or for [a time](Self::within) at most. A body that
/// cannot be read is treated [as the layer says](Self::on_unreadable); one that is encoded, or that arrives while the [most](Self::at_once)
/// are being read, is not waited for. A request without a body has no fields.
#[derive(Clone)]
pub struct RequestFieldsLayer(Arc<FieldReader>);

#[derive(Clone)]
struct FieldReader {
    /// Swapped when the file of rules changes.
    wanted: Arc<ArcSwap<WantedFields>>,
    at_most: usize,
    within: Duration,
    queue: Queue,
}

#[derive(Clone, Debug)]
struct WantedFields {
    paths: Vec<FieldPath>,
    counts_bytes: bool,
    on_unreadable: OnUnreadable,
}

impl RequestFieldsLayer {
    /// Reads these fields; nested names are separated by dots.
    ///
    /// # Errors
    /// When a field is not a valid path.
    pub fn new<F: AsRef<str>>(fields: impl IntoIterator<Item = F>) -> Result<Self, ConfigError> {
        Ok(Self(Arc::new(FieldReader {
            wanted: Arc::new(ArcSwap::new(WantedFields::of(fields)?)),
            at_most: 256 * 1024,
            within: Duration::from_secs(5),
            queue: Queue::up_to(1_000),
        })))
    }

    /// Sets the most bytes of a body that are read before the request continues. Default: 256 KiB.
    #[must_use]
    pub fn at_most(self, bytes: usize) -> Self {
        self.with(|shared| shared.at_most = bytes)
    }

    /// Sets the longest time that a body is read before the request continues. Default: 5 s.
    #[must_use]
    pub fn within(self, longest: Duration) -> Self {
        self.with(|shared| shared.within = longest)
    }

    /// Sets how many bodies are read at once, in all services of this layer together, which bounds their memory: others
    /// cannot be read. Default: 1,000.
    #[must_use]
    pub fn at_once(self, requests: usize) -> Self {
        self.with(|shared| shared.queue = Queue::up_to(requests))
    }

    /// Sets the treatment of requests whose bodies cannot be read. Default: [`OnUnreadable::Match`].
    #[must_use]
    pub fn on_unreadable(self, treatment: OnUnreadable) -> Self {
        self.wanting(|wanted| wanted.on_unreadable = treatment)
    }

    /// Also counts the bytes of bodies, for [`Reserve::bytes`](crate::settle::Reserve::bytes): one whose length is not stated is read as for its fields.
    /// Default: only bodies with fields to find are read.
    #[must_use]
    pub fn count_bytes(self) -> Self {
        self.wanting(|wanted| wanted.counts_bytes = true)
    }

    /// Finds the fields of this body, which a tool has read, for a request with this head.
    pub fn find(&self, head: &HeaderMap, body: &[u8]) -> RequestFields {
        let is_whole = body.len() <= self.0.at_most;
        self.0.wanted.load().find(head, is_whole.then_some(body)).of_bytes(u64::try_from(body.len()).ok())
    }

    /// This layer, which wants something else; layers that it was cloned from do not.
    fn wanting(self, change: impl FnOnce(&mut WantedFields)) -> Self {
        self.with(|shared| {
            let mut wanted = shared.wanted.load().as_ref().clone();
            change(&mut wanted);
            shared.wanted = Arc::new(ArcSwap::from_pointee(wanted));
        })
    }

    fn with(mut self, change: impl FnOnce(&mut FieldReader)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Reads the fields of the other layer, and treats unreadable bodies as it does, from now on. The bounds stay.
    pub fn swap(&self, other: &Self) {
        self.0.wanted.store(other.0.wanted.load_full());
    }
}

impl WantedFields {
    fn of<F: AsRef<str>>(fields: impl IntoIterator<Item = F>) -> Result<Arc<Self>, ConfigError> {
        let paths: Result<_, _> = fields.into_iter().map(|field| FieldPath::parse(field.as_ref())).collect();
        Ok(Arc::new(Self { paths: paths?, counts_bytes: false, on_unreadable: OnUnreadable::Match }))
    }

    /// The fields of a body; `None` if it was not read to its end.
    fn find(&self, head: &HeaderMap, body: Option<&[u8]>) -> RequestFields {
        if self.paths.is_empty() {
            return RequestFields::found([]);
        }
        let body = body.filter(|body| body.is_empty() || !is_encoded(head));
        let found = body.and_then(|body| RequestFields::in_body(head, body, &self.paths));
        found.unwrap_or_else(|| self.unreadable())
    }

    fn unreadable(&self) -> RequestFields {
        RequestFields::unreadable(self.on_unreadable)
    }
}

/// A service behind a [`RequestFieldsLayer`].
#[derive(Clone, Debug)]
pub struct ReadFields<S>(Guarded<S, RequestFieldsLayer>);

impl<S> Layer<S> for RequestFieldsLayer {
    type Service = ReadFields<S>;

    fn layer(&self, inner: S) -> ReadFields<S> {
        ReadFields(Guarded::new(inner, self.clone()))
    }
}

impl<S, B> Service<Request<B>> for ReadFields<S>
where
    S: Service<Request<ReadBody<B>>> + Clone,
    B: Body + Unpin,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, Request<ReadBody<B>>, RequestFieldsLayer>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.0.call(request.map(ReadBody::new))
    }
}

pin_project! {
    /// A request whose body is being read.
    #[derive(Debug)]
    pub struct FieldReading {
        wanted: Arc<WantedFields>,
        #[pin]
        latest: Sleep,
    }
}

impl sealed::Sealed for RequestFieldsLayer {}

impl<B, Res, E> Gate<Request<ReadBody<B>>, Res, E> for RequestFieldsLayer
where
    B: Body + Unpin,
{
    type Response = Res;
    type Error = E;
    type Wait = Pin<Box<FieldReading>>;
    type Pass = Option<RequestFields>;

    fn begin(
        &self,
        request: &Request<ReadBody<B>>,
        place: &mut Place,
    ) -> Next<Self, Request<ReadBody<B>>, Res, E> {
        let wanted = self.0.wanted.load_full();
        let (head, body) = (request.headers(), request.body());
        let bytes = body.size_hint().exact();
        let counts = wanted.counts_bytes && bytes.is_none();
        if wanted.paths.is_empty() && !wanted.counts_bytes {
            Step::Go(None)
        } else if body.is_end_stream() {
            Step::Go(Some(RequestFields::found([]).of_bytes(Some(0))))
        } else if wanted.paths.is_empty() && !counts
            || upgrades(request)
            || is_encoded(head) && !counts
            || !self.0.queue.enter(place)
        {
            Step::Go(Some(wanted.find(head, None).of_bytes(bytes)))
        } else {
            Step::Wait(Box::pin(FieldReading { wanted, latest: tokio::time::sleep(self.0.within) }))
        }
    }

    fn poll(
        &self,
        reading: &mut Pin<Box<FieldReading>>,
        request: &mut Request<ReadBody<B>>,
        _: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Request<ReadBody<B>>, Res, E>> {
        let reading = reading.as_mut().project();
        let is_whole = match request.body_mut().poll_whole(self.0.at_most, cx) {
            Poll::Ready(is_whole) => is_whole,
            Poll::Pending => {
                ready!(reading.latest.poll(cx));
                false
            }
        };
        let body = request.body();
        let data = is_whole.then(|| body.data());
        let found = reading.wanted.find(request.headers(), data.as_deref());
        Poll::Ready(Step::Go(Some(found.of_bytes(body.size_hint().exact()))))
    }

    fn enter(&self, found: &mut Option<RequestFields>, request: &mut Request<ReadBody<B>>) {
        if let Some(found) = found.take() {
            request.extensions_mut().insert(found);
        }
    }

    fn after(_: Option<RequestFields>, response: Res) -> Res {
        response
    }

    fn failed(error: E) -> E {
        error
    }
}

sluicegate_core::debug_as!(RequestFieldsLayer, layer => layer.0.wanted.load());
