//! How many requests may wait at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The waiting requests of a layer, counted.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) longest: usize,
    waiting: Arc<AtomicUsize>,
}

/// A place in the queue; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Default for Queue {
    fn default() -> Self {
        Self { longest: 10_000, waiting: Arc::default() }
    }
}

impl Queue {
    /// A place, if there is one.
    pub(crate) fn enter(&self) -> Option<Place> {
        let one_more = |waiting| (waiting < self.longest).then_some(waiting + 1);
        // Relaxed: it is a count and guards nothing else.
        let entered = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        entered.ok().map(|_| Place(Arc::clone(&self.waiting)))
    }

    pub(crate) fn waiting(&self) -> usize {
        // Relaxed: as above.
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Relaxed: as above.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
