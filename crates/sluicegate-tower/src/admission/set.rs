//! The limits that decide on requests: [`Limits`].

use std::fmt;
use std::sync::{Arc, Once, OnceLock};

use arc_swap::ArcSwapOption;
use http::{HeaderValue, Response};
use sluicegate_core::{Policy, RateLimiter};

use crate::admission::shadow::{ShadowCount, Shadows};
use crate::guard::lookup::Waits;
use crate::guard::once::OnceASecond;
use crate::limits::IntoLimit;
use crate::limits::door::Door;
use crate::limits::group::{Group, Plan};
use crate::respond::decided::Shown;
use crate::respond::headers::lines::policy_line;
use crate::respond::headers::{self, Already, Style};
use crate::respond::spread::Spread;

/// Limits, and all that is decided with them: which requests are exempt, how long a request may wait, which header
/// fields a response gets. A [`RateLimitLayer`](crate::RateLimitLayer) has them in front of a service; without one, they
/// [`decide`](Self::decide) on any request, and [`explain`](Self::explain) what they would decide.
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
/// Use the [layer](crate::RateLimitLayer) in front of a service. Use this alone where the decision
/// is needed without a service around it, and to explain decisions.
#[derive(Clone)]
pub struct Limits(Arc<Inner>);

struct Inner {
    made: Arc<Made>,
    /// The queue goes on when the limits are swapped.
    waits: Waits,
    /// How responders may wait: refused requests take no places from those that are still to be let through.
    answers: Waits,
    /// As the queue.
    shadows: Shadows,
}

/// The part that does not change.
pub(crate) struct Made {
    pub(crate) plan: Plan,
    pub(super) settings: Settings,
    /// Whether a limit gives back by the response.
    pub(super) refunds: bool,
    /// The policy of a single limit as the first request has met it: at hand without a count of who looks. No other is kept for good:
    /// policies that are chosen per request are closed.
    only: OnceLock<Together>,
    /// The policies that the last requests asked together, kept until the next request.
    last: ArcSwapOption<Together>,
    pub(super) mistake: OnceASecond,
    /// Whether it was said that another layer counts what this one counts.
    pub(super) double: Once,
}

/// The settings beside the limits.
pub(crate) struct Settings {
    /// Before the limits, if anything was said of who does not come to them.
    pub(crate) door: Option<Box<Door>>,
    pub(crate) style: Style,
    /// Finds the seconds that are added to the wait of a refusal.
    pub(crate) spread: Option<Spread>,
    /// Whether requests carry the decision in their extensions, and responses where it is read.
    pub(crate) extensions: bool,
    /// Whether requests carry a [`Meter`](crate::Meter).
    pub(super) meters: bool,
    /// Whether it is told by which route requests come.
    pub(crate) routes: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            door: None,
            style: Style::default(),
            spread: None,
            extensions: true,
            meters: false,
            routes: false,
        }
    }
}

impl Limits {
    /// One limit. A [`RateLimiter`](sluicegate_core::RateLimiter) alone counts peer addresses.
    pub fn new(limit: impl IntoLimit) -> Self {
        let group = Group::from(limit.into_limit());
        for limit in group.limits().filter(|limit| limit.gives_back()) {
            if let Err(error) = limit.keep_accounts() {
                // No error for who makes the layer: without accounts a refund gives back less, and never more.
                tracing::warn!(%error, "the store keeps no accounts, so refunds are not exact");
            }
        }
        Self::of(group, Settings::default(), Waits::default())
    }

    pub(crate) fn of(group: Group, settings: Settings, waits: Waits) -> Self {
        let plan = group.into_plan();
        let made = Made {
            refunds: plan.limits.iter().any(|limit| limit.gives_back()),
            plan,
            settings,
            only: OnceLock::new(),
            last: ArcSwapOption::empty(),
            mistake: OnceASecond::default(),
            double: Once::new(),
        };
        let answers = waits.apart();
        Self(Arc::new(Inner { made: Arc::new(made), waits, answers, shadows: Shadows::default() }))
    }

    /// The counts of what each policy in shadow would have done so far: those of the limits in their order, then those that were chosen
    /// for a request or were here before a swap. At most 1,000 policies are counted.
    pub fn shadow_counts(&self) -> Vec<ShadowCount> {
        let known = self.plan().limits.iter().flat_map(|limit| limit.source.known());
        self.0.shadows.counts(known.map(|limiter| limiter.policy()))
    }

    /// How many requests wait now: for a key, for a tier, for their turn, or after that for the service inside to be
    /// ready.
    pub fn waiting(&self) -> usize {
        self.0.waits.queue.waiting()
    }

    /// These limits, with the queue and the counts of those that they take the place of.
    pub(super) fn instead_of(&self, before: &Self) -> Self {
        let waits = self.0.waits.counted_with(&before.0.waits);
        let answers = self.0.answers.counted_with(&before.0.answers);
        let shadows = before.0.shadows.clone();
        Self(Arc::new(Inner { made: Arc::clone(&self.0.made), waits, answers, shadows }))
    }

