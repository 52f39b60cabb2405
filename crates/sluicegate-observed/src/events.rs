//! A queue of events for consumers that take their time: [`Events`].

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_core::Quota;
use sluicegate_core::clock::Clock;
use sluicegate_core::error::StoreError;
use sluicegate_core::policy::{Policy, TimeSpan};
use sluicegate_core::store::{Alarm, Event, Listener, Listeners};
use sluicegate_core::support::lock;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::offenders::{Offender, Offenders, ShownKey};

/// Values made of the events of a store, in their order; see [`Observed::events`](crate::Observed::events).
pub struct Events<T> {
    queue: mpsc::Receiver<T>,
    dropped: Arc<AtomicU64>,
}

impl<T> Events<T> {
    /// Waits for the next event; `None` when the store is gone.
    ///
    /// # Cancel safety
    /// No event is lost when the future is dropped before it is ready.
    pub async fn next(&mut self) -> Option<T> {
        self.queue.recv().await
    }

    /// The next event, if it has come already.
    pub fn try_next(&mut self) -> Option<T> {
        self.queue.try_recv().ok()
    }

    /// The number of events that did not fit into the queue.
    pub fn dropped(&self) -> u64 {
        // Relaxed, here and below: the counts order nothing else.
        self.dropped.load(Ordering::Relaxed)
    }
}

impl<T> fmt::Debug for Events<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("dropped", &self.dropped()).finish_non_exhaustive()
    }
}

/// A queue with this much room, and the listener that fills it with the values that `take` makes of events. Values that do not fit
/// are counted for the queue, and `in_all`.
pub(super) fn events<T: Send + 'static>(
    room: usize,
    take: impl Fn(&Event<'_>) -> Option<T> + Send + Sync + 'static,
    in_all: Arc<AtomicU64>,
) -> (Events<T>, impl Listener) {
    let (sender, queue) = mpsc::channel(room.max(1));
    let dropped = Arc::<AtomicU64>::default();
    let own = Arc::clone(&dropped);
    let listener = move |event: &Event<'_>| {
        // The queue was dropped.
        if sender.is_closed() {
            return;
        }
        if let Some(item) = take(event)
            && let Err(TrySendError::Full(_)) = sender.try_send(item)
        {
            own.fetch_add(1, Ordering::Relaxed);
            in_all.fetch_add(1, Ordering::Relaxed);
        }
    };
    (Events { queue, dropped }, listener)
}

// Logs the refusals of a policy, one line a minute: [`Minutely`].

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

// The latest events, as a page shows them: [`PastEvent`].
//
// An outage is one event, from its beginning to its end, however often the store is tried meanwhile. Each kind of event has a bounded
// number of places, so that none drives out the others: clients cause as many suspensions as they have addresses.

/// The most events that are kept of each kind; those with an operator are a kind of their own.
const MOST_OF_KIND: usize = 40;

/// The kind of an outage.
const OUTAGE: &str = "outage";

/// Something that has happened to a store or a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PastEvent {
    /// The time of the event, or of its beginning.
    pub at: SystemTime,
    /// The end of an outage; `None` while it lasts, and for other events.
    pub until: Option<SystemTime>,
    /// The kind of event: `quota_changed`, `mode_changed`, `policy_replaced`, `outage`, `settled`, `suspended`, `released`,
    /// `key_quota_given`, `key_quota_over`, `alarm`, `alarm_expected`, `alarm_over`.
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
    /// The counts of an outage.
    pub outage: Option<OutageCounts>,
}

/// The counts of an outage of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct OutageCounts {
    /// Requests that were decided without the store since it was given up.
    pub decisions: u64,
    /// Keys whose spending without the store was charged to it.
    pub charged: usize,
    /// Keys whose spending it has not been told yet; `None` until the first were charged.
    pub left: Option<usize>,
}

/// The last events of a store, also those from stores inside of it.
pub(super) struct RecentEvents {
    clock: Arc<dyn Clock>,
    /// Requests that were decided without the store.
    alone: AtomicU64,
    events: Mutex<EventList>,
}

#[derive(Default)]
struct EventList {
    /// The youngest last.
    events: VecDeque<PastEvent>,
    /// The number of requests that had been decided without the store when the last outage began.
    alone_before: u64,
}

impl RecentEvents {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, alone: AtomicU64::new(0), events: Mutex::default() }
    }

    /// Counts a request that was decided without the store.
    pub(super) fn decided_alone(&self) {
        // Relaxed, here and below: the count orders nothing else.
        self.alone.fetch_add(1, Ordering::Relaxed);
    }

    /// The youngest last.
    pub(super) fn events(&self) -> Vec<PastEvent> {
        let mut list = lock(&self.events);
        list.count_decisions(self.alone.load(Ordering::Relaxed));
        list.events.iter().cloned().collect()
    }

    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.clock.now_us())
    }

    fn event_now(&self, what: &'static str) -> PastEvent {
        let (at, until) = (self.now(), None);
        PastEvent { at, until, what, policy: None, key: None, by: None, from: None, to: None, outage: None }
    }

    /// Begins an outage, unless one is under way.
    fn begin_outage(&self, error: &StoreError) {
        let mut list = lock(&self.events);
        if list.running_outage().is_none() {
            list.alone_before = self.alone.load(Ordering::Relaxed);
            let (to, outage) = (Some(error.to_string()), Some(OutageCounts::default()));
            list.add(PastEvent { to, outage, ..self.event_now(OUTAGE) });
        }
    }

    fn end_outage(&self) {
        let mut list = lock(&self.events);
        list.count_decisions(self.alone.load(Ordering::Relaxed));
        if let Some(outage) = list.running_outage() {
            outage.until = Some(self.now());
        }
    }

    /// Notes that the store was told of spending without it: a part of the last outage until it was told of all of it.
    fn settle(&self, charged: usize, left: usize) {
        let mut list = lock(&self.events);
        match list.last_outage().and_then(|event| event.outage.as_mut()) {
            Some(counts) if counts.left != Some(0) => {
                counts.charged += charged;
                counts.left = Some(left);
            }
            _ => {
                let to = Some(format!("{charged} charged, {left} left"));
                list.add(PastEvent { to, ..self.event_now("settled") });
            }
        }
    }
}

