//! The permits behind a limit, whatever their kind: [`PermitPool`].
//!
//! A request asks a pool. It takes a permit with a [`PermitRecord`], waits in a [`Seat`], or is refused. A waiting request has a
//! [`QueuePlace`], which is given a permit, or taken away.

use std::sync::{Arc, PoisonError};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::key::Key;
use sluicegate_core::policy::OnOutage;
use smallvec::SmallVec;

use crate::Class;
use crate::adaptive::Outcome;
use crate::status::SharedStatus;

/// The permits of each key, those of a service, or those that instances share.
pub(crate) trait PermitPool: Send + Sync {
    /// A permit, or a place in the queue if the request `waits`.
    fn ask(&self, ask: &PermitAsk<'_>) -> PermitReply;

    /// The permit of a request that has waited, from now on.
    fn begin(&self, seat: &Seat) -> PermitRecord {
        PermitRecord { class: seat.class, begun_us: 0, ticket: seat.ticket.clone() }
    }

    /// Takes the latency of a request that is answered as a sample.
    fn answered(&self, _: &PermitRecord, _: Outcome) -> Move {
        Move::default()
    }

    /// Puts a permit back; its request `is_answered`, or was dropped before its answer.
    fn put_back(&self, key: &Key, permit: &PermitRecord, is_answered: bool) -> Move;

    /// Leaves the queue, or passes on the permit that was given in the meantime.
    fn give_up(&self, key: &Key, seat: &Seat, is_shed: bool);

    /// The number of permits that each key has, or all keys together.
    fn number(&self) -> u64;

    /// Changes the number; the error says what to use instead.
    fn set_number(&self, permits: u64) -> Result<(), &'static str>;

    fn in_use(&self, key: &Key) -> u64;

    fn in_use_in_all(&self) -> u64;

    fn remaining(&self, key: &Key) -> u64 {
        self.number().saturating_sub(self.in_use(key))
    }

    /// The number of keys with permits in use.
    fn keys(&self) -> usize;

    /// The state of permits that instances share.
    fn shared(&self) -> Option<SharedStatus> {
        None
    }

    /// Whether a permit is lost, even if its holder was not notified yet.
    fn is_lost(&self, _: &Key, _: &PermitTicket) -> bool {
        false
    }

    /// No request comes after this.
    fn close(&self) {}
}

/// A fixed number of permits for each key, and the bounds of the queues for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedPermits {
    pub(crate) number: u64,
    /// The most requests that wait for permits of one key, and of all keys.
    pub(crate) queue: usize,
    pub(crate) queue_in_all: usize,
}

/// The way in which the instances of a service share the permits of a limit; set by
/// [`InFlightBuilder`](crate::InFlightBuilder).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sharing {
    /// The time after which the permits of a silent instance are given to others.
    pub lease: Duration,
    /// The treatment of requests while the store gives no answer.
    pub on_outage: OnOutage,
    /// The number of instances: in an outage, each has its part of the permits.
    pub replicas: u64,
}

impl Default for Sharing {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), on_outage: OnOutage::Local, replicas: 1 }
    }
}

impl Sharing {
    pub(crate) fn check(&self, name: &str) -> Result<(), ConfigError> {
        const LEASES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3_600)];
        let Self { lease, on_outage, replicas } = self;
        let problem = if *lease < LEASES[0] || *lease > LEASES[1] {
            format!("cannot have a lease of {lease:?}: use 1 s to 1 h")
        } else if *replicas == 0 {
            "cannot be shared by 0 instances: use 1 or more".to_owned()
        } else if let OnOutage::Quota(quota) = on_outage {
            format!(
                "counts no requests per time, so {quota} cannot stand for it in an outage: use `Local`, `Allow` or `Deny`"
            )
        } else {
            return Ok(());
        };
        Err(ConfigError::new(ConfigErrorKind::Policy, format!("{name:?} {problem}")))
    }
}

