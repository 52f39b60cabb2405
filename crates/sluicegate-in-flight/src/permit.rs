//! A permit, and the wait for one: [`Permit`] and [`Acquire`].

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use sluicegate_core::key::Key;

use crate::adaptive::Outcome;
use crate::line::{Displaced, Seat};
use crate::place::{Ended, QueuePlace};
use crate::service::ServicePermit;
use crate::shared::PermitTicket;
use crate::{InFlight, NoPermit, NoPermitKind};

/// One of the permits of a key, held until it is dropped.
///
/// It may be moved to another task or thread, and into a response body. A leaked permit
/// (`mem::forget`) is lost to its key for as long as the process lives.
#[must_use = "a permit that is dropped at once holds nothing"]
pub struct Permit {
    in_flight: InFlight,
    key: Key,
    of: PermitOf,
    is_answered: AtomicBool,
}

/// The record of a permit, by the kind of its limit.
pub(super) enum PermitOf {
    Each,
    Service(ServicePermit),
    Shared(Arc<PermitTicket>),
}

/// The record of a waiting request, by the kind of its limit.
pub(super) enum SeatOf {
    Each,
    Service(Seat),
    Shared(Arc<PermitTicket>),
}

/// The answer of a limit to a request.
pub(super) enum PermitReply {
    Taken(PermitOf),
    /// The request has a permit, but would have none if the limit were enforced.
    Spared(ServicePermit),
    Waiting(Arc<QueuePlace>, SeatOf, Displaced),
    Full(NoPermitKind),
}

impl Permit {
    pub(super) fn new(in_flight: InFlight, key: Key, of: PermitOf) -> Self {
        Self { in_flight, key, of, is_answered: AtomicBool::new(false) }
    }

    /// The [`InFlight`] that the permit comes from.
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// The number of permits that its key has left now.
    pub fn remaining(&self) -> u64 {
        self.in_flight.remaining(&self.key)
    }

    /// Reports that the service has answered: the time since the permit was given shows how busy it is, and the outcome whether it has too
    /// much to do. Limits that [adapt](InFlight::adaptive) count the first answer of a permit; for others it does nothing. The permit stays
    /// in use.
    pub fn answered(&self, outcome: Outcome) {
        // Relaxed: it only has to be done once.
        if let PermitOf::Service(begun) = &self.of
            && !self.is_answered.swap(true, Ordering::Relaxed)
        {
            self.in_flight.answered(begun, outcome);
        }
    }

    /// Reports that the service was not reached, because a limit behind this one has refused the request: then neither the answer nor its
    /// lateness is a sample. The permit stays in use.
    pub fn unserved(&self) {
        // Relaxed: as in `answered`.
        self.is_answered.store(true, Ordering::Relaxed);
    }

    /// Whether the permit no longer counts, and may now belong to another instance: the store that [shares](crate::InFlightBuilder::on)
    /// it has not heard of this instance for its lease, or has lost its data. Permits of one process are never lost.
    pub fn is_lost(&self) -> bool {
        match &self.of {
            PermitOf::Shared(ticket) => self.in_flight.is_lost(&self.key, ticket),
            PermitOf::Each | PermitOf::Service(_) => false,
        }
    }

    /// Waits until the permit [is lost](Self::is_lost), which most permits never are. Use it for work that has to stop then.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_in_flight::InFlight;
    ///
    /// # async fn import() {}
    /// # let store = MemoryStore::new();
    /// let imports = InFlight::builder("imports", 1).on(&store)?; // on a Redis store: one permit in the whole fleet
    /// let permit = imports.acquire("acme").await?;
    /// let is_done = tokio::select! {
    ///     () = import() => true,
    ///     () = permit.lost() => false, // another instance may have started
    /// };
    /// assert!(is_done);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// It may be dropped at any time.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + '_ {
        poll_fn(|cx| match &self.of {
            PermitOf::Shared(ticket) => ticket.poll_lost(cx),
            PermitOf::Each | PermitOf::Service(_) => Poll::Pending,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.in_flight.leave(&self.key, &self.of, *self.is_answered.get_mut());
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.in_flight).field(&self.key).finish()
    }
}

