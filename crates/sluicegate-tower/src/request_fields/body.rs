//! Bodies of requests with a beginning that was read: [`ReadBody`].

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::frames::{as_bytes, longer_by};

/// The most frames that are read of a request, which bounds the memory for small frames.
const MOST_FRAMES: usize = 1024;

type Framed<E> = Result<Frame<Bytes>, E>;

/// The body of a request behind a [`RequestFieldsLayer`](crate::request_fields::RequestFieldsLayer): first the frames that the layer has
/// read, then the other frames. Data of any other type than [`Bytes`] is copied.
pub struct ReadBody<B: Body> {
    /// Frames that were read and have to be passed on.
    ahead: VecDeque<Framed<B::Error>>,
    /// The bytes of data in them.
    bytes: usize,
    body: B,
    has_ended: bool,
}

impl<B: Body> ReadBody<B> {
    pub(super) fn new(body: B) -> Self {
        Self { ahead: VecDeque::new(), bytes: 0, body, has_ended: false }
    }

    /// The data that was read.
    pub(super) fn data(&self) -> Cow<'_, [u8]> {
        let mut pieces = self.ahead.iter().filter_map(|frame| frame.as_ref().ok()?.data_ref());
        match (pieces.next(), pieces.next()) {
            (None, _) => Cow::Borrowed(&[]),
            (Some(whole), None) => Cow::Borrowed(whole),
            (Some(first), Some(second)) => {
                [first, second].into_iter().chain(pieces).flatten().copied().collect()
            }
        }
    }
}

impl<B: Body + Unpin> ReadBody<B> {
    /// Reads the body ahead: `true` at its end, `false` if it breaks off, has more bytes than these, or more frames than are read.
    pub(super) fn poll_whole(&mut self, at_most: usize, cx: &mut Context<'_>) -> Poll<bool> {
        while !self.has_ended {
            if self.ahead.len() >= MOST_FRAMES || self.bytes > at_most {
                return Poll::Ready(false);
            }
            match ready!(self.poll_inner(cx)) {
                Some(frame) => {
                    let is_broken = frame.is_err();
                    self.bytes += frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len);
                    self.ahead.push_back(frame);
                    if is_broken {
                        return Poll::Ready(false);
                    }
                }
                None => self.has_ended = true,
            }
        }
        Poll::Ready(self.bytes <= at_most)
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
