//! The requests that wait, and the turns that were left: the data that the lock of the queues guards.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::class::Class;
use super::slot::Slot;
use super::under::{Costs, Line, Receipts, Under};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::{DecisionFuture, Mode};

/// Turns that are kept for others, of one limiter. Turns beyond that are lost.
const MOST_SPARES: usize = 65_536;

/// The most turns that are searched for one request: a bound on the work that the leaving of
/// others causes.
const MOST_LOOKED_AT: usize = 16;

/// Requests by their line.
///
/// Memory is bounded: callers bound the requests that wait, and [`MOST_SPARES`] the turns that were left.
/// Each call does a bounded amount of work for others ([`MOST_LOOKED_AT`]).
#[derive(Default)]
pub(super) struct Lines {
    next: u64,
    by_key: HashMap<Line, Group>,
    /// Requests that may go, and were not polled since.
    pub(super) come: HashMap<u64, Box<Decision>>,
    /// The turns that were left, in order of time.
    pub(super) left: BTreeMap<(Instant, u64), Line>,
}

/// Requests that have limiters and keys in common.
#[derive(Default)]
pub(super) struct Group {
    classes: HashMap<Costs, Class>,
    /// Turns that no request waits for any more and that the store did not take back, in order of time.
    spares: BTreeMap<(Instant, u64), Slot>,
    /// Turns that are on their way back to the store.
    returning: VecDeque<Returning>,
    /// The task that waits for the store's answers about them, if there is one.
    attended: Option<(u64, Waker)>,
    /// Whether a turn was taken back since nothing was on its way.
    has_freed: bool,
}

/// A turn that is on its way back to the store.
pub(super) struct Returning {
    pub(super) slot: Slot,
    pub(super) verdict: DecisionFuture,
}

/// Turns that may be given back now.
pub(super) type Freed = SmallVec<[Slot; 2]>;

/// The task that has to be woken, or started, so that the answers of a store are waited for.
#[derive(Default)]
pub(super) struct Attendance {
    pub(super) wakes: Option<Waker>,
    pub(super) starts: Option<u64>,
}

/// Wake-ups that are due after the lock is released.
#[derive(Default)]
pub(super) struct News {
    pub(super) wakers: SmallVec<[Waker; 2]>,
    /// Units that other limits held for turns that have come.
    held: Vec<Receipts>,
}

impl Lines {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn class(&mut self, under: &dyn Under) -> Option<&mut Class> {
        self.by_key.get_mut(under.line())?.classes.get_mut(under.costs())
    }

    /// The line that is shared by all requests that wait in it, or this one if there is none.
    pub(super) fn shared(&self, line: &Line) -> Line {
        Arc::clone(self.by_key.get_key_value(line).map_or(line, |(known, _)| known))
    }

    pub(super) fn group(&mut self, line: &Line) -> &mut Group {
        self.by_key.entry(line.clone()).or_default()
    }

    /// Keeps a turn that was left for the next request, unless there are too many of those.
    pub(super) fn keep(&mut self, line: &Line, slot: Slot) {
        if slot.at() > Instant::now() && self.note_left(line, &slot) {
            self.group(line).spares.insert(slot.place(), slot);
        }
    }

    /// Whether there is room for one turn more that was left.
    pub(super) fn note_left(&mut self, line: &Line, slot: &Slot) -> bool {
        let has_room = self.left.len() < MOST_SPARES;
        if has_room {
            self.left.insert(slot.place(), line.clone());
        }
        has_room
    }

    pub(super) fn join(
        &mut self,
        under: &dyn Under,
        number: u64,
        slot: Slot,
        now: Instant,
    ) -> (Instant, News) {
        let mut news = self.advance(under, now);
        let class = self.group(under.line()).classes.entry(under.costs().clone()).or_default();
        let at_latest = class.enter(number, slot);
        news.wakers.extend(class.news());
        (at_latest, news)
    }

    /// Lets all requests go whose slots have come, whether they are polled or not.
    pub(super) fn advance(&mut self, under: &dyn Under, now: Instant) -> News {
        let mut news = News::default();
        // Not by `class`: the requests that have come are in another field.
        let group = self.by_key.get_mut(under.line());
        let Some(class) = group.and_then(|group| group.classes.get_mut(under.costs())) else { return news };
        while let Some((number, waker, decision)) = class.pop_due(now) {
            news.held.extend(under.held(&decision));
            self.come.insert(number, decision);
            news.wakers.extend(waker);
        }
        news.wakers.extend(class.news());
        self.tidy(under);
        news
    }

    /// Takes the earliest of the turns that were left, are large enough and come in time.
    pub(super) fn take_spare(&mut self, line: &Line, costs: &Costs, until: Instant) -> Option<Slot> {
        let group = self.by_key.get_mut(line)?;
        let mut spares = group.spares.iter().take(MOST_LOOKED_AT).take_while(|((at, _), _)| *at <= until);
        let fits = |of: &Costs| of.iter().zip(costs).all(|(of, cost)| of >= cost);
        let place = spares.find_map(|(place, slot)| fits(&slot.costs).then_some(*place))?;
        self.left.remove(&place);
        let mut spare = group.spares.remove(&place)?;
        spare.costs.clone_from(costs);
        Some(spare)
    }

