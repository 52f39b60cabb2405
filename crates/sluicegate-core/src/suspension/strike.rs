//! Counts a refusal, and suspends the key if its refusals are too many; suspends and releases keys by hand, and tells how far a key is
//! from its next suspension ([`Strikes`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::clock::micros;
use crate::decision::Decision;
use crate::error::{ConfigError, StoreError, StoreErrorKind};
use crate::few::{few, sort_few};
use crate::key::{Key, KeyRef};
use crate::policy::{Policy, PolicyMode};
use crate::store::{
    Ask, DecidedBy, Event, Inherit, Mode, PreparedPolicy, QuotaStatus, Store, Subject, SuspensionBuckets,
    judge,
};
use crate::support::ceil_millis;
use crate::wrap::ask_by_policy;

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
    pub(super) async fn strike(&self, store: &Arc<dyn Store>) -> Option<NewSuspension> {
        let buckets = self.policy.suspension()?;
        let ([strikes, suspensions], suspended) =
            (buckets.strikes.as_ref()?, buckets_of(&self.policy, self.key.as_ref()).next()?);
        let key = self.key.as_ref();
        let counted = ask_by_policy(
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
        let begun = ask_by_policy(
            &**store,
            &[
                Ask::new(suspended, key, ceil_millis(lasts), Mode::Charge),
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
            let kept = ask_by_policy(&**store, &[Ask::new(suspended, key, 1, Mode::Peek)]).await.ok()?;
            if kept.is_allowed() {
                log_refusals(store, AuditLine::NoRoom(self.policy.policy().name()));
                return None;
            }
        }
        tell(store, &self.policy, &self.key, lasts, (false, None));
        Some(NewSuspension { at_us: begun.at_us(), wait })
    }
}

/// Tells the store, and the log, that a key is suspended from now on, or no longer: by its refusals, or by hand.
pub(super) fn tell(
    store: &Arc<dyn Store>,
    policy: &PreparedPolicy,
    key: &Key,
    lasts: Duration,
    (by_hand, by): (bool, Option<&str>),
) {
    let policy = policy.policy().name();
    let line = |by| AuditLine::Key { policy, key, lasts, by };
    match by_hand {
        true => log(line(by.unwrap_or("by hand"))),
        false => log_refusals(store, line("refusals")),
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

/// Opens a policy and the buckets of its suspension. The suspensions stay, however the keys of a replaced policy start.
pub(crate) fn open(
    store: &dyn Store,
    policy: Policy,
    replaces: Option<(&PreparedPolicy, Inherit)>,
) -> Result<PreparedPolicy, ConfigError> {
    let prepared = store.open(Arc::new(policy), replaces)?.with_fallback_of(store);
    let policy = prepared.policy();
    if policy.suspension().is_none() {
        return Ok(prepared.with_short_way_of(store));
    }
    let old: Vec<&PreparedPolicy> = replaces.map_or_else(Vec::new, |(old, _)| buckets(old).collect());
    let follow = |bucket: Policy| -> Result<PreparedPolicy, ConfigError> {
        let old = old.iter().copied().find(|old| old.policy().name() == bucket.name());
        match old {
            Some(old) if **old.policy() == bucket => Ok(old.clone()),
            old => {
                let replaces = old.map(|old| (old, Inherit::Spent));
                Ok(store.open(Arc::new(bucket), replaces)?.with_short_way_of(store))
            }
        }
    };
    let buckets = SuspensionBuckets {
        strikes: match policy.strikes()? {
            Some([strikes, suspensions]) => Some([follow(strikes)?, follow(suspensions)?]),
            None => None,
        },
        suspended: follow(policy.suspended()?)?,
        everywhere: policy.suspended_everywhere()?.map(follow).transpose()?,
    };
    Ok(prepared.with_suspension(buckets).with_short_way_of(store))
}

/// Tells the store that a policy has replaced another one, and likewise for those of its buckets that differ.
pub(crate) fn replaced(store: &dyn Store, old: &PreparedPolicy, new: &PreparedPolicy, inherit: Inherit) {
    store.replaced(old, new, inherit);
    for new in buckets(new) {
        let old = buckets(old).find(|old| old.policy().name() == new.policy().name());
        if let Some(old) = old.filter(|old| !old.is(new)) {
            store.replaced(old, new, Inherit::Spent);
        }
    }
}

/// The buckets that say whether a key is suspended under this policy; the first one takes new suspensions. A policy that
/// suspends everywhere has both, because it may have suspended keys before it had that setting.
pub(super) fn buckets_of<'a>(
    policy: &'a PreparedPolicy,
    key: KeyRef<'_>,
) -> impl Iterator<Item = &'a PreparedPolicy> + use<'a> {
    let with_addresses =
        policy.policy().suspension().is_some_and(|suspension| suspension.holds_addresses_everywhere());
    let is_everywhere = with_addresses || key.address().is_none();
    policy.suspension().into_iter().flat_map(move |buckets| {
        let SuspensionBuckets { suspended, everywhere, .. } = &**buckets;
        everywhere.iter().filter(move |_| is_everywhere).chain([suspended])
    })
}

/// All buckets of a policy's suspension.
fn buckets(policy: &PreparedPolicy) -> impl Iterator<Item = &PreparedPolicy> {
    policy.suspension().into_iter().flat_map(|buckets| {
        let strikes = buckets.strikes.iter().flatten();
        strikes.chain([&buckets.suspended]).chain(&buckets.everywhere)
    })
}

/// A suspension that has just begun, or was found while a refusal was counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewSuspension {
    /// The moment that the wait is counted from, in microseconds of the store's clock.
    pub(super) at_us: u64,
    pub(super) wait: Duration,
}

/// The asks with suspended keys, and the waits of these. `watches` has each peek with the index of its ask.
pub(super) fn waits(decision: &Decision, watches: impl Iterator<Item = (u8, u8)>) -> AskWaits {
    let refused = |peek: u8| of(decision, peek).find(|status| !status.passed());
    few(watches.filter_map(|(peek, place)| Some((place, refused(peek)?.available_after()))))
}

type AskWaits = SmallVec<[(u8, Duration); 2]>;

/// The decision for its first `count` asks at this moment; those at these indexes are suspended for these times. If the store has no status
/// for such an ask, because it knew that the key was suspended and looked no further, the first quota of the ask gets one;
/// `capacity` gives that quota's capacity.
pub(super) fn suspended(
    decision: &Decision,
    at_us: u64,
    count: usize,
    waits: &[(u8, Duration)],
    capacity: impl Fn(u8) -> u64,
) -> Decision {
    let longest = |place: u8| {
        let own = waits.iter().filter(|(of, _)| *of == place);
        own.map(|(_, wait)| *wait).max()
    };
    let own = decision.quotas().iter().filter(|status| status.policy_index() < count);
    let stated = |status: &QuotaStatus| {
        let place = u8::try_from(status.policy_index()).unwrap_or(u8::MAX);
        longest(place).map_or(*status, |wait| status.suspended_for_us(micros(wait)))
    };
    let mut statuses: SmallVec<[QuotaStatus; 4]> = few(own.map(stated));
    for (place, _) in waits {
        let is_stated = statuses.iter().any(|status| status.policy_index() == usize::from(*place));
        if let Some(wait) = longest(*place).filter(|_| !is_stated) {
            let unknown = QuotaStatus::at_rest((*place, 0), capacity(*place));
            statuses.push(unknown.suspended_for_us(micros(wait)));
        }
    }
    sort_few(&mut statuses, |status| (status.policy_index(), status.quota_index()));
    judge(at_us, 0, statuses).by(decision.decided_by())
}

/// The distance of a key from its next suspension; see [`Suspensions::strikes`](crate::limiter::Suspensions::strikes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Strikes {
    /// The number of refusals that count now. The refusal that suspends the key resets it to 0.
    pub counted: u64,
    /// The number of refusals that suspend the key.
    pub after: u64,
    /// The number of remembered suspensions; each doubles the length of the next one.
    pub suspensions: u64,
}

