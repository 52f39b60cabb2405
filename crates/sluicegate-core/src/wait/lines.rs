//! Waiting requests and abandoned turns: the data that the lock of the queues guards.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::class::{Rank, WaitClass};
use super::slot::TurnSlot;
use super::under::{AskCosts, LimitersOfTurn, LineKeys, RequestParts, UnitsHeld};
use crate::decision::{DecidedBy, Decision};
use crate::error::StoreError;
use crate::store::DecisionFuture;

/// The most abandoned turns of one limiter that are kept for others. Further turns are lost.
const MOST_SPARES: usize = 65_536;

/// The most turns that are searched for one request, which bounds the work caused by other requests
/// that leave.
const MOST_LOOKED_AT: usize = 16;

/// Requests by their line.
///
/// Memory is bounded: callers bound the waiting requests, and [`MOST_SPARES`] bounds the abandoned turns.
/// Each call does a bounded amount of work for others ([`MOST_LOOKED_AT`]).
#[derive(Default)]
pub(super) struct WaitLines {
    next: u64,
    by_key: HashMap<LineKeys, LineGroup>,
    /// Requests that may proceed, and were not polled since.
    pub(super) come: HashMap<u64, Box<Decision>>,
    /// The abandoned turns, in order of time.
    pub(super) left: BTreeMap<(Instant, u64), LineKeys>,
}

/// The requests that wait for the same limiters and keys.
#[derive(Default)]
pub(super) struct LineGroup {
    /// Turns of a store and of its fallback use different clocks.
    classes: HashMap<(DecidedBy, AskCosts), WaitClass>,
    /// Turns that no request waits for and that the store did not take back, in order of time.
    spares: BTreeMap<(Instant, u64), TurnSlot>,
    /// Turns that are on their way back to the store.
    returning: VecDeque<Returning>,
    /// The task that waits for the store's answers about them, if there is one.
    attended: Option<(u64, Waker)>,
    /// Whether a turn was taken back since nothing was on its way.
    has_freed: bool,
}

/// A turn that is on its way back to the store.
pub(super) struct Returning {
    pub(super) slot: TurnSlot,
    pub(super) verdict: DecisionFuture,
}

/// Turns that may be given back now.
pub(super) type Freed = SmallVec<[TurnSlot; 2]>;

/// The task that has to be woken, or started, so that the answers of a store are waited for.
#[derive(Default)]
pub(super) struct Attendance {
    pub(super) wakes: Option<Waker>,
    pub(super) starts: Option<u64>,
}

/// Wake-ups that are due after the lock is released.
#[derive(Default)]
pub(super) struct PendingWakes {
    pub(super) wakers: SmallVec<[Waker; 2]>,
    /// The requests that proceed now.
    departed: SmallVec<[Arc<dyn UnitsHeld>; 1]>,
}

/// The outcome of a turn that was given up.
pub(super) struct Heard {
    /// Whether the store took the turn back.
    pub(super) is_taken: bool,
    /// If the store kept it, the turn that no request needs because others have moved up.
    pub(super) next: Option<TurnSlot>,
    pub(super) waker: Option<Waker>,
}

impl WaitLines {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn class(
        &mut self,
        line: &LineKeys,
        by: DecidedBy,
        costs: &AskCosts,
    ) -> Option<&mut WaitClass> {
        self.by_key.get_mut(line)?.classes.get_mut(&(by, costs.clone()))
    }

    /// The line that is shared by all requests that wait in it, or this one if there is none.
    pub(super) fn shared(&self, line: &LineKeys) -> LineKeys {
        Arc::clone(self.by_key.get_key_value(line).map_or(line, |(known, _)| known))
    }

    pub(super) fn group(&mut self, line: &LineKeys) -> &mut LineGroup {
        self.by_key.entry(line.clone()).or_default()
    }

    /// Keeps an abandoned turn for the next request, unless too many are kept.
    pub(super) fn keep(&mut self, line: &LineKeys, slot: TurnSlot) {
        if slot.at() > Instant::now() && self.note_left(line, &slot) {
            self.group(line).spares.insert(slot.place(), slot);
        }
    }

    /// Whether there is room for one more abandoned turn.
    pub(super) fn note_left(&mut self, line: &LineKeys, slot: &TurnSlot) -> bool {
        let has_room = self.left.len() < MOST_SPARES;
        if has_room {
            self.left.insert(slot.place(), line.clone());
        }
        has_room
    }

