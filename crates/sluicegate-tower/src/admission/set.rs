//! The limits that decide on requests: [`Limits`].

use std::fmt;
use std::sync::{Arc, Once};

use http::StatusCode;
use sluicegate_core::Policy;
use sluicegate_core::support::Seldom;

use crate::admission::check;
use crate::admission::shadow::{ShadowCount, Shadows};
use crate::admission::together::PolicyCache;
use crate::bandwidth::Direction;
use crate::guard::gate::Waits;
use crate::key::KeyForm;
use crate::limits::IntoLimit;
use crate::limits::door::FrontDoor;
use crate::limits::group::Group;
use crate::limits::plan::LimitPlan;
use crate::respond::headers::HeaderFields;
use crate::respond::headers::style::Style;
use crate::respond::stop::Spread;

/// Limits with their settings: the requests that are exempt, how long a request may wait, and the header
/// fields of responses. A [`RateLimitLayer`](crate::RateLimitLayer) puts them in front of a service; without one, they
/// [`decide`](Self::decide) on any request, and [`explain`](Self::explain) their decisions.
///
/// Cheap to clone; clones share queues and counts. A layer can change them as a whole, through its
/// [`LimitsHandle`](crate::limits::LimitsHandle).
///
/// ```
/// use http::Request;
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::Limit;
/// use sluicegate_tower::key::HeaderKey;
/// use sluicegate_tower::limits::Limits;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let per_key = Policy::gcra("per-key", "1/min").on(&MemoryStore::new())?;
/// let limits = Limits::builder(Limit::new(per_key).key(HeaderKey::new("x-api-key")?)).build()?;
///
/// let (request, ()) = Request::get("/").header("x-api-key", "k1").body(())?.into_parts();
/// assert!(limits.decide(&request).await.is_ok());
/// let refused = limits.decide(&request).await.unwrap_err();
/// assert_eq!(refused.refusal(&request).retry_after_seconds(), Some(60));
/// # Ok(())
/// # }
/// ```
///
/// # When to use it
/// Use the [layer](crate::RateLimitLayer) in front of a service. Use this type alone if the decision
/// is needed without a service, and to explain decisions.
#[derive(Clone)]
pub struct Limits {
    pub(super) made: Arc<BuiltLimits>,
    carried: Arc<CarriedOver>,
}

/// The part of limits that their replacements carry over.
struct CarriedOver {
    waits: Waits,
    /// The bounds on waiting responders, in a separate queue: refused requests take no places from others.
    answers: Waits,
    shadows: Shadows,
}

/// The part that does not change.
pub(crate) struct BuiltLimits {
    pub(crate) plan: LimitPlan,
    pub(super) settings: LimitsSettings,
    /// Whether a response may change the spend of its request.
    pub(super) refunds: bool,
    /// Whether requests have a meter, for handlers or because a limit settles.
    pub(super) keeps_meters: bool,
    /// Whether a limit settles by the bodies of responses, or delays them.
    pub(crate) reads_bodies: bool,
    /// Whether a limit delays the bodies of requests.
    pub(crate) holds_requests: bool,
    /// Whether requests need marks until their responses.
    pub(super) marks: bool,
    /// Whether one limit on requests decides about every request, and nothing else.
    pub(super) is_one: bool,
    pub(super) known: PolicyCache,
    pub(super) mistake: Seldom,
    /// Guards the warning that another layer counts with the same policy.
    pub(super) double: Once,
    /// Guards the error that no body is read.
    pub(super) unread: Once,
    /// Guards the error that bodies are not held.
    pub(super) unheld: Once,
    /// Guards the warning that bodies are compressed.
    pub(super) encoded: Once,
}

/// Chooses the status of a refusal by the name of the limit and its policy.
pub(super) type RefuseWith = Box<dyn Fn(Option<&str>, &Policy) -> Option<StatusCode> + Send + Sync>;

/// The settings beside the limits.
pub(crate) struct LimitsSettings {
    /// The exemptions and denials in front of the limits, if there are any.
    pub(crate) door: Option<Box<FrontDoor>>,
    pub(crate) style: Style,
    /// Returns the status of a refusal by this limit and policy, if it is not 429.
    pub(super) refuse_with: Option<RefuseWith>,
    /// Returns the seconds that are added to the wait of a refusal.
    pub(crate) spread: Option<Spread>,
    /// Whether responses carry the decision in their extensions if it is read there, and requests if handlers ask for it.
    pub(crate) extensions: bool,
    /// Whether requests carry a [`Meter`](crate::Meter).
    pub(super) meters: bool,
    /// Whether requests are counted by route.
    pub(crate) routes: bool,
}

