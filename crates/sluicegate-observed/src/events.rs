//! A queue of events for consumers that take their time: [`Events`].

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sluicegate_core::store::{Event, Listener};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::offenders::{Offender, Offenders};

/// Values made of the events of a store, in their order; see [`Observed::events`](crate::Observed::events).
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

// Logs the refusals of a policy, one line a minute: [`Minutely`].

const MINUTE_US: u64 = 60 * 1_000_000;

/// Logs at `warn`, once for each minute in which a policy refused requests, the number of refusals and the most refused key, if
/// one key stands out.
/// So a flood does not fill the disk; each single refusal is a line at `debug`.
pub(super) struct Minutely(Mutex<LoggedCounts>);

/// The counts that the log has covered.
struct LoggedCounts {
    minute: u64,
    refused: u64,
}

impl Minutely {
    pub(super) fn new(now_us: u64) -> Self {
        Self(Mutex::new(LoggedCounts { minute: now_us / MINUTE_US, refused: 0 }))
    }

    /// Writes the line that is due, if any. `refused` is the number of requests refused so far by enforced policies.
    pub(super) fn turn(
        &self,
        policy: &str,
        refused: impl FnOnce() -> u64,
        offenders: &Offenders,
        now_us: u64,
    ) {
        // The thread with the lock does the same.
        let Ok(mut told) = self.0.try_lock() else { return };
        let minute = now_us / MINUTE_US;
        if minute == told.minute {
            return;
        }
        let refused = refused();
        let before = std::mem::replace(&mut *told, LoggedCounts { minute, refused });
        drop(told);
        let refused = refused.saturating_sub(before.refused);
        if refused == 0 {
            return;
        }
        // No key is listed after a pause of more than five minutes.
        let most = offenders.most_refused(now_us).into_iter().find(Offender::stands_out);
        tracing::warn!(
            policy,
            refused,
            key = most.as_ref().map(|most| &*most.key),
            kind = most.as_ref().map(|most| most.kind.as_str()),
            retry_after = most.as_ref().map(|most| tracing::field::debug(most.retry_after)),
            "a policy has refused requests"
        );
    }
}
