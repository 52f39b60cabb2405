//! The limiters of a [`Limit`] that asks one of several, and the quotas that requests bring.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use crate::key::RequestView;
use crate::limits::cached::QuotaCache;
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

    /// As [`quota_by_async`](Self::quota_by_async), for quotas in a database, which are asked for once in this time: `key` says what to
    /// look up, `None` being a request with the policy's own quotas, and `look_up` returns the quotas of a key.
    ///
    /// - One look-up runs at a time for each key. Requests that come meanwhile use the old quotas; without old ones they wait for it.
    /// - While `look_up` fails, or takes longer than a second, the old quotas stay in use, and without old ones those of the policy; it
    ///   is tried again after a second, and the log has the error at most once a second. The first look-up of a key is bounded by
    ///   [`longest_lookup`](crate::limits::LimitsBuilder::longest_lookup) alone.
    /// - It remembers the 10,000 keys that were asked for last. A key that clients make up costs a look-up, so verify it before,
    ///   or put a limit on the address beside this one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use http::StatusCode;
    /// use sluicegate_core::{MemoryStore, Policy, Quota};
    /// use sluicegate_tower::Limit;
    /// use sluicegate_tower::key::HeaderKey;
    /// use sluicegate_tower::limits::ChosenQuotas;
    ///
    /// /// Asks a database.
    /// async fn plan_of(customer: String) -> Result<ChosenQuotas, std::io::Error> {
    ///     Ok(match &*customer {
    ///         "acme" => Quota::per_minute(1_000).into(),
    ///         _ => ChosenQuotas::Refuse(StatusCode::UNAUTHORIZED),
    ///     })
    /// }
    ///
    /// let api = Policy::gcra("api", "10/min").on(&MemoryStore::new())?;
    /// let limit = Limit::new(api).key(HeaderKey::new("x-customer")?.verified_before()).quota_by_cached(
    ///     Duration::from_secs(60),
    ///     |request| Some(request.headers.get("x-customer")?.to_str().ok()?.to_owned()),
    ///     plan_of,
    /// );
    /// # use sluicegate_tower::KeyExtractor as _;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn quota_by_cached<K, N, F, T, C, E>(mut self, fresh_for: Duration, key: N, look_up: F) -> Self
    where
        K: Clone + Eq + Hash + Send + Sync + 'static,
        N: Fn(RequestView<'_>) -> Option<K> + Send + Sync + 'static,
        F: Fn(K) -> T + Send + Sync + 'static,
        T: Future<Output = Result<C, E>> + Send + 'static,
        C: Into<ChosenQuotas> + 'static,
        E: fmt::Display + 'static,
    {
        let cache = Arc::new(QuotaCache::new(fresh_for, look_up));
        self.source.set_quotas(OfRequest::perhaps(move |request| match key(request) {
            Some(key) => cache.quotas(key),
            None => Ok(ChosenQuotas::Default),
        }));
        self
    }
}
