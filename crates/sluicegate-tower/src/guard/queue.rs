//! The bound on calls that wait at once.
//!
//! It is a count, not a list: the turns of the limits decide which call is next. Clones of a layer and
//! all its services count together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The waiting calls of a layer, counted. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    longest: usize,
    waiting: Arc<AtomicUsize>,
}

/// The place in the queue of a call that has to wait, if it has one.
pub type Place = Option<Taken>;

/// A taken place; it is free again when this is dropped.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only a queue has one")]
pub struct Taken(Arc<AtomicUsize>);

impl Default for Queue {
    fn default() -> Self {
        Self::up_to(10_000)
    }
}

impl Queue {
    pub(crate) fn up_to(longest: usize) -> Self {
        Self { longest, waiting: Arc::default() }
    }

    /// Another queue of the same length.
    pub(crate) fn another(&self) -> Self {
        Self::up_to(self.longest)
    }

    /// A queue of this length that also counts the calls waiting in the other one.
    pub(crate) fn counted_with(&self, other: &Self) -> Self {
        Self { longest: self.longest, waiting: Arc::clone(&other.waiting) }
    }

    /// Takes a place for a call that has none yet. Returns whether the call has a place now.
    pub(crate) fn enter(&self, place: &mut Place) -> bool {
        if place.is_none() {
            let one_more = |waiting| (waiting < self.longest).then_some(waiting + 1);
            // Relaxed: it is a count and guards nothing else.
            let entered = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
            *place = entered.ok().map(|_| Taken(Arc::clone(&self.waiting)));
        }
        place.is_some()
    }

    pub(crate) fn waiting(&self) -> usize {
        // Relaxed: as above.
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Relaxed: as above.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
