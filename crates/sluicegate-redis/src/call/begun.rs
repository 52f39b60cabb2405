//! Calls that go on, whether or not anybody waits for them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use sluicegate_core::store::DecisionFuture;
use tokio::runtime::Handle;

use super::request::Answer;

/// Begins a call; dropped, it is finished by the runtime of the store.
///
/// The first poll happens here, with a waker that does nothing: it sends the command, or queues it for
/// the next call. The second poll, of whoever awaits the decision, registers the real waker.
pub(super) fn begun(
    runtime: &Handle,
    answer: Pin<Box<dyn Future<Output = Answer> + Send>>,
) -> DecisionFuture {
    let mut begun = Begun { answer: Some(answer), runtime: runtime.clone() };
    // Wherever it is called, the timers are those of the store's runtime.
    let _entered = runtime.enter();
    match Pin::new(&mut begun).poll(&mut Context::from_waker(Waker::noop())) {
        // It did not take a call.
        Poll::Ready(answer) => DecisionFuture::ready(answer),
        Poll::Pending => DecisionFuture::pending(begun),
    }
}

/// A call that has begun.
struct Begun {
    answer: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    runtime: Handle,
}

impl Future for Begun {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let Some(answer) = &mut self.answer else { return Poll::Pending };
        let answer = std::task::ready!(answer.as_mut().poll(cx));
        self.answer = None;
        Poll::Ready(answer)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            self.runtime.spawn(answer);
        }
    }
}
