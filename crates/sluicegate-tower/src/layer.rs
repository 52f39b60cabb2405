//! The layer: [`RateLimitLayer`] and its builder.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use sluicegate_core::{ConfigError, ConfigErrorKind, MAX_BUCKETS, RateLimiter, StoreError};
use tower_layer::Layer;

use crate::headers::{Headers, Plan};
use crate::limit::Limit;
use crate::refusal::ProblemJson;
use crate::service::RateLimit;

/// Puts limits in front of a service: see the [crate's example](crate).
///
/// Cheap to clone; all clones, and all services made by them, share the same buckets.
pub struct RateLimitLayer<R = ProblemJson> {
    shared: Arc<Shared<R>>,
}

/// What all services of a layer share.
pub(crate) struct Shared<R> {
    pub(crate) limits: Box<[Limit]>,
    pub(crate) headers: Headers,
    pub(crate) respond: R,
    pub(crate) extensions: bool,
    first: Plan,
    /// The current plan once a policy was replaced. A layer whose policies never are does not pay for the swap.
    replaced: ArcSwap<Plan>,
    started: Instant,
    /// The second after the start in which a store error was last logged.
    reported: AtomicU64,
}

impl RateLimitLayer {
    /// A layer with one limit. A [`RateLimiter`] alone counts peer addresses.
    pub fn new(limit: impl Into<Limit>) -> Self {
        let builder = Self::builder(limit);
        Self { shared: builder.into_shared() }
    }

    /// Begins a layer with several limits or with other settings.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::{Header, Headers, Limit, OnMissingKey, RateLimitLayer};
    ///
    /// let store = MemoryStore::new();
    /// let per_address = Policy::gcra("address", "10/s").on(&store)?;
    /// let per_api_key = Policy::sliding_counter("api-key", "1000/h").on(&store)?;
    ///
    /// // Both are spent from, or neither is.
    /// let layer = RateLimitLayer::builder(per_address)
    ///     .and(Limit::new(per_api_key).key(Header::new("x-api-key")?).on_missing_key(OnMissingKey::Skip))
    ///     .headers(Headers::Ietf)
    ///     .build()?;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn builder(limit: impl Into<Limit>) -> RateLimitLayerBuilder {
        RateLimitLayerBuilder {
            limits: vec![limit.into()],
            headers: Headers::All,
            respond: ProblemJson::new(),
            extensions: true,
        }
    }
}

impl<R> Clone for RateLimitLayer<R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S, R> Layer<S> for RateLimitLayer<R> {
    type Service = RateLimit<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.shared))
    }
}

impl From<Limit> for RateLimitLayer {
    fn from(limit: Limit) -> Self {
        Self::new(limit)
    }
}

impl From<RateLimiter> for RateLimitLayer {
    fn from(limiter: RateLimiter) -> Self {
        Self::new(limiter)
    }
}

impl<R> fmt::Debug for RateLimitLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}

/// Collects the settings of a [`RateLimitLayer`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct RateLimitLayerBuilder<R = ProblemJson> {
    limits: Vec<Limit>,
    headers: Headers,
    respond: R,
    extensions: bool,
}

impl<R> RateLimitLayerBuilder<R> {
    /// Adds a limit: all limits must have room for a request, and all are spent from, or none.
    pub fn and(mut self, limit: impl Into<Limit>) -> Self {
        self.limits.push(limit.into());
        self
    }

    /// Which header fields responses carry. Default: [`Headers::All`].
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// Who makes the response to a refused request: a closure, or a type of yours. Default: [`ProblemJson`].
    pub fn respond<N>(self, respond: N) -> RateLimitLayerBuilder<N> {
        let Self { limits, headers, respond: _, extensions } = self;
        RateLimitLayerBuilder { limits, headers, respond, extensions }
    }

