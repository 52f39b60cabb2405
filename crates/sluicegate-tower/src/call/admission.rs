//! The way of a call to its turn: verdict, wait, and what the policy says when there is no verdict.

use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Turn;
use sluicegate_core::store::{DecidedBy, DecisionFuture};
use sluicegate_core::{Decision, Key, OnOutage, RateLimiter, StoreError};

use crate::call::error::CallError;
use crate::guard::queue::{Place, Queue};
use crate::rate_limit::shared::OnceASecond;

/// What a limiter's answer means for a call.
pub(crate) enum Admitted {
    /// It goes on, having spent what the decision says, if there is one.
    Go(Option<Decision>),
    Refuse(Refused),
    /// In a box, for it is large and rare.
    Wait(Box<Admission>),
}

/// Why a call does not go on.
pub(crate) enum Refused {
    Limited(Box<Decision>),
    Store(StoreError),
    /// Its turn would come after this long.
    QueueFull(Duration),
}

impl<E> From<Refused> for CallError<E> {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Limited(decision) => Self::Limited(decision),
            Refused::Store(error) => Self::Store(error),
            Refused::QueueFull(wait) => Self::QueueFull(wait),
        }
    }
}

/// A call whose verdict or turn has not come.
pub(crate) struct Admission {
    limiter: RateLimiter,
    key: Key,
    cost: u64,
    step: Step,
}

enum Step {
    Decision(DecisionFuture),
    Turn(Turn),
}

impl Admission {
    /// Asks the limiter, and goes as far as it can without waiting. With a longest wait, the call waits for up to that;
    /// without, as its policy says. It waits in this queue, where it may have a place already.
    pub(crate) fn begin(
        limiter: &RateLimiter,
        key: Key,
        cost: u64,
        longest: Option<Duration>,
        queue: &Queue,
        place: &mut Option<Place>,
    ) -> Admitted {
        if cost == 0 {
            // A key in debt has no room even for nothing.
            return Admitted::Go(None);
        }
        let verdict = match longest {
            Some(longest) => limiter.reserve(&key, cost, longest),
            None => limiter.check_cost(&key, cost),
        };
        match verdict.now() {
            Ok(result) => judge(limiter, key, cost, result, queue, place),
            Err(verdict) => {
                let limiter = limiter.clone();
                Admitted::Wait(Box::new(Self { limiter, key, cost, step: Step::Decision(verdict) }))
            }
        }
    }

    /// Waits for the verdict, and then for the turn.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        queue: &Queue,
        place: &mut Option<Place>,
    ) -> Poll<Result<Option<Decision>, Refused>> {
        loop {
            match &mut self.step {
                Step::Decision(verdict) => {
                    let result = ready!(Pin::new(verdict).poll(cx));
                    match judge(&self.limiter, self.key.clone(), self.cost, result, queue, place) {
                        Admitted::Go(decision) => return Poll::Ready(Ok(decision)),
                        Admitted::Refuse(refused) => return Poll::Ready(Err(refused)),
                        Admitted::Wait(waiting) => self.step = waiting.step,
                    }
                }
                Step::Turn(turn) => return Pin::new(turn).poll(cx).map(|decision| Ok(Some(decision))),
            }
        }
    }
}

fn judge(
    limiter: &RateLimiter,
    key: Key,
    cost: u64,
    result: Result<Decision, StoreError>,
    queue: &Queue,
    place: &mut Option<Place>,
) -> Admitted {
    let decision = match result {
        Ok(decision) if decision.decided_by() == DecidedBy::Outage => {
            let error = StoreError::new(StoreErrorKind::Unavailable);
            return outage(limiter, error, !decision.is_allowed());
        }
        Ok(decision) => decision,
        Err(error) => return outage(limiter, error, false),
    };
    if decision.is_allowed() && decision.delay().is_zero() {
        return Admitted::Go(Some(decision));
    }
    let policy = limiter.policy();
    if policy.is_shadow() {
        tracing::debug!(policy = policy.name(), "a policy in shadow would have held a call back");
        return Admitted::Go(None);
    }
    if !decision.is_allowed() {
        return Admitted::Refuse(Refused::Limited(Box::new(decision)));
    }
    let delay = decision.delay();
    let turn = Turn::new(decision, [(limiter.clone(), key.clone(), cost)]);
    if !queue.enter(place) {
        // A turn that is dropped is given back.
        return Admitted::Refuse(Refused::QueueFull(delay));
    }
    let limiter = limiter.clone();
    Admitted::Wait(Box::new(Admission { limiter, key, cost, step: Step::Turn(turn) }))
}

/// Nobody has decided: the policy says what happens then, unless the store has said so for it.
fn outage(limiter: &RateLimiter, error: StoreError, is_denied: bool) -> Admitted {
    let policy = limiter.policy();
    if !policy.is_shadow() && (is_denied || policy.on_outage() == OnOutage::Deny) {
        return Admitted::Refuse(Refused::Store(error));
    }
    report(policy.name(), &error);
    Admitted::Go(None)
}

/// Logs at most once a second that calls pass uncounted: an outage must not fill the disk as well.
fn report(policy: &str, error: &StoreError) {
    static OUTAGE: LazyLock<OnceASecond> = LazyLock::new(OnceASecond::default);
    if OUTAGE.is_due() {
        let error: &(dyn std::error::Error + 'static) = error;
        tracing::error!(error, policy, "the rate limit store gave no answer: calls pass uncounted");
    }
}
