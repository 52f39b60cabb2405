//! Starts the decision on a request.
//!
//! Fast path: one limit applies, its key is at hand and its store is in memory, as for almost every request. It decides without
//! allocating. All other requests continue in `way`.

use std::mem;

use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{Decision, Key};

use crate::admission::admitted::Admitted;
use crate::admission::marks::Marked;
use crate::admission::report::Timed;
use crate::admission::set::{BuiltLimits, Limits};
use crate::admission::way::{self, Begun};
use crate::guard::Place;
use crate::key::RequestView;
use crate::limits::door::DoorVerdict;
use crate::limits::finding::{AskTerms, RequestAsk};
use crate::limits::limit::Limit;
use crate::limits::lookup::keyed;
use crate::limits::walk::{Walk, WalkStep};
use crate::trace;

impl Limits {
    /// Decides by these limits: returns the end if the request does not have to wait, otherwise the wait.
    #[inline]
    pub(super) fn begin(&self, request: RequestView<'_>, place: &mut Place) -> Begun {
        let routes = self.made.settings.routes;
        let timed = routes.then(Timed::new);
        let mut begun = self.begin_untold(request, place);
        if routes || trace::is_on() {
            self.tell_of(request, &mut begun, timed);
        }
        begun
    }

    /// Reports a request that has begun to the store and the span.
    #[cold]
    fn tell_of(&self, request: RequestView<'_>, begun: &mut Begun, timed: Option<Timed>) {
        match begun {
            Ok(end) => self.report(request, end, timed.as_ref()),
            Err(held) => held.begin(request, timed),
        }
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
        let mut walk = Walk::default();
        let Some(first) = walk.applying(plan, request) else {
            return way::along((self, request), (walk, WalkStep::End), place);
        };
        let is_only = !walk.goes_on(plan, request);
        let limit = &plan.limits[first];
        match limit.terms(first, &request) {
            // Borrowed, because copying words that were just written stalls on store forwarding.
            Ok(ref mut terms) => {
                let is_plain = is_only && terms.mode == PolicyMode::Enforce && limit.bandwidth.is_none();
                let mut key = limit.key.extract(request);
                if let (true, Some(key)) = (is_plain, key.key()) {
                    key.set_kind(limit.kind);
                    terms.give(limit, key);
                    return self.decide_one((limit, terms), key, place);
                }
                let next = keyed(plan, terms.take(), key.now());
                way::along((self, request), (walk, next), place)
            }
            Err(next) => way::along((self, request), (walk, next), place),
        }
    }

    /// Asks the only limiter, and continues with its answer. The key is moved only if it is needed later.
    #[inline]
    fn decide_one(&self, (limit, terms): (&Limit, &mut AskTerms), key: &mut Key, place: &mut Place) -> Begun {
        let marks = self.made.marks;
        let deciding = limit.source.limiter(&terms.which).check(&*key).cost(terms.cost).start();
        let is_traced = trace::is_wanted();
        let ask = RequestAsk::new(terms.take(), mem::replace(key, Key::shared()));
        // Looked at before it is moved, because a decision is large.
        match deciding.known() {
            Some(Ok(decision)) if marks && goes_on(decision) => {
                let decision = deciding.now().ok().and_then(Result::ok);
                let marked = Marked::new(&self.made, ask.into(), decision, Vec::new());
                Ok(Ok(Admitted::new(Some(marked))))
            }
            Some(Ok(decision)) if !is_traced && goes_on(decision) => Ok(Ok(Admitted::new(None))),
            _ => way::behind(self, ask, deciding, place),
        }
    }
}

/// Whether the request is counted, and may go on at once.
#[inline]
fn goes_on(decision: &Decision) -> bool {
    decision.is_allowed() && decision.delay().is_zero() && decision.is_counted()
}
