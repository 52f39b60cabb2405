//! A key that goes on after many refusals is refused outright for a time.

mod by_hand;
mod calls;
mod evasion;
mod everywhere;
mod model;
mod outages;
mod settings;

use std::time::Duration;

use sluicegate_core::{Decision, Outcome, RateLimiter};

use crate::support::answer;

/// One unit.
pub(crate) fn check(limiter: &RateLimiter, key: &str) -> Decision {
    answer(limiter.check(key))
}

/// So many refusals that are no suspensions.
pub(crate) fn refused(limiter: &RateLimiter, key: &str, times: u64) {
    for _ in 0..times {
        assert_eq!(check(limiter, key).outcome(), Outcome::Denied);
    }
}

/// A request that is refused because of a suspension, which lasts for so long from now.
pub(crate) fn suspended(decision: &Decision, lasts: Duration) {
    assert_eq!((decision.outcome(), decision.retry_after()), (Outcome::Suspended, Some(lasts)));
    assert!(decision.remaining() == 0 && decision.reset_after() >= lasts, "{decision:?}");
}