    #[inline]
    pub(crate) fn made(&self) -> &Made {
        &self.0.made
    }

    #[inline]
    pub(crate) fn plan(&self) -> &Plan {
        &self.0.made.plan
    }

    #[inline]
    pub(crate) fn settings(&self) -> &Settings {
        &self.0.made.settings
    }

    pub(crate) fn waits(&self) -> &Waits {
        &self.0.waits
    }

    pub(crate) fn answers(&self) -> &Waits {
        &self.0.answers
    }

    pub(super) fn shadows(&self) -> &Shadows {
        &self.0.shadows
    }

    /// Whether anything has to be kept of a request until its response comes.
    #[inline]
    pub(super) fn marks_responses(&self) -> bool {
        let Settings { extensions, style, meters, routes, .. } = &self.0.made.settings;
        *extensions || style.shows() || *meters || *routes || self.0.made.refunds
    }

    /// Writes into a response where the client stands.
    pub(crate) fn write<B>(
        &self,
        response: &mut Response<B>,
        shown: Shown<'_>,
        wait: Option<u64>,
        already: Already,
    ) {
        let (style, decided) = (&self.settings().style, shown.decided);
        let is_known = |together: &Together| Arc::ptr_eq(&together.policies, &decided.policies);
        let lists = style.lists(!decided.is_allowed());
        let policies =
            if lists { self.made().known(is_known, |known| known.policy_line.clone()) } else { None };
        headers::write(response.headers_mut(), style, shown, wait, policies, already);
    }
}

impl Made {
    /// Reads what is known of limiters that were asked together, if it is these.
    #[inline]
    fn known<T>(&self, is_it: impl Fn(&Together) -> bool, read: impl FnOnce(&Together) -> T) -> Option<T> {
        match self.only.get() {
            Some(only) if is_it(only) => Some(read(only)),
            _ => self.last.load().as_deref().filter(|last| is_it(last)).map(read),
        }
    }

    /// The policies of limiters as they are now.
    #[inline]
    pub(super) fn policies<'a>(
        &self,
        limiters: impl ExactSizeIterator<Item = &'a RateLimiter> + Clone,
    ) -> Arc<[Arc<Policy>]> {
        let is_known = |together: &Together| together.is_of(limiters.clone());
        let known = self.known(is_known, |known| Arc::clone(&known.policies));
        known.unwrap_or_else(|| self.learn(limiters))
    }

    /// The same, of those that are not known yet.
    #[cold]
    fn learn<'a>(&self, limiters: impl ExactSizeIterator<Item = &'a RateLimiter>) -> Arc<[Arc<Policy>]> {
        if self.last.load().as_ref().is_some_and(|last| !last.gives_way(limiters.len())) {
            return limiters.map(RateLimiter::policy).collect();
        }
        let new = Together::new(limiters);
        let policies = Arc::clone(&new.policies);
        let new = if self.plan.plain().is_some() { self.only.set(new).err() } else { Some(new) };
        if let Some(new) = new {
            self.last.store(Some(Arc::new(new)));
        }
        policies
    }
}

/// Limiters that were asked together, with what fields say of their policies. Made once, and anew when one of them is replaced.
#[derive(Debug)]
struct Together {
    /// Each with how often its policy was replaced before that.
    limiters: Box<[(RateLimiter, u64)]>,
    /// One per limiter.
    policies: Arc<[Arc<Policy>]>,
    /// `RateLimit-Policy` of all of them; `None` if all are hidden.
    policy_line: Option<HeaderValue>,
}

impl Together {
    fn new<'a>(limiters: impl Iterator<Item = &'a RateLimiter>) -> Self {
        // Counted first: a replacement in between makes it out of date, not wrong for good.
        let limiters: Box<[_]> = limiters.map(|limiter| (limiter.clone(), limiter.replacements())).collect();
        let policies: Arc<[Arc<Policy>]> = limiters.iter().map(|(limiter, _)| limiter.policy()).collect();
        let shown = policies.iter().filter(|policy| !policy.is_hidden());
        let policy_line = policy_line(shown.flat_map(|policy| policy.quotas()));
        Self { limiters, policies, policy_line }
    }

    /// Whether it is about these limiters, and up to date.
    #[inline]
    fn is_of<'a>(&self, limiters: impl ExactSizeIterator<Item = &'a RateLimiter>) -> bool {
        limiters.len() == self.limiters.len()
            && limiters.zip(&self.limiters).all(|(limiter, (known, replacements))| {
                limiter.is(known) && limiter.replacements() == *replacements
            })
    }

    /// Whether it gives way to what is about these limiters: it is about no more of them, or out of date.
    fn gives_way(&self, limiters: usize) -> bool {
        limiters > self.limiters.len()
            || self.limiters.iter().any(|(limiter, replacements)| limiter.replacements() != *replacements)
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.plan().limits).finish()
    }
}
