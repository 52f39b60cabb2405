//! The expected refusal of a request by an inner layer, for the wait that an outer layer sends.
//!
//! It uses only data at hand: no key is waited for, and no store is called over a network, because floods cause millions of refusals.
//! A missing key may be added by a layer in between, such as an authentication layer.

use sluicegate_core::store::Mode;
use sluicegate_core::{Key, Outcome};

use crate::admission::asks::RequestAsks;
use crate::admission::foreseen::foreseen;
use crate::admission::refused::Refused;
use crate::admission::set::Limits;
use crate::key::RequestView;
use crate::limits::LimitsHandle;
use crate::limits::door::DoorVerdict;
use crate::limits::finding::LimitFinding;
use crate::limits::walk::{Walk, WalkStep};
use crate::respond::decided::Decided;

impl Refused {
    /// This refusal, with the waits of these limits added: a client that waits for this time passes all of them.
    pub(crate) fn with(
        mut self: Box<Self>,
        further_in: &[LimitsHandle],
        request: RequestView<'_>,
    ) -> Box<Self> {
        if self.decided().is_some_and(waits) {
            for inner in further_in.iter().filter_map(|inner| inner.current().would_refuse(request)) {
                self.merge(&inner);
            }
        }
        self
    }
}

impl Limits {
    /// The decision of these limits to refuse the request, if it could pass later. It spends nothing.
    fn would_refuse(&self, request: RequestView<'_>) -> Option<Decided> {
        let entry =
            self.settings().door.as_ref().map_or(DoorVerdict::ToTheLimits, |door| door.entry(request));
        let DoorVerdict::ToTheLimits = entry else { return None };
        let (plan, mut walk, mut asks) = (self.plan(), Walk::default(), RequestAsks::default());
        loop {
            match walk.next(plan, request) {
                WalkStep::Found(_, LimitFinding::Asks { ask, .. }) if ask.key == Key::shared() => {
                    return None;
                }
                WalkStep::Found(_, LimitFinding::Asks { ask, is_enforced: true }) => asks.push(ask),
                WalkStep::Found(_, LimitFinding::Refuses(_)) | WalkStep::Waits(_) => return None,
                WalkStep::Found(..) => {}
                WalkStep::End => break,
            }
        }
        let is_near = asks.limiters(plan).all(|limiter| limiter.store().always_answers());
        if asks.is_empty() || !is_near || asks.check(plan).is_err() {
            return None;
        }
        let looked = asks.decide(plan, Some(Mode::Peek)).now().ok()?.ok()?;
        let decided = asks.label(self.made(), foreseen(&asks, plan, &looked));
        waits(&decided).then_some(decided)
    }
}

/// Whether it refuses a request that could pass later.
fn waits(decided: &Decided) -> bool {
    matches!(decided.outcome(), Outcome::Denied | Outcome::Suspended)
}
