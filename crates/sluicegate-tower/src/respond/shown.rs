//! The part of a decision that a client may see: [`Shown`].
//!
//! A hidden policy still refuses, and its wait still counts: only its name and its numbers are left
//! out. Fields and bodies both come from here, so that neither shows what the other hides.

use std::cmp::Reverse;
use std::time::Duration;

use sluicegate_core::Outcome;
use sluicegate_core::policy::PolicyQuota;
use sluicegate_core::store::QuotaStatus;

use crate::respond::decided::Decided;
use crate::respond::headers::lines::ceil_seconds;

/// A decision as its client may see it: found out once, for header fields and bodies alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a> {
    pub(crate) decided: &'a Decided,
    /// Where the quota stands whose numbers clients see: the one that decided, if its policy is not hidden; otherwise the
    /// tightest of those that are not.
    pub(crate) status: Option<&'a QuotaStatus>,
    /// Whole seconds after which a refused request may be tried again: at least 1, and never before the wait is over.
    pub(crate) wait: Option<u64>,
    /// Whether a policy is hidden.
    hides: bool,
}

/// Where a quota stands, and the quota.
pub(super) type Described<'a> = (&'a QuotaStatus, &'a PolicyQuota);

impl<'a> Shown<'a> {
    #[inline]
    pub(crate) fn of(decided: &'a Decided) -> Self {
        let hides = decided.policies.iter().any(|policy| policy.is_hidden());
        let status = if hides { tightest_shown(decided) } else { Some(decided.deciding()) };
        let wait = decided.retry_after().map(|wait| ceil_seconds(wait).max(1));
        Self { decided, status, wait, hides }
    }

    /// The quotas that are not hidden.
    #[inline]
    pub(crate) fn quotas(self) -> impl Iterator<Item = Described<'a>> + Clone {
        let Self { decided, hides, .. } = self;
        let shown = decided.quotas().iter().filter(move |status| !hides || !is_hidden(decided, status));
        shown.filter_map(|status| Some((status, decided.quota_of(status)?)))
    }

    /// The names of the quotas that refused.
    pub(super) fn violated(self) -> impl Iterator<Item = &'a str> {
        let is_refused = self.decided.outcome() != Outcome::Allowed;
        let refused = self.quotas().filter(move |(status, _)| is_refused && !status.passed());
        refused.map(|(_, quota)| quota.label())
    }

    /// A moment so much after the one at which the numbers hold, as time since the epoch of the store's clock.
    pub(crate) fn at(self, after: Duration) -> Duration {
        self.decided.stands_at().saturating_add(after)
    }
}

fn tightest_shown(decided: &Decided) -> Option<&QuotaStatus> {
    let strictness = |status: &&QuotaStatus| match decided.outcome() {
        Outcome::Allowed => (true, 0, status.remaining(), Reverse(status.reset_after())),
        _ => {
            let wait = status.available_after().as_micros();
            (status.passed(), u128::MAX - wait, status.remaining(), Reverse(status.reset_after()))
        }
    };
    decided.quotas().iter().filter(|status| !is_hidden(decided, status)).min_by_key(strictness)
}

fn is_hidden(decided: &Decided, status: &QuotaStatus) -> bool {
    decided.policy_of(status).is_some_and(|policy| policy.is_hidden())
}
