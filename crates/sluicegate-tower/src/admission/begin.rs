//! Starts the decision on a request.
//!
//! Fast path: one plain limit whose key is at hand and whose store is in memory, as for almost every request. It decides without
//! allocating. All other requests continue in `way`.

use sluicegate_core::limiter::ForLayers;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{Decision, Policy, RateLimiter};

use crate::admission::admitted::Admitted;
use crate::admission::asks::RequestAsks;
use crate::admission::marks::Marked;
use crate::admission::report::Timed;
use crate::admission::set::{BuiltLimits, Limits};
use crate::admission::way::{self, Begun};
use crate::guard::Place;
use crate::key::RequestView;
use crate::limits::door::DoorVerdict;
use crate::limits::finding::{LimitFinding, RequestAsk, given_to};
use crate::limits::pick::Which;
use crate::limits::walk::{Walk, WalkStep};
use crate::trace;

impl Limits {
    /// Decides by these limits: the end if the request need not wait, or else the wait.
    #[inline]
    pub(super) fn begin(&self, request: RequestView<'_>, place: &mut Place) -> Begun {
        match self.made.settings.routes || trace::is_on() {
            false => self.begin_untold(request, place),
            true => self.begin_told(request, place),
        }
    }

    /// Begins, and tells the store and the span of the request.
    #[cold]
    fn begin_told(&self, request: RequestView<'_>, place: &mut Place) -> Begun {
        let timed = self.made.settings.routes.then(Timed::new);
        let mut begun = self.begin_untold(request, place);
        match &mut begun {
            Ok(end) => self.report(request, end, timed.as_ref()),
            Err(held) => held.begin(request, timed),
        }
        begun
    }

    #[inline]
    fn begin_untold(&self, request: RequestView<'_>, place: &mut Place) -> Begun {
        let BuiltLimits { plan, settings, .. } = &*self.made;
        if let Some(door) = &settings.door {
            match door.entry(request) {
                DoorVerdict::ToTheLimits => {}
                entry => return way::through((self, request), entry, place),
            }
        }
        let Some(plain) = &plan.plain else { return self.begin_with_several(request, place) };
        if plain.limiter.with_policy(Policy::mode) != PolicyMode::Enforce {
            return self.begin_with_several(request, place);
        }
        let limit = &plan.limits[0];
        match limit.key.extract(request).now() {
            Ok(Ok(mut key)) => {
                key.set_kind(limit.kind);
                if let Some(given) = given_to(&key, &plain.limiter) {
                    let which = Which::Chosen(given);
                    return self.begin_given(RequestAsk { limit: 0, which, key, cost: plain.cost }, place);
                }
                let ask = RequestAsk { limit: 0, which: Which::Known(0), key, cost: plain.cost };
                self.decide_one(Some(&plain.limiter), ask, place)
            }
            key => {
                let (walk, next) = Walk::behind_plain(plan, plain.cost, key);
                way::along((self, request), None, (walk, next), place)
            }
        }
    }

    /// Decides about a key to which an operator has given quotas.
    #[cold]
    fn begin_given(&self, ask: RequestAsk, place: &mut Place) -> Begun {
        self.decide_one(None, ask, place)
    }

    /// Goes through all limits. A request for which a single limit asks, with its key at hand, is decided as by one limit.
    #[inline(never)]
    fn begin_with_several(&self, request: RequestView<'_>, place: &mut Place) -> Begun {
        let plan = self.plan();
        let (mut walk, mut only) = (Walk::default(), None);
        loop {
            match (walk.next(plan, request), only) {
                (WalkStep::Found(_, LimitFinding::Asks { ask, is_enforced: true }), None) => only = Some(ask),
                (WalkStep::Found(_, LimitFinding::Nothing(_)), ask) => only = ask,
                (WalkStep::End, Some(ask)) => return self.decide_one(None, ask, place),
                (next, ask) => return way::along((self, request), ask, (walk, next), place),
            }
        }
    }

    /// Asks the only limiter that is asked, which is found in the plan if it is not named, and goes on with its answer.
    #[inline]
    fn decide_one(&self, limiter: Option<&RateLimiter>, ask: RequestAsk, place: &mut Place) -> Begun {
        let marks = self.made.marks;
        let limiter = limiter.unwrap_or_else(|| ask.limiter(self.plan()));
        let deciding = limiter.check(&ask.key).cost(ask.cost).start();
        let is_enough = matches!(deciding.known(), Some(Ok(decision)) if !marks && goes_on(decision));
        if is_enough && !trace::is_wanted() {
            return Ok(Ok(Admitted::new(None)));
        }
        match deciding.now() {
            Ok(Ok(decision)) if marks && goes_on(&decision) && decision.is_counted() => {
                let asks = RequestAsks::from(ask);
                let marked = Marked::new(&self.made, asks, Some(decision), Vec::new());
                Ok(Ok(Admitted::new(Some(marked))))
            }
            answer => way::behind(self, ask, answer, place),
        }
    }
}

#[inline]
fn goes_on(decision: &Decision) -> bool {
    decision.is_allowed() && decision.delay().is_zero()
}
