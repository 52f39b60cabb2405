//! All that wait under one limiter, and the turns that were left and are still good.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use super::lines::Lines;
use super::slot::{Costs, Line, Slot, Under};
use crate::decision::Decision;
use crate::error::StoreError;

/// The requests that wait under a limiter, which is the first of those that they wait for.
#[derive(Default)]
pub(crate) struct Queues {
    lines: Mutex<Lines>,
    /// Turns that were left: as in `lines`, for those who only want to know whether there are any.
    left: AtomicUsize,
}

/// One request that waits: where, and which one it is.
pub(super) struct Waiting {
    pub(super) under: Under,
    pub(super) number: u64,
    at_latest: Instant,
}

impl Waiting {
    /// Whether the turn has come; otherwise until when to wait.
    pub(super) fn poll(&self, waker: &Waker) -> Result<Box<Decision>, Instant> {
        self.queues().poll(self, waker)
    }

    /// Leaves the queue; what it has waited for is the next one's, or the store's again.
    pub(super) fn leave(&self) {
        self.queues().leave(self);
    }

    pub(super) fn at_latest(&self) -> Instant {
        self.at_latest
    }

    fn queues(&self) -> &Queues {
        self.under.queues()
    }
}

impl Queues {
    /// Enters a request with the slot that it has reserved.
    pub(super) fn enter(under: Under, at: Instant, decision: Box<Decision>) -> Waiting {
        let (line, costs) = (Arc::clone(&under.line), under.costs.clone());
        let queues = under.queues();
        queues.settle(&under, &line);
        let now = Instant::now();
        let mut lines = queues.lock();
        lines.forget_due(now);
        let line = lines.shared(line);
        let number = lines.next_number();
        let own = Slot::new(at, number, decision);
        let (slot, surplus) = match lines.take_spare(&line, &costs, at) {
            Some(spare) => (spare, Some(own)),
            None => (own, None),
        };
        let (at_latest, news) = lines.join(&under, &line, &costs, number, slot, now);
        queues.unlock(lines);
        news.tell(&under);
        let waiting = Waiting { under: Under { line, ..under }, number, at_latest };
        if let Some(surplus) = surplus {
            waiting.queues().free(&waiting.under, &waiting.under.line, waiting.under.costs.clone(), surplus);
        }
        waiting
    }

    /// Enters a request that has no slot, if one was left that comes early enough.
    pub(super) fn enter_left(under: Under, until: Instant) -> Option<Waiting> {
        let queues = under.queues();
        // Relaxed: what was left this instant is as good as what is left in the next.
        if queues.left.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let (line, costs) = (Arc::clone(&under.line), under.costs.clone());
        queues.settle(&under, &line);
        let now = Instant::now();
        let mut lines = queues.lock();
        lines.forget_due(now);
        let spare = lines.take_spare(&line, &costs, until);
        let joined = spare.map(|spare| {
            let number = lines.next_number();
            (number, lines.join(&under, &line, &costs, number, spare, now))
        });
        queues.unlock(lines);
        let (number, (at_latest, news)) = joined?;
        news.tell(&under);
        Some(Waiting { under, number, at_latest })
    }

    fn poll(&self, waiting: &Waiting, waker: &Waker) -> Result<Box<Decision>, Instant> {
        let now = Instant::now();
        let mut lines = self.lock();
        if let Some(class) = lines.class(waiting) {
            class.is_awake(waiting.number);
        }
        let news = lines.advance(&waiting.under, &waiting.under.line, &waiting.under.costs, now);
        let until = match lines.come.remove(&waiting.number) {
            Some(decision) => Ok(decision),
            None => Err(lines.class(waiting).map_or(waiting.at_latest, |class| {
                class.wait(waiting.number, waker, waiting.at_latest, now)
            })),
        };
        self.unlock(lines);
        news.tell(&waiting.under);
        until
    }

    fn leave(&self, waiting: &Waiting) {
        self.settle(&waiting.under, &waiting.under.line);
        let now = Instant::now();
        let mut lines = self.lock();
        let mut news = lines.advance(&waiting.under, &waiting.under.line, &waiting.under.costs, now);
        // A turn that has come is spent, whether it was used or not: those behind it do not wait for that.
        let has_come = lines.come.remove(&waiting.number).is_some();
        let class = lines.class(waiting).filter(|_| !has_come);
        let surplus = class.and_then(|class| {
            let surplus = class.leave(waiting.number);
            news.wakers.extend(class.news());
            surplus
        });
        lines.tidy(&waiting.under.line, &waiting.under.costs);
        self.unlock(lines);
        news.tell(&waiting.under);
        if let Some(surplus) = surplus {
            self.free(&waiting.under, &waiting.under.line, waiting.under.costs.clone(), surplus);
        }
    }

    /// Gives a slot back to the store, or keeps it for the next request.
    fn free(&self, under: &Under, line: &Line, costs: Costs, slot: Slot) {
        let mut next = Some((costs, slot));
        while let Some((costs, slot)) = next.take() {
            if !slot.can_be_returned(under) {
                let mut lines = self.lock();
                lines.keep(line, costs, slot);
                return self.unlock(lines);
            }
            match slot.give_up(under).now() {
                Ok(result) => next = self.answered(line, costs, slot, result),
                Err(verdict) => {
                    let mut lines = self.lock();
                    if lines.note_left(line, &slot) {
                        lines.group(line).returning.push_back((costs, slot, verdict));
                    }
                    self.unlock(lines);
                }
            }
        }
    }

    /// Looks whether the store has answered about turns that were given up.
    fn settle(&self, under: &Under, line: &Line) {
        // Relaxed: an answer that is looked at later is as good.
        while self.left.load(Ordering::Relaxed) > 0 {
            let Some((costs, slot, mut verdict)) = self.lock().next_returning(line) else { return };
            match Pin::new(&mut verdict).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => {
                    self.lock().left.remove(&slot.place());
                    if let Some((costs, slot)) = self.answered(line, costs, slot, result) {
                        self.free(under, line, costs, slot);
                    }
                }
                Poll::Pending => {
                    let mut lines = self.lock();
                    if lines.left.contains_key(&slot.place()) {
                        lines.group(line).returning.push_front((costs, slot, verdict));
                    }
                    return;
                }
            }
        }
    }

    /// Does with a slot that was given up as the store says; names the slot that may be taken back now that this one is.
    fn answered(
        &self,
        line: &Line,
        costs: Costs,
        slot: Slot,
        result: Result<Decision, StoreError>,
    ) -> Option<(Costs, Slot)> {
        let mut lines = self.lock();
        let next = match result {
            Ok(decision) if decision.is_allowed() => lines.take_latest_spare(line),
            Ok(_) => {
                lines.keep(line, costs, slot);
                None
            }
            // It may have been taken back or not: lost rather than used twice.
            Err(_) => None,
        };
        lines.remove_if_empty(line);
        self.unlock(lines);
        next
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unlock(&self, lines: MutexGuard<'_, Lines>) {
        // Relaxed: a hint; the lock guards what it is about.
        self.left.store(lines.left.len(), Ordering::Relaxed);
    }

    /// How many keys are waited for or have turns left.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }
}
