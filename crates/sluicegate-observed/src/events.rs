//! A queue of events for consumers that take their time: [`Events`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::store::{Event, Listener};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Values made of the events of a store, in their order; see [`Observed::events`](super::Observed::events).
pub struct Events<T> {
    queue: mpsc::Receiver<T>,
    dropped: Arc<AtomicU64>,
}

impl<T> Events<T> {
    /// Waits for the next event; `None` when the store is gone.
    ///
    /// # Cancel safety
    /// No event is lost when the future is dropped before it is ready.
    pub async fn next(&mut self) -> Option<T> {
        self.queue.recv().await
    }

    /// The next event, if it has come already.
    pub fn try_next(&mut self) -> Option<T> {
        self.queue.try_recv().ok()
    }

    /// The number of events that did not fit into the queue.
    pub fn dropped(&self) -> u64 {
        // Relaxed, here and below: the counts order nothing else.
        self.dropped.load(Ordering::Relaxed)
    }
}

impl<T> fmt::Debug for Events<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("dropped", &self.dropped()).finish_non_exhaustive()
    }
}

/// A queue with this much room, and the listener that fills it with the values that `take` makes of events. Values that do not fit
/// are counted for the queue, and `in_all`.
pub(super) fn events<T: Send + 'static>(
    room: usize,
    take: impl Fn(&Event<'_>) -> Option<T> + Send + Sync + 'static,
    in_all: Arc<AtomicU64>,
) -> (Events<T>, impl Listener) {
    let (sender, queue) = mpsc::channel(room.max(1));
    let dropped = Arc::<AtomicU64>::default();
    let own = Arc::clone(&dropped);
    let listener = move |event: &Event<'_>| {
        // The queue was dropped.
        if sender.is_closed() {
            return;
        }
        if let Some(item) = take(event)
            && let Err(TrySendError::Full(_)) = sender.try_send(item)
        {
            own.fetch_add(1, Ordering::Relaxed);
            in_all.fetch_add(1, Ordering::Relaxed);
        }
    };
    (Events { queue, dropped }, listener)
}
