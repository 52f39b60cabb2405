//! The way of a request to its decision: tiers, keys, verdict, turn. Each step is taken at once where it can be.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Response;
use sluicegate_core::Key;
use sluicegate_core::limiter::Turn;
use sluicegate_core::store::DecisionFuture;

use crate::guard::Place;
use crate::guard::lookup::Lookup;
use crate::key::missing::OnMissingKey;
use crate::key::{Extraction, MissingKey, RequestView};
use crate::limits::conditions::{Asking, Choice};
use crate::limits::predicate::{Answer, Entry};
use crate::rate_limit::asks::{Asked, Asks};
use crate::rate_limit::decide::refuse;
use crate::rate_limit::mark::Marked;
use crate::rate_limit::shared::Shared;
use crate::rate_limit::trial::Trial;
use crate::respond::refusal::{RefusalReason, Respond};

/// The limits that a request was found to be subject to, so far.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    pub(crate) asks: Asks,
    /// What is asked of policies that are only tried out, and then what was.
    pub(crate) tried: Vec<Asked>,
    pub(crate) trials: Vec<Arc<Trial>>,
    /// The place of a request that has to wait, for as long as it is not called.
    pub(crate) place: Place,
    /// The limit that comes next.
    next: usize,
}

/// What has to be waited for.
#[derive(Debug)]
pub(crate) enum Step {
    Exemption(Lookup<Answer>),
    Tier(Lookup<Choice>, u64),
    Key(Lookup<Extraction>, Wanted),
    /// In a box of its own, for it is large, and a request waits for its turn for longer.
    Decision(Box<DecisionFuture>),
    Turn(Turn),
}

/// Of which limiter how much is asked, once the key is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    slot: usize,
    cost: u64,
}

/// What a step led to.
pub(crate) enum Next<B> {
    /// On to the inner service; with a decision, if the response is to be marked with it.
    Go(Option<Box<Marked>>),
    Refuse(Response<B>),
    /// In a box, for it is large and rare.
    Wait(Box<Step>),
}

impl Gate {
    /// Goes as far as it can without waiting.
    pub(crate) fn enter<R: Respond<B>, B>(
        &mut self,
        shared: &Shared<R>,
        request: RequestView<'_>,
    ) -> Next<B> {
        match &shared.door {
            Some(door) => self.enter_by(door.entry(request), shared, request),
            None => self.go_on(shared, request),
        }
    }

    fn enter_by<R: Respond<B>, B>(
        &mut self,
        entry: Entry,
        shared: &Shared<R>,
        request: RequestView<'_>,
    ) -> Next<B> {
        match entry {
            Entry::ToTheLimits => self.go_on(shared, request),
            Entry::PastTheLimits => Next::Go(None),
            Entry::Refused => refuse(shared, request, RefusalReason::Blocked),
            Entry::Asking(answer) => Next::Wait(Box::new(Step::Exemption(Lookup::new(answer)))),
        }
    }

    fn go_on<R: Respond<B>, B>(&mut self, shared: &Shared<R>, request: RequestView<'_>) -> Next<B> {
        while let Some(limit) = shared.limits.get(self.next) {
            if let Some(next) = self.ask(shared, request, limit.asking(request)) {
                return next;
            }
        }
        self.decide(shared, request)
    }

