//! Reports of the limits on requests: events for the store, which counts them, and lines in the log.

use std::sync::Arc;

use sluicegate_core::store::{Event, Subject, Undecided};
use sluicegate_core::{ConfigError, Policy, RateLimiter};

use crate::admission::set::{BuiltLimits, Limits};
use crate::respond::decided::Decided;

impl Limits {
    /// Tells the store of the first limit why this limit did not ask it, or that a turn was given up.
    pub(crate) fn notice(&self, limit: Option<usize>, why: Option<Undecided>) {
        let limits = &self.plan().limits;
        let Some(store) = limits.iter().find_map(|limit| limit.source.store()) else { return };
        let known = limit.and_then(|limit| limits[limit].source.known().first());
        let policy = known.map(RateLimiter::policy);
        let subject = policy.as_ref().map_or_else(Subject::default, |policy| Subject::of(policy.name()));
        store.notice(&match why {
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

    /// Logs once that a limit would read bodies, and that the layer does not.
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

    /// Logs once that a limit would hold bodies, and that the layer does not let it.
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
