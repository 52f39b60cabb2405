//! Additive increase, multiplicative decrease; see [`LimitAlgorithm::Aimd`](super::LimitAlgorithm::Aimd).

use super::estimate::ONE;
use super::window::Window;

pub(super) fn next(limit: u64, window: &Window) -> u64 {
    if window.is_faulty() {
        limit * 9 / 10 / ONE * ONE
    } else if window.in_flight * 2 * ONE < limit {
        limit
    } else {
        limit + ONE
    }
}
