//! The latest events, as a page shows them: [`PastEvent`].

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_core::Quota;
use sluicegate_core::clock::Clock;
use sluicegate_core::policy::Policy;
use sluicegate_core::store::{Alarm, Event, Listener};

use super::lock::lock;
use super::offenders::ShownKey;

/// The most events that are kept: as many suspensions by refusals, and as many others.
const MOST: usize = 100;

/// Something that has happened to a store or a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PastEvent {
    /// The time of the event.
    pub at: SystemTime,
    /// The kind of event: `quota_changed`, `mode_changed`, `policy_replaced`, `breaker_opened`, `breaker_closed`,
    /// `fallback_began`, `fallback_ended`, `settled`, `suspended`, `released`, `key_quota_given`, `key_quota_over`, `alarm`, `alarm_expected`, `alarm_over`.
    pub what: &'static str,
    /// The policy that the event is about.
    pub policy: Option<String>,
    /// The key that the event is about.
    pub key: Option<ShownKey>,
    /// The name of the operator, or `by hand`. `None` if code caused the event.
    pub by: Option<String>,
    /// The state before.
    pub from: Option<String>,
    /// The state now, or more about it.
    pub to: Option<String>,
}

impl PastEvent {
    /// Whether a key was suspended by its refusals.
    fn is_by_refusals(&self) -> bool {
        self.what == "suspended" && self.by.is_none()
    }
}

/// The last events of a store, also those from stores inside of it. Suspensions by refusals have a list of their own, because
/// clients cause as many as they have addresses, and would push out all others.
pub(super) struct RecentEvents {
    clock: Arc<dyn Clock>,
    events: Mutex<EventLists>,
}

#[derive(Default)]
struct EventLists {
    /// The events with their numbers.
    others: VecDeque<(u64, PastEvent)>,
    suspensions: VecDeque<(u64, PastEvent)>,
    next: u64,
}

impl RecentEvents {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, events: Mutex::default() }
    }

    /// The youngest last.
    pub(super) fn events(&self) -> Vec<PastEvent> {
        let lists = lock(&self.events);
        let mut events: Vec<_> = lists.others.iter().chain(&lists.suspensions).cloned().collect();
        drop(lists);
        events.sort_unstable_by_key(|(number, _)| *number);
        events.into_iter().map(|(_, event)| event).collect()
    }

    fn add(&self, event: PastEvent) {
        let EventLists { others, suspensions, next } = &mut *lock(&self.events);
        let events = if event.is_by_refusals() { suspensions } else { others };
        if events.len() == MOST {
            events.pop_front();
        }
        events.push_back((*next, event));
        *next += 1;
    }
}

impl Listener for RecentEvents {
    fn event(&self, event: &Event<'_>) {
        let plain = |what| PastEvent {
            at: UNIX_EPOCH + Duration::from_micros(self.clock.now_us()),
            what,
            policy: None,
            key: None,
            by: None,
            from: None,
            to: None,
        };
        let said = |what, to: String| PastEvent { to: Some(to), ..plain(what) };
        self.add(match event {
            Event::PolicyReplaced { old, new, by, .. } => {
                let (before, after) = (quotas(old), quotas(new));
                let (is_quota, is_mode) = (before != after, old.mode() != new.mode());
                let what = match (is_quota, is_mode) {
                    (true, _) => "quota_changed",
                    (false, true) => "mode_changed",
                    (false, false) => "policy_replaced",
                };
                let shown = |policy: &Policy, quotas: String| match (is_quota, is_mode) {
                    (true, true) => format!("{quotas}, {}", policy.mode()),
                    (true, false) => quotas,
                    (false, true) => policy.mode().to_string(),
                    (false, false) => policy.to_string(),
                };
                PastEvent {
                    policy: Some(new.name().to_owned()),
                    by: by.map(str::to_owned),
                    from: Some(shown(old, before)),
                    ..said(what, shown(new, after))
                }
            }
            Event::BreakerOpened { error, .. } => said("breaker_opened", error.to_string()),
            Event::BreakerClosed { .. } => plain("breaker_closed"),
            Event::FallbackBegan => plain("fallback_began"),
            Event::FallbackEnded { lasted } => said("fallback_ended", format!("{lasted:?}")),
            Event::Settled { charged, left } => said("settled", format!("{charged} charged, {left} left")),
            Event::Suspended { subject, lasts, by_hand, by } => {
                let what = if lasts.is_zero() { "released" } else { "suspended" };
                let hand = by_hand.then(|| by.unwrap_or("by hand").to_owned());
                PastEvent {
                    policy: subject.policy.map(str::to_owned),
                    key: subject.key.map(ShownKey::of_ref),
                    by: hand,
                    ..said(what, format!("{lasts:?}"))
                }
            }
            Event::QuotasGiven { subject, quotas, lasts, by } => {
                let what = if lasts.is_zero() { "key_quota_over" } else { "key_quota_given" };
                PastEvent {
                    policy: subject.policy.map(str::to_owned),
                    key: subject.key.map(ShownKey::of_ref),
                    by: by.map(str::to_owned),
                    ..said(what, quotas.iter().map(Quota::to_string).collect::<Vec<_>>().join(", "))
                }
            }
            Event::Alarm(alarm) => {
                let what = match alarm {
                    Alarm { is_over: true, .. } => "alarm_over",
                    Alarm { expected: Some(_), .. } => "alarm_expected",
                    _ => "alarm",
                };
                // Visitors who may not see keys may not see networks either.
                let mut told = (*alarm).clone();
                told.networks.clear();
                PastEvent { policy: Some(alarm.policy.clone()), ..said(what, told.to_string()) }
            }
            // Events of single requests are counted, and not kept.
            _ => return,
        });
    }
}

fn quotas(policy: &Policy) -> String {
    let quotas: Vec<_> = policy.quotas().iter().map(|quota| quota.quota().to_string()).collect();
    quotas.join(", ")
}
