//! The limiters of a [`Limit`] that asks one of several, and the quotas that requests bring.

use std::future::Future;

use crate::key::RequestView;
use crate::limits::limit::Limit;
use crate::limits::of_request::OfRequest;
use crate::limits::quotas::ChosenQuotas;
use crate::limits::source::LimiterSource;
use crate::limits::tiers::Tiers;

impl Limit {
    /// One of several limiters, chosen per request by the name of its tier; see [`Tiers`].
    ///
    /// If `choose` names no tier or an unknown one, the request is treated by the tiers' setting for such
    /// requests.
    ///
    /// `choose` is a function, or a closure written directly in the call: only then can the compiler infer that the name
    /// may be borrowed from the request.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::Limit;
    /// use sluicegate_tower::limits::Tiers;
    ///
    /// /// The result of authentication.
    /// #[derive(Clone)]
    /// struct Plan(String);
    ///
    /// let api = Policy::gcra("api", "100/min").on(&MemoryStore::new())?;
    /// let plans = Tiers::builder(&api)
    ///     .tier("free", "100/min")
    ///     .tier("pro", "1000/min")
    ///     .unlimited("enterprise")
    ///     .default_tier("free")
    ///     .build()?;
    /// let limit = Limit::tiered(plans, |request| request.extensions.get::<Plan>().map(|plan| &*plan.0));
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn tiered<F>(tiers: Tiers, choose: F) -> Self
    where
        F: for<'a> Fn(RequestView<'a>) -> Option<&'a str> + Send + Sync + 'static,
    {
        let found = tiers.clone();
        let choose = OfRequest::at_once(move |request| found.find(choose(request)));
        Self::of(LimiterSource::tiers(tiers, choose))
    }

    /// As [`tiered`](Self::tiered), for tiers that have to be looked up: `choose` takes what it needs from the request
    /// and returns a future. The request waits for it up to
    /// [`longest_lookup`](crate::limits::LimitsBuilder::longest_lookup).
    pub fn tiered_async<F, T, N>(tiers: Tiers, choose: F) -> Self
    where
        F: Fn(RequestView<'_>) -> T + Send + Sync + 'static,
        T: Future<Output = Option<N>> + Send + 'static,
        N: AsRef<str>,
    {
        let found = tiers.clone();
        let choose = OfRequest::later(move |request| {
            let (tiers, name) = (found.clone(), choose(request));
            async move { tiers.find(name.await.as_ref().map(AsRef::as_ref)) }
        });
        Self::of(LimiterSource::tiers(tiers, choose))
    }

    /// Gives the key of a request quotas of its own in place of the policy's: a customer's plan, from an extension, a claim or a
    /// cached row. `choose` returns an `Option` of [`Quotas`](sluicegate_core::policy::Quotas) or of a
    /// [`Quota`](sluicegate_core::Quota), or another value that converts into [`ChosenQuotas`]; `None` means the policy's own quotas.
    ///
    /// All keys live in one table, or under one name in Redis, whatever their quotas, so customers with different numbers need no
    /// policies of their own. Fields, bodies and decisions show the key's own quota; metrics count the policy. When a plan changes, the
    /// units that its key has spent count under the new plan; see
    /// [`RateLimiter::with_quotas`](sluicegate_core::RateLimiter::with_quotas) for the rule.
    ///
    /// A request with a quota that is invalid for the policy is refused with 500, and the error is logged.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy, Quota};
    /// use sluicegate_tower::Limit;
    /// use sluicegate_tower::key::HeaderKey;
    ///
    /// /// The row that authentication has read from the database.
    /// #[derive(Clone)]
    /// struct Customer {
    ///     per_hour: u64,
    /// }
    ///
    /// let api = Policy::sliding_log("api", "10/h").on(&MemoryStore::new())?;
    /// let limit = Limit::new(api)
    ///     .key(HeaderKey::new("x-api-key")?)
    ///     .quota_by(|request| request.extensions.get::<Customer>().map(|row| Quota::per_hour(row.per_hour)));
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn quota_by<F, C>(mut self, choose: F) -> Self
    where
        F: Fn(RequestView<'_>) -> C + Send + Sync + 'static,
        C: Into<ChosenQuotas>,
    {
        self.source.set_quotas(OfRequest::at_once(move |request| choose(request).into()));
        self
    }

    /// As [`quota_by`](Self::quota_by), for quotas that have to be looked up: `choose` takes what it needs from the request and returns
    /// a future. The request waits for it up to
    /// [`longest_lookup`](crate::limits::LimitsBuilder::longest_lookup).
    pub fn quota_by_async<F, T, C>(mut self, choose: F) -> Self
    where
        F: Fn(RequestView<'_>) -> T + Send + Sync + 'static,
        T: Future<Output = C> + Send + 'static,
        C: Into<ChosenQuotas>,
    {
        self.source.set_quotas(OfRequest::later(move |request| {
            let chosen = choose(request);
            async move { chosen.await.into() }
        }));
        self
    }
}
