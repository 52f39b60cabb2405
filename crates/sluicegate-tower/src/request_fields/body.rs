//! Bodies of requests with a beginning that was read: [`ReadBody`].

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::frames::{as_bytes, longer_by};

type Framed<E> = Result<Frame<Bytes>, E>;

/// The body of a request behind a [`RequestFieldsLayer`](crate::request_fields::RequestFieldsLayer): first the frames that the layer has
/// read, then the other frames. Data of any other type than [`Bytes`] is copied.
pub struct ReadBody<B: Body> {
    /// Frames that were read and have to be passed on.
    ahead: VecDeque<Framed<B::Error>>,
    body: B,
    has_ended: bool,
}

impl<B: Body> ReadBody<B> {
    pub(super) fn new(body: B) -> Self {
        Self { ahead: VecDeque::new(), body, has_ended: false }
    }

    /// The number of frames that were read.
    pub(super) fn frames(&self) -> usize {
        self.ahead.len()
    }
}

impl<B: Body + Unpin> ReadBody<B> {
    /// Reads a frame of data ahead; `None` at the end.
    pub(super) fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Option<&[u8]>> {
        let frame = ready!(self.poll_inner(cx));
        self.has_ended = frame.is_none();
        self.ahead.extend(frame);
        let data = self.ahead.back().filter(|_| !self.has_ended);
        Poll::Ready(data.and_then(|frame| frame.as_ref().ok()?.data_ref()).map(|data| &**data))
    }

    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Framed<B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map(as_bytes)))
    }
}

impl<B: Body + Unpin> Body for ReadBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Framed<B::Error>>> {
        let this = self.get_mut();
        match this.ahead.pop_front() {
            Some(frame) => Poll::Ready(Some(frame)),
            None if this.has_ended => Poll::Ready(None),
            None => this.poll_inner(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && (self.has_ended || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let frames = self.ahead.iter().filter_map(|frame| frame.as_ref().ok()?.data_ref());
        let ahead: u64 = frames.map(|data| data.len() as u64).sum();
        let rest = if self.has_ended { SizeHint::with_exact(0) } else { self.body.size_hint() };
        longer_by(ahead, &rest)
    }
}

/// Only the body is pinned.
impl<B: Body + Unpin> Unpin for ReadBody<B> {}

impl<B: Body> fmt::Debug for ReadBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadBody").field("frames_ahead", &self.ahead.len()).finish_non_exhaustive()
    }
}
