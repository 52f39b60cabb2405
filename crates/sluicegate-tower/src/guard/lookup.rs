//! The wait for a key or a tier that has to be looked up: it takes a place in the queue, and comes to an end.
#![expect(unnameable_types, reason = "it is part of a future that has a name")]

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Sleep;

use crate::guard::queue::{Place, Queue};
use crate::respond::refusal::RefusalReason;

/// How the requests of a layer may wait.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    pub(crate) queue: Queue,
    /// For each key and each tier.
    pub(crate) longest_lookup: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self { queue: Queue::default(), longest_lookup: Duration::from_secs(5) }
    }
}

/// A key or a tier that is being looked up.
pub struct Lookup<F> {
    found: F,
    /// The last moment at which it may come; set when it turns out that it has to be waited for.
    latest: Option<Pin<Box<Sleep>>>,
}

impl<F: Future + Unpin> Lookup<F> {
    pub(crate) fn new(found: F) -> Self {
        Self { found, latest: None }
    }

    /// What was looked up, or why the request does not wait for it any longer.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        waits: &Waits,
        place: &mut Place,
    ) -> Poll<Result<F::Output, RefusalReason<'static>>> {
        if let Poll::Ready(found) = Pin::new(&mut self.found).poll(cx) {
            return Poll::Ready(Ok(found));
        }
        if !waits.queue.enter(place) {
            return Poll::Ready(Err(RefusalReason::QueueFull(Duration::ZERO)));
        }
        let latest = self.latest.get_or_insert_with(|| Box::pin(tokio::time::sleep(waits.longest_lookup)));
        ready!(latest.as_mut().poll(cx));
        Poll::Ready(Err(RefusalReason::LookupTimeout(waits.longest_lookup)))
    }
}

impl<F> fmt::Debug for Lookup<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lookup(..)")
    }
}
