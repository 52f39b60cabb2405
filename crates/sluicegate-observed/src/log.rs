//! Logs the refusals of a policy, one line a minute: [`Minutely`].

use std::sync::Mutex;

use super::offenders::{Offender, Offenders};

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
