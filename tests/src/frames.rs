//! Bodies frame by frame.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

/// A frame of a body that may fail.
pub type Framed = Result<Frame<Bytes>, &'static str>;

/// A body of these frames, that does not say when it has ended.
#[derive(Debug, Default)]
pub struct Frames(
    /// The last one first.
    Vec<Framed>,
);

impl Frames {
    /// A body of these frames.
    pub fn new(frames: impl IntoIterator<Item = Framed>) -> Self {
        let mut frames: Vec<_> = frames.into_iter().collect();
        frames.reverse();
        Self(frames)
    }
}

impl From<Bytes> for Frames {
    fn from(bytes: Bytes) -> Self {
        Self::new([Ok(Frame::data(bytes))])
    }
}

impl From<&'static str> for Frames {
    fn from(text: &'static str) -> Self {
        Bytes::from(text).into()
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Framed>> {
        Poll::Ready(self.0.pop())
    }
}

/// A frame of data.
pub fn data(text: impl Into<Bytes>) -> Framed {
    Ok(Frame::data(text.into()))
}

/// The next frame of a body.
pub async fn next<B: Body + Unpin>(body: &mut B) -> Option<Result<Frame<B::Data>, B::Error>> {
    poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}
