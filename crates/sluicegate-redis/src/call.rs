//! One call: the way of cells that live together to Redis and back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sluicegate_core::clock::{Clock, SystemClock};
use sluicegate_core::{Decision, StoreError};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::cell::Cell;
use crate::link::{Link, part_of};
use crate::together::{Request, Together, decide};

pub(crate) type Answer = Result<Decision, StoreError>;

/// What a store calls Redis by.
pub(crate) struct Caller {
    pub(crate) link: Link,
    /// None on a Cluster, where only keys of one slot can share a call.
    pub(crate) together: Option<Together>,
    pub(crate) clock: Option<Box<dyn Clock>>,
    pub(crate) deadline: Duration,
    /// Where the store was made, and its connections live.
    pub(crate) runtime: Handle,
}

impl Caller {
    /// When a request that begins now has to be decided.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// The time, as nearly as this process knows it.
    pub(crate) fn about_now_us(&self) -> u64 {
        self.clock.as_ref().map_or_else(|| SystemClock::new().now_us(), |clock| clock.now_us())
    }

    /// One script call for cells that live together.
    pub(crate) fn call(
        &self,
        cells: Vec<Cell>,
        deadline: Instant,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        let time = self.clock.as_ref().map(|clock| clock.now_us());
        let request = Request { cells, time, deadline };
        if let Some(together) = &self.together {
            return Box::pin(together.decide(request));
        }
        let part = part_of(request.cells[0].slot());
        let link = Arc::clone(self.link.state());
        Box::pin(async move { decide(&link, part, request).await.map(|(decision, _)| decision) })
    }

    /// The same on a Cluster; with whether it is refused only because of units that others may give back in a moment.
    pub(crate) async fn ask(
        &self,
        cells: Vec<Cell>,
        deadline: Instant,
    ) -> Result<(Decision, bool), StoreError> {
        let part = part_of(cells[0].slot());
        let time = self.clock.as_ref().map(|clock| clock.now_us());
        decide(self.link.state(), part, Request { cells, time, deadline }).await
    }

    /// A call that has begun, and is finished whether or not anybody waits for it.
    pub(crate) fn begun(&self, answer: Pin<Box<dyn Future<Output = Answer> + Send>>) -> Begun {
        let mut begun = Begun { answer: Some(answer), early: None, runtime: self.runtime.clone() };
        // Wherever it is called, the timers are those of the store's runtime.
        let _entered = self.runtime.enter();
        let mut nobody = Context::from_waker(Waker::noop());
        if let Poll::Ready(answer) = Pin::new(&mut begun).poll(&mut nobody) {
            begun.early = Some(answer);
        }
        begun
    }
}

/// See [`Caller::begun`].
pub(crate) struct Begun {
    answer: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    early: Option<Answer>,
    runtime: Handle,
}

impl Begun {
    /// The answer, if it did not take a call.
    pub(crate) fn early(&mut self) -> Option<Answer> {
        self.early.take()
    }
}

impl Future for Begun {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        if let Some(answer) = self.early.take() {
            return Poll::Ready(answer);
        }
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

/// Whole microseconds.
pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