impl Default for LimitsSettings {
    fn default() -> Self {
        Self {
            door: None,
            refuse_with: None,
            style: Style::of(HeaderFields::default().form()),
            spread: None,
            extensions: true,
            meters: false,
            routes: false,
        }
    }
}

impl LimitsSettings {
    /// Whether responses show the limits.
    fn mark_responses(&self) -> bool {
        self.extensions || self.style.form.shows() || self.meters || self.routes
    }
}

impl Limits {
    /// One limit. A [`RateLimiter`](sluicegate_core::RateLimiter) alone counts peer addresses.
    pub fn new(limit: impl IntoLimit) -> Self {
        let group = Group::from(limit.into_limit());
        for limit in group.limits().filter(|limit| limit.gives_back()) {
            if let Err(error) = limit.source.keep_accounts() {
                // Not an error for the caller: without accounts, a refund gives back less, never more.
                tracing::warn!(%error, "the store keeps no accounts, so refunds are not exact");
            }
        }
        Self::of(group, LimitsSettings::default(), Waits::default())
    }

    pub(crate) fn of(group: Group, settings: LimitsSettings, waits: Waits) -> Self {
        check::warn_of_invented_keys(&group);
        let plan = LimitPlan::of(group);
        let refunds = plan.limits.iter().any(|limit| limit.gives_back());
        let holds =
            |which: fn(Direction) -> bool| plan.limits.iter().any(|limit| limit.bandwidth.is_some_and(which));
        let (holds_requests, holds_responses) = (holds(Direction::is_up), holds(Direction::is_down));
        let mut settles = plan.limits.iter().filter_map(|limit| limit.settle.as_ref()).peekable();
        let keeps_meters = settings.meters || settles.peek().is_some();
        let made = BuiltLimits {
            refunds,
            keeps_meters,
            is_one: settings.door.is_none() && plan.is_one(),
            reads_bodies: holds_responses || settles.any(|settle| settle.reads_body()),
            holds_requests,
            marks: refunds || holds_requests || holds_responses || settings.mark_responses(),
            known: PolicyCache::default(),
            plan,
            settings,
            mistake: Seldom::default(),
            double: Once::new(),
            unread: Once::new(),
            unheld: Once::new(),
            encoded: Once::new(),
        };
        let carried = CarriedOver { answers: waits.apart(), waits, shadows: Shadows::default() };
        Self { made: Arc::new(made), carried: Arc::new(carried) }
    }

    /// Counts what each policy in shadow would have done so far: first the policies of the limits in their order, then policies
    /// of limits that a swap has replaced. At most 1,000 policies are counted.
    pub fn shadow_counts(&self) -> Vec<ShadowCount> {
        let known = self.plan().limits.iter().flat_map(|limit| limit.source.known());
        self.carried.shadows.counts(known.map(|limiter| limiter.policy()))
    }

    /// The forms in which operators write the keys of this policy; empty if no limit here asks the policy. See
    /// [`KeyExtractor::forms`](crate::KeyExtractor::forms).
    pub fn key_forms(&self, policy: &str) -> Vec<KeyForm> {
        let asking = self.plan().limits.iter().filter(|limit| limit.source.asks(policy));
        asking.flat_map(|limit| limit.key.forms()).collect()
    }

    /// The number of requests that wait now: for a key, for a tier, for their turn, or then for the inner service to be
    /// ready.
    pub fn waiting(&self) -> usize {
        self.carried.waits.queue.waiting()
    }

    /// These limits, with the queue and the counts of the limits that they replace.
    pub(super) fn instead_of(&self, before: &Self) -> Self {
        let (own, before) = (&self.carried, &before.carried);
        let waits = own.waits.counted_with(&before.waits);
        let answers = own.answers.counted_with(&before.answers);
        let carried = Arc::new(CarriedOver { waits, answers, shadows: before.shadows.clone() });
        Self { made: Arc::clone(&self.made), carried }
    }

    #[inline]
    pub(crate) fn made(&self) -> &BuiltLimits {
        &self.made
    }

    #[inline]
    pub(crate) fn plan(&self) -> &LimitPlan {
        &self.made.plan
    }

    #[inline]
    pub(crate) fn settings(&self) -> &LimitsSettings {
        &self.made.settings
    }

    pub(crate) fn waits(&self) -> &Waits {
        &self.carried.waits
    }

    pub(crate) fn answers(&self) -> &Waits {
        &self.carried.answers
    }

    pub(super) fn shadows(&self) -> &Shadows {
        &self.carried.shadows
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.made().fmt(f)
    }
}

impl fmt::Debug for BuiltLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.plan.limits).finish()
    }
}
