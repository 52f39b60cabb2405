//! Takes a request to its decision: exemption, limits, decision, turn. Each step is taken at
//! once if possible.
//!
//! ```text
//! door -> limit -> limit -> .. -> decision -> turn -> on to the service
//!   |       |                        |         |
//!   |       +-- a look-up            |         +-- dropped: the turn is given back
//!   |                                +-- refused, or an outage: what the policies say
//!   +-- exempt: past all of it; denied: refused
//! ```
//!
//! Almost every request meets one limit with a key at hand and a store in memory. `begin` decides on it without allocating, and it
//! does not come here.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use sluicegate_core::limiter::Turn;
use sluicegate_core::store::{DecisionFuture, Undecided};
use sluicegate_core::{Decision, StoreError};

use crate::admission::asking::{Asking, Then};
use crate::admission::asks::RequestAsks;
use crate::admission::end::{RequestEnd, Timed, refused, uncounted};
use crate::admission::set::Limits;
use crate::guard::Place;
use crate::guard::lookup::Lookup;
use crate::key::RequestView;
use crate::limits::door::{DoorVerdict, ExemptionFuture};
use crate::limits::finding::RequestAsk;
use crate::limits::walk::{Walk, WalkStep};
use crate::respond::refusal::RefusalReason;
use crate::respond::stop::Stop;
use crate::trace::{RequestTrace, WaitSpan};

/// The progress of a request that has to wait.
#[derive(Debug, Default)]
struct Way {
    walk: Walk,
    asking: Asking,
    step: Step,
}

/// The thing to wait for.
#[derive(Debug, Default)]
enum Step {
    /// A key or a limiter.
    #[default]
    Limit,
    Exemption(Lookup<ExemptionFuture>),
    /// Boxed apart from the turn, because it is large, and waits for a turn take longer.
    Decision(Box<DecisionFuture>),
    Turn(Turn, WaitSpan),
}

/// A request and the limits that decide on it.
type Through<'a> = (&'a Limits, RequestView<'a>);

impl Way {
    /// Waits for one thing after the other. A request that has to wait takes a place in the queue.
    fn poll(&mut self, cx: &mut Context<'_>, through: Through<'_>, place: &mut Place) -> Poll<RequestEnd> {
        let (limits, request) = through;
        loop {
            let end = match &mut self.step {
                Step::Exemption(lookup) => {
                    // Without an answer the request is not exempt.
                    let is_exempt = ready!(lookup.poll(cx, limits.waits(), place)).unwrap_or(false);
                    let door = limits.settings().door.as_ref();
                    let entry =
                        door.map_or(DoorVerdict::ToTheLimits, |door| door.entry_of(is_exempt, request));
                    self.enter(entry, through, place)
                }
                Step::Limit => {
                    let next = self.walk.poll(cx, (limits.plan(), request), limits.waits(), place);
                    match ready!(next) {
                        WalkStep::Found(found) => match self.asking.take(limits, found) {
                            Some(refused) => Some(Err(refused)),
                            None => self.go_on(through, place),
                        },
                        WalkStep::Waits => None,
                        WalkStep::End => self.decide(limits, place),
                    }
                }
                Step::Decision(deciding) => {
                    let result = ready!(Pin::new(deciding).poll(cx));
                    let then = self.asking.decided(limits, result, place);
                    self.then(then)
                }
                Step::Turn(turn, wait) => {
                    let decision = ready!(Pin::new(turn).poll(cx));
                    let trace = wait.turn_came();
                    self.step = Step::Limit;
                    Some(waited(self.asking.goes_on(limits, decision), trace))
                }
            };
            if let Some(end) = end {
                return Poll::Ready(end);
            }
        }
    }

    fn enter(&mut self, entry: DoorVerdict, through: Through<'_>, place: &mut Place) -> Option<RequestEnd> {
        match entry {
            DoorVerdict::ToTheLimits => self.go_on(through, place),
            DoorVerdict::PastTheLimits => {
                through.0.notice(None, Some(Undecided::Exempt));
                Some(Ok(uncounted(through.0)))
            }
            DoorVerdict::Refused(status) => {
                Some(Err(refused(through.0, None, Stop::Plain(RefusalReason::Blocked(status)))))
            }
            DoorVerdict::Asking(answer) => {
                self.step = Step::Exemption(Lookup::new(answer));
                None
            }
        }
    }

    /// Goes from limit to limit, and then to the decision.
    fn go_on(&mut self, through: Through<'_>, place: &mut Place) -> Option<RequestEnd> {
        let next = self.walk.next(through.0.plan(), through.1);
        self.go_on_with(next, through, place)
    }

