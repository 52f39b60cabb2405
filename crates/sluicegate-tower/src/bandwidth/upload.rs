//! Applies bandwidth limits to the bodies of requests: [`UploadLayer`].

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::Request;
use tower_layer::Layer;
use tower_service::Service;

use crate::bandwidth::{PacedBody, Pacer};
use crate::limits::LimitsHandle;

/// Applies bandwidth limits to the bodies of requests: put it around their layer. The inner service gets bodies of another type,
/// [`PacedBody`].
///
/// Without it, limits with [`Direction::Up`](crate::bandwidth::Direction::Up) or `Both` have no effect on requests, and an error in the log says so.
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