    /// Waits for a step, and goes on from there as far as it can.
    pub(crate) fn poll<R: Respond<B>, B>(
        &mut self,
        step: &mut Step,
        cx: &mut Context<'_>,
        shared: &Shared<R>,
        request: RequestView<'_>,
    ) -> Poll<Next<B>> {
        loop {
            let next = match step {
                Step::Exemption(lookup) => {
                    // An answer that does not come exempts no request.
                    let is_exempt = ready!(lookup.poll(cx, &shared.waits, &mut self.place)).unwrap_or(false);
                    let entry = shared.door.as_ref().map(|door| door.entry_of(is_exempt, request));
                    self.enter_by(entry.unwrap_or(Entry::ToTheLimits), shared, request)
                }
                Step::Tier(lookup, cost) => {
                    let next = match ready!(lookup.poll(cx, &shared.waits, &mut self.place)) {
                        Ok(tier) => self.ask(shared, request, Asking::of(tier, *cost)),
                        Err(reason) => {
                            let tries_out = shared.only_tries_out(&shared.limits[self.next]);
                            self.not_found(shared, request, reason, tries_out)
                        }
                    };
                    next.unwrap_or_else(|| self.go_on(shared, request))
                }
                Step::Key(lookup, wanted) => {
                    let next = match ready!(lookup.poll(cx, &shared.waits, &mut self.place)) {
                        Ok(found) => self.found(shared, request, *wanted, found),
                        Err(reason) => {
                            let tries_out = shared.plan().policies[wanted.slot].is_shadow();
                            self.not_found(shared, request, reason, tries_out)
                        }
                    };
                    next.unwrap_or_else(|| self.go_on(shared, request))
                }
                Step::Decision(verdict) => {
                    let result = ready!(Pin::new(verdict).poll(cx));
                    self.decided(shared, request, result)
                }
                Step::Turn(turn) => {
                    let decision = ready!(Pin::new(turn).poll(cx));
                    // Not before: a client that hangs up while it waits has spent nothing.
                    self.try_out(shared);
                    self.pass(shared, decision)
                }
            };
            match next {
                Next::Wait(following) => *step = *following,
                next => return Poll::Ready(next),
            }
        }
    }

    /// Finds out whose bucket it is that the next limit asks of.
    #[inline]
    fn ask<R: Respond<B>, B>(
        &mut self,
        shared: &Shared<R>,
        request: RequestView<'_>,
        asking: Asking,
    ) -> Option<Next<B>> {
        let limit = &shared.limits[self.next];
        match asking {
            Asking::For { limiter, cost } => {
                let wanted = Wanted { slot: limit.first_slot + limiter, cost };
                match limit.key.extract(request).now() {
                    Ok(found) => self.found(shared, request, wanted, found),
                    Err(pending) => Some(Next::Wait(Box::new(Step::Key(Lookup::new(pending), wanted)))),
                }
            }
            Asking::Nothing => {
                self.next += 1;
                None
            }
            Asking::Refusal(_) if shared.only_tries_out(limit) => {
                self.next += 1;
                None
            }
            Asking::Refusal(status) => {
                let missing = MissingKey::new("the request is in no known tier");
                Some(refuse(shared, request, RefusalReason::MissingKey(&missing, status)))
            }
            Asking::Choosing { choice, cost } => {
                Some(Next::Wait(Box::new(Step::Tier(Lookup::new(choice), cost))))
            }
        }
    }

    /// Takes note of the next limit's key, or of its absence, for which the request may be refused.
    fn found<R: Respond<B>, B>(
        &mut self,
        shared: &Shared<R>,
        request: RequestView<'_>,
        Wanted { slot, cost }: Wanted,
        found: Result<Key, MissingKey>,
    ) -> Option<Next<B>> {
        let limit = &shared.limits[self.next];
        let plan = shared.plan();
        let is_shadow = plan.has_shadow && plan.policies[slot].is_shadow();
        let key = match found.map_err(|missing| (limit.missing(&missing), missing)) {
            Ok(key) => Some(key),
            Err((OnMissingKey::Share, _)) => Some(Key::shared()),
            Err((OnMissingKey::Skip, _)) => None,
            Err((OnMissingKey::Reject(_), _)) if is_shadow => None,
            Err((OnMissingKey::Reject(status), missing)) => {
                return Some(refuse(shared, request, RefusalReason::MissingKey(&missing, status)));
            }
        };
        if let Some(key) = key {
            let asked = Asked { slot, key, cost };
            if is_shadow { self.tried.push(asked) } else { self.asks.push(asked) }
        }
        self.next += 1;
        None
    }
    /// The next limit's key or tier did not come. A limit that is only tried out refuses nobody for that.
    fn not_found<R: Respond<B>, B>(
        &mut self,
        shared: &Shared<R>,
        request: RequestView<'_>,
        reason: RefusalReason<'_>,
        tries_out: bool,
    ) -> Option<Next<B>> {
        self.next += 1;
        (!tries_out).then(|| refuse(shared, request, reason))
    }
}