/// The wait for a [`Permit`]; see [`InFlight::acquire`].
///
/// The request is in the queue from the call on, not from the first poll. Dropping it leaves the queue, and
/// a permit that was given to it meanwhile goes to the next request.
#[must_use = "dropping it leaves the queue"]
pub struct Acquire(AcquireState);

enum AcquireState {
    Ready(Result<Permit, NoPermit>),
    Waiting(PendingPermit),
    Done,
}

/// A place in the queue, which becomes a permit when its turn comes.
struct PendingPermit {
    in_flight: InFlight,
    key: Key,
    place: Arc<QueuePlace>,
    seat: SeatOf,
    is_shed: bool,
}

impl Acquire {
    pub(super) fn ready(result: Result<Permit, NoPermit>) -> Self {
        Self(AcquireState::Ready(result))
    }

    pub(super) fn waiting(in_flight: InFlight, key: Key, place: Arc<QueuePlace>, seat: SeatOf) -> Self {
        Self(AcquireState::Waiting(PendingPermit { in_flight, key, place, seat, is_shed: false }))
    }

    /// The result, if it is known without waiting; otherwise the wait itself.
    ///
    /// # Errors
    /// The wait itself, as the error.
    ///
    /// # Panics
    /// When it was already polled until it was ready.
    pub fn now(self) -> Result<Result<Permit, NoPermit>, Self> {
        match self.0 {
            AcquireState::Ready(result) => Ok(result),
            AcquireState::Done => panic!("a permit is waited for once"),
            AcquireState::Waiting(_) => Err(self),
        }
    }

    /// The longest wait from the call on, if the limit has [its own bound](crate::AdaptiveBuilder::wait_up_to): the
    /// caller has the timer, and calls [`give_up`](Self::give_up) then.
    pub fn longest(&self) -> Option<Duration> {
        match &self.0 {
            AcquireState::Waiting(PendingPermit { seat: SeatOf::Service(seat), .. }) => {
                Some(Duration::from_micros(seat.longest_us))
            }
            _ => None,
        }
    }

    /// Leaves the queue, because the request has reached its longest wait. It counts as refused, and listeners are notified; a
    /// wait that is only dropped counts as given up by its client. `None` if it does not wait.
    pub fn give_up(self) -> Option<NoPermit> {
        if let AcquireState::Waiting(mut waiting) = self.0 {
            waiting.is_shed = true;
            let class = match &waiting.seat {
                SeatOf::Service(seat) => Some(seat.class),
                SeatOf::Each | SeatOf::Shared(_) => None,
            };
            waiting.in_flight.refused(waiting.key.as_ref(), class);
            return Some(waiting.in_flight.none(NoPermitKind::Permits));
        }
        None
    }
}

impl Future for Acquire {
    type Output = Result<Permit, NoPermit>;

    /// # Panics
    /// When polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut ended = Ended::Given;
        if let AcquireState::Waiting(waiting) = &self.0 {
            let Some(how) = waiting.place.poll(cx) else { return Poll::Pending };
            ended = how;
        }
        Poll::Ready(match std::mem::replace(&mut self.0, AcquireState::Done) {
            AcquireState::Ready(result) => result,
            AcquireState::Waiting(waiting) if ended == Ended::Given => Ok(waiting.take()),
            AcquireState::Waiting(waiting) => Err(waiting.lose()),
            AcquireState::Done => panic!("a permit is waited for once"),
        })
    }
}

impl PendingPermit {
    /// The permit that this place was given.
    fn take(self) -> Permit {
        self.place.take();
        self.in_flight.given_in_turn(self.key.clone(), &self.seat)
    }

    /// The reason why this place was taken away.
    fn lose(self) -> NoPermit {
        match &self.seat {
            // Other kinds were counted when their places were taken.
            SeatOf::Shared(ticket) => {
                self.in_flight.refused(self.key.as_ref(), None);
                self.in_flight.none(ticket.refused())
            }
            SeatOf::Each | SeatOf::Service(_) => self.in_flight.none(NoPermitKind::Queue),
        }
    }
}

impl Drop for PendingPermit {
    fn drop(&mut self) {
        self.in_flight.give_up(&self.key, &self.place, &self.seat, self.is_shed);
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            AcquireState::Ready(_) => "Acquire(ready)",
            AcquireState::Waiting(_) => "Acquire(waiting)",
            AcquireState::Done => "Acquire(done)",
        })
    }
}
