//! Bodies that hold a permit: [`PermitBody`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Extensions;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use sluicegate_in_flight::Permit;

use crate::frames::{as_bytes, longer_by};

/// The most bytes that go to the server in one piece. A server may copy the pieces that it sends, for example with TLS: it would
/// copy a body in one piece at once, and no data would be left to hold the permit.
const PIECE: usize = 64 * 1024;

pin_project! {
    /// The body of a response that counts as in flight until it has ended, has failed or is dropped, and until the server
    /// has released its data: see [`InFlightLayer`](crate::in_flight::InFlightLayer).
    ///
    /// Otherwise it behaves like the inner body. Its data comes in pieces of at most 64 KiB; data of another type than
    /// [`Bytes`] is copied.
    ///
    /// # Cancel safety
    /// Dropping the body gives the permit back, unless data from it is still being sent.
    #[derive(Debug, Default)]
    pub struct PermitBody<B> {
        #[pin]
        body: B,
        // Bytes that the body has produced and the server has not yet received.
        rest: Bytes,
        permit: Option<HeldPermit>,
    }
}

/// Data with the permit that it is sent under.
struct Data {
    bytes: Bytes,
    #[expect(dead_code, reason = "held for as long as the data")]
    permit: HeldPermit,
}

/// The permit of a request, for work that continues after its response: it is held until the last clone is dropped.
///
/// The extensions of requests that ask for an upgrade (`Upgrade`, `CONNECT`) carry one. The code that takes over the
/// connection keeps a clone for as long as the connection lives; see [`InFlightLayer`](crate::in_flight::InFlightLayer).
#[derive(Clone)]
pub struct HeldPermit {
    permit: Arc<Permit>,
    /// The permit of another limit or layer, which is held as well.
    other: Option<Arc<Self>>,
}

impl<B> PermitBody<B> {
    pub(crate) fn new(body: B, permit: Option<HeldPermit>) -> Self {
        Self { body, rest: Bytes::new(), permit }
    }

    /// Whether the body still holds its permit. Data from the body holds the permit as well.
    pub fn is_holding(&self) -> bool {
        self.permit.is_some()
    }
}

/// The body of a response that holds no permit, so that layers around this one can also answer with it.
impl<B: From<Bytes>> From<Bytes> for PermitBody<B> {
    fn from(bytes: Bytes) -> Self {
        Self::new(bytes.into(), None)
    }
}

impl<B: Body> Body for PermitBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.project();
        let mut body = this.body;
        if this.rest.is_empty() {
            let frame = ready!(body.as_mut().poll_frame(cx));
            match frame.map(|frame| frame.map(as_bytes)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => *this.rest = data,
                    Err(trailers) => {
                        if body.is_end_stream() {
                            *this.permit = None;
                        }
                        return Poll::Ready(Some(Ok(trailers)));
                    }
                },
                ended => {
                    *this.permit = None;
                    return Poll::Ready(ended);
                }
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE));
        // Servers may not ask for more once a body says that it has ended.
        let ended = this.rest.is_empty() && body.is_end_stream();
        let permit = if ended { this.permit.take() } else { this.permit.clone() };
        let piece = match permit {
            Some(permit) => Bytes::from_owner(Data { bytes: piece, permit }),
            None => piece,
        };
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        longer_by(self.rest.len() as u64, &self.body.size_hint())
    }
}

impl AsRef<[u8]> for Data {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl HeldPermit {
    pub(crate) fn new(permit: Permit, other: Option<Self>) -> Self {
        Self { permit: Arc::new(permit), other: other.map(Arc::new) }
    }

    /// Puts the permit into extensions, joined with the permit of another layer.
    pub(crate) fn enter(self, extensions: &mut Extensions) {
        let outer = extensions.remove::<Self>();
        extensions.insert(match outer {
            Some(outer) => self.with(outer),
            None => self,
        });
    }

    /// This permit and its other permits, followed by `last`.
    fn with(self, last: Self) -> Self {
        let other = match self.other {
            Some(other) => Self::clone(&other).with(last),
            None => last,
        };
        Self { permit: self.permit, other: Some(Arc::new(other)) }
    }

    /// All permits, the last one first.
    pub(crate) fn permits(&self) -> impl Iterator<Item = &Permit> {
        std::iter::successors(Some(self), |held| held.other.as_deref()).map(|held| &*held.permit)
    }

    /// The permit; with several limits or layers, that of the nearest one.
    pub fn permit(&self) -> &Permit {
        &self.permit
    }
}

sluicegate_core::debug_as!(HeldPermit, held => held.permit.in_flight());
