//! A place in a queue for permits: [`QueuePlace`].

use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Waker};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};

/// A place in a queue.
#[derive(Default)]
pub(super) struct QueuePlace(Mutex<SeatTurn>);

#[derive(Default)]
enum SeatTurn {
    #[default]
    Unasked,
    Waits(Waker),
    /// A permit is held for this place.
    Given,
    /// Another request has taken the place.
    Lost,
    /// The permit was taken, or is no longer wanted.
    Over,
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// With a permit held for it.
    Given,
    /// Without a permit: another request has taken the place.
    Lost,
}

impl QueuePlace {
    /// The end of the wait, if it has come; otherwise the task is woken when it does.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Option<Ended> {
        let mut turn = self.lock();
        match &mut *turn {
            SeatTurn::Given => return Some(Ended::Given),
            SeatTurn::Lost => return Some(Ended::Lost),
            SeatTurn::Waits(waker) if waker.will_wake(cx.waker()) => {}
            SeatTurn::Unasked | SeatTurn::Waits(_) => *turn = SeatTurn::Waits(cx.waker().clone()),
            SeatTurn::Over => {}
        }
        None
    }

    /// Notes that the permit belongs to another request from now on.
    pub(super) fn take(&self) {
        *self.lock() = SeatTurn::Over;
    }

    /// Holds a permit for this place; returns the waker to call.
    pub(super) fn give(&self) -> Option<Waker> {
        self.turn_to(SeatTurn::Given)
    }

    /// Takes the place away; returns the waker to call.
    pub(super) fn lose(&self) -> Option<Waker> {
        self.turn_to(SeatTurn::Lost)
    }

    /// Ends the wait; returns whether a permit was given but not taken.
    pub(super) fn end(&self) -> bool {
        matches!(std::mem::replace(&mut *self.lock(), SeatTurn::Over), SeatTurn::Given)
    }

    fn turn_to(&self, turn: SeatTurn) -> Option<Waker> {
        match std::mem::replace(&mut *self.lock(), turn) {
            SeatTurn::Waits(waker) => Some(waker),
            SeatTurn::Unasked | SeatTurn::Given | SeatTurn::Lost | SeatTurn::Over => None,
        }
    }

    /// No code panics while it holds the lock, so the protected data is consistent.
    fn lock(&self) -> MutexGuard<'_, SeatTurn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
