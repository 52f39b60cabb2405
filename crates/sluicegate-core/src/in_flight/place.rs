//! A place in a queue for permits: [`Place`].

use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Waker};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};

/// A place in a queue.
#[derive(Default)]
pub(super) struct Place(Mutex<Turn>);

#[derive(Default)]
enum Turn {
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
    /// With a permit that is held for it.
    Given,
    /// Without a permit: another request has taken the place.
    Lost,
}

impl Place {
    /// The end of the wait, if it has come; otherwise the task is woken when it does.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Option<Ended> {
        let mut turn = self.lock();
        match &mut *turn {
            Turn::Given => return Some(Ended::Given),
            Turn::Lost => return Some(Ended::Lost),
            Turn::Waits(waker) if waker.will_wake(cx.waker()) => {}
            Turn::Unasked | Turn::Waits(_) => *turn = Turn::Waits(cx.waker().clone()),
            Turn::Over => {}
        }
        None
    }

    /// Notes that the permit belongs to another request from now on.
    pub(super) fn take(&self) {
        *self.lock() = Turn::Over;
    }

    /// Holds a permit for this place; returns the waker to call.
    pub(super) fn give(&self) -> Option<Waker> {
        self.turn_to(Turn::Given)
    }

    /// Takes the place away; returns the waker to call.
    pub(super) fn lose(&self) -> Option<Waker> {
        self.turn_to(Turn::Lost)
    }

    /// Ends the wait; says whether a permit was given and not taken.
    pub(super) fn end(&self) -> bool {
        matches!(std::mem::replace(&mut *self.lock(), Turn::Over), Turn::Given)
    }

    fn turn_to(&self, turn: Turn) -> Option<Waker> {
        match std::mem::replace(&mut *self.lock(), turn) {
            Turn::Waits(waker) => Some(waker),
            Turn::Unasked | Turn::Given | Turn::Lost | Turn::Over => None,
        }
    }

    /// Nothing panics while it holds the lock, so what it protects is whole.
    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
