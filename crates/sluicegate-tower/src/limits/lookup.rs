//! The wait of a walk for a key or a limiter: [`PendingLookup`].

use std::task::{Context, Poll, ready};

use sluicegate_core::Key;

use crate::guard::Place;
use crate::guard::gate::{Lookup, Waits};
use crate::key::{Extraction, MissingKey, RequestView};
use crate::limits::finding::{AskTerms, LimitFinding};
use crate::limits::of_request::PendingValue;
use crate::limits::pick::Pick;
use crate::limits::plan::LimitPlan;
use crate::limits::walk::WalkStep;
use crate::respond::stop::Stop;

/// The pending key or limiter of a limit.
#[derive(Debug)]
pub(crate) enum PendingLookup {
    /// The limiter of the limit at this index, for a request with this cost.
    Limiter(usize, Lookup<PendingValue<Pick>>, u64),
    Key(Lookup<Extraction>, AskTerms),
}

impl PendingLookup {
    /// Waits for it, and continues with its limit.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        (plan, request): (&LimitPlan, RequestView<'_>),
        waits: &Waits,
        place: &mut Place,
    ) -> Poll<WalkStep> {
        let (limit, finding) = match self {
            Self::Limiter(index, lookup, cost) => {
                let limit = &plan.limits[*index];
                match ready!(lookup.poll(cx, waits, place)) {
                    Ok(pick) => {
                        let terms = limit.picked(*index, pick, *cost);
                        return Poll::Ready(extract(plan, terms, request));
                    }
                    Err(reason) => {
                        (*index, LimitFinding::refusing(limit.mode(None), Stop::Plain(reason.into())))
                    }
                }
            }
            Self::Key(lookup, terms) => {
                let finding = match ready!(lookup.poll(cx, waits, place)) {
                    Ok(key) => LimitFinding::with_key(plan, terms.take(), key),
                    Err(reason) => LimitFinding::refusing(terms.mode, Stop::Plain(reason.into())),
                };
                (terms.limit, finding)
            }
        };
        Poll::Ready(WalkStep::Found(limit, finding))
    }
}

/// Continues with the terms of a limit: extracts the key.
#[inline]
pub(crate) fn extract(
    plan: &LimitPlan,
    terms: Result<AskTerms, WalkStep>,
    request: RequestView<'_>,
) -> WalkStep {
    match terms {
        Ok(terms) => {
            let key = plan.limits[terms.limit].key.extract(request).now();
            keyed(plan, terms, key)
        }
        Err(next) => next,
    }
}

/// Continues with the extractor's answer: makes the ask.
pub(crate) fn keyed(
    plan: &LimitPlan,
    terms: AskTerms,
    key: Result<Result<Key, MissingKey>, Extraction>,
) -> WalkStep {
    match key {
        Ok(key) => WalkStep::Found(terms.limit, LimitFinding::with_key(plan, terms, key)),
        Err(pending) => WalkStep::Waits(Box::new(PendingLookup::Key(Lookup::new(pending), terms))),
    }
}
