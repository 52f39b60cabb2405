//! Who asks a store first asks the breakers of the parts that would answer.

use std::sync::Arc;

use smallvec::SmallVec;

use super::breaker::Pass;
use super::{State, each};
use crate::error::StoreError;

/// Leave to ask some parts of the store. Dropped without a result, it makes room for others.
pub(super) struct Leave {
    state: Arc<State>,
    passes: SmallVec<[(usize, Pass); 1]>,
}

impl Leave {
    pub(super) fn succeeded(mut self) {
        let state = Arc::clone(&self.state);
        for (part, pass) in self.passes.drain(..) {
            let now_us = state.now_us();
            if let Some(change) = state.breakers[part].succeeded(pass, &state.settings, now_us) {
                state.counts.changed(part, change, None, now_us);
            }
        }
    }

    /// The part that the error names has failed; if it names none of these, all have.
    pub(super) fn failed(mut self, error: &StoreError) {
        let named = self.passes.iter().any(|(part, _)| *part == error.part());
        let state = Arc::clone(&self.state);
        for (part, pass) in self.passes.drain(..) {
            if named && part != error.part() {
                state.breakers[part].left(pass);
                continue;
            }
            let now_us = state.now_us();
            if let Some(change) = state.breakers[part].failed(pass, &state.settings, now_us) {
                state.counts.changed(part, change, Some(error), now_us);
            }
        }
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        for (part, pass) in self.passes.drain(..) {
            self.state.breakers[part].left(pass);
        }
    }
}

impl State {
    /// Leave to ask these parts, if all of their breakers give it.
    pub(super) fn leave(self: &Arc<Self>, parts: u64) -> Option<Leave> {
        let mut leave = Leave { state: Arc::clone(self), passes: SmallVec::new() };
        let now_us = self.now_us();
        for part in each(parts) {
            leave.passes.push((part, self.breakers[part].admit(&self.settings, now_us)?));
        }
        Some(leave)
    }
}
