//! The decision of a layer with its policies, and the part of it that a client may see: [`Decided`] and [`Shown`].
//!
//! A hidden policy still refuses, and its wait still counts: only its name and its numbers are left
//! out. Fields and bodies both come from [`Shown`], so that both hide the same.

use std::cmp::Reverse;
use std::ops::Deref;
use std::sync::Arc;

use http::Extensions;
use sluicegate_core::policy::PolicyQuota;
use sluicegate_core::store::QuotaStatus;
pub(crate) use sluicegate_core::support::ceil_seconds;
use sluicegate_core::{Decision, Outcome, Policy};

/// The decision of a layer about a request, and its policies.
///
/// Handlers find the decision of the innermost layer that is [`decided()`](crate::RateLimitLayer::decided) in the extensions of their
/// request; with the feature `axum` it is an extractor. A response carries the joined decision of all layers: a refusal always, and any other response if a layer
/// of ours or outer middleware has [asked for it](Self::ask_for).
/// It derefs to [`Decision`], and names the policies and quotas that the numbers belong to:
///
/// ```
/// use http::Request;
/// use sluicegate_tower::rate_limit::Decided;
///
/// fn left(request: &Request<()>) -> Option<String> {
///     let decided: &Decided = request.extensions().get()?;
///     Some(format!("{} of {} left by {}", decided.remaining(), decided.capacity(), decided.policy()?.name()))
/// }
/// # assert_eq!(left(&Request::new(())), None);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Decided {
    /// The outcome, and the statuses of the quotas.
    pub decision: Decision,
    /// The policies that were asked, in the order of the limits; with nested layers, the outer layer's first.
    pub policies: Arc<[Arc<Policy>]>,
}

impl Decided {
    /// A decision by these policies, one per ask.
    #[inline]
    pub fn new(decision: Decision, policies: Arc<[Arc<Policy>]>) -> Self {
        Self { decision, policies }
    }

    /// Asks the inner layers to put their decision on the request with these extensions into the extensions of its
    /// response, for middleware around the layers. Otherwise only refusals carry the decision.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::key::HeaderKey;
    /// use sluicegate_tower::limits::Limits;
    /// use sluicegate_tower::rate_limit::Decided;
    /// use sluicegate_tower::Limit;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let per_key = Policy::gcra("per-key", "5/min").on(&MemoryStore::new())?;
    /// let limits = Limits::new(Limit::new(per_key).key(HeaderKey::new("x-api-key")?));
    ///
    /// let mut request = Request::get("/").header("x-api-key", "k1").body(())?;
    /// Decided::ask_for(request.extensions_mut());
    /// let mut admitted = limits.decide(&request).await?;
    /// admitted.enter(request.extensions_mut());
    /// let response = admitted.leave(Response::new("hello"));
    /// assert_eq!(response.extensions().get::<Decided>().map(|decided| decided.remaining()), Some(4));
    /// # Ok(())
    /// # }
    /// ```
    pub fn ask_for(extensions: &mut Extensions) {
        extensions.insert(Announced);
    }

    /// The policy that decided.
    pub fn policy(&self) -> Option<&Policy> {
        self.policy_of(self.deciding())
    }

    /// The policy that a quota of this decision belongs to.
    pub fn policy_of(&self, status: &QuotaStatus) -> Option<&Policy> {
        self.policies.get(status.policy_index()).map(Arc::as_ref)
    }

    /// The quota that a status of this decision is about.
    pub fn quota_of(&self, status: &QuotaStatus) -> Option<&PolicyQuota> {
        self.policy_of(status)?.quotas().get(status.quota_index())
    }

    /// This decision joined with the decision of an inner layer on the same request.
    #[must_use]
    pub fn merge(&self, inner: &Self) -> Self {
        let decision = self.decision.merge(self.policies.len(), &inner.decision);
        Self::new(decision, self.policies.iter().chain(&*inner.policies).cloned().collect())
    }
}

/// Marks a request with a response that an outer layer searches for the decision of inner layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced;

/// Derefs to the decision, as other extractors deref to their content.
impl Deref for Decided {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.decision
    }
}

/// A decision as the client may see it: computed once, for header fields and bodies alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a> {
    pub(crate) decided: &'a Decided,
    /// The status with the numbers for clients: of the quota that decided, if its policy is not hidden; otherwise of the
    /// tightest quota that is not hidden.
    pub(crate) status: Option<&'a QuotaStatus>,
    /// Whole seconds after which a refused request may be tried again: at least 1, and never before the wait is over.
    pub(crate) wait: Option<u64>,
    /// Whether a policy is hidden.
    hides: bool,
}

/// A quota with its status.
pub(super) type ShownQuota<'a> = (&'a QuotaStatus, &'a PolicyQuota);

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
    pub(crate) fn quotas(self) -> impl Iterator<Item = ShownQuota<'a>> + Clone {
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

/// The largest number: structured fields hold integers of at most 15 digits (RFC 9651, section 3.3.1), and bodies show the same numbers.
pub(crate) const MOST: u64 = 999_999_999_999_999;
