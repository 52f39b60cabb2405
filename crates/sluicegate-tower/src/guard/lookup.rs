//! The wait for a key or a tier that has to be looked up: it takes a place in the queue, and comes to an end.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Sleep;

use crate::guard::queue::{Place, Queue};

/// How the requests of a layer may wait.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Waits {
    pub(crate) queue: Queue,
    /// For each key and each tier.
    pub longest_lookup: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self { queue: Queue::default(), longest_lookup: Duration::from_secs(5) }
    }
}

impl Waits {
    /// The same for others, which take no places from these.
    pub(crate) fn apart(&self) -> Self {
        Self { queue: self.queue.another(), longest_lookup: self.longest_lookup }
    }

    /// The same, in whose queue those count that wait in the other one.
    pub(crate) fn counted_with(&self, other: &Self) -> Self {
        Self { queue: self.queue.counted_with(&other.queue), longest_lookup: self.longest_lookup }
    }
}

/// A key or a tier that is being looked up.
///
/// One that is ready when it is first polled takes no place and no timer. The timer starts when it
/// turns out that it has to be waited for, so that each key and each tier has the whole time.
pub struct Lookup<F> {
    found: F,
    /// The last moment at which it may come; set when it turns out that it has to be waited for.
    latest: Option<Pin<Box<Sleep>>>,
}

/// Why a call does not wait any longer for what is looked up.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum NotFound {
    /// As many calls as may wait do so already.
    QueueFull,
    /// It did not come within this time.
    TooLate(Duration),
}

impl<F: Future + Unpin> Lookup<F> {
    /// A look-up of what this finds.
    pub fn new(found: F) -> Self {
        Self { found, latest: None }
    }

    /// The result of the look-up, or why the request does not wait for it any longer.
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