/// Reads the buckets that count refusals and suspensions. `None` if the policy counts none.
pub(crate) async fn strikes(
    store: &Arc<dyn Store>,
    policy: &PreparedPolicy,
    key: &Key,
) -> Result<Option<Strikes>, StoreError> {
    let is_enforced = policy.policy().mode() == PolicyMode::Enforce;
    let buckets = policy.suspension().filter(|_| is_enforced);
    let Some([strikes, suspensions]) = buckets.and_then(|buckets| buckets.strikes.as_ref()) else {
        return Ok(None);
    };
    // Reports with a cost of 0, because a full bucket would refuse a question.
    let answer = ask_by_policy(
        &**store,
        &[strikes, suspensions].map(|bucket| Ask::new(bucket, key.as_ref(), 0, Mode::Refund)),
    );
    let found = answer.await?;
    if found.decided_by() == DecidedBy::Outage {
        // No store has read the buckets.
        return Err(StoreError::new(StoreErrorKind::Unavailable));
    }
    let of = |place: usize| {
        let mut quotas = found.quotas().iter().filter(move |status| status.policy_index() == place);
        let status = quotas.next()?;
        Some((status.capacity().saturating_sub(status.remaining()), status.capacity()))
    };
    let counts = of(0).zip(of(1));
    Ok(counts.map(|((counted, after), (suspensions, _))| Strikes { counted, after, suspensions }))
}

