//! Requests that wait for the same, and the slots that they go at.

use std::collections::BTreeMap;
use std::task::Waker;

use tokio::time::Instant;

use super::slot::Slot;
use crate::decision::Decision;

/// Waiting requests with the same limiters, keys and costs, and as many slots: the first request goes at the first slot,
/// whoever reserved it.
#[derive(Default)]
pub(super) struct Class {
    /// In order of arrival; with whom to wake, once that was polled.
    waiting: BTreeMap<u64, Option<Waker>>,
    /// In order of time.
    slots: BTreeMap<(Instant, u64), Box<Decision>>,
    /// The first request and its slot, as far as the request knows.
    told: Option<(u64, Instant)>,
}

impl Class {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// One request more, behind all others, and one slot more. Says when the request goes at the latest.
    pub(super) fn enter(&mut self, number: u64, slot: Slot) -> Instant {
        let at = slot.at();
        self.waiting.insert(number, None);
        self.slots.insert(slot.place(), slot.decision);
        self.slots.last_key_value().map_or(at, |((last, _), _)| *last)
    }

    /// Takes out a request that waits, and with it the last slot, for all behind it move up.
    pub(super) fn leave(&mut self, number: u64) -> Option<Slot> {
        self.waiting.remove(&number)?;
        self.slots.pop_last().map(|((at, of), decision)| Slot::new(at, of, decision))
    }

    /// The next request whose slot has come, polled or not.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(u64, Option<Waker>, Box<Decision>)> {
        let slot = self.slots.first_entry().filter(|slot| slot.key().0 <= now)?;
        let (number, waker) = self.waiting.pop_first()?;
        Some((number, waker, slot.remove()))
    }

    /// Whom to wake because it is the first now, or goes at another time than it knows.
    pub(super) fn news(&mut self) -> Option<Waker> {
        let first = self.first()?;
        if self.told == Some(first) {
            return None;
        }
        self.told = Some(first);
        self.waiting.first_entry()?.get_mut().take()
    }

    /// The request waits on; says until when, which is its own slot for the first, and for others no earlier than that
    /// one's: `at_latest`, where that is still to come.
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

    /// Nobody has to be woken for this request: it is being polled.
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
