//! Counts a refusal, and suspends the key if its refusals are too many.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::buckets::{AskStore, buckets_of, units};
use super::restate::NewSuspension;
use crate::decision::Decision;
use crate::key::Key;
use crate::store::{Ask, DecidedBy, Event, Mode, PreparedPolicy, QuotaStatus, Store, Subject};

/// A key whose refusals under a policy count.
pub(super) struct Striker {
    /// The ask.
    pub(super) place: u8,
    policy: PreparedPolicy,
    key: Key,
}

impl Striker {
    /// The key of an ask, if its policy suspends keys by itself.
    pub(super) fn new(place: u8, ask: &Ask<'_>) -> Option<Self> {
        ask.policy().suspension()?.strikes.as_ref()?;
        Some(Self { place, policy: ask.policy().clone(), key: ask.key().to_key() })
    }

    /// Whether this policy has refused, and not only another policy of the request.
    pub(super) fn has_refused(&self, decision: &Decision) -> bool {
        of(decision, self.place).any(|status| !status.passed())
    }

    /// Counts a refusal. Returns the suspension that it causes, or one that has begun in the meantime.
    ///
    /// The bucket of refusals gives its last unit once, to one of the concurrent callers: that caller suspends the key
    /// and empties the bucket, in one call. Until then the bucket is full, and from then on the key is suspended, so that no other refusal
    /// counts in between. If that call fails, a later refusal suspends the key.
    ///
    /// In an outage a process that decides alone counts and suspends with its share. If keys are refused everywhere, it cannot
    /// know whether a suspension has begun. Then it does neither, because it would begin suspensions repeatedly, and finally charge
    /// each of them to the store.
    pub(super) async fn strike(&self, store: &Arc<dyn Store>, ask_store: AskStore) -> Option<NewSuspension> {
        let buckets = self.policy.suspension()?;
        let ([strikes, suspensions], suspended) =
            (buckets.strikes.as_ref()?, buckets_of(&self.policy, self.key.as_ref()).next()?);
        let key = self.key.as_ref();
        let counted = ask_store(
            &**store,
            &[
                Ask::new(strikes, key, 1, Mode::Spend),
                Ask::new(suspended, key, 1, Mode::Peek),
                // A report, which always passes: after a replacement the bucket may hold more suspensions than the policy counts.
                Ask::new(suspensions, key, 0, Mode::Refund),
            ],
        );
        let counted = counted.await.ok().filter(|counted| counted.decided_by() != DecidedBy::Outage)?;
        // In an outage this status is missing for keys that are refused everywhere: whether the key is suspended is unknown.
        of(&counted, 1).next()?;
        if let Some(wait) = of(&counted, 1).find(|status| !status.passed()).map(QuotaStatus::available_after)
        {
            return Some(NewSuspension { at_us: counted.at_us(), wait });
        }
        if !counted.is_allowed() || of(&counted, 0).any(|status| status.remaining() > 0) {
            return None;
        }
        let before =
            of(&counted, 2).map(|status| status.capacity().saturating_sub(status.remaining())).max()?;
        let suspension = self.policy.policy().suspension()?;
        let (lasts, (after, _)) = (suspension.lasts(before)?, suspension.after()?);
        let begun = ask_store(
            &**store,
            &[
                Ask::new(suspended, key, units(lasts), Mode::Charge),
                Ask::new(suspensions, key, 1, Mode::Charge),
                Ask::new(strikes, key, after, Mode::Refund),
            ],
        );
        let (begun, is_in_memory) = match begun.now() {
            Ok(begun) => (begun, true),
            Err(later) => (later.await, false),
        };
        let begun = begun.ok().filter(|begun| begun.decided_by() != DecidedBy::Outage)?;
        let wait = of(&begun, 0).map(QuotaStatus::reset_after).max()?;
        // A full table keeps the suspensions that it has: a new one is announced only if it stands.
        if is_in_memory {
            let kept = ask_store(&**store, &[Ask::new(suspended, key, 1, Mode::Peek)]).await.ok()?;
            if kept.is_allowed() {
                log_refusals(store, AuditLine::NoRoom(self.policy.policy().name()));
                return None;
            }
        }
        tell(store, &self.policy, &self.key, lasts, Cause::Refusals);
        Some(NewSuspension { at_us: begun.at_us(), wait })
    }
}