    pub(super) fn join(
        &mut self,
        under: &dyn LimitersOfTurn,
        number: u64,
        (slot, beside): (TurnSlot, Option<RequestParts>),
        now: Instant,
    ) -> (Rank, PendingWakes) {
        let by = slot.decision.decided_by();
        let mut news = self.advance(under, by, now);
        let class = self.group(under.line()).classes.entry((by, under.costs().clone())).or_default();
        let rank = class.enter(number, slot, beside, now);
        news.wakers.extend(class.news());
        (rank, news)
    }

    /// Lets all requests proceed whose slot has come, whether they are polled or not.
    pub(super) fn advance(
        &mut self,
        under: &dyn LimitersOfTurn,
        by: DecidedBy,
        now: Instant,
    ) -> PendingWakes {
        let mut news = PendingWakes::default();
        // Not by `class`: the requests that have come are in another field.
        let group = self.by_key.get_mut(under.line());
        let class = group.and_then(|group| group.classes.get_mut(&(by, under.costs().clone())));
        let Some(class) = class else { return news };
        while let Some((number, waits, decision)) = class.pop_due(now) {
            self.come.insert(number, decision);
            news.departed.extend(waits.held);
            news.wakers.extend(waits.waker);
        }
        news.wakers.extend(class.news());
        self.tidy(under.line(), by, under.costs());
        news
    }

    /// The earliest abandoned turn that is large enough, comes in this time, and was decided by the same
    /// decider.
    pub(super) fn take_spare(
        &mut self,
        under: &dyn LimitersOfTurn,
        by: Option<DecidedBy>,
        (from, until): (Instant, Instant),
    ) -> Option<TurnSlot> {
        let group = self.by_key.get_mut(under.line())?;
        let mut spares = group.spares.range((from, 0)..).take(MOST_LOOKED_AT);
        let fits = |slot: &TurnSlot| {
            by.is_none_or(|by| slot.decision.decided_by() == by)
                && slot.costs.iter().zip(under.costs()).all(|(of, cost)| of >= cost)
        };
        let place = spares.find_map(|(place, slot)| fits(slot).then_some(*place))?;
        if place.0 > until {
            return None;
        }
        self.left.remove(&place);
        let mut spare = group.spares.remove(&place)?;
        spare.costs.clone_from(under.costs());
        Some(spare)
    }

    /// The turn to give back instead of an unused one: the latest abandoned turn, if that is later. The store takes back only its last
    /// turn.
    pub(super) fn given_up_for(&mut self, line: &LineKeys, slot: TurnSlot) -> Freed {
        let spares = self.by_key.get(line).map(|group| &group.spares);
        let latest = spares.and_then(|spares| spares.last_key_value());
        if latest.is_none_or(|(place, _)| *place < slot.place()) {
            return Freed::from_iter([slot]);
        }
        self.keep(line, slot);
        self.take_latest_spares(line, 1)
    }

    /// The latest abandoned turns, the very latest first.
    pub(super) fn take_latest_spares(&mut self, line: &LineKeys, most: usize) -> Freed {
        let Some(group) = self.by_key.get_mut(line) else { return Freed::new() };
        let mut latest = Freed::new();
        while let Some((place, spare)) = (latest.len() < most).then(|| group.spares.pop_last()).flatten() {
            self.left.remove(&place);
            latest.push(spare);
        }
        latest
    }

    /// Handles the store's answer about a turn that was given up. A turn that the store keeps goes to waiting requests, or else to the next request.
    pub(super) fn heard(
        &mut self,
        line: &LineKeys,
        slot: TurnSlot,
        result: Result<Decision, StoreError>,
    ) -> Heard {
        let is_taken = result.as_ref().is_ok_and(Decision::is_allowed);
        let mut heard = Heard { is_taken, next: None, waker: None };
        // Without an answer it is unknown whether the turn was taken back: it is lost rather than used twice.
        if is_taken || result.is_err() || slot.at() <= Instant::now() {
            return heard;
        }
        let place = slot.place();
        let left = match self.class(line, slot.decision.decided_by(), &slot.costs) {
            Some(class) => {
                let left = class.offer(slot);
                heard.waker = class.news();
                left
            }
            None => slot,
        };
        if left.place() == place {
            self.keep(line, left);
        } else {
            heard.next = Some(left);
        }
        heard
    }

