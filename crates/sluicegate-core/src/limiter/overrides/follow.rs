//! Passes overrides to handles: shared values of the store are merged with the overrides that this instance knows.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::policy::Board;
use crate::store::{Event, Listener, SharedFuture, Store, Write};

/// From now on the handles of this store follow the overrides that any instance writes to the shared store.
pub(crate) fn follow(store: &Arc<dyn Store>) {
    // A store that shares nothing has no such events, and a listener has a cost.
    if store.shared().is_some() && store.limiters().is_first_to_follow() {
        // Weak, because the store keeps its listeners.
        store.listen(Arc::new(Follower(Arc::downgrade(store))));
    }
}

struct Follower(Weak<dyn Store>);

impl Listener for Follower {
    fn event(&self, event: &Event<'_>) {
        // Looked at first: a store tells of each decision, and an upgrade writes to a line that all threads share.
        if let Event::Shared(bytes) = event
            && let Some(store) = self.0.upgrade()
        {
            learn(&store, bytes);
        }
    }
}

/// Merges the value that was read and updates the policies in force. An override that is known here but missing in the store is
/// written again: the store was flushed or restarted, or is a replica that had not received it.
pub(super) fn learn(store: &Arc<dyn Store>, bytes: &[u8]) {
    let read = Board::read(bytes);
    let now_us = store.now_us();
    let (board, has_changed) = {
        let mut board = store.limiters().overrides();
        let before = board.clone();
        board.learn(&read);
        board.forget(now_us);
        (board.clone(), *board != before)
    };
    if let Some(shared) = store.shared()
        && board.is_news_to(&read)
    {
        // Not awaited: if another instance was faster, its write arrives in a moment.
        drop(shared.exchange(Some(written(&board, &board.bytes(), bytes, now_us))));
    }
    if has_changed {
        follow_all(store);
    }
}

/// Applies the overrides known here to the policies in force.
pub(super) fn follow_all(store: &Arc<dyn Store>) {
    let replaced = store.limiters().all().into_iter().filter_map(|limiter| limiter.follow());
    // One by one, with notifications outside of all locks.
    replaced.for_each(|replaced| replaced.tell(store));
}

/// The value to write.
fn written<'a>(board: &Board, bytes: &'a [u8], over: &'a [u8], now_us: u64) -> Write<'a> {
    Write { over, bytes, keep: Duration::from_micros(board.kept_us().saturating_sub(now_us)) }
}

/// Writes a board if the store still has the value that was read, and returns its value afterwards; without a board, it only
/// reads. A store that shares nothing keeps the board for this instance.
pub(super) fn exchange(store: &Arc<dyn Store>, write: Option<(&Board, &[u8])>, now_us: u64) -> SharedFuture {
    let bytes = write.map_or_else(Vec::new, |(board, _)| board.bytes());
    let Some(shared) = store.shared() else {
        let mut known = store.limiters().overrides();
        if let Some((board, _)) = write.filter(|(_, over)| *over == known.bytes()) {
            *known = board.clone();
        }
        let there = Arc::from(known.bytes());
        return Box::pin(std::future::ready(Ok(there)));
    };
    shared.exchange(write.map(|(board, over)| written(board, &bytes, over, now_us)))
}