/// A request for a permit.
#[derive(Clone, Copy)]
pub(crate) struct PermitAsk<'a> {
    pub(crate) key: &'a Key,
    pub(crate) class: Class,
    /// The share of its key, in proportion to the shares of others.
    pub(crate) weight: u64,
    /// Whether it waits for permits that come back.
    pub(crate) waits: bool,
}

/// The answer to a request.
pub(crate) enum PermitReply {
    Taken(PermitRecord),
    /// The request has a permit, but would have none if the limit were enforced.
    Spared(PermitRecord),
    Waiting(Seat, Displaced),
    Full(NoPermitKind),
}

/// The reason for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoPermitKind {
    /// All permits of the key are in use.
    Permits,
    /// The queue of the key or of all keys together is full, or a more important request has taken the place.
    Queue,
    /// The store that instances share the permits on gives no answer, and the limit refuses in an outage.
    Outage,
    /// Instances share the permits, so taking one needs a call and has to wait.
    Shared,
}

/// The record of a permit: what its pool needs to take it back.
#[derive(Clone, Default)]
pub(crate) struct PermitRecord {
    pub(crate) class: Class,
    /// The time of its begin, by the clock of a pool that adapts.
    pub(crate) begun_us: u64,
    /// For a permit that instances share.
    pub(crate) ticket: Option<Arc<PermitTicket>>,
}

/// A waiting request.
#[derive(Clone, Default)]
pub(crate) struct Seat {
    pub(crate) place: Arc<QueuePlace>,
    pub(crate) class: Class,
    /// Its number in the order of arrival, where a pool counts them.
    pub(crate) number: u64,
    /// Its longest wait, if the pool bounds it.
    pub(crate) longest: Option<Duration>,
    /// For a permit that instances share.
    pub(crate) ticket: Option<Arc<PermitTicket>>,
}

/// The class and the key of a request that has lost its place to another one, and the waker to call.
pub(crate) type Displaced = Option<(Class, Key, Option<Waker>)>;

/// Tasks to be woken, outside of all locks.
pub(crate) type Wakers = SmallVec<[Waker; 1]>;

/// The number at once at the last answer, and now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Move {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// A place in a queue.
#[derive(Default)]
pub(crate) struct QueuePlace(Mutex<SeatTurn>);

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
pub(crate) enum Ended {
    /// With a permit held for it.
    Given,
    /// Without a permit: another request has taken the place.
    Lost,
}

impl QueuePlace {
    /// The end of the wait, if it has come; otherwise the task is woken when it does.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Option<Ended> {
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

    /// Holds a permit for this place; returns the waker to call.
    pub(crate) fn give(&self) -> Option<Waker> {
        self.turn_to(SeatTurn::Given)
    }

    /// Takes the place away; returns the waker to call.
    pub(crate) fn lose(&self) -> Option<Waker> {
        self.turn_to(SeatTurn::Lost)
    }

    /// Ends the wait; returns whether a permit was given but not taken.
    pub(crate) fn end(&self) -> bool {
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

/// A permit that instances share, or the request for one.
#[derive(Default)]
pub(crate) struct PermitTicket(std::sync::Mutex<TicketState>);

#[derive(Default)]
struct TicketState {
    fate: Fate,
    /// The tasks that wait for the loss of the permit.
    wakers: Wakers,
}

/// The fate of a request for a permit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fate {
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
    pub(crate) fn fate(&self) -> Fate {
        self.lock().fate
    }

    pub(crate) fn turn_to(&self, fate: Fate) {
        self.lock().fate = fate;
    }

    /// Notes that the permit is lost; returns the wakers to call.
    pub(crate) fn lose(&self) -> Wakers {
        let mut state = self.lock();
        state.fate = Fate::Lost;
        std::mem::take(&mut state.wakers)
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
    fn lock(&self) -> std::sync::MutexGuard<'_, TicketState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