/// The cause of a suspension or a release.
#[derive(Clone, Copy)]
pub(crate) enum Cause<'a> {
    /// The refusals of the key.
    Refusals,
    /// An operator, with the name if it was given.
    Hand(Option<&'a str>),
}

/// Tells the store, and the log, that a key is suspended from now on, or no longer.
pub(super) fn tell(
    store: &Arc<dyn Store>,
    policy: &PreparedPolicy,
    key: &Key,
    lasts: Duration,
    by: Cause<'_>,
) {
    let (by_hand, by) = match by {
        Cause::Refusals => (false, None),
        Cause::Hand(operator) => (true, operator),
    };
    let policy = policy.policy().name();
    let line = |by| AuditLine::Key { policy, key, lasts, by };
    if by_hand {
        log(line(by.unwrap_or("by hand")));
    } else {
        log_refusals(store, line("refusals"));
    }
    let subject = Subject::of(policy).with_key(key.as_ref());
    store.notice(&Event::Suspended { subject, lasts, by_hand, by });
}

/// Writes the line of a suspension by refusals, if there are not too many in this minute.
fn log_refusals(store: &Arc<dyn Store>, line: AuditLine<'_>) {
    let due = store.limiters().suspension_lines().next(Instant::now());
    if due.left_out > 0 {
        log(AuditLine::LeftOut(due.left_out));
    }
    if due.is_told {
        log(line);
    } else if due.is_first_without {
        log(AuditLine::MoreFollow);
    }
}

/// A line about suspensions.
#[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "without a log nobody reads it"))]
enum AuditLine<'a> {
    /// A key is suspended, or released if the time is zero.
    Key { policy: &'a str, key: &'a Key, lasts: Duration, by: &'a str },
    /// The table of this policy's suspensions is full.
    NoRoom(&'a str),
    /// The number of keys that were suspended by refusals without a line.
    LeftOut(u64),
    /// From here on, suspensions by refusals have no lines in this minute.
    MoreFollow,
}

#[cfg(feature = "tracing")]
fn log(line: AuditLine<'_>) {
    let refusals = "refusals";
    match line {
        AuditLine::Key { policy, key, lasts, by } if lasts.is_zero() => {
            let key = key.shown();
            tracing::info!(target: "sluicegate::audit", by, policy, key, "the key is released");
        }
        AuditLine::Key { policy, key, lasts, by } => {
            let key = key.shown();
            tracing::info!(target: "sluicegate::audit", by, policy, key, ?lasts, "the key is suspended");
        }
        AuditLine::NoRoom(policy) => {
            tracing::warn!(target: "sluicegate::audit", policy, "a key is not suspended, because the table of suspensions is full and keeps those that stand: raise the table size of the policy");
        }
        AuditLine::LeftOut(left_out) => {
            tracing::info!(target: "sluicegate::audit", by = refusals, left_out, "keys were suspended without a line each");
        }
        AuditLine::MoreFollow => {
            tracing::info!(target: "sluicegate::audit", by = refusals, "more keys are suspended: until the next minute they are only counted");
        }
    }
}

#[cfg(not(feature = "tracing"))]
fn log(line: AuditLine<'_>) {
    _ = line;
}

/// The statuses of the quotas of one ask.
fn of(decision: &Decision, place: u8) -> impl Iterator<Item = &QuotaStatus> {
    decision.quotas().iter().filter(move |status| status.policy_index() == usize::from(place))
}
