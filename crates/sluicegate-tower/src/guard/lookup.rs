//! The wait for the look-up of a key or a tier: it takes a place in the queue, and has a time limit.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Sleep;

use crate::guard::queue::{Place, Queue};

/// The bounds on waiting requests of a layer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Waits {
    pub(crate) queue: Queue,
    /// The longest wait for each key and each tier.
    pub longest_lookup: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self { queue: Queue::default(), longest_lookup: Duration::from_secs(5) }
    }
}

impl Waits {
    /// A copy with a queue of its own.
    pub(crate) fn apart(&self) -> Self {
        Self { queue: self.queue.another(), longest_lookup: self.longest_lookup }
    }

    /// These bounds, with a queue that also counts the calls waiting in the other queue.
    pub(crate) fn counted_with(&self, other: &Self) -> Self {
        Self { queue: self.queue.counted_with(&other.queue), longest_lookup: self.longest_lookup }
    }
}

/// A key or a tier that is being looked up.
///
/// If it is ready when it is first polled, it takes no place and no timer. The timer starts with the wait,
/// so that each key and each tier has the whole time.
pub struct Lookup<F> {
    found: F,
    /// The deadline; set when the wait starts.
    latest: Option<Pin<Box<Sleep>>>,
}

/// The reason why a call stops waiting for a look-up.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum NotFound {
    /// The queue is full.
    QueueFull,
    /// The result did not come within this time.
    TooLate(Duration),
}

impl<F: Future + Unpin> Lookup<F> {
    /// A look-up of the output of this future.
    pub fn new(found: F) -> Self {
        Self { found, latest: None }
    }

    /// The result of the look-up, or the reason why the call stops waiting.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        waits: &Waits,
        place: &mut Place,
    ) -> Poll<Result<F::Output, NotFound>> {
        if let Poll::Ready(found) = Pin::new(&mut self.found).poll(cx) {
            return Poll::Ready(Ok(found));
        }
        if !waits.queue.enter(place) {
            return Poll::Ready(Err(NotFound::QueueFull));
        }
        let latest = self.latest.get_or_insert_with(|| Box::pin(tokio::time::sleep(waits.longest_lookup)));
        ready!(latest.as_mut().poll(cx));
        Poll::Ready(Err(NotFound::TooLate(waits.longest_lookup)))
    }
}

impl<F> fmt::Debug for Lookup<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lookup(..)")
    }
}