    fn go_on_with(
        &mut self,
        mut next: WalkStep,
        through: Through<'_>,
        place: &mut Place,
    ) -> Option<RequestEnd> {
        let (limits, request) = through;
        loop {
            match next {
                WalkStep::Found(found) => {
                    if let Some(refused) = self.asking.take(limits, found) {
                        return Some(Err(refused));
                    }
                }
                WalkStep::Waits => {
                    self.step = Step::Limit;
                    return None;
                }
                WalkStep::End => return self.decide(limits, place),
            }
            next = self.walk.next(limits.plan(), request);
        }
    }

    fn decide(&mut self, limits: &Limits, place: &mut Place) -> Option<RequestEnd> {
        let then = self.asking.decide(limits, place);
        self.then(then)
    }

    /// Takes the next state: the end, or the next thing to wait for.
    #[inline]
    fn then(&mut self, then: Then) -> Option<RequestEnd> {
        self.step = match then {
            Then::End(end) => return Some(end),
            Then::Decision(deciding) => Step::Decision(deciding),
            Then::Turn(turn, wait) => Step::Turn(turn, wait),
        };
        None
    }

    /// The result if there is one, or else the wait.
    #[inline]
    fn comes_to(self, end: Option<RequestEnd>, limits: &Limits) -> Result<RequestEnd, Box<Waiting>> {
        end.ok_or_else(|| Box::new(Waiting { limits: limits.clone(), way: self, timed: None }))
    }
}

/// The end of a request that has waited for its turn, which its span knows.
fn waited(end: RequestEnd, trace: RequestTrace) -> RequestEnd {
    end.map(|marked| {
        marked.map(|mut marked| {
            if let RequestTrace::Span(_) = trace {
                marked.trace = trace;
            }
            marked
        })
    })
}

/// Continues at the door. Cold and separate, as the two below, so that the code of the fast path stays together.
#[cold]
pub(super) fn through(
    (limits, request): Through<'_>,
    entry: DoorVerdict,
    place: &mut Place,
) -> Result<RequestEnd, Box<Waiting>> {
    let mut way = Way::default();
    let end = way.enter(entry, (limits, request), place);
    way.comes_to(end, limits)
}

/// Continues at this step of a walk, on which one limit may have asked.
#[cold]
pub(super) fn along(
    (limits, request): Through<'_>,
    asked: Option<RequestAsk>,
    (walk, next): (Walk, WalkStep),
    place: &mut Place,
) -> Result<RequestEnd, Box<Waiting>> {
    let mut asks = RequestAsks::default();
    asked.into_iter().for_each(|asked| asks.push(asked));
    let mut way = Way { walk, asking: Asking::of(asks), ..Way::default() };
    let end = way.go_on_with(next, (limits, request), place);
    way.comes_to(end, limits)
}

/// Continues with the store's answer.
#[cold]
pub(super) fn behind(
    limits: &Limits,
    asks: RequestAsks,
    answer: Result<Result<Decision, StoreError>, DecisionFuture>,
    place: &mut Place,
) -> Result<RequestEnd, Box<Waiting>> {
    let mut way = Way { asking: Asking::of(asks), ..Way::default() };
    let then = match answer {
        Ok(result) => way.asking.decided(limits, result, place),
        Err(deciding) => way.asking.deciding(limits, deciding, place),
    };
    let end = way.then(then);
    way.comes_to(end, limits)
}

/// A request that has to wait, and the limits that it began with.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only the guard has one")]
pub struct Waiting {
    limits: Limits,
    way: Way,
    /// Where routes are counted. Boxed, because they seldom are, and many requests may wait.
    timed: Option<Box<Timed>>,
}

impl Waiting {
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        request: RequestView<'_>,
        place: &mut Place,
    ) -> Poll<RequestEnd> {
        let Poll::Ready(mut end) = self.way.poll(cx, (&self.limits, request), place) else {
            self.report(request);
            return Poll::Pending;
        };
        self.limits.report(request, &mut end, self.timed.as_deref());
        Poll::Ready(end)
    }

    /// Begins the wait of a request, whose decision is timed by this where routes are counted.
    pub(super) fn begin(&mut self, request: RequestView<'_>, timed: Option<Timed>) {
        self.timed = timed.map(Box::new);
        self.report(request);
    }

    /// Notes that the request waits for its turn, if it does, and tells its span.
    fn report(&mut self, request: RequestView<'_>) {
        if let Step::Turn(_, wait) = &mut self.way.step {
            if let Some(timed) = &mut self.timed {
                timed.waits();
            }
            wait.report(request.extensions);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Step::Turn(..) = self.way.step {
            self.limits.notice(self.way.asking.first(), None);
        }
    }
}
