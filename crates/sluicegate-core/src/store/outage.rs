//! The meaning of an outage: the one place where a store that gives no answer becomes a decision, or an
//! error.
//!
//! Handles, layers and the fallback all come here, so that a policy's [`OnOutage`] has one reading.
//! The numbers of such a decision are those of rest, because nobody knows better, and
//! [`DecidedBy::Outage`] says so.

use std::time::Duration;

use crate::clock::{Clock, SystemClock, micros};
use crate::decision::{DecidedBy, Decision, QuotaStatus};
use crate::error::StoreError;
use crate::policy::{OnOutage, Policy};
use crate::store::{Mode, judge};

/// The shortest wait that a request is told that is refused because the store cannot be reached.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// The answer to these asks when the store gave none: as their policies say of an outage. [`OnOutage::Local`] lets pass,
/// for no other store is here that could decide.
///
/// # Errors
/// The same error when it is not one of an outage, and when something was reported to the store and not asked: the caller has to
/// know that a charge, a refund or a reset may not have happened.
pub(crate) fn in_outage<'a>(
    asks: impl Iterator<Item = (&'a Policy, Mode)> + Clone,
    error: StoreError,
) -> Result<Decision, StoreError> {
    if !error.may_succeed_later() || asks.clone().any(|(_, mode)| !mode.asks()) {
        return Err(error);
    }
    let each = asks.map(|(policy, _)| (policy, policy.on_outage() == OnOutage::Deny));
    let decision = assumed(each, SystemClock::new().now_us(), SHORTEST_WAIT);
    log(&error, decision.is_allowed());
    Ok(decision)
}

/// A decision that nobody counted: the numbers are those of rest. Each policy comes with whether it refuses, for `wait` at least.
pub(crate) fn assumed<'a>(
    each: impl Iterator<Item = (&'a Policy, bool)>,
    now_us: u64,
    wait: Duration,
) -> Decision {
    let wait_us = micros(wait.max(SHORTEST_WAIT));
    let statuses = (0_u8..).zip(each).flat_map(|(place, (policy, refused))| {
        (0_u8..).zip(policy.quotas()).map(move |(quota, of)| {
            let status = QuotaStatus::at_rest((place, quota), of.rule().capacity());
            let refusal = || status.with_remaining(0).with_reset_after_us(wait_us).refused_for_us(wait_us);
            if refused { refusal() } else { status }
        })
    });
    judge(now_us, 0, statuses).by(DecidedBy::Outage)
}

/// Says it at most once a second: an outage must not fill the disk as well.
#[cfg(feature = "tracing")]
fn log(error: &StoreError, is_allowed: bool) {
    use std::sync::Mutex;
    use std::time::Instant;

    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let now = Instant::now();
    let Ok(mut last) = LAST.try_lock() else { return };
    if last.is_some_and(|last| now.duration_since(last) < Duration::from_secs(1)) {
        return;
    }
    *last = Some(now);
    drop(last);
    let error: &(dyn std::error::Error + 'static) = error;
    if is_allowed {
        tracing::error!(error, "the rate limit store gave no answer: requests pass uncounted");
    } else {
        tracing::error!(error, "the rate limit store gave no answer: requests are refused");
    }
}

#[cfg(not(feature = "tracing"))]
fn log(_: &StoreError, _: bool) {}
