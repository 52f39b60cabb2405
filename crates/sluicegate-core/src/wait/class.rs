//! Requests that wait for the same turns, and the slots at which they proceed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::slot::TurnSlot;
use super::under::{AskCosts, RequestParts, UnitsHeld};
use crate::decision::{DecidedBy, Decision};

/// Waiting requests of one line with the same costs, and an equal number of slots.
///
/// The first request proceeds at the first slot, whichever request reserved it. Slots are sorted by time: the last one here is the last turn of
/// the store, the only turn that the store can take back; over a network a later request's answer may come first. Requests are sorted by
/// [rank](Rank), and up to each rank there are as many slots as requests, so that no request proceeds after its own slot.
#[derive(Default)]
pub(super) struct WaitClass {
    /// The requests that may proceed at any slot.
    free: BTreeMap<Rank, Waiter>,
    /// The slots of the free requests, one for each, in order of time.
    slots: BTreeMap<(Instant, u64), Box<Decision>>,
    /// The requests that another limit still holds. Each keeps its own slot.
    bound: BTreeMap<Rank, Bound>,
    /// When they are no longer bound.
    bound_until: BTreeSet<(Instant, Rank)>,
    /// The first request and its slot, as far as the request knows.
    told: Option<(Rank, Instant)>,
    /// One moment by the clock of the store that gives the turns, in microseconds, and by our clock.
    /// Slots are placed by their distance from it, so that jitter of answers does not change
    /// their order.
    moment: Option<(DecidedBy, u64, Instant)>,
}

/// The latest time at which a request proceeds, and its number. It is behind all earlier requests, even if its own turn comes sooner, as after a
/// replacement by a faster policy. If other limits hold units for it, the time is its own turn, because they hold them until then.
pub(super) type Rank = (Instant, u64);

/// A request that waits.
#[derive(Default)]
pub(super) struct Waiter {
    /// The task to wake, once the request was polled.
    pub(super) waker: Option<Waker>,
    /// Units that other limits hold for it.
    pub(super) held: Option<Arc<dyn UnitsHeld>>,
}

/// A request that may not proceed before this moment.
struct Bound {
    until: Instant,
    waits: Waiter,
    slot: TurnSlot,
}

/// Answers are at most this late; a larger difference means that the clock was set.
const LATEST_ANSWER: Duration = Duration::from_secs(1);

impl WaitClass {
    pub(super) fn is_empty(&self) -> bool {
        self.free.is_empty() && self.bound.is_empty()
    }

    /// Adds a request and its slot.
    pub(super) fn enter(
        &mut self,
        number: u64,
        slot: TurnSlot,
        beside: Option<RequestParts>,
        now: Instant,
    ) -> Rank {
        let slot = self.aligned(slot);
        let last = self.free.last_key_value().map(|((at, _), _)| *at).filter(|_| beside.is_none());
        let rank = (last.map_or_else(|| slot.at(), |last| last.max(slot.at())), number);
        let until = beside.as_ref().map(|beside| beside.ready_at.min(slot.at()));
        let waits = Waiter { waker: None, held: beside.map(|beside| beside.held) };
        match until.filter(|until| *until > now) {
            Some(until) => {
                self.bound_until.insert((until, rank));
                self.bound.insert(rank, Bound { until, waits, slot });
            }
            None => self.join(rank, waits, slot),
        }
        rank
    }

    fn join(&mut self, rank: Rank, waits: Waiter, slot: TurnSlot) {
        self.free.insert(rank, waits);
        self.slots.insert(slot.place(), slot.decision);
    }

