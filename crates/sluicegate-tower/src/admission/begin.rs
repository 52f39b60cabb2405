//! Begins the decision on a request.
//!
//! A *simple* limit has one limiter, a fixed cost, and nothing else to find out for a request than its key. If it is the only limit that
//! applies, one look of the store at that key is the decision, and the request is admitted with the numbers that the look has found. All other
//! requests, and those that one look does not decide, go [the way](super::way) from limit to limit.

use std::mem;

use sluicegate_core::Key;
use sluicegate_core::store::ShortAnswer;

use crate::admission::admitted::{Admitted, Numbers};
use crate::admission::report::Timed;
use crate::admission::set::Limits;
use crate::admission::way::{Begun, Reached, start_at_door, start_at_limit};
use crate::guard::Place;
use crate::key::{Extraction, RequestView};
use crate::limits::door::DoorVerdict;
use crate::limits::lookup::{extract, keyed};
use crate::limits::walk::{Walk, WalkStep};
use crate::respond::stop::Stop;
use crate::trace;

impl Limits {
    /// Decides by these limits, if the request does not have to wait.
    #[inline]
    pub(super) fn begin(&self, request: RequestView<'_>, place: &mut Place) -> Begun {
        let (is_routed, is_traced) = (self.made.settings.routes, trace::is_wanted());
        let timed = is_routed.then(Timed::new);
        let mut begun = match self.made.is_one_simple {
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
                if is_only && plan.limits[first].is_simple() {
                    return self.decide_by_only(first, request, is_traced, place);
                }
                extract(plan, plan.limits[first].terms(first, &request), request)
            }
        };
        start_at_limit(self, walk, next, request, place)
    }

    /// Decides by the limit at this index, which is simple, and the only one that applies.
    #[inline]
    fn decide_by_only(
        &self,
        index: usize,
        request: RequestView<'_>,
        is_traced: bool,
        place: &mut Place,
    ) -> Begun {
        let limit = &self.made.plan.limits[index];
        let limiter = &limit.source.known()[0];
        if let Some(address) = limit.peers.as_ref().and_then(|peers| peers.bucket(request)) {
            let answer = limiter.spend_short(address, limit.cost);
            return self.decide_by_look(index, answer, || address.into(), request, is_traced, place);
        }
        let mut extraction = limit.key.extract(request);
        let Some(key) = extraction.key() else {
            return self.decide_by_key(index, extraction, request, place);
        };
        key.set_kind(limit.kind);
        let answer = limiter.spend_short(&*key, limit.cost);
        let key = || mem::replace(key, Key::shared());
        self.decide_by_look(index, answer, key, request, is_traced, place)
    }

    /// Decides by what one look has found, if it was enough; the key is only made if it is needed later.
    #[inline(always)]
    fn decide_by_look(
        &self,
        index: usize,
        answer: Option<ShortAnswer>,
        key: impl FnOnce() -> Key,
        request: RequestView<'_>,
        is_traced: bool,
        place: &mut Place,
    ) -> Begun {
        let made = &self.made;
        let Some(answer) = answer else {
            return self.decide_by_key(index, Extraction::found(key()), request, place);
        };
        if !answer.status().passed() {
            return self.refuse_by_look(index, answer);
        }
        if !made.marks && !is_traced {
            return Reached::Admitted(Admitted::unmarked());
        }
        let numbers = Numbers::new(made, index, key(), answer);
        Reached::Admitted(match made.keeps_spends || is_traced {
            false => Admitted::with_numbers(numbers),
            true => numbers.into_marked().into(),
        })
    }

    #[cold]
    fn refuse_by_look(&self, limit: usize, answer: ShortAnswer) -> Begun {
        let decided = self.made.label_of(limit, answer.into());
        Reached::Refused(self.refuse(Some(limit), Stop::Decided(decided)))
    }

    /// Decides by the limit at this index, the only one that applies, with the answer of its extractor.
    #[cold]
    fn decide_by_key(
        &self,
        index: usize,
        extraction: Extraction,
        request: RequestView<'_>,
        place: &mut Place,
    ) -> Begun {
        let plan = self.plan();
        let next = match plan.limits[index].terms(index, &request) {
            Ok(terms) => keyed(plan, terms, extraction.now()),
            Err(next) => next,
        };
        start_at_limit(self, Walk::over(), next, request, place)
    }
}
