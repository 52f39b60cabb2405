//! Work that is finished, whether or not anybody waits for it: [`finished`].

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::DecisionFuture;

type Answer = Result<Decision, StoreError>;
type Work = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Begins work of several calls, at once if it is `here`, in memory, or on tokio's runtime: elsewhere the timers of a store would
/// find none. Dropped, it is finished by the runtime that it was begun on, if that is tokio's: a client that
/// hangs up does not evade what follows its refusal.
pub(crate) fn finished(is_here: bool, work: impl Future<Output = Answer> + Send + 'static) -> DecisionFuture {
    let mut begun = Begun {
        work: Some(Box::pin(work)),
        #[cfg(feature = "tokio")]
        runtime: tokio::runtime::Handle::try_current().ok(),
    };
    if (is_here || begun.has_runtime())
        && let Poll::Ready(answer) = Pin::new(&mut begun).poll(&mut Context::from_waker(Waker::noop()))
    {
        return DecisionFuture::ready(answer);
    }
    DecisionFuture::pending(begun)
}

struct Begun {
    work: Option<Work>,
    #[cfg(feature = "tokio")]
    runtime: Option<tokio::runtime::Handle>,
}

#[cfg(feature = "tokio")]
impl Begun {
    fn has_runtime(&self) -> bool {
        self.runtime.is_some()
    }
}

#[cfg(not(feature = "tokio"))]
impl Begun {
    fn has_runtime(&self) -> bool {
        _ = self;
        false
    }
}

impl Future for Begun {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let answer = std::task::ready!(work.as_mut().poll(cx));
        self.work = None;
        Poll::Ready(answer)
    }
}

#[cfg(feature = "tokio")]
impl Drop for Begun {
    fn drop(&mut self) {
        if let (Some(work), Some(runtime)) = (self.work.take(), &self.runtime) {
            runtime.spawn(work);
        }
    }
}
