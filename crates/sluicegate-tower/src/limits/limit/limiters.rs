//! The limiters of a [`Limit`] that asks one of several, and the quotas that requests bring.

use std::future::Future;
use std::sync::Arc;

use sluicegate_core::store::IntoStore;

use crate::key::RequestView;
use crate::limits::chosen::{Chosen, OpenPolicies};
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

    /// A limit with a policy chosen per request, for policies that differ in more than their numbers; for a customer's numbers use
    /// [`quota_by`](Self::quota_by). `choose` returns a [`Chosen`] or
    /// a value that converts into it: a policy, its builder, a limiter on this store, or a `Result` of these.
    ///
    /// # Which policies are open
    /// A policy is opened when it is first chosen, and 100 stay open, or [another number](Self::open_at_most). To open one more, the
    /// least recently chosen are closed. A [`MemoryStore`](sluicegate_core::MemoryStore) has a table for each open policy,
    /// with the policy's [room for keys](sluicegate_core::policy::PolicyBuilder::table_size), and would drop it with the policy: so a
    /// policy stays open while any of its keys is in debt. Redis loses nothing.
    ///
    /// If all open policies have to stay, up to ten times as many are opened. This is logged once a minute, shown on the status page
    /// and counted as `rate_limit_policies_kept_open_total`. Beyond that, a request that chooses another policy is refused with 500, and the
    /// reason is logged. A table for 100,000 keys takes 2.4 MB, and a table for a single key 2 to 3 kB: so set the table size of such
    /// policies.
    ///
    /// Policies of one name that differ only in quotas are one policy with keys that have
    /// [quotas of their own](sluicegate_core::RateLimiter::with_quotas). A policy that differs in more replaces the open one for all keys.
    /// In both cases spent units still count: a plan that grows in the database grows here with the next request. Metrics show each name
    /// by itself, up to 256, unless the policies are
    /// [counted as](sluicegate_core::policy::PolicyBuilder::counted_as) one.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::Limit;
    ///
    /// /// The row that authentication has read from the database.
    /// #[derive(Clone)]
    /// struct Plan {
    ///     name: String,
    ///     per_minute: u64,
    /// }
    ///
    /// let limit = Limit::by(&MemoryStore::new(), |request| match request.extensions.get::<Plan>() {
    ///     Some(plan) => Policy::gcra(&*plan.name, format!("{}/min", plan.per_minute)).table_size(1_000).counted_as("plans"),
    ///     None => Policy::gcra("visitors", "10/min"),
    /// });
    /// # let _ = limit;
    /// ```
    pub fn by<F, C>(store: impl IntoStore, choose: F) -> Self
    where
        F: Fn(RequestView<'_>) -> C + Send + Sync + 'static,
        C: Into<Chosen>,
    {
        let open = Arc::new(OpenPolicies::new(store.into()));
        let opens = Arc::clone(&open);
        let choose = OfRequest::at_once(move |request| opens.pick(choose(request).into()));
        Self::of(LimiterSource::open(open, choose))
    }

    /// As [`by`](Self::by), for policies that have to be looked up: `choose` takes what it needs from the request and returns
    /// a future. The request waits for it up to [`longest_lookup`](crate::limits::LimitsBuilder::longest_lookup).
    pub fn by_async<F, T, C>(store: impl IntoStore, choose: F) -> Self
    where
        F: Fn(RequestView<'_>) -> T + Send + Sync + 'static,
        T: Future<Output = C> + Send + 'static,
        C: Into<Chosen>,
    {
        let open = Arc::new(OpenPolicies::new(store.into()));
        let opens = Arc::clone(&open);
        let choose = OfRequest::later(move |request| {
            let (open, chosen) = (Arc::clone(&opens), choose(request));
            async move { open.pick(chosen.await.into()) }
        });
        Self::of(LimiterSource::open(open, choose))
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

    /// Sets the number of policies of [`by`](Self::by) that stay open even if none of their keys is in debt: at least 1. Up to ten times as
    /// many stay open while their keys are in debt. Default: 100. Other limits ignore it.
    pub fn open_at_most(self, policies: usize) -> Self {
        if let Some(open) = self.source.open_policies() {
            open.set_at_most(policies);
        }
        self
    }
}
