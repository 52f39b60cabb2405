//! Gets a call its turn: decision, wait, and the policy's answer when there is no
//! decision.
//!
//! Calls within this process and outgoing calls share it. An outage that refuses is a
//! [`CallError::Store`], because a call has no response that could show it.
#![expect(unnameable_types, reason = "they are parts of a future that has a name")]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Turn;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::store::{DecisionFuture, Event, Subject, Undecided};
use sluicegate_core::{Decision, Key, RateLimiter, StoreError};

use crate::call::CallError;
use crate::guard::service::Queue;
use crate::guard::{Place, Step};
use crate::trace::WaitSpan;

/// A call that waits for its decision or turn.
#[derive(Debug)]
pub enum CallWait {
    /// In a box, because it is large.
    Decision(CallAsk, Box<DecisionFuture>),
    Turn(CallTurn),
}

/// A call that waits for its turn.
#[derive(Debug)]
pub struct CallTurn {
    turn: Turn,
    /// The limiter and the key of the turn, until it has come.
    of: Option<(RateLimiter, Key)>,
    wait: WaitSpan,
}

/// A call's ask of a limiter.
#[derive(Debug)]
pub struct CallAsk {
    pub(crate) key: Key,
    pub(crate) cost: u64,
    /// The longest wait for its turn; `None` if the policy's applies.
    pub(crate) longest: Option<Duration>,
}

/// The limiter that calls ask, and the queue that they wait in.
#[derive(Clone, Copy)]
pub(crate) struct QueuedLimiter<'a> {
    pub(crate) limiter: &'a RateLimiter,
    pub(crate) queue: &'a Queue,
}

/// The spend of a call that proceeds, if a decision was made.
type CallStep<Res, E> = Step<Option<Decision>, CallWait, Result<Res, CallError<E>>>;

impl QueuedLimiter<'_> {
    /// Asks the limiter, and proceeds as far as possible without waiting.
    pub(crate) fn begin<Res, E>(self, ask: CallAsk, place: &mut Place) -> CallStep<Res, E> {
        if ask.cost == 0 {
            // A key in debt has no room even for a cost of 0.
            return Step::Go(None);
        }
        let decision = match ask.longest {
            Some(longest) => self.limiter.check(&ask.key).cost(ask.cost).reserve(longest),
            None => self.limiter.check(&ask.key).cost(ask.cost),
        };
        match decision.now() {
            Ok(result) => self.decided(&ask, result, place),
            Err(pending) => Step::Wait(CallWait::Decision(ask, Box::new(pending))),
        }
    }

    /// Waits for the decision, and then for the turn.
    pub(crate) fn poll<Res, E>(
        self,
        admission: &mut CallWait,
        place: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<CallStep<Res, E>> {
        match admission {
            CallWait::Decision(ask, decision) => {
                let result = ready!(Pin::new(decision).poll(cx));
                Poll::Ready(self.decided(ask, result, place))
            }
            CallWait::Turn(waiting) => {
                let decision = ready!(Pin::new(&mut waiting.turn).poll(cx));
                waiting.of = None;
                waiting.wait.end("turn");
                Poll::Ready(Step::Go(Some(decision)))
            }
        }
    }

    fn decided<Res, E>(
        self,
        ask: &CallAsk,
        result: Result<Decision, StoreError>,
        place: &mut Place,
    ) -> CallStep<Res, E> {
        let decision = match result {
            Ok(decision) => decision,
            Err(error) => return refuse(CallError::Store(error)),
        };
        if decision.is_allowed() && decision.delay().is_zero() {
            return Step::Go(Some(decision).filter(Decision::is_counted));
        }
        let policy = self.limiter.policy();
        if policy.mode() != PolicyMode::Enforce {
            tracing::debug!(policy = policy.name(), "a policy in shadow would have held a call back");
            return Step::Go(None);
        }
        if !decision.is_counted() {
            return refuse(CallError::Store(StoreError::new(StoreErrorKind::Unavailable)));
        }
        if !decision.is_allowed() {
            return refuse(CallError::Limited(Box::new(decision)));
        }
        let delay = decision.delay();
        let turn = Turn::new(decision, [(self.limiter.clone(), ask.key.clone(), ask.cost)]);
        if self.queue.enter(place) {
            let of = Some((self.limiter.clone(), ask.key.clone()));
            let wait = WaitSpan::begin(Some(&policy), delay, None);
            return Step::Wait(CallWait::Turn(CallTurn { turn, of, wait }));
        }
        // Dropping a turn gives it back.
        drop(turn);
        self.queue_full(&ask.key, delay)
    }

    /// Reports that there is no place for a call that would have to wait for this long.
    pub(crate) fn queue_full<P, W, Res, E>(
        self,
        key: &Key,
        delay: Duration,
    ) -> Step<P, W, Result<Res, CallError<E>>> {
        notice(self.limiter, key, |subject| Event::Undecided(subject, Undecided::QueueFull));
        Step::Refuse(Err(CallError::QueueFull(delay)))
    }
}

impl Drop for CallTurn {
    fn drop(&mut self) {
        if let Some((limiter, key)) = &self.of {
            #[expect(
                clippy::redundant_closure,
                reason = "the variant alone is no function for every lifetime"
            )]
            notice(limiter, key, |subject| Event::TurnGivenUp(subject));
        }
    }
}

/// Notifies the limiter's store of an event that is not a decision.
pub(crate) fn notice(limiter: &RateLimiter, key: &Key, event: impl for<'a> FnOnce(Subject<'a>) -> Event<'a>) {
    let policy = limiter.policy();
    limiter.store().notice(&event(Subject::of(policy.name()).with_key(key.as_ref())));
}

fn refuse<Res, E>(error: CallError<E>) -> CallStep<Res, E> {
    Step::Refuse(Err(error))
}
