//! How many requests may wait at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The waiting requests of a layer, counted. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    longest: usize,
    waiting: Arc<AtomicUsize>,
}

/// A place in the queue; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Default for Queue {
    fn default() -> Self {
        Self::up_to(10_000)
    }
}

impl Queue {
    pub(crate) fn up_to(longest: usize) -> Self {
        Self { longest, waiting: Arc::default() }
    }

    /// Takes a place for a request that has none yet. Says whether it has one now.
    pub(crate) fn enter(&self, place: &mut Option<Place>) -> bool {
        if place.is_none() {
            let one_more = |waiting| (waiting < self.longest).then_some(waiting + 1);
            // Relaxed: it is a count and guards nothing else.
            let entered = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
            *place = entered.ok().map(|_| Place(Arc::clone(&self.waiting)));
        }
        place.is_some()
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