impl EventList {
    /// Adds an event. If there are too many of its kind, the oldest of them makes room.
    fn add(&mut self, event: PastEvent) {
        let kind = |event: &PastEvent| (event.what, event.by.is_some());
        let alike = self.events.iter().enumerate().filter(|(_, other)| kind(other) == kind(&event));
        let (oldest, count) =
            alike.fold((None, 0), |(oldest, count), (place, _)| (oldest.or(Some(place)), count + 1));
        if let Some(oldest) = oldest.filter(|_| count >= MOST_OF_KIND) {
            self.events.remove(oldest);
        }
        self.events.push_back(event);
    }

    fn last_outage(&mut self) -> Option<&mut PastEvent> {
        self.events.iter_mut().rev().find(|event| event.what == OUTAGE)
    }

    fn running_outage(&mut self) -> Option<&mut PastEvent> {
        self.last_outage().filter(|outage| outage.until.is_none())
    }

    /// Counts the decisions of the outage under way, given the number of all that were made without the store.
    fn count_decisions(&mut self, alone: u64) {
        let decisions = alone.saturating_sub(self.alone_before);
        if let Some(counts) = self.running_outage().and_then(|outage| outage.outage.as_mut()) {
            counts.decisions = decisions;
        }
    }
}

impl Listener for RecentEvents {
    fn event(&self, event: &Event<'_>) {
        let said = |what, to: String| PastEvent { to: Some(to), ..self.event_now(what) };
        let event = match event {
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
            // A bare store fails, and a resilient one gives its breaker's parts up.
            Event::BreakerOpened { error, .. } | Event::StoreFails { error } => {
                return self.begin_outage(error);
            }
            Event::FallbackEnded { .. } | Event::StoreAnswers => return self.end_outage(),
            Event::Settled { charged, left } => return self.settle(*charged, *left),
            Event::Suspended { subject, lasts, by_hand, by } => {
                let what = if lasts.is_zero() { "released" } else { "suspended" };
                let hand = by_hand.then(|| by.unwrap_or("by hand").to_owned());
                PastEvent {
                    policy: subject.policy.map(str::to_owned),
                    key: subject.key.map(ShownKey::of_ref),
                    by: hand,
                    to: (!lasts.is_zero()).then(|| TimeSpan::from(*lasts).to_string()),
                    ..self.event_now(what)
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
        };
        lock(&self.events).add(event);
    }
}

fn quotas(policy: &Policy) -> String {
    let quotas: Vec<_> = policy.quotas().iter().map(|quota| quota.quota().to_string()).collect();
    quotas.join(", ")
}

// The readers of events, and the log of alarms: [`EventReaders`].

/// The list of recent events and the listeners of a store, and the alarms that are expected.
pub(super) struct EventReaders {
    pub(super) past: Arc<RecentEvents>,
    pub(super) listeners: Listeners,
    expected: Mutex<Option<Expected>>,
    /// Acts on each alarm.
    follower: OnceLock<AlarmFollower>,
}

type AlarmFollower = Box<dyn Fn(&Alarm) + Send + Sync>;

/// The reason why alarms are expected, and until when.
struct Expected {
    until_us: u64,
    why: String,
}

impl EventReaders {
    pub(super) fn new(past: Arc<RecentEvents>) -> Self {
        Self { past, listeners: Listeners::default(), expected: Mutex::default(), follower: OnceLock::new() }
    }

    pub(super) fn expect(&self, why: String, until: SystemTime) {
        let until = until.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let until_us = u64::try_from(until.as_micros()).unwrap_or(u64::MAX);
        *lock(&self.expected) = Some(Expected { until_us, why });
    }

    /// Why an alarm at this time is expected.
    pub(super) fn expected(&self, now_us: u64) -> Option<String> {
        let expected = lock(&self.expected);
        expected.as_ref().filter(|expected| now_us < expected.until_us).map(|expected| expected.why.clone())
    }

    /// From now on each alarm is also reported to this function.
    pub(super) fn follow(&self, follower: impl Fn(&Alarm) + Send + Sync + 'static) {
        _ = self.follower.set(Box::new(follower));
    }

    /// Reports an alarm to listeners and logs it.
    pub(super) fn alarm(&self, alarm: &Alarm) {
        let (policy, cause) = (&*alarm.policy, alarm.cause.as_str());
        if alarm.is_over || alarm.expected.is_some() {
            tracing::info!(policy, cause, "{alarm}");
        } else {
            tracing::warn!(policy, cause, "{alarm}");
        }
        self.event(&Event::Alarm(alarm));
        if let Some(follow) = self.follower.get() {
            follow(alarm);
        }
    }
}

impl Listener for EventReaders {
    fn event(&self, event: &Event<'_>) {
        self.past.event(event);
        self.listeners.tell(event);
    }
}