    /// Leaves the extensions of requests and responses alone, which saves their allocation. Handlers then do not see
    /// the decision; and a layer around this one knows nothing of it: it overwrites the header fields with its own, and
    /// keeps what it spent when this one refuses.
    pub fn without_extensions(mut self) -> Self {
        self.extensions = false;
        self
    }

    /// Checks that the limits can be decided together, and makes the layer.
    ///
    /// # Errors
    /// When the limits are on different stores, or have more than 16 quotas in all.
    pub fn build(self) -> Result<RateLimitLayer<R>, ConfigError> {
        let fail = |message: String| Err(ConfigError::new(ConfigErrorKind::Layer, message));
        let policies: Vec<_> = self.limits.iter().map(|limit| limit.limiter.policy()).collect();
        let store = self.limits[0].limiter.store();
        if let Some(index) = self.limits.iter().position(|limit| !Arc::ptr_eq(limit.limiter.store(), store)) {
            return fail(format!(
                "policies {:?} and {:?} are on different stores, so they cannot be decided together: put them on one store, or into two layers",
                policies[0].name(),
                policies[index].name()
            ));
        }
        let quotas: usize = policies.iter().map(|policy| policy.quotas().len()).sum();
        if quotas > MAX_BUCKETS {
            return fail(format!(
                "the limits of one layer have {quotas} quotas, and at most {MAX_BUCKETS} fit"
            ));
        }
        Ok(RateLimitLayer { shared: self.into_shared() })
    }

    fn into_shared(self) -> Arc<Shared<R>> {
        let Self { limits, headers, respond, extensions } = self;
        let first = plan(&limits);
        let replaced = ArcSwap::from_pointee(plan(&limits));
        Arc::new(Shared {
            limits: limits.into(),
            headers,
            respond,
            extensions,
            first,
            replaced,
            started: Instant::now(),
            reported: AtomicU64::new(0),
        })
    }
}

impl<R> fmt::Debug for RateLimitLayerBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayerBuilder").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A plan, for as long as it is read.
pub(crate) enum Current<'a> {
    First(&'a Plan),
    Replaced(Guard<Arc<Plan>>),
}

impl Deref for Current<'_> {
    type Target = Plan;

    #[inline]
    fn deref(&self) -> &Plan {
        match self {
            Self::First(plan) => plan,
            Self::Replaced(plan) => plan,
        }
    }
}

impl<R> Shared<R> {
    /// What can be said of the policies in force.
    #[inline]
    pub(crate) fn plan(&self) -> Current<'_> {
        let replacements = replacements(&self.limits);
        if self.first.replacements == replacements {
            return Current::First(&self.first);
        }
        let plan = self.replaced.load();
        if plan.replacements == replacements {
            return Current::Replaced(plan);
        }
        self.replaced.store(Arc::new(crate::layer::plan(&self.limits)));
        Current::Replaced(self.replaced.load())
    }

    /// Logs that the store gave no answer, at most once a second: an outage must not fill the disk as well.
    pub(crate) fn report(&self, error: &StoreError, denies: bool) {
        let second = self.started.elapsed().as_secs() + 1;
        // Relaxed: at worst two threads log in the same second.
        if self.reported.swap(second, Ordering::Relaxed) != second {
            let error: &(dyn std::error::Error + 'static) = error;
            let action = if denies { "deny" } else { "allow" };
            tracing::error!(error, action, "the rate limit store gave no answer");
        }
    }

    /// Whether anything has to be done when the response comes.
    pub(crate) fn marks_responses(&self) -> bool {
        self.extensions || self.headers != Headers::None
    }
}

fn replacements(limits: &[Limit]) -> u64 {
    limits.iter().map(|limit| limit.limiter.replacements()).sum()
}

fn plan(limits: &[Limit]) -> Plan {
    // Counted first: a replacement in between makes the plan out of date, not wrong for good.
    let replacements = replacements(limits);
    Plan::new(limits.iter().map(|limit| limit.limiter.policy()).collect(), replacements)
}

impl<R> fmt::Debug for Shared<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.limits).finish()
    }
}
