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
//! Almost every request meets one limit whose key is at hand, with a store in memory:
//! [`begin_with_one`](Limits::begin_with_one) takes it there without a list and without a box.

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
use crate::admission::refused::Refused;
use crate::admission::set::Limits;
use crate::admission::trial::Trial;
use crate::guard::Place;
use crate::guard::lookup::Lookup;
use crate::key::RequestView;
use crate::limits::door::{Answer, Entry};
use crate::limits::walk::{Asked, Finding, First, Found, Next, Walk};
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

/// Where it ends: on to the service, with what its response is to be marked with if anything, or not. Both in a box, for
/// they are large and go through many hands.
pub(crate) type End = Result<Option<Box<Marked>>, Box<Refused>>;

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

    fn deciding(&mut self, limits: &Limits, deciding: DecisionFuture, place: &mut Place) -> Option<End> {
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
            Err(refused) => Some(refuse(limits, None, Stop::Decided(self.asks.label(limits, refused)))),
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
        if !limits.marks_responses() {
            return None;
        }
        Some(Marked::new(limits, mem::take(&mut self.asks), decision, mem::take(&mut self.trials)))
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
}

/// On to the inner service, with nothing that was counted.
#[inline]
fn uncounted(limits: &Limits) -> Option<Box<Marked>> {
    // A request that no limit counted has a meter too, so that handlers need not care.
    limits.settings().meters.then(|| Box::new(Marked::of_nothing(limits)))
}

/// Not on; because of this limit, if it is one.
fn refuse(limits: &Limits, limit: Option<usize>, stop: Stop) -> End {
    Err(refused(limits, limit, stop))
}

fn refused(limits: &Limits, limit: Option<usize>, stop: Stop) -> Box<Refused> {
    if let Stop::Mistake(error) = &stop {
        limits.report_mistake(error);
    }
    if let Some(why) = stop.undecided() {
        limits.notice(limit, Some(why));
    }
    Box::new(Refused::new(limits, stop))
}

impl Limits {
    /// The end of a request's way, if it comes to it without waiting.
    #[inline]
    pub(crate) fn begin(&self, request: RequestView<'_>, place: &mut Place) -> Result<End, Box<Waiting>> {
        if let Some(door) = &self.settings().door {
            let way = Way::default();
            return way.begin(self, |way| way.enter(door.entry(request), (self, request), place));
        }
        match Walk::first(self.plan(), request) {
            First::Only(asked) => self.begin_with_one(asked, place),
            First::Other(walk, next) => {
                let way = Way { walk, ..Way::default() };
                way.begin(self, |way| way.go_on_with(next, (self, request), place))
            }
        }
    }

    /// The way of almost every request: one limit asks, and its key is at hand. Lists are for what is not decided at once.
    #[inline]
    fn begin_with_one(&self, asked: Asked, place: &mut Place) -> Result<End, Box<Waiting>> {
        let (limiter, marks) = (asked.limiter(self.plan()), self.marks_responses());
        // Where nobody looks at the numbers, they are not even worked out.
        if !marks && limiter.spend_at_once(&asked.key, asked.cost) {
            return Ok(Ok(None));
        }
        let deciding = limiter.check_cost(&asked.key, asked.cost);
        let goes_on = |decision: &Decision| decision.is_allowed() && decision.delay().is_zero();
        if !marks && matches!(deciding.known(), Some(Ok(decision)) if goes_on(decision)) {
            return Ok(Ok(None));
        }
        let mut asks = Asks::default();
        asks.push(asked);
        match deciding.now() {
            Ok(Ok(decision)) if goes_on(&decision) && decision.is_counted() => {
                Ok(Ok(Some(Marked::new(self, asks, Some(decision), Vec::new()))))
            }
            answer => {
                let way = Way { asks, ..Way::default() };
                way.begin(self, |way| match answer {
                    Ok(result) => way.decided(self, result, place),
                    Err(deciding) => way.deciding(self, deciding, place),
                })
            }
        }
    }
}

impl Way {
    /// Goes as far as it comes at once. Apart, and cold, so that the code of the shortest way stays together.
    #[cold]
    fn begin(
        mut self,
        limits: &Limits,
        go: impl FnOnce(&mut Self) -> Option<End>,
    ) -> Result<End, Box<Waiting>> {
        match go(&mut self) {
            Some(end) => Ok(end),
            None => Err(Box::new(Waiting { limits: limits.clone(), way: self })),
        }
    }
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