/// Suspends a key for this time from now, whatever its state; or, without a time, ends its suspension and forgets its refusals
/// and earlier suspensions. The store is told the operator, if known.
///
/// # Errors
/// [`StoreErrorKind::NoSuspension`] when the policy has no suspension that is enforced, and when the store gave no answer.
pub(crate) async fn change(
    store: &Arc<dyn Store>,
    policy: &PreparedPolicy,
    key: &Key,
    (lasts, by): (Option<Duration>, Option<&str>),
) -> Result<(), StoreError> {
    let nobody = || StoreError::new(StoreErrorKind::NoSuspension);
    let is_enforced = policy.policy().mode() == PolicyMode::Enforce;
    let buckets = policy.suspension().filter(|_| is_enforced).ok_or_else(nobody)?;
    let suspended = || buckets_of(policy, key.as_ref());
    let answer = {
        let ask = |bucket, cost, mode| Ask::new(bucket, key.as_ref(), cost, mode);
        let mut asks: SmallVec<[Ask<'_>; 4]> = few(suspended().map(|bucket| ask(bucket, 0, Mode::Reset)));
        match lasts {
            Some(lasts) => {
                asks.extend(suspended().take(1).map(|bucket| ask(bucket, ceil_millis(lasts), Mode::Charge)));
            }
            None => asks.extend(buckets.strikes.iter().flatten().map(|bucket| ask(bucket, 0, Mode::Reset))),
        }
        ask_by_policy(&**store, &asks)
    };
    answer.await.map(drop)?;
    tell(store, policy, key, lasts.unwrap_or_default(), (true, by));
    Ok(())
}

/// The most suspensions that are logged one by one in a minute.
const MOST: u64 = 60;

const MINUTE: Duration = Duration::from_secs(60);

/// Counts the suspensions of a minute, from its first one on.
///
/// A client has itself suspended as often as it has addresses, so that a line for each of them would grow the log with a flood.
#[derive(Debug, Default)]
pub(crate) struct SuspensionLines {
    since: Option<Instant>,
    suspended: u64,
}

/// The lines that a suspension causes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DueLines {
    /// The number of suspensions without a line in the last minute that had any; told if not 0.
    pub(super) left_out: u64,
    /// Whether the suspension has a line of its own.
    pub(super) is_told: bool,
    /// Whether it is the first one of its minute without.
    pub(super) is_first_without: bool,
}

impl SuspensionLines {
    pub(super) fn next(&mut self, now: Instant) -> DueLines {
        let mut left_out = 0;
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= MINUTE) {
            left_out = self.suspended.saturating_sub(MOST);
            *self = Self { since: Some(now), suspended: 0 };
        }
        self.suspended += 1;
        DueLines { left_out, is_told: self.suspended <= MOST, is_first_without: self.suspended == MOST + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_suspensions_of_a_minute_have_lines_and_the_others_are_counted_in_the_next() {
        let mut lines = SuspensionLines::default();
        let start = Instant::now();
        let mut told = |second: u64, times: u64| {
            let due = (0..times).map(|_| lines.next(start + Duration::from_secs(second)));
            due.fold((0, Vec::new(), 0), |(told, mut left_out, first), due| {
                left_out.extend(Some(due.left_out).filter(|left_out| *left_out > 0));
                (told + u64::from(due.is_told), left_out, first + u64::from(due.is_first_without))
            })
        };
        assert_eq!(told(0, 50), (50, vec![], 0));
        assert_eq!(told(59, 500), (10, vec![], 1));
        assert_eq!(told(60, 1), (1, vec![490], 0));
        assert_eq!(told(61, 59), (59, vec![], 0), "the minute has just begun");
        assert_eq!(told(3_600, 61), (60, vec![], 1));
    }
}
