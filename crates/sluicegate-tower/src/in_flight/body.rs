//! Bodies that hold a permit: [`Held`].

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Extensions;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use sluicegate_core::Permit;

pin_project! {
    /// The body of a response that counts as in flight until it has ended, has failed or is dropped.
    ///
    /// In all else it is the body inside.
    #[derive(Debug, Default)]
    pub struct Held<B> {
        #[pin]
        body: B,
        permit: Option<HeldPermit>,
    }
}

/// The permit of a request, for what goes on after its response: it is held until the last clone is dropped.
///
/// The extensions of requests that ask for an upgrade (`Upgrade`, `CONNECT`) carry one. Whoever takes over the connection
/// keeps a clone for as long as the connection lives; see [`InFlightLayer`](crate::InFlightLayer).
#[derive(Clone)]
pub struct HeldPermit {
    permit: Arc<Permit>,
    /// That of another layer, to be held as well.
    #[expect(dead_code, reason = "held for as long as this one")]
    other: Option<Arc<Self>>,
}

impl<B> Held<B> {
    pub(crate) fn new(body: B, permit: Option<HeldPermit>) -> Self {
        Self { body, permit }
    }

    /// Whether it still holds its permit.
    pub fn is_holding(&self) -> bool {
        self.permit.is_some()
    }
}

/// The body of a response that holds no permit, so that layers around this one can answer with it as well.
impl<B: From<Bytes>> From<Bytes> for Held<B> {
    fn from(bytes: Bytes) -> Self {
        Self::new(bytes.into(), None)
    }
}

impl<B: Body> Body for Held<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let mut body = this.body;
        let frame = ready!(body.as_mut().poll_frame(cx));
        // Servers may not ask for more once a body says that it has ended.
        if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
            *this.permit = None;
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

impl HeldPermit {
    pub(crate) fn new(permit: Permit) -> Self {
        Self { permit: Arc::new(permit), other: None }
    }

    /// Puts it into extensions, together with that of another layer.
    pub(crate) fn enter(self, extensions: &mut Extensions) {
        let other = extensions.remove::<Self>().map(Arc::new);
        extensions.insert(Self { other, ..self });
    }

    /// The permit; with several layers, that of the nearest one.
    pub fn permit(&self) -> &Permit {
        &self.permit
    }
}

impl fmt::Debug for HeldPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeldPermit").field(self.permit.in_flight()).finish()
    }
}
