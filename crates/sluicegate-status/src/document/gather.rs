//! Puts the current document together: [`gather`].
//!
//! A snapshot sums counts and walks tables, and is made for each request for the page. That takes less than a millisecond for a service
//! with some policies, so nothing is kept between requests.

use std::collections::HashSet;
use std::time::{Duration, UNIX_EPOCH};

use sluicegate_core::limiter::Overrides;
use sluicegate_core::store::BreakerState;
use sluicegate_in_flight::SharedStatus;
use sluicegate_observed::{Observed, PastEvent, Snapshot, StoreSnapshot, StoreState};
use sluicegate_tower::room::Room;

use super::adaptive;
use super::notices::{Notice, Notices};
use super::policy::{PolicyView, ShownKeys, status};
use super::room::{self, RoomEvents};
use super::shape::{Document, Errors, Happened, NoticeShown, RoomShown, SharedShown, ShownStore};
use crate::instant::{rfc3339, seconds_up};
use crate::scope::Scope;

/// Puts the snapshots of all stores together. If two policies have one name, the first is shown.
pub(crate) fn gather(
    instance: &str,
    (scope, notices, room_events): (&Scope, &Notices, &RoomEvents),
    keys: ShownKeys<'_>,
) -> Document {
    let snapshots = scope.stores.iter().map(|store| (store, store.0.snapshot()));
    let snapshots: Vec<(&(Observed, Overrides), Snapshot)> = snapshots.collect();
    let at = snapshots.iter().map(|(_, known)| known.at).max().unwrap_or(UNIX_EPOCH);
    let uptime = snapshots.iter().map(|(_, known)| known.uptime).max().unwrap_or_default();
    let mut names = HashSet::new();
    let policies = snapshots.iter().flat_map(|((observed, overrides), known)| {
        let standing = overrides.list();
        let shown = known.policies.iter().filter(|it| names.insert(it.policy.name().to_owned()));
        let shown = shown.map(|policy| {
            status(&PolicyView { observed, overrides, standing: &standing, policy, keys, at: known.at })
        });
        shown.collect::<Vec<_>>()
    });
    let policies = policies.collect();
    // First, because they are the most likely reason to open the page.
    let alarms = snapshots.iter().flat_map(|(_, known)| &known.policies).flat_map(|policy| &policy.alarms);
    let alarms = alarms.map(|alarm| Notice {
        about: alarm.policy.clone(),
        since_us: alarm.since_us,
        text: alarm.to_string(),
    });
    let events = snapshots.iter().flat_map(|(_, known)| &known.events);
    let events = events.map(|event| (event.at, happened(event, keys)));
    let mut events: Vec<_> = events.chain(room_events.all()).collect();
    events.sort_by_key(|(at, _)| *at);
    Document {
        version: 1,
        at: rfc3339(at),
        instance: instance.to_owned(),
        uptime_seconds: uptime.as_secs(),
        notices: alarms
            .map(|it| NoticeShown { is_alarm: true, ..notice(it, keys) })
            .chain(notices.all().into_iter().map(|it| notice(it, keys)))
            .collect(),
        stores: snapshots.iter().flat_map(|(_, known)| &known.stores).map(store).collect(),
        policies,
        adaptive: snapshots
            .iter()
            .flat_map(|(_, known)| &known.adaptive)
            .map(|(name, status)| adaptive::shown(name, status))
            .collect(),
        shared: snapshots
            .iter()
            .flat_map(|(_, known)| &known.shared)
            .map(|(name, status)| shared(name, status))
            .collect(),
        rooms: scope.rooms.iter().map(|room| room_shown(&**room)).collect(),
        events: events.into_iter().map(|(_, event)| event).collect(),
    }
}

fn shared(name: &str, status: &SharedStatus) -> SharedShown {
    SharedShown {
        name: name.to_owned(),
        permits: status.permits,
        lease_seconds: status.lease.as_secs(),
        in_use: status.in_use,
        keys: status.keys,
        waiting: status.waiting,
        held: status.held,
        instances: status.instances,
        store: if status.is_down { "down" } else { "ok" },
        answered_seconds: status.answered.map(|ago| ago.as_secs()),
        lost: status.lost,
    }
}

fn store(store: &StoreSnapshot) -> ShownStore {
    ShownStore {
        name: store.name.clone(),
        state: match store.state {
            StoreState::Ok => "ok",
            StoreState::Fallback => "fallback",
            _ => "down",
        },
        breaker: match store.breaker {
            BreakerState::Closed => "closed",
            BreakerState::HalfOpen => "half_open",
            _ => "open",
        },
        // The value is known to a tenth of a microsecond only.
        p99_ms: store.p99.map(|p99| (p99.as_secs_f64() * 1e7).round() / 1e4),
        opened: store.opened,
        errors: Errors {
            timeout: store.errors.timeout,
            unavailable: store.errors.unavailable,
            protocol: store.errors.protocol,
        },
        fallback_decisions: store.fallback_decisions,
        fallback_seconds: store.in_fallback.as_secs(),
        unsettled_keys: store.unsettled_keys,
        keys: store.keys,
        slots: store.slots,
        evictions: store.evictions,
        policies_kept_open: store.policies_kept_open,
    }
}

/// A notice; only operators see its text.
fn notice(Notice { about, since_us, text }: Notice, keys: ShownKeys<'_>) -> NoticeShown {
    let since = rfc3339(UNIX_EPOCH + Duration::from_micros(since_us));
    NoticeShown { about, since, text: matches!(keys, ShownKeys::Shown(_)).then_some(text), is_alarm: false }
}

fn happened(event: &PastEvent, keys: ShownKeys<'_>) -> Happened {
    Happened {
        at: rfc3339(event.at),
        what: event.what,
        by: event.by.clone(),
        policy: event.policy.clone(),
        key: event.key.as_ref().map(|key| match keys {
            ShownKeys::Shown(_) => key.to_string(),
            ShownKeys::Digests => format!("digest {}", key.digest),
        }),
        room: None,
        from: event.from.clone(),
        to: event.to.clone(),
    }
}

/// The current state of a waiting room.
pub(crate) fn room_shown(room: &dyn Room) -> RoomShown {
    let now = room.numbers();
    RoomShown {
        name: room.name().to_owned(),
        mode: now.mode,
        rate: room::rate(now.rate),
        waiting: now.waiting,
        active: now.active,
        admitted: now.admitted,
        passed_over: now.passed_over,
        wait_seconds: now.wait.map(seconds_up),
        seen: room::seen(&now),
    }
}
