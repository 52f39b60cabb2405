//! Bodies that are read as they pass: [`SettlingBody`].

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::bandwidth::{PacedBody, Pacer};
use crate::settle::tap::Tap;

pin_project! {
    /// The body of a response that settles its request and keeps to its bandwidth: see [`SettlingLayer`](crate::settle::SettlingLayer).
    ///
    /// It passes on each frame of the inner body unchanged, and at once unless a [bandwidth](crate::bandwidth) limit delays it. Data of a
    /// type other than [`Bytes`] is copied.
    ///
    /// # Cancel safety
    /// If it is dropped before it has ended, the request is settled as [`OnAbort`](crate::settle::OnAbort) says.
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
