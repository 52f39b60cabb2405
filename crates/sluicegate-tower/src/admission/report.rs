//! Reports of the limits on requests: events for the store, which counts them, and lines in the log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluicegate_core::store::{Event, Subject, Undecided};
use sluicegate_core::{ConfigError, Outcome, Policy};

use crate::admission::admitted::Admitted;
use crate::admission::refused::Refused;
use crate::admission::set::{BuiltLimits, Limits};
use crate::key::RequestView;
use crate::respond::decided::Decided;
use crate::trace;

/// The time of the decision on a request, if routes are counted.
#[derive(Debug)]
pub(super) struct Timed {
    began: Instant,
    /// Set when the request begins to wait for its turn, which is not part of the decision.
    took: Option<Duration>,
}

impl Timed {
    #[inline]
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), took: None }
    }

    /// The decision has been made, and the request waits for its turn.
    pub(super) fn waits(&mut self) {
        self.took = Some(self.took());
    }

    fn took(&self) -> Duration {
        self.took.unwrap_or_else(|| self.began.elapsed())
    }
}

impl Limits {
    /// Reports a decision to the store, if routes are counted, and to the span of the request.
    pub(super) fn report(
        &self,
        request: RequestView<'_>,
        end: Result<&mut Admitted, &mut Refused>,
        timed: Option<&Timed>,
    ) {
        if let Some(timed) = timed {
            let outcome = match &end {
                Ok(admitted) => admitted.is_decided().then_some(Outcome::Allowed),
                Err(refused) => refused.decided().map(|decided| decided.outcome()),
            };
            self.report_route(request, outcome, timed);
        }
        if trace::is_on() {
            match end {
                Ok(admitted) => admitted.trace_in(request.extensions),
                Err(refused) => refused.trace_in(request.extensions),
            }
        }
    }

    /// Reports the decision and the route of a request to the store of the first limit, if routes are counted. Requests without a decision
    /// are reported elsewhere, with the reason.
    fn report_route(&self, request: RequestView<'_>, outcome: Option<Outcome>, timed: &Timed) {
        let first = self.plan().limits.first();
        if let (Some(outcome), Some(limit)) = (outcome, first) {
            limit.source.store().notice(&Event::Routed {
                route: request.route(),
                outcome,
                took: timed.took(),
            });
        }
    }

    /// Reports to the store of the first limit why this limit did not ask it, or that a turn was given up.
    pub(crate) fn notice(&self, limit: Option<usize>, why: Option<Undecided>) {
        let limits = &self.plan().limits;
        let Some(first) = limits.first() else { return };
        let policy = limit.map(|limit| limits[limit].source.known()[0].policy());
        let subject = policy.as_ref().map_or_else(Subject::default, |policy| Subject::of(policy.name()));
        first.source.store().notice(&match why {
            Some(why) => Event::Undecided(subject, why),
            None => Event::TurnGivenUp(subject),
        });
    }
}

impl BuiltLimits {
    /// Logs once that two stacked layers ask the same policy.
    #[cold]
    pub(super) fn report_double(&self, outer: &Decided, inner: &Decided) {
        if self.double.is_completed() {
            return;
        }
        let twice = |policy: &&Arc<Policy>| inner.policies.iter().any(|other| Arc::ptr_eq(policy, other));
        if let Some(policy) = outer.policies.iter().find(twice) {
            self.double.call_once(|| {
                tracing::warn!(
                    policy = policy.name(),
                    "two layers around each other ask the same policy, so that a request may spend from it twice: leave one of \
                     them out, or give each a policy of its own; this is said once"
                );
            });
        }
    }

    /// Logs once that a limit needs bodies, but the layer does not read them.
    #[cold]
    pub(super) fn report_unread(&self, limit: usize) {
        self.unread.call_once(|| {
            tracing::error!(
                limit = self.plan.limits[limit].title(),
                "the limit settles by the bodies of responses, and the layer does not read them, so that requests keep what \
                 they have reserved: make the layer by `.settling()`; this is said once"
            );
        });
    }

    /// Logs once that a limit needs to delay bodies, but the layer does not support it.
    #[cold]
    pub(super) fn report_unheld(&self, limit: usize, how: &str) {
        self.unheld.call_once(|| {
            tracing::error!(
                limit = self.plan.limits[limit].title(),
                "the limit is one of bandwidth, and bodies pass without it: {how}; this is said once"
            );
        });
    }

    /// Logs once that fields cannot be read, because bodies are compressed.
    #[cold]
    pub(super) fn report_encoded(&self, limit: usize) {
        self.encoded.call_once(|| {
            tracing::warn!(
                limit = self.plan.limits[limit].title(),
                "the body of a response is compressed, so that no field in it can be read, and the request keeps what it has \
                 reserved: put compression around the limit, or ask the upstream for plain bodies; this is said once"
            );
        });
    }

    /// Logs that the limits of a request cannot be decided, at most once a second.
    pub(super) fn report_mistake(&self, error: &ConfigError) {
        if self.mistake.is_due() {
            tracing::error!(%error, "requests are refused with 500");
        }
    }
}
