//! All requests that wait under one limiter, and abandoned turns that are still usable.

use std::pin::Pin;
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering};
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::class::Rank;
use super::lines::{Attendance, Freed, Heard, Returning, WaitLines};
use super::slot::TurnSlot;
use super::under::{LimitersOfTurn, LineKeys, RequestParts};
use crate::decision::{DecidedBy, Decision};
use crate::error::StoreError;

/// The requests that wait under a limiter, the first of their limiters.
#[derive(Default)]
pub(crate) struct Queues {
    lines: Mutex<WaitLines>,
    /// The number of abandoned turns in `lines`, to see without the lock whether there are any.
    left: AtomicUsize,
}

/// The place of a waiting request.
pub(crate) struct TurnPlace {
    number: u64,
    rank: Rank,
    /// The decider whose clock its turn uses.
    by: DecidedBy,
}

impl TurnPlace {
    /// The latest time at which it proceeds.
    pub(crate) fn at_latest(&self) -> Instant {
        self.rank.0
    }
}

impl Queues {
    /// Enters a request with the slot that it has reserved.
    ///
    /// If an abandoned turn comes earlier, the request takes it, and its own turn goes back to
    /// the store.
    pub(crate) fn enter(
        &self,
        under: &dyn LimitersOfTurn,
        at: Instant,
        decision: Box<Decision>,
        beside: Option<RequestParts>,
    ) -> TurnPlace {
        self.settle(under);
        let (now, by) = (Instant::now(), decision.decided_by());
        let mut lines = self.lock();
        lines.forget_due(now);
        let number = lines.next_number();
        let own = TurnSlot::new(at, number, under.costs().clone(), decision);
        let from = beside.as_ref().map_or(now, |beside| beside.ready_at.max(now));
        let (slot, surplus) = match lines.take_spare(under, Some(by), (from, at)) {
            Some(spare) => (spare, Some(own)),
            None => (own, None),
        };
        let (rank, news) = lines.join(under, number, (slot, beside), now);
        self.unlock(lines);
        news.tell();
        if let Some(surplus) = surplus {
            self.free(under, surplus);
        }
        TurnPlace { number, rank, by }
    }

    /// Enters a request without a slot, if an abandoned slot comes early enough.
    pub(crate) fn enter_left(&self, under: &dyn LimitersOfTurn, until: Instant) -> Option<TurnPlace> {
        // Relaxed: a turn that is abandoned at this moment may be missed.
        if self.left.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.settle(under);
        let now = Instant::now();
        let mut lines = self.lock();
        lines.forget_due(now);
        let spare = lines.take_spare(under, None, (now, until));
        let joined = spare.map(|spare| {
            let (number, by) = (lines.next_number(), spare.decision.decided_by());
            let (rank, news) = lines.join(under, number, (spare, None), now);
            (TurnPlace { number, rank, by }, news)
        });
        self.unlock(lines);
        let (place, news) = joined?;
        news.tell();
        Some(place)
    }

    /// The line that is shared by all requests that wait in it, or this one if there is none.
    pub(crate) fn shared(&self, line: &LineKeys) -> LineKeys {
        self.lock().shared(line)
    }

    /// The decision, if the turn has come; otherwise the time until which to wait.
    pub(crate) fn poll(
        &self,
        under: &dyn LimitersOfTurn,
        place: &TurnPlace,
        waker: &Waker,
    ) -> Result<Box<Decision>, Instant> {
        let now = Instant::now();
        let mut lines = self.lock();
        if let Some(class) = lines.class(under.line(), place.by, under.costs()) {
            class.is_awake(place.rank);
        }
        let news = lines.advance(under, place.by, now);
        let until = match lines.come.remove(&place.number) {
            Some(decision) => Ok(decision),
            None => Err(lines
                .class(under.line(), place.by, under.costs())
                .map_or_else(|| place.at_latest(), |class| class.wait(place.rank, waker))),
        };
        self.unlock(lines);
        news.tell();
        until
    }

    /// Leaves the queue; the turn goes to the next request, or back to the store. Returns `false` if its turn has come.
    pub(crate) fn leave(&self, under: &dyn LimitersOfTurn, place: &TurnPlace) -> bool {
        self.settle(under);
        let now = Instant::now();
        let mut lines = self.lock();
        let mut news = lines.advance(under, place.by, now);
        // A turn that has come is spent, whether it was used or not: requests behind it do not wait for that.
        let has_come = lines.come.remove(&place.number).is_some();
        let class = lines.class(under.line(), place.by, under.costs()).filter(|_| !has_come);
        let surplus = class.and_then(|class| {
            let surplus = class.leave(place.rank, under.costs());
            news.wakers.extend(class.news());
            surplus
        });
        lines.tidy(under.line(), place.by, under.costs());
        self.unlock(lines);
        news.tell();
        if let Some(surplus) = surplus {
            self.free(under, surplus);
        }
        !has_come
    }

