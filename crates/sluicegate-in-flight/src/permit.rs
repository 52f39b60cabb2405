//! Permits, requests for them, and the wait for one: [`Permit`], [`PermitRequest`] and [`Acquire`].

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sluicegate_core::key::{AsKey, Key, KeyRef};
use sluicegate_core::store::{Event, Subject};

use crate::adaptive::Outcome;
use crate::pool::{Ended, Fate, Move, PermitAsk, PermitRecord, PermitReply, Seat};
use crate::{Class, InFlight, NoPermitKind};

impl InFlight {
    /// Begins a request for a permit, with more settings than its key.
    pub fn request(&self, key: impl AsKey) -> PermitRequest {
        key.with_key(|key| PermitRequest {
            in_flight: self.clone(),
            key: key.to_key(),
            class: Class::default(),
            weight: 1,
        })
    }

    /// Takes a permit now, if one is free and no request waits for it. A permit that instances [share](crate::InFlightBuilder::on) needs a
    /// call: use [`attempt`](PermitRequest::attempt), which does not wait for a permit to come back.
    ///
    /// # Errors
    /// [`NoPermitKind::Permits`] when all permits of the key are in use; [`NoPermitKind::Shared`] when a store has to be asked.
    pub fn try_acquire(&self, key: impl AsKey) -> Result<Permit, NoPermit> {
        self.request(key).try_acquire()
    }

    /// Takes a permit as soon as there is one: first come, first served, in the order of the calls.
    ///
    /// The caller bounds the wait, for example with `tokio::time::timeout`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use sluicegate_in_flight::InFlight;
    ///
    /// let reports = InFlight::new("reports", 1)?;
    /// let first = reports.try_acquire("ada")?;
    /// let second = tokio::time::timeout(Duration::from_secs(1), reports.acquire("ada")).await;
    /// assert!(second.is_err());
    /// drop(first);
    /// assert!(reports.acquire("ada").await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The future gives [`NoPermitKind::Queue`] at once when the queue is full.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue; a permit that was given to it goes to the next request.
    pub fn acquire(&self, key: impl AsKey) -> Acquire {
        self.request(key).acquire()
    }

    /// A permit, or a place in the queue.
    fn enter(self, ask: PermitAsk<'_>) -> Acquire {
        let key = ask.key.clone();
        Acquire(AcquireState::Ready(match self.0.pool.ask(&ask) {
            PermitReply::Taken(record) => Ok(self.give(key, record)),
            PermitReply::Spared(record) => {
                self.tell_shed(key.as_ref(), record.class, false);
                Ok(self.give(key, record))
            }
            PermitReply::Waiting(seat, displaced) => {
                if let Some((class, key, waker)) = displaced {
                    self.tell_shed(key.as_ref(), class, true);
                    waker.into_iter().for_each(Waker::wake);
                }
                let pending = PendingPermit { in_flight: self, key, seat, is_shed: false };
                return Acquire(AcquireState::Waiting(pending));
            }
            PermitReply::Full(kind) => Err(self.refuse(key.as_ref(), ask.class, kind)),
        }))
    }

    fn give(&self, key: Key, record: PermitRecord) -> Permit {
        self.0.reports.tell(|| Event::PermitTaken(Subject::of(&self.0.name).with_key(key.as_ref())));
        Permit { in_flight: self.clone(), key, record, is_answered: AtomicBool::new(false) }
    }

    fn refuse(&self, key: KeyRef<'_>, class: Class, kind: NoPermitKind) -> NoPermit {
        if self.is_adaptive() {
            self.tell_shed(key, class, true);
        } else {
            self.0.reports.tell(|| Event::PermitRefused(Subject::of(&self.0.name).with_key(key)));
        }
        self.none(kind)
    }

    fn none(&self, kind: NoPermitKind) -> NoPermit {
        let (name, permits, retry_after) = (self.0.name.clone(), self.permits(), self.drains_in());
        NoPermit { kind, name, permits, retry_after }
    }

    /// Notifies listeners of a request that a limit that adapts has refused, or would have if it were enforced.
    fn tell_shed(&self, key: KeyRef<'_>, class: Class, is_enforced: bool) {
        self.0.reports.tell(|| {
            let subject = Subject::of(&self.0.name).with_key(key);
            Event::Shed { subject, class, is_enforced }
        });
    }

    /// Notifies listeners if the number has changed.
    fn tell_moved(&self, Move { from, to }: Move) {
        if from != to {
            self.0.reports.tell(|| Event::LimitMoved { subject: Subject::of(&self.0.name), from, to });
        }
    }
}

/// A request for a permit; made by [`InFlight::request`].
///
/// Class and weight count if the limit [adapts](InFlight::adaptive); a limit with a fixed number for each key ignores them.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked until `acquire` or `try_acquire` is called"]
pub struct PermitRequest {
    in_flight: InFlight,
    key: Key,
    class: Class,
    weight: u64,
}

impl PermitRequest {
    /// The limit that the request asks.
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Sets the importance of the request. Default: [`Class::Critical`].
    pub fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// Sets the share of its key in proportion to the shares of others, if the limit is [shared by
    /// keys](crate::AdaptiveBuilder::fair). The newest request of a key sets it for all of them. Default: 1, which is the least.
    pub fn weight(mut self, weight: u64) -> Self {
        self.weight = weight;
        self
    }

    /// As [`InFlight::try_acquire`].
    ///
    /// # Errors
    /// As [`InFlight::try_acquire`].
    pub fn try_acquire(self) -> Result<Permit, NoPermit> {
        let in_flight = self.in_flight.clone();
        // A request that does not wait is answered at once, unless a store has to be asked.
        self.attempt().now().unwrap_or_else(|_| Err(in_flight.none(NoPermitKind::Shared)))
    }

