//! An answer that is ready at once, or comes over a network: [`LineFuture`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use sluicegate_core::StoreError;

/// The answer of a line: ready at once and unboxed in memory, boxed if it comes over a network.
pub struct LineFuture<T>(AnswerSource<T>);

enum AnswerSource<T> {
    Ready(Option<Result<T, StoreError>>),
    Boxed(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
}

impl<T> LineFuture<T> {
    /// A known answer.
    pub const fn ready(answer: T) -> Self {
        Self(AnswerSource::Ready(Some(Ok(answer))))
    }

    /// The answer if it is known, or the future that has to be polled.
    ///
    /// # Errors
    /// The future itself, if the answer is not known yet.
    pub fn now(self) -> Result<Result<T, StoreError>, Self> {
        match self.0 {
            AnswerSource::Ready(Some(answer)) => Ok(answer),
            pending => Err(Self(pending)),
        }
    }

    /// An answer that has to be awaited.
    pub fn boxed(answer: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        Self(AnswerSource::Boxed(Box::pin(answer)))
    }
}

/// # Panics
/// Panics when it is polled again after it was ready.
impl<T: Unpin> Future for LineFuture<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            AnswerSource::Ready(answer) => {
                Poll::Ready(answer.take().expect("it is polled until it is ready, once"))
            }
            AnswerSource::Boxed(future) => future.as_mut().poll(cx),
        }
    }
}

impl<T> fmt::Debug for LineFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            AnswerSource::Ready(_) => "LineFuture(ready)",
            AnswerSource::Boxed(_) => "LineFuture(..)",
        })
    }
}
