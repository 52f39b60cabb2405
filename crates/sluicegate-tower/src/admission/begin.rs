//! Begins the decision on a request.
//!
//! If only one limit applies, and its limiter and its key are at hand, one look of the store at that key is the decision, and the request is
//! admitted with the numbers that the look has found. All other requests, and those that one look does not decide, go [the way](super::way) from
//! limit to limit.

use std::mem;

use sluicegate_core::Key;
use sluicegate_core::limiter::policies;
use sluicegate_core::store::ShortAnswer;

use crate::admission::admitted::{Admitted, LookedKey, Numbers};
use crate::admission::report::Timed;
use crate::admission::set::Limits;
use crate::admission::way::{Begun, Reached, start_at_door, start_at_limit};
use crate::guard::Place;
use crate::key::{Extraction, RequestView};
use crate::limits::door::DoorVerdict;
use crate::limits::walk::{AskTerms, Walk, WalkStep, extract, keyed};
use crate::respond::decided::Decided;
use crate::respond::stop::Stop;
use crate::trace;

impl Limits {
    /// Decides by these limits, if the request does not have to wait.
    #[inline]
    pub(super) fn begin(&self, request: RequestView<'_>, place: &mut Place) -> Begun {
        let (is_routed, is_traced) = (self.made.settings.routes, trace::is_wanted());
        let timed = is_routed.then(Timed::new);
        let mut begun = match self.made.is_one {
            true => self.decide_by_only(0, request, is_traced, place),
            false => self.decide_by_walk(request, is_traced, place),
        };
        if is_routed || is_traced {
            self.report_begun(request, &mut begun, timed);
        }
        begun
    }

    /// Reports a request that has begun to the store and the span.
    #[cold]
    fn report_begun(&self, request: RequestView<'_>, begun: &mut Begun, timed: Option<Timed>) {
        match begun {
            Reached::Admitted(admitted) => self.report(request, Ok(admitted), timed.as_ref()),
            Reached::Refused(refused) => self.report(request, Err(refused), timed.as_ref()),
            Reached::Waits(held) => held.begin(request, timed),
        }
    }

    /// Finds the limits that apply, and decides by them.
    #[inline(never)]
    fn decide_by_walk(&self, request: RequestView<'_>, is_traced: bool, place: &mut Place) -> Begun {
        let plan = self.plan();
        if let Some(door) = &self.settings().door {
            match door.entry(request) {
                DoorVerdict::ToTheLimits => {}
                verdict => return start_at_door(self, verdict, request, place),
            }
        }
        let mut walk = Walk::default();
        let next = match walk.applying(plan, request) {
            None => WalkStep::End,
            Some(first) => {
                let is_only = !walk.goes_on(plan, request);
                if is_only && plan.limits[first].bandwidth.is_none() {
                    return self.decide_by_only(first, request, is_traced, place);
                }
                extract(plan, plan.limits[first].terms(first, &request), request)
            }
        };
        start_at_limit(self, walk, next, request, place)
    }

    /// Decides by the limit at this index, the only one that applies.
    #[inline]
    fn decide_by_only(
        &self,
        index: usize,
        request: RequestView<'_>,
        is_traced: bool,
        place: &mut Place,
    ) -> Begun {
        let limit = &self.plan().limits[index];
        let mut terms = match limit.terms(index, &request) {
            Ok(terms) => terms,
            Err(next) => return start_at_limit(self, Walk::over(), next, request, place),
        };
        let (limiter, cost) = (terms.limiter(self.plan()), terms.cost);
        if let Some(address) = limit.peers.as_ref().and_then(|peers| peers.bucket(&request)) {
            let answer = limiter.spend_short(address, cost);
            return self.decide_by_look(
                &mut terms,
                answer,
                || LookedKey::Peer(address),
                &request,
                is_traced,
                place,
            );
        }
        let mut extraction = limit.key.extract(request);
        let Some(key) = extraction.key() else {
            return self.decide_by_key(&mut terms, extraction, &request, place);
        };
        key.set_kind(limit.kind);
        let answer = limiter.spend_short(&*key, cost);
        let key = || LookedKey::Key(mem::replace(key, Key::shared()));
        self.decide_by_look(&mut terms, answer, key, &request, is_traced, place)
    }

    /// Decides by what one look has found, if it was enough; the key is only made if it is needed later.
    #[inline(always)]
    fn decide_by_look(
        &self,
        terms: &mut AskTerms,
        answer: Option<ShortAnswer>,
        key: impl FnOnce() -> LookedKey,
        request: &RequestView<'_>,
        is_traced: bool,
        place: &mut Place,
    ) -> Begun {
        let made = &self.made;
        let Some(answer) = answer else {
            return self.decide_by_key(terms, Extraction::found(Key::from(key())), request, place);
        };
        if !answer.status().passed() {
            return self.refuse_by_look(terms, answer);
        }
        if !made.marks && !is_traced {
            return Reached::Admitted(Admitted::unmarked());
        }
        let numbers = Numbers::new(made, terms.take(), key(), answer);
        Reached::Admitted(match made.keeps_meters || is_traced {
            false => Admitted::with_numbers(numbers),
            true => numbers.into_marked().into(),
        })
    }

    #[cold]
    fn refuse_by_look(&self, terms: &AskTerms, answer: ShortAnswer) -> Begun {
        let decided = Decided::new(answer.into(), policies([terms.limiter(self.plan())]));
        Reached::Refused(self.refuse(Some(terms.limit), Stop::Decided(decided)))
    }

    /// Decides by these terms of the only limit that applies, with the answer of its extractor.
    #[cold]
    fn decide_by_key(
        &self,
        terms: &mut AskTerms,
        extraction: Extraction,
        request: &RequestView<'_>,
        place: &mut Place,
    ) -> Begun {
        let next = keyed(self.plan(), terms.take(), || extraction);
        start_at_limit(self, Walk::over(), next, *request, place)
    }
}
