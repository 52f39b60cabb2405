//! Responses that are being sent: [`SendingBody`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use http::Response;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

/// The permit of a request in progress, in the extensions of its response.
pub(crate) type InProgress = Arc<OwnedSemaphorePermit>;

/// The body of a response. It holds a guard until it is dropped and all of its data is sent.
pub(crate) struct SendingBody<G> {
    body: Body,
    guard: Option<SendingGuard<G>>,
}

/// A guard with the permit of the request.
type SendingGuard<G> = Arc<(G, Option<InProgress>)>;

/// Data with the guard that it is sent under.
struct SendingData<G> {
    bytes: Bytes,
    #[expect(dead_code, reason = "held for as long as the data")]
    guard: SendingGuard<G>,
}

impl<G> SendingBody<G> {
    /// Makes a response hold a guard, and the permit among its extensions.
    ///
    /// Only a stream that ends with the server, such as a watch of gRPC health, holds none: it has neither a permit nor a length.
    pub(crate) fn of(response: Response<Body>, guard: impl FnOnce() -> G) -> Response<Self> {
        let (mut head, body) = response.into_parts();
        let permit = head.extensions.remove::<InProgress>();
        let is_bounded = permit.is_some() || body.size_hint().exact().is_some();
        let guard = is_bounded.then(|| Arc::new((guard(), permit)));
        Response::from_parts(head, Self { body, guard })
    }
}

impl<G: Send + Sync + 'static> hyper::body::Body for SendingBody<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let Some(guard) = &self.guard else { return Poll::Ready(frame) };
        let held = |bytes| Bytes::from_owner(SendingData { bytes, guard: Arc::clone(guard) });
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(held))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<G> AsRef<[u8]> for SendingData<G> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
