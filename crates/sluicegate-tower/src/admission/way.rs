//! The way of a request to its decision: exemption, limits, decision, turn. Each step is taken at
//! once where it can be.
//!
//! ```text
//! door -> limit -> limit -> .. -> decision -> turn -> on to the service
//!   |       |                        |         |
//!   |       +-- a look-up            |         +-- dropped: the turn is given back
//!   |                                +-- refused, or an outage: what the policies say
//!   +-- exempt: past all of it; denied: refused
//! ```
//!
//! Almost every request meets one limit whose key is at hand, with a store in memory, and does not come here: `begin` takes it there
//! without a list and without a box.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sluicegate_core::limiter::Turn;
use sluicegate_core::store::{DecisionFuture, Undecided};
use sluicegate_core::{Decision, RateLimiter, StoreError};

use crate::admission::admitted::Marked;
use crate::admission::asks::Asks;
use crate::admission::end::{End, refused, uncounted};
use crate::admission::refused::Refused;
use crate::admission::set::Limits;
use crate::admission::trial::Trial;
use crate::guard::Place;
use crate::guard::lookup::Lookup;
use crate::key::RequestView;
use crate::limits::door::{Answer, Door, Entry};
use crate::limits::finding::{Asked, Finding, Found};
use crate::limits::walk::{Next, Walk};
use crate::respond::refusal::RefusalReason;
use crate::respond::stop::Stop;

/// Where a request is on its way.
#[derive(Debug, Default)]
struct Way {
    walk: Walk,
    asks: Asks,
    /// The asks of policies that are only tried out, and then their answers.
    tried: Vec<Asked>,
    trials: Vec<Arc<Trial>>,
    step: Step,
}

/// The thing to wait for.
#[derive(Debug, Default)]
enum Step {
    /// A key or a limiter.
    #[default]
    Limit,
    Exemption(Lookup<Answer>),
    /// In a box of its own, because it is large, and a request waits for its turn for longer.
    Decision(Box<DecisionFuture>),
    Turn(Turn),
}

/// A request and the limits that it is on its way through.
type Through<'a> = (&'a Limits, RequestView<'a>);

impl Way {
    /// Waits for one thing after the other. A request that has to wait takes a place in the queue.
    fn poll(&mut self, cx: &mut Context<'_>, through: Through<'_>, place: &mut Place) -> Poll<End> {
        let (limits, request) = through;
        loop {
            let end = match &mut self.step {
                Step::Exemption(lookup) => {
                    // An answer that does not come exempts no request.
                    let is_exempt = ready!(lookup.poll(cx, limits.waits(), place)).unwrap_or(false);
                    let door = limits.settings().door.as_ref();
                    let entry = door.map_or(Entry::ToTheLimits, |door| door.entry_of(is_exempt, request));
                    self.enter(entry, through, place)
                }
                Step::Limit => {
                    let next = self.walk.poll(cx, (limits.plan(), request), limits.waits(), place);
                    match ready!(next) {
                        Next::Found(found) => match self.take(limits, found) {
                            Some(refused) => Some(Err(refused)),
                            None => self.go_on(through, place),
                        },
                        Next::Waits => None,
                        Next::End => self.decide(limits, place),
                    }
                }
                Step::Decision(deciding) => {
                    let result = ready!(Pin::new(deciding).poll(cx));
                    self.decided(limits, result, place)
                }
                Step::Turn(turn) => {
                    let decision = ready!(Pin::new(turn).poll(cx));
                    self.step = Step::Limit;
                    // Not before: a client that hangs up while it waits has spent nothing.
                    self.try_out(limits);
                    Some(Ok(self.mark(limits, Some(decision))))
                }
            };
            if let Some(end) = end {
                return Poll::Ready(end);
            }
        }
    }

    fn enter(&mut self, entry: Entry, through: Through<'_>, place: &mut Place) -> Option<End> {
        match entry {
            Entry::ToTheLimits => self.go_on(through, place),
            Entry::PastTheLimits => {
                through.0.notice(None, Some(Undecided::Exempt));
                Some(Ok(uncounted(through.0)))
            }
            Entry::Refused(status) => {
                Some(refuse(through.0, None, Stop::Plain(RefusalReason::Blocked(status))))
            }
            Entry::Asking(answer) => {
                self.step = Step::Exemption(Lookup::new(answer));
                None
            }
        }
    }

    /// From limit to limit, and then to the decision.
    fn go_on(&mut self, through: Through<'_>, place: &mut Place) -> Option<End> {
        let next = self.walk.next(through.0.plan(), through.1);
        self.go_on_with(next, through, place)
    }

    fn go_on_with(&mut self, mut next: Next, through: Through<'_>, place: &mut Place) -> Option<End> {
        let (limits, request) = through;
        loop {
            match next {
                Next::Found(found) => {
                    if let Some(refused) = self.take(limits, found) {
                        return Some(Err(refused));
                    }
                }
                Next::Waits => {
                    self.step = Step::Limit;
                    return None;
                }
                Next::End => return self.decide(limits, place),
            }
            next = self.walk.next(limits.plan(), request);
        }
    }

    /// Takes note of what a limit asks, for which the request may be refused.
    #[inline]
    fn take(&mut self, limits: &Limits, Found { limit, finding }: Found) -> Option<Box<Refused>> {
        match finding {
            Finding::Asks { which, key, cost, is_enforced } => {
                let asked = Asked { limit, which, key, cost };
                match is_enforced {
                    true => self.asks.push(asked),
                    false => self.tried.push(asked),
                }
                None
            }
            Finding::Nothing(_) => None,
            Finding::Refuses(stop) => Some(refused(limits, Some(limit), *stop)),
        }
    }