    /// Takes the latest of the turns that were left, the very latest first.
    pub(super) fn take_latest_spares(&mut self, line: &Line, most: usize) -> Freed {
        let Some(group) = self.by_key.get_mut(line) else { return Freed::new() };
        let mut latest = Freed::new();
        while let Some((place, spare)) = (latest.len() < most).then(|| group.spares.pop_last()).flatten() {
            self.left.remove(&place);
            latest.push(spare);
        }
        latest
    }

    /// Handles the store's answer about a turn that was given up. Says whether the store took the turn back.
    pub(super) fn heard(&mut self, line: &Line, slot: Slot, result: Result<Decision, StoreError>) -> bool {
        match result {
            Ok(decision) if decision.is_allowed() => return true,
            Ok(_) => self.keep(line, slot),
            // The turn may have been taken back or not: lost rather than used twice.
            Err(_) => {}
        }
        false
    }

    /// The number of further turns to give up after such an answer. However many were left, the store is asked at most three times
    /// for each turn that it takes back, and once for each request that leaves.
    pub(super) fn tries(&mut self, line: &Line, is_taken: bool) -> usize {
        let group = self.group(line);
        group.has_freed |= is_taken;
        match (is_taken, group.returning.is_empty()) {
            (true, _) if !group.spares.is_empty() => 2,
            (_, true) => usize::from(std::mem::take(&mut group.has_freed)),
            _ => 0,
        }
    }

    /// Notes that a turn is on its way back to the store.
    pub(super) fn is_returning(&mut self, line: &Line, slot: Slot, verdict: DecisionFuture) -> Attendance {
        self.group(line).returning.push_back(Returning { slot, verdict });
        self.attendance(line)
    }

    /// Puts the first turn back, because the store has not answered about it yet.
    pub(super) fn is_still_returning(&mut self, line: &Line, first: Returning) -> Attendance {
        if self.group(line).attended.is_some() {
            self.group(line).returning.push_front(first);
            return Attendance::default();
        }
        // If it is not among those that were left, its time has passed meanwhile.
        if !self.left.contains_key(&first.slot.place()) {
            self.remove_if_empty(line);
            return Attendance::default();
        }
        self.group(line).returning.push_front(first);
        self.attendance(line)
    }

    fn attendance(&mut self, line: &Line) -> Attendance {
        let number = self.next_number();
        match &mut self.group(line).attended {
            Some((_, waker)) => Attendance { wakes: Some(waker.clone()), starts: None },
            attended @ None => {
                *attended = Some((number, Waker::noop().clone()));
                Attendance { wakes: None, starts: Some(number) }
            }
        }
    }

    /// Notes that the task with this number waits for the store's answers, or no longer. Says whether it is the one that does.
    pub(super) fn attended_by(&mut self, line: &Line, number: u64, waker: Option<&Waker>) -> bool {
        let Some(group) = self.by_key.get_mut(line) else { return false };
        let is_it = group.attended.as_ref().is_some_and(|(of, _)| *of == number);
        if is_it {
            group.attended = waker.map(|waker| (number, waker.clone()));
        }
        is_it
    }

    pub(super) fn has_returning(&self, line: &Line) -> bool {
        self.by_key.get(line).is_some_and(|group| !group.returning.is_empty())
    }

    pub(super) fn are_returning(&self) -> bool {
        self.by_key.values().any(|group| group.attended.is_some() || !group.returning.is_empty())
    }

    /// The turn that was given up first among those that the store has not answered about, with the waker of the task that waits for
    /// the answer.
    pub(super) fn next_returning(&mut self, line: &Line) -> Option<(Returning, Waker)> {
        let group = self.by_key.get_mut(line)?;
        let waker = group.attended.as_ref().map_or_else(|| Waker::noop().clone(), |(_, waker)| waker.clone());
        Some((group.returning.pop_front()?, waker))
    }

    /// Forgets the turns that were left and have passed, a few at a time.
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

    pub(super) fn tidy(&mut self, under: &dyn Under) {
        let Some(group) = self.by_key.get_mut(under.line()) else { return };
        if group.classes.get(under.costs()).is_some_and(Class::is_empty) {
            group.classes.remove(under.costs());
        }
        self.remove_if_empty(under.line());
    }

    pub(super) fn remove_if_empty(&mut self, line: &Line) {
        let is_empty = |group: &Group| {
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

impl News {
    /// Not to be called under the lock: a request that is woken may leave at once.
    pub(super) fn tell(self, under: &dyn Under) {
        self.wakers.into_iter().for_each(Waker::wake);
        for receipts in &self.held {
            // The store begins with it at once; its answer is not needed.
            drop(under.report(Mode::Depart, receipts));
        }
    }
}
