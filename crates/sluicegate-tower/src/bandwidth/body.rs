//! Bodies that keep to a bandwidth: [`PacedBody`], and the [`UploadLayer`] that paces the bodies of requests.

use std::pin::Pin;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::{fmt, mem};

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use sluicegate_core::ConfigError;
use sluicegate_core::support::lock;
use smallvec::SmallVec;
use tower_layer::Layer;
use tower_service::Service;

use crate::bandwidth::Pacer;
use crate::frames::{as_bytes, longer_by};
use crate::key::text::unreadable;
use crate::limits::LimitsHandle;

pin_project! {
    /// A body that is limited to a [bandwidth](crate::bandwidth).
    ///
    /// Otherwise it behaves like the inner body. Data of a type other than [`Bytes`] is copied. Without a limit it passes on each frame
    /// at once and whole.
    ///
    /// # Cancel safety
    /// If it is dropped while it waits for its turn, the turn is given back.
    #[derive(Debug, Default)]
    pub struct PacedBody<B> {
        #[pin]
        body: B,
        // Bytes that the inner body has yielded and that have not passed.
        rest: Bytes,
        // `None` without a limit.
        paces: Option<Box<Paces>>,
    }
}

/// The limits of a body, from one layer or several.
#[derive(Debug, Default)]
struct Paces {
    own: SmallVec<[Pacer; 1]>,
    /// The slot for the limits of inner layers.
    given: Option<UploadSlot>,
}

impl<B> PacedBody<B> {
    /// A body with these limits.
    pub(crate) fn new(body: B, pace: Option<Pacer>) -> Self {
        let paces = pace.map(|pace| Box::new(Paces { own: [pace].into_iter().collect(), given: None }));
        Self { body, rest: Bytes::new(), paces }
    }

    /// A body with the limits that inner layers put into the slot.
    pub(super) fn held_by(body: B, slot: UploadSlot) -> Self {
        let paces = Paces { own: SmallVec::new(), given: Some(slot) };
        Self { body, rest: Bytes::new(), paces: Some(Box::new(paces)) }
    }
}

