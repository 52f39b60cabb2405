//! Requests that wait for the same, and the slots at which they go.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::slot::Slot;
use super::under::Costs;
use crate::decision::{DecidedBy, Decision};

/// Waiting requests with the same limiters, keys and costs, and as many slots: the first request goes at the first slot,
/// whichever request reserved it.
///
/// Slots are sorted by time, and not by arrival: over a network a later request's answer may come
/// first. Sorted, the last slot here is the last turn of the store, which is the only one that it
/// can take back.
#[derive(Default)]
pub(super) struct Class {
    /// In order of arrival; with the waker, once the request was polled.
    waiting: BTreeMap<u64, Option<Waker>>,
    /// In order of time.
    slots: BTreeMap<(Instant, u64), Box<Decision>>,
    /// The first request and its slot, as far as the request knows.
    told: Option<(u64, Instant)>,
    /// One moment by the clock of the store that gives the turns, in microseconds, and by ours.
    /// Slots are placed by their distance from it, so that the jitter of answers does not change
    /// their order.
    moment: Option<(DecidedBy, u64, Instant)>,
}

/// A clock that differs by more than this was set: answers are never as late.
const LATEST_ANSWER: Duration = Duration::from_secs(1);

impl Class {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds one request, behind all others, and one slot. Returns the latest time at which the request goes.
    pub(super) fn enter(&mut self, number: u64, slot: Slot) -> Instant {
        let slot = self.aligned(slot);
        let at = slot.at();
        self.waiting.insert(number, None);
        self.slots.insert(slot.place(), slot.decision);
        self.slots.last_key_value().map_or(at, |((last, _), _)| *last)
    }

    /// The slot at its time by the store's clock, whose last turn is the one that the store takes back: an answer that comes later
    /// than the next one must not turn the two around.
    fn aligned(&mut self, slot: Slot) -> Slot {
        let (basis, spent_us) = (slot.decision.decided_by(), slot.decision.spent_us());
        let by_store = self.moment.filter(|(of, ..)| *of == basis).and_then(|(_, us, at)| {
            let apart = Duration::from_micros(spent_us.abs_diff(us));
            if spent_us < us { at.checked_sub(apart) } else { at.checked_add(apart) }
        });
        let at = slot.at();
        match by_store.filter(|by_store| at.max(*by_store) - at.min(*by_store) <= LATEST_ANSWER) {
            Some(by_store) => slot.moved_to(by_store),
            None => {
                self.moment = Some((basis, spent_us, at));
                slot
            }
        }
    }

    /// Takes out a request that waits, and with it the last slot, because all behind it move up.
    pub(super) fn leave(&mut self, number: u64, costs: &Costs) -> Option<Slot> {
        self.waiting.remove(&number)?;
        self.slots.pop_last().map(|((at, of), decision)| Slot::new(at, of, costs.clone(), decision))
    }

    /// The next request whose slot has come, polled or not.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(u64, Option<Waker>, Box<Decision>)> {
        let slot = self.slots.first_entry().filter(|slot| slot.key().0 <= now)?;
        let (number, waker) = self.waiting.pop_first()?;
        Some((number, waker, slot.remove()))
    }

    /// The waker of the first request, if it has become the first, or goes at another time than it knows.
    pub(super) fn news(&mut self) -> Option<Waker> {
        let first = self.first()?;
        if self.told == Some(first) {
            return None;
        }
        self.told = Some(first);
        self.waiting.first_entry()?.get_mut().take()
    }

    /// Keeps the waker of a request that waits on, and returns the time until which it waits: its slot for the first request, and
    /// for others `at_latest`, or the last slot if that has passed.
    pub(super) fn wait(&mut self, number: u64, waker: &Waker, at_latest: Instant, now: Instant) -> Instant {
        if let Some(known) = self.waiting.get_mut(&number) {
            *known = Some(waker.clone());
        }
        match self.first() {
            Some((first, at)) if first == number => {
                self.told = Some((first, at));
                at
            }
            _ if at_latest > now => at_latest,
            _ => self.slots.last_key_value().map_or(at_latest, |((last, _), _)| *last),
        }
    }

    /// No task has to be woken for this request: it is being polled.
    pub(super) fn is_awake(&mut self, number: u64) {
        if let Some(waker) = self.waiting.get_mut(&number) {
            *waker = None;
        }
    }

    fn first(&self) -> Option<(u64, Instant)> {
        let (number, _) = self.waiting.first_key_value()?;
        let ((at, _), _) = self.slots.first_key_value()?;
        Some((*number, *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{QuotaStatus, judge};

    fn slot(number: u64, at: Instant, spent_ms: u64) -> Slot {
        let status = QuotaStatus::at_rest((0, 0), 1).with_remaining(0).spending(1);
        let decision = judge(0, spent_ms * 1_000, [status]);
        Slot::new(at, number, Costs::new(), Box::new(decision))
    }

    #[test]
    fn answers_that_come_late_do_not_change_the_order_of_the_turns() {
        let (start, mut class) = (Instant::now(), Class::default());
        let after = |ms| start + Duration::from_millis(ms);
        // A turn each millisecond; the answers are late by 5, 9 and 2 of them, and the clock was set before the last.
        for (number, late, spent_ms) in [(1, 5, 10), (2, 9, 11), (3, 2, 12), (4, 0, 90_000)] {
            class.enter(number, slot(number, after(spent_ms.min(5_000) + late), spent_ms));
        }
        let freed: Vec<_> = (1..=4).filter_map(|number| class.leave(number, &Costs::new())).collect();
        let freed: Vec<_> = freed.iter().map(|slot| (slot.decision.spent_us() / 1_000, slot.at())).collect();
        assert_eq!(freed, [(90_000, after(5_000)), (12, after(17)), (11, after(16)), (10, after(15))]);
    }
}