    /// Gives a slot back to the store, or keeps it for the next request.
    fn free(&self, under: &dyn LimitersOfTurn, slot: TurnSlot) {
        let mut lines = self.lock();
        let freed = lines.given_up_for(under.line(), slot);
        self.unlock(lines);
        self.free_all(under, freed);
    }

    /// Loops, because when a turn is taken back, the one before it is the last one and may
    /// be taken back as well.
    fn free_all(&self, under: &dyn LimitersOfTurn, mut slots: Freed) {
        let line = under.line();
        while !slots.is_empty() {
            let slot = slots.remove(0);
            if !slot.can_be_returned(under) {
                let mut lines = self.lock();
                lines.keep(line, slot);
                self.unlock(lines);
                continue;
            }
            match slot.give_up(under).now() {
                Ok(result) => slots.extend(self.answered(line, slot, result, false)),
                Err(verdict) => {
                    let mut lines = self.lock();
                    let attendance = match lines.note_left(line, &slot) {
                        true => lines.is_returning(line, slot, verdict),
                        false => Attendance::default(),
                    };
                    self.unlock(lines);
                    self.attend(under, attendance);
                }
            }
        }
    }

    /// Makes sure that a task waits for the answers of the store.
    fn attend(&self, under: &dyn LimitersOfTurn, attendance: Attendance) {
        if let Some(waker) = attendance.wakes {
            waker.wake();
        }
        if let Some(number) = attendance.starts
            && !under.attend(number)
        {
            self.is_unattended(under.line(), number);
        }
    }

    /// Notes that no task waits for the answers of the store any longer; the next request looks for them.
    pub(crate) fn is_unattended(&self, line: &LineKeys, number: u64) {
        let mut lines = self.lock();
        lines.attended_by(line, number, None);
        lines.remove_if_empty(line);
        self.unlock(lines);
    }

    /// Waits for the answers of the store about the turns of a line that were given up, as the task with this number: ready when
    /// no answer is still to come, or another task waits for them.
    pub(crate) fn poll_returns(&self, under: &dyn LimitersOfTurn, number: u64, waker: &Waker) -> Poll<()> {
        if !self.lock().attended_by(under.line(), number, Some(waker)) {
            return Poll::Ready(());
        }
        self.look(under);
        let mut lines = self.lock();
        if lines.has_returning(under.line()) {
            return Poll::Pending;
        }
        lines.attended_by(under.line(), number, None);
        lines.remove_if_empty(under.line());
        self.unlock(lines);
        Poll::Ready(())
    }

    /// Checks whether the store has answered about turns that were given up.
    fn settle(&self, under: &dyn LimitersOfTurn) {
        // Relaxed: the answer may be handled later.
        if self.left.load(Ordering::Relaxed) > 0 {
            self.look(under);
        }
    }

    fn look(&self, under: &dyn LimitersOfTurn) {
        let line = under.line();
        loop {
            let next = self.lock().next_returning(line);
            let Some((Returning { slot, mut verdict }, waker)) = next else { return };
            match Pin::new(&mut verdict).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => {
                    self.lock().left.remove(&slot.place());
                    let next = self.answered(line, slot, result, true);
                    self.free_all(under, next);
                }
                Poll::Pending => {
                    let mut lines = self.lock();
                    let attendance = lines.is_still_returning(line, Returning { slot, verdict });
                    self.unlock(lines);
                    return self.attend(under, attendance);
                }
            }
        }
    }

    /// Handles the store's answer about a slot that was given up; returns the slots that may be taken back now that this one is.
    ///
    /// A turn that was taken back frees the one before it: now that one is the store's last, so it
    /// is tried next.
    ///
    /// When an answer is late, others are on their way. Over a network the return of a turn may overtake that of the turn behind it,
    /// and is then refused. So two turns are tried for each that was taken back, and one when no return is on
    /// its way any longer.
    fn answered(
        &self,
        line: &LineKeys,
        slot: TurnSlot,
        result: Result<Decision, StoreError>,
        is_late: bool,
    ) -> Freed {
        let mut lines = self.lock();
        let Heard { is_taken, next, waker } = lines.heard(line, slot, result);
        let most = if is_late { lines.tries(line, is_taken) } else { usize::from(is_taken) };
        let mut freed = lines.take_latest_spares(line, most);
        freed.extend(next);
        lines.remove_if_empty(line);
        self.unlock(lines);
        if let Some(waker) = waker {
            waker.wake();
        }
        freed
    }

    fn lock(&self) -> MutexGuard<'_, WaitLines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unlock(&self, lines: MutexGuard<'_, WaitLines>) {
        // Relaxed: a hint; the lock guards the list itself.
        self.left.store(lines.left.len(), Ordering::Relaxed);
    }

    /// Whether the store still has to answer about a turn that was given up.
    pub(crate) fn are_returning(&self) -> bool {
        self.lock().are_returning()
    }

    /// The number of keys with waiting requests or left turns.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }
}

/// Every interleaving of two requests. Run with `RUSTFLAGS="--cfg loom"`.
#[cfg(all(test, loom))]
mod model;
