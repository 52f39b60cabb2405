//! A permit, and the wait for one: [`Permit`] and [`Acquire`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::in_flight::table::Place;
use crate::in_flight::{InFlight, NoPermit};
use crate::key::Key;

/// One of the permits of a key, held until it is dropped.
///
/// It may be moved to another task or thread, and into a response body. A permit that is leaked
/// (`mem::forget`) is lost to its key for as long as the process lives.
#[must_use = "a permit that is dropped at once holds nothing"]
pub struct Permit {
    in_flight: InFlight,
    key: Key,
}

impl Permit {
    pub(super) fn new(in_flight: InFlight, key: Key) -> Self {
        Self { in_flight, key }
    }

    /// The [`InFlight`] that the permit comes from.
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// The number of permits that its key has left now.
    pub fn remaining(&self) -> u64 {
        self.in_flight.remaining(&self.key)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.in_flight.leave(self.key.as_ref());
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
/// a permit that it was given meanwhile goes to the next.
#[must_use = "dropping it leaves the queue"]
pub struct Acquire(State);

enum State {
    Ready(Result<Permit, NoPermit>),
    Waiting(Waiting),
    Done,
}

/// A place in the queue, which becomes a permit when its turn comes.
struct Waiting {
    in_flight: InFlight,
    key: Key,
    place: Arc<Place>,
}

impl Acquire {
    pub(super) fn ready(result: Result<Permit, NoPermit>) -> Self {
        Self(State::Ready(result))
    }

    pub(super) fn waiting(in_flight: InFlight, key: Key, place: Arc<Place>) -> Self {
        Self(State::Waiting(Waiting { in_flight, key, place }))
    }

    /// The result, if it is known without waiting; otherwise the wait again.
    ///
    /// # Errors
    /// The wait itself, as the error.
    ///
    /// # Panics
    /// When it was polled until it was ready.
    pub fn now(self) -> Result<Result<Permit, NoPermit>, Self> {
        match self.0 {
            State::Ready(result) => Ok(result),
            State::Done => panic!("a permit is waited for once"),
            State::Waiting(_) => Err(self),
        }
    }
}

impl Future for Acquire {
    type Output = Result<Permit, NoPermit>;

    /// # Panics
    /// When polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Waiting(waiting) = &self.0
            && !waiting.place.is_given(cx)
        {
            return Poll::Pending;
        }
        match std::mem::replace(&mut self.0, State::Done) {
            State::Ready(result) => Poll::Ready(result),
            State::Waiting(waiting) => Poll::Ready(Ok(waiting.take())),
            State::Done => panic!("a permit is waited for once"),
        }
    }
}

impl Waiting {
    /// The permit that this place was given.
    fn take(self) -> Permit {
        self.place.take();
        self.in_flight.permit(self.key.as_ref())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.in_flight.give_up(self.key.as_ref(), &self.place);
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            State::Ready(_) => "Acquire(ready)",
            State::Waiting(_) => "Acquire(waiting)",
            State::Done => "Acquire(done)",
        })
    }
}
