//! Bodies that keep to a bandwidth: [`PacedBody`].

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use smallvec::SmallVec;

use crate::bandwidth::{Pacer, UploadSlot};
use crate::frames::{as_bytes, longer_by};

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