impl<B: Body> Body for PacedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.project();
        let Some(paces) = this.paces else {
            return this.body.poll_frame(cx).map(|frame| frame.map(|frame| frame.map(as_bytes)));
        };
        if this.rest.is_empty() {
            let frame = match ready!(this.body.poll_frame(cx)) {
                Some(Ok(frame)) => as_bytes(frame),
                ended => return Poll::Ready(ended.map(|frame| frame.map(as_bytes))),
            };
            match frame.into_data() {
                Ok(data) if !data.is_empty() => *this.rest = data,
                Ok(empty) => return Poll::Ready(Some(Ok(Frame::data(empty)))),
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let bytes = ready!(paces.poll(this.rest.len(), cx));
        Poll::Ready(Some(Ok(Frame::data(this.rest.split_to(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        longer_by(self.rest.len() as u64, &self.body.size_hint())
    }
}

impl Paces {
    /// The number of available bytes that may pass now.
    fn poll(&mut self, ahead: usize, cx: &mut Context<'_>) -> Poll<usize> {
        if let Some(slot) = &self.given {
            self.own.extend(slot.take());
        }
        let mut bytes = ahead as u64;
        // Each gives bytes by itself, and the smallest number passes.
        for pace in &mut self.own {
            bytes = bytes.min(ready!(pace.poll_credit(ahead as u64, cx)));
        }
        self.own.iter_mut().for_each(|pace| pace.pass(bytes));
        Poll::Ready(usize::try_from(bytes).unwrap_or(ahead))
    }
}

/// A body without limits, so that outer layers can answer with this type as well.
impl<B: From<Bytes>> From<Bytes> for PacedBody<B> {
    fn from(bytes: Bytes) -> Self {
        Self::new(bytes.into(), None)
    }
}

/// Applies bandwidth limits to the bodies of requests: put it around their layer. The inner service gets bodies of another type,
/// [`PacedBody`].
///
/// Without it, limits with [`Direction::Up`](super::Direction::Up) or `Both` have no effect on requests, and an error in the log says so.
/// axum routes include it.
///
/// ```
/// use std::convert::Infallible;
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Full};
/// use sluicegate_core::{Key, MemoryStore, Policy};
/// use sluicegate_tower::bandwidth::{Direction, PacedBody, UploadLayer};
/// use sluicegate_tower::{Limit, RateLimitLayer};
/// use tower::{ServiceBuilder, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let uploads = Policy::gcra("uploads", "1kB/min").on(&MemoryStore::new())?;
/// let limit = Limit::new(uploads.clone()).key(Key::from("everybody")).bandwidth(Direction::Up);
/// let layer = RateLimitLayer::new(limit);
/// let service = ServiceBuilder::new()
///     .layer(UploadLayer::new(&layer.limits_handle()))
///     .layer(layer)
///     .service_fn(|request: Request<PacedBody<Full<Bytes>>>| async {
///         let body = request.into_body().collect().await?.to_bytes();
///         Ok::<_, Infallible>(Response::new(Full::new(body)))
///     });
///
/// let response = service.oneshot(Request::new(Full::from("four"))).await?;
/// assert_eq!(response.into_body().collect().await?.to_bytes(), "four");
/// assert_eq!(uploads.peek("everybody").await?.remaining(), 996);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct UploadLayer(LimitsHandle);

/// A service behind an [`UploadLayer`].
#[derive(Clone, Debug)]
pub struct Uploads<S> {
    inner: S,
    layer: UploadLayer,
}

/// The slot in which layers put the limits of a request's body. Clones are the same slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct UploadSlot(Arc<Mutex<Vec<Pacer>>>);

impl UploadLayer {
    /// Applies these limits to bodies, and other limits behind this layer.
    ///
    /// Requests that begin while these limits apply to no bodies pass unchanged.
    pub fn new(limits: &LimitsHandle) -> Self {
        Self(limits.clone())
    }
}

impl<S> Layer<S> for UploadLayer {
    type Service = Uploads<S>;

    fn layer(&self, inner: S) -> Uploads<S> {
        Uploads { inner, layer: self.clone() }
    }
}

impl<S, B> Service<Request<B>> for Uploads<S>
where
    S: Service<Request<PacedBody<B>>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        if !self.layer.0.current().made().holds_requests {
            return self.inner.call(request.map(|body| PacedBody::new(body, None)));
        }
        let slot = UploadSlot::default();
        // A body with a slot of an outer layer passes through this one, too.
        request.extensions_mut().insert(slot.clone());
        self.inner.call(request.map(|body| PacedBody::held_by(body, slot)))
    }
}

impl UploadSlot {
    pub(crate) fn put(&self, pace: Pacer) {
        self.lock().push(pace);
    }

    pub(super) fn take(&self) -> Vec<Pacer> {
        mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Pacer>> {
        lock(&self.0)
    }
}

/// The bodies whose bytes a [limit of bandwidth](crate::Limit::bandwidth) counts. Written `down`, `up` and `both`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Direction {
    /// Bodies of responses: downloads.
    Down,
    /// Bodies of requests: uploads.
    Up,
    /// Both, from one bucket.
    Both,
}

impl Direction {
    /// Whether it includes bodies of responses.
    pub(crate) fn is_down(self) -> bool {
        self != Self::Up
    }

    /// The words for the bodies.
    pub(crate) fn bodies(self) -> &'static str {
        match self {
            Self::Down => "the response's body",
            Self::Up => "the request's body",
            Self::Both => "both bodies",
        }
    }

    /// Whether it includes bodies of requests.
    pub(crate) fn is_up(self) -> bool {
        self != Self::Down
    }
}

impl FromStr for Direction {
    type Err = ConfigError;

    /// Reads `down`, `up` or `both`.
    ///
    /// # Errors
    /// [`Unreadable`](sluicegate_core::error::ConfigErrorKind::Unreadable) for any other text.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text {
            "down" => Ok(Self::Down),
            "up" => Ok(Self::Up),
            "both" => Ok(Self::Both),
            _ => Err(unreadable(
                text,
                "does not say which bodies are counted: use \"down\" for those of responses, \"up\" for those of requests, or \"both\"",
            )),
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "down",
            Self::Up => "up",
            Self::Both => "both",
        })
    }
}