    /// The slot at its time by the store's clock. The store takes back only its last turn, so an answer that overtakes
    /// another must not swap the two slots.
    fn aligned(&mut self, slot: TurnSlot) -> TurnSlot {
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

    /// Removes a waiting request, and the last slot, which is no longer needed because the requests behind it move up.
    pub(super) fn leave(&mut self, rank: Rank, costs: &AskCosts) -> Option<TurnSlot> {
        if let Some(bound) = self.bound.remove(&rank) {
            self.bound_until.remove(&(bound.until, rank));
            return Some(self.offer(bound.slot));
        }
        self.free.remove(&rank)?;
        self.last_slot(costs)
    }

    /// Lets requests move up to a slot, and returns the slot that is left over.
    pub(super) fn offer(&mut self, slot: TurnSlot) -> TurnSlot {
        let place = slot.place();
        if self.slots.last_key_value().is_none_or(|(last, _)| *last < place) {
            return slot;
        }
        self.slots.insert(place, slot.decision);
        self.last_slot(&slot.costs).expect("one was put in")
    }

    fn last_slot(&mut self, costs: &AskCosts) -> Option<TurnSlot> {
        self.slots.pop_last().map(|((at, of), decision)| TurnSlot::new(at, of, costs.clone(), decision))
    }

    /// The next request whose slot has come, polled or not.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(u64, Waiter, Box<Decision>)> {
        self.unbind(now);
        let slot = self.slots.first_entry().filter(|slot| slot.key().0 <= now)?;
        let ((latest, number), waits) = self.free.pop_first()?;
        debug_assert!(slot.key().0 <= latest, "no request goes after its rank");
        Some((number, waits, slot.remove()))
    }

    /// Requests that other limits release before the next slot comes may move up to it, checked with each call.
    fn unbind(&mut self, now: Instant) {
        while let Some(&(until, rank)) = self.bound_until.first() {
            let next = self.slots.first_key_value().map_or(now, |((at, _), _)| *at);
            if until > next.min(now) {
                return;
            }
            self.bound_until.pop_first();
            if let Some(Bound { waits, slot, .. }) = self.bound.remove(&rank) {
                self.join(rank, waits, slot);
            }
        }
    }

    /// The task to wake, because its request is now the first or proceeds at another time than it knows.
    pub(super) fn news(&mut self) -> Option<Waker> {
        let first = self.first()?;
        if self.told == Some(first) {
            return None;
        }
        self.told = Some(first);
        self.free.first_entry()?.get_mut().waker.take()
    }

    /// Lets the request wait on. Returns the time until which it waits: its slot if it is the first, otherwise its rank.
    pub(super) fn wait(&mut self, rank: Rank, waker: &Waker) -> Instant {
        self.set_waker(rank, Some(waker.clone()));
        match self.first() {
            Some((first, at)) if first == rank => {
                self.told = Some((first, at));
                at
            }
            _ => rank.0,
        }
    }

    /// Notes that no task has to be woken for this request, because it is being polled.
    pub(super) fn is_awake(&mut self, rank: Rank) {
        self.set_waker(rank, None);
    }

    fn set_waker(&mut self, rank: Rank, waker: Option<Waker>) {
        if let Some(waits) = self.free.get_mut(&rank) {
            waits.waker = waker;
        } else if let Some(bound) = self.bound.get_mut(&rank) {
            bound.waits.waker = waker;
        }
    }

    fn first(&self) -> Option<(Rank, Instant)> {
        let (rank, _) = self.free.first_key_value()?;
        let ((at, _), _) = self.slots.first_key_value()?;
        Some((*rank, *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{QuotaStatus, judge};

    fn slot(number: u64, at: Instant, spent_ms: u64) -> TurnSlot {
        let status = QuotaStatus::at_rest((0, 0), 1).with_remaining(0).spending(1);
        let decision = judge(0, spent_ms * 1_000, [status]);
        TurnSlot::new(at, number, AskCosts::new(), Box::new(decision))
    }

    #[test]
    fn answers_that_come_late_do_not_change_the_order_of_the_turns() {
        let (start, mut class, mut ranks) = (Instant::now(), WaitClass::default(), Vec::new());
        let after = |ms| start + Duration::from_millis(ms);
        // A turn each millisecond; the answers are late by 5, 9 and 2 of them, and the clock was set before the last.
        for (number, late, spent_ms) in [(1, 5, 10), (2, 9, 11), (3, 2, 12), (4, 0, 90_000)] {
            let slot = slot(number, after(spent_ms.min(5_000) + late), spent_ms);
            ranks.push(class.enter(number, slot, None, start));
        }
        let freed: Vec<_> =
            ranks.into_iter().filter_map(|rank| class.leave(rank, &AskCosts::new())).collect();
        let freed: Vec<_> = freed.iter().map(|slot| (slot.decision.spent_us() / 1_000, slot.at())).collect();
        assert_eq!(freed, [(90_000, after(5_000)), (12, after(17)), (11, after(16)), (10, after(15))]);
    }
}