    /// The number of further turns to give up after such an answer. However many turns are abandoned, the store is asked at most three times
    /// for each turn that it takes back, and once for each request that leaves.
    pub(super) fn tries(&mut self, line: &LineKeys, is_taken: bool) -> usize {
        let group = self.group(line);
        group.has_freed |= is_taken;
        match (is_taken, group.returning.is_empty()) {
            (true, _) if !group.spares.is_empty() => 2,
            (_, true) => usize::from(std::mem::take(&mut group.has_freed)),
            _ => 0,
        }
    }

    /// Notes that a turn is on its way back to the store.
    pub(super) fn is_returning(
        &mut self,
        line: &LineKeys,
        slot: TurnSlot,
        verdict: DecisionFuture,
    ) -> Attendance {
        self.group(line).returning.push_back(Returning { slot, verdict });
        self.attendance(line)
    }

    /// Puts the first turn back, because the store has not answered about it yet.
    pub(super) fn is_still_returning(&mut self, line: &LineKeys, first: Returning) -> Attendance {
        if self.group(line).attended.is_some() {
            self.group(line).returning.push_front(first);
            return Attendance::default();
        }
        // If it is not among the abandoned turns, its time has passed meanwhile.
        if !self.left.contains_key(&first.slot.place()) {
            self.remove_if_empty(line);
            return Attendance::default();
        }
        self.group(line).returning.push_front(first);
        self.attendance(line)
    }

    fn attendance(&mut self, line: &LineKeys) -> Attendance {
        let number = self.next_number();
        match &mut self.group(line).attended {
            Some((_, waker)) => Attendance { wakes: Some(waker.clone()), starts: None },
            attended @ None => {
                *attended = Some((number, Waker::noop().clone()));
                Attendance { wakes: None, starts: Some(number) }
            }
        }
    }

    /// Notes that the task with this number waits for the store's answers, or no longer. Returns whether it is the waiting task.
    pub(super) fn attended_by(&mut self, line: &LineKeys, number: u64, waker: Option<&Waker>) -> bool {
        let Some(group) = self.by_key.get_mut(line) else { return false };
        let is_it = group.attended.as_ref().is_some_and(|(of, _)| *of == number);
        if is_it {
            group.attended = waker.map(|waker| (number, waker.clone()));
        }
        is_it
    }

    pub(super) fn has_returning(&self, line: &LineKeys) -> bool {
        self.by_key.get(line).is_some_and(|group| !group.returning.is_empty())
    }

    pub(super) fn are_returning(&self) -> bool {
        self.by_key.values().any(|group| group.attended.is_some() || !group.returning.is_empty())
    }

    /// The first given-up turn that the store has not answered about, with the waker of the task that waits for
    /// the answer.
    pub(super) fn next_returning(&mut self, line: &LineKeys) -> Option<(Returning, Waker)> {
        let group = self.by_key.get_mut(line)?;
        let waker = group.attended.as_ref().map_or_else(|| Waker::noop().clone(), |(_, waker)| waker.clone());
        Some((group.returning.pop_front()?, waker))
    }

    /// Forgets abandoned turns that have passed, a few at a time.
    pub(super) fn forget_due(&mut self, now: Instant) {
        for _ in 0..MOST_LOOKED_AT {
            let Some(due) = self.left.first_entry().filter(|left| left.key().0 <= now) else { return };
            let (place, line) = due.remove_entry();
            let Some(group) = self.by_key.get_mut(&line) else { continue };
            group.spares.remove(&place);
            // A task that waits for answers forgets them itself.
            while group.attended.is_none()
                && group.returning.front().is_some_and(|first| first.slot.at() <= now)
            {
                group.returning.pop_front();
            }
            self.remove_if_empty(&line);
        }
    }

    pub(super) fn tidy(&mut self, line: &LineKeys, by: DecidedBy, costs: &AskCosts) {
        let Some(group) = self.by_key.get_mut(line) else { return };
        let which = (by, costs.clone());
        if group.classes.get(&which).is_some_and(WaitClass::is_empty) {
            group.classes.remove(&which);
        }
        self.remove_if_empty(line);
    }

    pub(super) fn remove_if_empty(&mut self, line: &LineKeys) {
        let is_empty = |group: &LineGroup| {
            group.classes.is_empty()
                && group.spares.is_empty()
                && group.returning.is_empty()
                && group.attended.is_none()
        };
        if self.by_key.get(line).is_some_and(is_empty) {
            self.by_key.remove(line);
        }
    }
}

impl PendingWakes {
    /// Call it without the lock, because a woken request may leave at once.
    pub(super) fn tell(self) {
        self.wakers.into_iter().for_each(Waker::wake);
        self.departed.iter().for_each(|held| held.depart());
    }
}