    fn decide(&mut self, limits: &Limits, place: &mut Place) -> Option<End> {
        if self.asks.is_empty() {
            self.try_out(limits);
            return Some(Ok(match self.trials.is_empty() {
                true => uncounted(limits),
                false => self.mark(limits, None),
            }));
        }
        if let Err(error) = self.asks.check(limits.plan()) {
            return Some(refuse(limits, None, Stop::Mistake(error)));
        }
        self.deciding(limits, self.asks.decide(limits.plan(), None), place)
    }

    pub(super) fn deciding(
        &mut self,
        limits: &Limits,
        deciding: DecisionFuture,
        place: &mut Place,
    ) -> Option<End> {
        match deciding.now() {
            Ok(result) => self.decided(limits, result, place),
            Err(deciding) => {
                self.step = Step::Decision(Box::new(deciding));
                None
            }
        }
    }

    fn decided(
        &mut self,
        limits: &Limits,
        result: Result<Decision, StoreError>,
        place: &mut Place,
    ) -> Option<End> {
        let decision = match result {
            Ok(decision) => decision,
            Err(error) => return Some(refuse(limits, None, Stop::mistake(&error))),
        };
        if !decision.is_counted() {
            // Nobody counted, so there are no numbers to show, and nothing was spent that could be given back.
            return Some(match decision.is_allowed() {
                true => Ok(uncounted(limits)),
                false => refuse(limits, None, Stop::Plain(RefusalReason::Outage)),
            });
        }
        let delay = decision.retry_after().unwrap_or_else(|| decision.delay());
        if decision.is_allowed() && delay.is_zero() {
            self.try_out(limits);
            return Some(Ok(self.mark(limits, Some(decision))));
        }
        match self.asks.turn(limits.plan(), decision) {
            Ok(turn) => self.wait(limits, turn, delay, place),
            Err(refused) => {
                Some(refuse(limits, None, Stop::Decided(self.asks.label(limits.made(), refused))))
            }
        }
    }

    fn wait(&mut self, limits: &Limits, turn: Turn, delay: Duration, place: &mut Place) -> Option<End> {
        if limits.waits().queue.enter(place) {
            self.step = Step::Turn(turn);
            return None;
        }
        // A turn that is dropped is given back.
        drop(turn);
        let first = self.asks.iter().next().map(|asked| asked.limit);
        Some(refuse(limits, first, Stop::Plain(RefusalReason::QueueFull(delay))))
    }

    /// On to the inner service. Limits that show nothing do not even hold on to what was decided.
    fn mark(&mut self, limits: &Limits, decision: Option<Decision>) -> Option<Box<Marked>> {
        let made = &limits.0.made;
        let (asks, trials) = (mem::take(&mut self.asks), mem::take(&mut self.trials));
        made.marks.then(|| Marked::new(made, asks, decision, |asks| asks.policies(made), trials))
    }

    /// Asks each policy that is only tried out on its own, as if it stood behind the others.
    fn try_out(&mut self, limits: &Limits) {
        for asked in self.tried.drain(..) {
            let trial = Arc::new(Trial::new(limits.plan(), asked));
            let deciding = RateLimiter::check_all([(&trial.limiter, &trial.key, trial.cost)]);
            limits.shadows().watch(&trial, deciding);
            self.trials.push(trial);
        }
    }

    /// It has come as far as it comes at once.
    fn comes_to(self, end: Option<End>, limits: &Limits) -> Result<End, Box<Waiting>> {
        end.ok_or_else(|| Box::new(Waiting { limits: limits.clone(), way: self }))
    }
}

/// Not on; because of this limit, if it is one.
fn refuse(limits: &Limits, limit: Option<usize>, stop: Stop) -> End {
    Err(refused(limits, limit, stop))
}

/// From the door on. Apart, and cold, as the two below, so that the code of the shortest way stays together.
#[cold]
pub(super) fn through(
    (limits, request): Through<'_>,
    door: &Door,
    place: &mut Place,
) -> Result<End, Box<Waiting>> {
    let mut way = Way::default();
    let end = way.enter(door.entry(request), (limits, request), place);
    way.comes_to(end, limits)
}

/// From this step of a walk on.
#[cold]
pub(super) fn along(
    (limits, request): Through<'_>,
    walk: Walk,
    next: Next,
    place: &mut Place,
) -> Result<End, Box<Waiting>> {
    let mut way = Way { walk, ..Way::default() };
    let end = way.go_on_with(next, (limits, request), place);
    way.comes_to(end, limits)
}

/// From the store's answer on.
#[cold]
pub(super) fn behind(
    limits: &Limits,
    asks: Asks,
    answer: Result<Result<Decision, StoreError>, DecisionFuture>,
    place: &mut Place,
) -> Result<End, Box<Waiting>> {
    let mut way = Way { asks, ..Way::default() };
    let end = match answer {
        Ok(result) => way.decided(limits, result, place),
        Err(deciding) => way.deciding(limits, deciding, place),
    };
    way.comes_to(end, limits)
}

/// A request that has to wait, and the limits that it began with.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only the guard has one")]
pub struct Waiting {
    limits: Limits,
    way: Way,
}

impl Waiting {
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        request: RequestView<'_>,
        place: &mut Place,
    ) -> Poll<End> {
        let end = ready!(self.way.poll(cx, (&self.limits, request), place));
        if self.limits.settings().routes {
            self.limits.tell_route(request, &end);
        }
        Poll::Ready(end)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Step::Turn(_) = self.way.step {
            let first = self.way.asks.iter().next().map(|asked| asked.limit);
            self.limits.notice(first, None);
        }
    }
}