    /// Takes a permit if one is free and no request waits for it. It waits only for the answer of the store on which instances
    /// [share](crate::InFlightBuilder::on) the permits; for permits of one process it is ready at once, as
    /// [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// The future gives [`NoPermitKind::Permits`] when all permits of the key are in use, and
    /// [`NoPermitKind::Outage`] when the store gives no answer and the limit then refuses.
    ///
    /// # Cancel safety
    /// As [`InFlight::acquire`].
    pub fn attempt(self) -> Acquire {
        self.enter(false)
    }

    /// As [`InFlight::acquire`].
    ///
    /// # Errors
    /// As [`InFlight::acquire`].
    ///
    /// # Cancel safety
    /// As [`InFlight::acquire`].
    pub fn acquire(self) -> Acquire {
        self.enter(true)
    }

    fn enter(self, waits: bool) -> Acquire {
        let Self { in_flight, key, class, weight } = self;
        in_flight.enter(PermitAsk { key: &key, class, weight, waits })
    }
}

/// One of the permits of a key, held until it is dropped.
///
/// It may be moved to another task or thread, and into a response body. A leaked permit
/// (`mem::forget`) is lost to its key for as long as the process lives.
#[must_use = "a permit that is dropped at once holds nothing"]
pub struct Permit {
    in_flight: InFlight,
    key: Key,
    record: PermitRecord,
    is_answered: AtomicBool,
}

impl Permit {
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
        if !self.is_answered.swap(true, Ordering::Relaxed) {
            self.in_flight.tell_moved(self.in_flight.0.pool.answered(&self.record, outcome));
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
        let ticket = self.record.ticket.as_ref();
        ticket.is_some_and(|ticket| self.in_flight.0.pool.is_lost(&self.key, ticket))
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
        let ticket = self.record.ticket.as_ref();
        poll_fn(move |cx| ticket.map_or(Poll::Pending, |ticket| ticket.poll_lost(cx)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let is_answered = *self.is_answered.get_mut();
        self.in_flight.tell_moved(self.in_flight.0.pool.put_back(&self.key, &self.record, is_answered));
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
    seat: Seat,
    is_shed: bool,
}

impl Acquire {
    /// The result, if it is known without waiting; otherwise the wait itself.
    ///
    /// # Errors
    /// The wait itself, as the error.
    ///
    /// # Panics
    /// When it was already polled until it was ready.
    #[expect(clippy::result_large_err, reason = "the wait is no error, and is polled where it lies")]
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
            AcquireState::Waiting(waiting) => waiting.seat.longest,
            _ => None,
        }
    }

    /// Leaves the queue, because the request has reached its longest wait. It counts as refused, and listeners are notified; a
    /// wait that is only dropped counts as given up by its client. `None` if it does not wait.
    pub fn give_up(self) -> Option<NoPermit> {
        if let AcquireState::Waiting(mut waiting) = self.0 {
            waiting.is_shed = true;
            let class = waiting.seat.class;
            return Some(waiting.in_flight.refuse(waiting.key.as_ref(), class, NoPermitKind::Permits));
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
            let Some(how) = waiting.seat.place.poll(cx) else { return Poll::Pending };
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
        // From now on it belongs to another request.
        self.seat.place.end();
        self.in_flight.give(self.key.clone(), self.in_flight.0.pool.begin(&self.seat))
    }

    /// The reason why this place was taken away.
    fn lose(self) -> NoPermit {
        match self.seat.ticket.as_ref().map(|ticket| ticket.fate()) {
            // Other refusals were counted when their places were taken.
            Some(Fate::Refused(kind)) => self.in_flight.refuse(self.key.as_ref(), self.seat.class, kind),
            _ => self.in_flight.none(NoPermitKind::Queue),
        }
    }
}

impl Drop for PendingPermit {
    fn drop(&mut self) {
        self.in_flight.0.pool.give_up(&self.key, &self.seat, self.is_shed);
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

/// There is no permit for a key now.
///
/// ```
/// use sluicegate_in_flight::{InFlight, NoPermitKind};
///
/// let exports = InFlight::new("exports", 1)?;
/// let _held = exports.try_acquire("ada")?;
/// let none = exports.try_acquire("ada").unwrap_err();
/// assert_eq!(none.kind(), NoPermitKind::Permits);
/// assert_eq!(none.to_string(), "all permits of \"exports\" are out: at most 1 at once");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPermit {
    kind: NoPermitKind,
    name: String,
    permits: u64,
    retry_after: Option<Duration>,
}

impl NoPermit {
    /// The reason for the refusal.
    pub fn kind(&self) -> NoPermitKind {
        self.kind
    }

    /// The name of the [`InFlight`](crate::InFlight) that was asked.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of permits that each key has.
    pub fn permits(&self) -> u64 {
        self.permits
    }

    /// The time after which a retry makes sense, if the limit adapts: the time in which all current requests [will be
    /// done](crate::InFlight::drains_in).
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for NoPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, permits, .. } = self;
        match kind {
            NoPermitKind::Permits => write!(f, "all permits of {name:?} are out: at most {permits} at once"),
            NoPermitKind::Queue => write!(f, "too many wait for one of the {permits} permits of {name:?}"),
            NoPermitKind::Outage => {
                write!(f, "the store of the permits of {name:?} gives no answer: try again when it does")
            }
            NoPermitKind::Shared => {
                write!(
                    f,
                    "instances share the permits of {name:?}: use `acquire`, or `request(key).attempt()`"
                )
            }
        }
    }
}

impl Error for NoPermit {}
