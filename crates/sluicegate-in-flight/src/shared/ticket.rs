//! The fate of a permit that instances share: [`PermitTicket`].

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::NoPermitKind;
use crate::line::Wakers;

/// A permit that instances share, or the request for one.
#[derive(Default)]
pub(crate) struct PermitTicket(Mutex<TicketState>);

#[derive(Default)]
struct TicketState {
    fate: Fate,
    /// The tasks that wait for the loss of the permit.
    wakers: Wakers,
}

/// The fate of a request for a permit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fate {
    #[default]
    Asked,
    Refused(NoPermitKind),
    /// The permit is one of those that the store has granted to this instance.
    InStore,
    /// This instance has given the permit without the store, in an outage.
    Alone,
    /// The store no longer counts the permit.
    Lost,
}

impl PermitTicket {
    pub(super) fn fate(&self) -> Fate {
        self.lock().fate
    }

    pub(super) fn turn_to(&self, fate: Fate) {
        self.lock().fate = fate;
    }

    /// Notes that the permit is lost; returns the wakers to call.
    pub(super) fn lose(&self) -> Wakers {
        let mut state = self.lock();
        state.fate = Fate::Lost;
        std::mem::take(&mut state.wakers)
    }

    /// The reason why the request has no permit.
    pub(crate) fn refused(&self) -> NoPermitKind {
        match self.fate() {
            Fate::Refused(kind) => kind,
            Fate::Asked | Fate::InStore | Fate::Alone | Fate::Lost => NoPermitKind::Queue,
        }
    }

    /// Ready when the permit is lost; otherwise the task is woken when it is.
    pub(crate) fn poll_lost(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.fate == Fate::Lost {
            return Poll::Ready(());
        }
        if !state.wakers.iter().any(|waker: &Waker| waker.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// No code panics while it holds the lock, so the protected data is consistent.
    fn lock(&self) -> MutexGuard<'_, TicketState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
