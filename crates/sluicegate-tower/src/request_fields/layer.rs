//! Reads the beginning of requests: [`RequestFieldsLayer`].

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::UPGRADE;
use http::{Method, Request};
use http_body::Body;
use sluicegate_core::ConfigError;
use tokio::time::Sleep;
use tower_layer::Layer;
use tower_service::Service;

use crate::guard::queue::Queue;
use crate::guard::{Gate, Guarded, Next, Place, ResponseFuture, Step, sealed};
use crate::json::{FieldPath, JsonScanner};
use crate::request_fields::{ReadBody, RequestFields};
use crate::settle::tap::is_encoded;

/// The most frames that are read of a request, which bounds the memory for small frames.
const MOST_FRAMES: usize = 1024;

/// Reads fields of a request's JSON before the request continues, for limits inside this layer: see
/// [the module](crate::request_fields). The inner service gets a [`ReadBody`] with the whole body.
///
/// A request waits until its JSON object has ended, until its body is longer than the [bound](Self::at_most), or for
/// [a time](Self::within) at most; fields that were not found then are missing. A body that is compressed, or that does not begin as a JSON
/// object, is not waited for, nor is a body that arrives while the [most](Self::at_once) are being read.
#[derive(Clone)]
pub struct RequestFieldsLayer(Arc<FieldReader>);

#[derive(Clone)]
struct FieldReader {
    /// Swapped when the file of rules changes.
    fields: Arc<ArcSwap<Vec<FieldPath>>>,
    at_most: usize,
    within: Duration,
    queue: Queue,
}

impl RequestFieldsLayer {
    /// Reads these fields; nested names are separated by dots.
    ///
    /// # Errors
    /// When a field is not a valid path.
    pub fn new<F: AsRef<str>>(fields: impl IntoIterator<Item = F>) -> Result<Self, ConfigError> {
        Ok(Self(Arc::new(FieldReader {
            fields: Arc::new(ArcSwap::from_pointee(paths(fields)?)),
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

    /// Sets how many bodies are read at once, in all services of this layer together, which bounds their memory: others continue
    /// unread. Default: 1,000.
    #[must_use]
    pub fn at_once(self, requests: usize) -> Self {
        self.with(|shared| shared.queue = Queue::up_to(requests))
    }

    fn with(mut self, change: impl FnOnce(&mut FieldReader)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Reads other fields from now on.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn swap<F: AsRef<str>>(&self, fields: impl IntoIterator<Item = F>) -> Result<(), ConfigError> {
        self.0.fields.store(Arc::new(paths(fields)?));
        Ok(())
    }
}

fn paths<F: AsRef<str>>(fields: impl IntoIterator<Item = F>) -> Result<Vec<FieldPath>, ConfigError> {
    fields.into_iter().map(|field| FieldPath::parse(field.as_ref())).collect()
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

/// A request whose body is being read.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only the guard has one")]
pub struct FieldReading {
    scanner: JsonScanner,
    bytes: usize,
    latest: std::pin::Pin<Box<Sleep>>,
}

impl sealed::Sealed for RequestFieldsLayer {}

impl<B, Res, E> Gate<Request<ReadBody<B>>, Res, E> for RequestFieldsLayer
where
    B: Body + Unpin,
{
    type Response = Res;
    type Error = E;
    type Wait = Box<FieldReading>;
    type Pass = Option<RequestFields>;

    fn begin(
        &self,
        request: &Request<ReadBody<B>>,
        place: &mut Place,
    ) -> Next<Self, Request<ReadBody<B>>, Res, E> {
        let fields = self.0.fields.load();
        let is_other = request.method() == Method::CONNECT || request.headers().contains_key(UPGRADE);
        let is_read = !fields.is_empty()
            && !is_other
            && !request.body().is_end_stream()
            && !is_encoded(request.headers())
            && self.0.queue.enter(place);
        if !is_read {
            return Step::Go(None);
        }
        let scanner = JsonScanner::of_all(fields.to_vec());
        let latest = Box::pin(tokio::time::sleep(self.0.within));
        Step::Wait(Box::new(FieldReading { scanner, bytes: 0, latest }))
    }

    fn poll(
        &self,
        reading: &mut Box<FieldReading>,
        request: &mut Request<ReadBody<B>>,
        _: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Request<ReadBody<B>>, Res, E>> {
        let FieldReading { scanner, bytes, latest } = &mut **reading;
        let body = request.body_mut();
        while !scanner.is_over() && *bytes <= self.0.at_most && body.frames() < MOST_FRAMES {
            match body.poll_ahead(cx) {
                Poll::Ready(Some(data)) => {
                    *bytes = bytes.saturating_add(data.len());
                    scanner.feed(data);
                }
                Poll::Ready(None) => break,
                Poll::Pending => {
                    if latest.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    break;
                }
            }
        }
        let scanner = std::mem::replace(scanner, JsonScanner::of_all(Vec::new()));
        Poll::Ready(Step::Go(Some(RequestFields::found_by(scanner))))
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

impl fmt::Debug for RequestFieldsLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RequestFieldsLayer").field(&self.0.fields.load()).finish()
    }
}
