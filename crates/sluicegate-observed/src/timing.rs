//! Durations that are exported at once: [`Timing`].

use std::time::Duration;

use arc_swap::ArcSwapOption;
use metrics::{Histogram, Key};

use super::exported::{histogram, recorder};

/// A histogram of durations.
pub(super) struct Timing {
    series: Key,
    bound: ArcSwapOption<BoundHistogram>,
}

/// The handle of the histogram, and its recorder.
struct BoundHistogram {
    recorder: usize,
    handle: Histogram,
}

impl Timing {
    pub(super) fn of(series: Key) -> Self {
        Self { series, bound: ArcSwapOption::empty() }
    }

    /// Records a duration `weight` times.
    pub(super) fn record(&self, lasted: Duration, weight: usize) {
        let recorder = recorder();
        let bound = self.bound.load();
        match &*bound {
            Some(bound) if bound.recorder == recorder => bound.handle.record_many(lasted, weight),
            _ => {
                let handle = histogram(&self.series);
                handle.record_many(lasted, weight);
                self.bound.store(Some(BoundHistogram { recorder, handle }.into()));
            }
        }
    }
}
