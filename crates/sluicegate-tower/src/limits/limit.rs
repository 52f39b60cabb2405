//! One limit of a layer: a limiter, a key, and the cost of a request.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use http::response;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::store::IntoStore;
use sluicegate_core::{ConfigError, Policy, RateLimiter};

use crate::bandwidth::Direction;
use crate::key::PeerIp;
use crate::key::missing::{OnMissingKey, WhenMissing};
use crate::key::{KeyExtractor, KeyKind, RequestView};
use crate::limits::chosen::{Chosen, OpenPolicies};
use crate::limits::pick::Which;
use crate::limits::predicate::Predicate;
use crate::limits::quotas::{ByQuotas, ChosenQuotas};
use crate::limits::source::LimiterSource;
use crate::limits::tiers::Tiers;
use crate::settle::{Reserve, Settle};

/// A limiter with the key that it is asked about and the cost of a request.
///
/// ```
/// use sluicegate_tower::{Limit, PeerIp, KeyExtractor};
/// use sluicegate_tower::key::{HeaderKey, OnMissingKey};
/// use sluicegate_core::{MemoryStore, Policy};
/// use http::StatusCode;
///
/// let reports = Policy::token_bucket("reports", "100/min").on(&MemoryStore::new())?;
/// let limit = Limit::new(reports)
///     .key(HeaderKey::new("x-api-key")?)
///     .on_missing_key(OnMissingKey::Reject(StatusCode::UNAUTHORIZED))
///     .cost(10)?;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[must_use = "a limit does nothing until it is put into a layer"]
pub struct Limit {
    pub(crate) source: LimiterSource,
    pub(crate) key: Box<dyn KeyExtractor>,
    /// The kind of its keys.
    pub(crate) kind: KeyKind,
    cost: u64,
    /// Computes the cost of a request, if costs differ.
    cost_of: Option<CostOf>,
    /// The conditions, which must all hold.
    only_if: Vec<Predicate>,
    pub(crate) when_missing: WhenMissing,
    pub(crate) refund_if: Option<RefundIf>,
    pub(crate) settle: Option<Arc<Settle>>,
    /// The bodies whose bytes it counts, if it does not count requests.
    pub(crate) bandwidth: Option<Direction>,
    pub(crate) name: Option<Arc<str>>,
}

/// The ask of a limit that asks the same for all requests.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) limiter: RateLimiter,
    pub(crate) cost: u64,
}

type CostOf = Box<dyn Fn(RequestView<'_>) -> u64 + Send + Sync>;

/// Decides by the head of a response whether a request gets its units back.
pub(crate) type RefundIf = Box<dyn Fn(&response::Parts) -> bool + Send + Sync>;

impl Limit {
    /// The limiter, with one unit per request from the bucket of its peer address.
    ///
    /// Behind a proxy the peer is the proxy, and all clients would share one bucket: then use
    /// [`ClientIp`](crate::ClientIp) as the key.
    pub fn new(limiter: RateLimiter) -> Self {
        Self::of(LimiterSource::one(limiter))
    }

    /// One of several limiters, chosen per request by the name of its tier; see [`Tiers`].
    ///
    /// A request for which `choose` names no tier, or an unknown one, is treated as the tiers say for such
    /// requests.
    ///
    /// `choose` is a function, or a closure that is written directly in the call: only then the compiler infers that the name
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
        Self::of(LimiterSource::tiers(tiers, choose))
    }

    /// As [`tiered`](Self::tiered), for tiers that have to be looked up: `choose` takes what it needs from the request
    /// and returns a future. The request waits for it, for as long as
    /// [`longest_lookup`](crate::limits::LimitsBuilder::longest_lookup) says.
    pub fn tiered_async<F, T, N>(tiers: Tiers, choose: F) -> Self
    where
        F: Fn(RequestView<'_>) -> T + Send + Sync + 'static,
        T: Future<Output = Option<N>> + Send + 'static,
        N: AsRef<str>,
    {
        Self::of(LimiterSource::tiers_later(tiers, choose))
    }

    /// A limit whose policy is chosen per request, for policies that differ in more than their numbers; for a customer's numbers use
    /// [`quota_by`](Self::quota_by). `choose` returns a [`Chosen`] or
    /// a value that converts into it: a policy, its builder, a limiter on this store, or a `Result` of these.
    ///
    /// # Which policies are open
    /// A policy is opened when it is first chosen, and 100 stay open, or [another number](Self::open_at_most). To open one more, the
    /// least recently chosen are closed. A [`MemoryStore`](sluicegate_core::MemoryStore) has a table for each open policy,
    /// with the policy's [room for keys](sluicegate_core::policy::PolicyBuilder::table_size), and would lose it with the policy: so a
    /// policy stays open while any of its keys owes. Redis loses nothing.
    ///
    /// If all open policies have to stay, up to ten times as many are opened. That is logged once a minute, shown on the status page
    /// and counted as `rate_limit_policies_kept_open_total`. Beyond that, a request that chooses another policy is refused with 500, and the
    /// reason is logged. A table for 100,000 keys takes 2.4 MB, and one for a single key 2 to 3 kB: so set the table size of such policies.
    ///
    /// Policies of one name that differ only in quotas are one policy, whose keys have
    /// [quotas of their own](sluicegate_core::RateLimiter::with_quotas). A policy that differs in more replaces the open one for all keys.
    /// Either way spent units still count: a plan that grows in the database grows here with the next request. Metrics show each name
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
        Self::of(LimiterSource::chosen(store.into(), choose))
    }

    /// As [`by`](Self::by), for policies that have to be looked up: `choose` takes what it needs from the request and returns
    /// a future. The request waits for it, for as long as [`longest_lookup`](crate::limits::LimitsBuilder::longest_lookup)
    /// says.
    pub fn by_async<F, T, C>(store: impl IntoStore, choose: F) -> Self
    where
        F: Fn(RequestView<'_>) -> T + Send + Sync + 'static,
        T: Future<Output = C> + Send + 'static,
        C: Into<Chosen>,
    {
        Self::of(LimiterSource::chosen_later(store.into(), choose))
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
    /// A request whose quota is invalid for the policy is refused with 500, and the error is logged.
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
        self.source.set_quotas(ByQuotas::AtOnce(Box::new(move |request| choose(request).into())));
        self
    }

    /// As [`quota_by`](Self::quota_by), for quotas that have to be looked up: `choose` takes what it needs from the request and returns
    /// a future. The request waits for it, for as long as
    /// [`longest_lookup`](crate::limits::LimitsBuilder::longest_lookup) says.
    pub fn quota_by_async<F, T, C>(mut self, choose: F) -> Self
    where
        F: Fn(RequestView<'_>) -> T + Send + Sync + 'static,
        T: Future<Output = C> + Send + 'static,
        C: Into<ChosenQuotas>,
    {
        self.source.set_quotas(ByQuotas::later(choose));
        self
    }

    /// Sets the number of policies of [`by`](Self::by) that stay open even if none of their keys owes: at least 1. Up to ten times as many
    /// stay open while their keys owe. Default: 100. Other limits ignore it.
    pub fn open_at_most(self, policies: usize) -> Self {
        self.source.open().into_iter().for_each(|open: &OpenPolicies| open.set_at_most(policies));
        self
    }

    fn of(source: LimiterSource) -> Self {
        Self {
            source,
            key: Box::new(PeerIp::new()),
            kind: PeerIp::new().kind(),
            cost: 1,
            cost_of: None,
            only_if: Vec::new(),
            when_missing: WhenMissing::default(),
            refund_if: None,
            settle: None,
            bandwidth: None,
            name: None,
        }
    }

    /// Whether a response may change what its request has spent.
    pub(crate) fn gives_back(&self) -> bool {
        self.bandwidth.is_none() && (self.refund_if.is_some() || self.settle.is_some())
    }

    /// Makes room in the store for the quotas that requests bring, if they may bring any.
    pub(crate) fn take_quotas(&self) -> Result<(), ConfigError> {
        self.source.take_quotas()
    }

    /// Makes the refunds of this limit exact.
    pub(crate) fn keep_accounts(&self) -> Result<(), ConfigError> {
        self.source.keep_accounts()
    }

    /// Sets the key of the bucket that a request spends from. Default: [`PeerIp`].
    ///
    /// The [crate](crate#whose-bucket) lists the extractors. A tuple of extractors has a bucket per
    /// combination.
    pub fn key(mut self, key: impl KeyExtractor) -> Self {
        self.kind = key.kind();
        self.key = Box::new(key);
        self
    }

    /// Sets the units that a request spends. Default: 1.
    ///
    /// # Errors
    /// When the cost is 0, which would limit nothing, or above what a quota of the policy ever lets pass at once, which would refuse
    /// all requests.
    pub fn cost(mut self, cost: u64) -> Result<Self, ConfigError> {
        let fail = |message: String| Err(ConfigError::new(ConfigErrorKind::Layer, message));
        for limiter in self.source.known() {
            // The policy without an operator's override, which is checked request by request.
            let policy = limiter.own_policy();
            let name = policy.name();
            if cost == 0 {
                return fail(format!(
                    "a cost of 0 would let every request pass policy {name:?}: use at least 1"
                ));
            }
            if let Some(quota) = policy.quotas().iter().find(|quota| quota.rule().capacity() < cost) {
                return fail(format!(
                    "cost {cost} is above burst {} of {} in policy {name:?}: no request would ever pass; lower the cost, or raise the limit or its burst",
                    quota.rule().capacity(),
                    quota.quota(),
                ));
            }
        }
        self.cost = cost;
        Ok(self)
    }

    /// Computes the units that a request spends from the request. With a cost of 0 this limit does not apply to
    /// the request. A cost above what a quota ever lets pass at once is refused with 403, because no wait helps.
    ///
    /// Clients may choose the cost here, so a closure that reads a header should have a bound of its own.
    ///
    /// ```
    /// use http::Method;
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::Limit;
    ///
    /// let api = Policy::gcra("api", "100/min").on(&MemoryStore::new())?;
    /// let limit = Limit::new(api).cost_fn(|request| match (request.method, request.uri.path()) {
    ///     (&Method::OPTIONS, _) => 0,
    ///     (_, "/report") => 10,
    ///     _ => 1,
    /// });
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn cost_fn(mut self, cost: impl Fn(RequestView<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.cost_of = Some(Box::new(cost));
        self
    }

    /// Applies this limit only to requests for which `applies` is true. With several such conditions, all must hold.
    ///
    /// ```
    /// use http::Method;
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::Limit;
    /// use sluicegate_tower::limits::{method_in, path_in};
    ///
    /// let uploads = Limit::new(Policy::gcra("uploads", "20/h").on(&MemoryStore::new())?)
    ///     .only_if(path_in(["/files/*"])?)
    ///     .only_if(method_in([Method::POST, Method::PUT]));
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn only_if(mut self, applies: impl Fn(RequestView<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.only_if.push(Box::new(applies));
        self
    }

    /// Gives a request its units back if `refund` is true for the head of its response: a successful login, or an error of the
    /// server. The fields of the response then show the state after the refund, if the
    /// store answers at once, as memory does. An error of the service is not a response, and gives nothing back.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::Limit;
    ///
    /// // Only failed logins count.
    /// let login = Policy::sliding_log("login", "5/min").on(&MemoryStore::new())?;
    /// let limit = Limit::new(login).refund_if(|head| head.status.is_success());
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn refund_if(mut self, refund: impl Fn(&response::Parts) -> bool + Send + Sync + 'static) -> Self {
        self.refund_if = Some(Box::new(refund));
        self
    }

    /// Finds the true cost of a request in its response, and gives back or charges the difference to what it has spent at first: its
    /// [`cost`](Self::cost), or what it [reserves](Self::reserve). Units that are charged so are spent whether they fit or not: those that do
    /// not are a debt, and later requests wait until it is paid off.
    ///
    /// The layer has to read the bodies of responses for all places but a header: see [`RateLimitLayer::settling`](crate::RateLimitLayer::settling).
    /// Routes of axum do so by themselves. A request that gets its units back by [`refund_if`](Self::refund_if) is not
    /// settled. Default: the cost is final.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::{Limit, RateLimitLayer};
    /// use sluicegate_tower::settle::Settle;
    ///
    /// let tokens = Policy::token_bucket("tokens", "10000/min").on(&MemoryStore::new())?;
    /// let limit = Limit::new(tokens)
    ///     .cost(500)?
    ///     .settle(Settle::json("usage.total_tokens")?.or(Settle::sse("usage.total_tokens")?))
    ///     .refund_if(|head| head.status.is_server_error());
    /// let layer = RateLimitLayer::new(limit).settling();
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn settle(mut self, settle: Settle) -> Self {
        self.settle = Some(Arc::new(settle));
        self
    }

    /// Lets requests say how much they spend at first, until the response [settles](Self::settle) it. It takes the place of
    /// [`cost`](Self::cost) and [`cost_fn`](Self::cost_fn).
    pub fn reserve(self, reserve: Reserve) -> Self {
        self.cost_fn(move |request| reserve.of(request))
    }

    /// Makes this a limit on the bytes a second of bodies, in place of requests: its policy is in bytes, and bodies take them in pieces as they
    /// pass. See the [module](crate::bandwidth).
    ///
    /// The request itself spends nothing of the policy and is never refused by it; [`cost`](Self::cost), [`refund_if`](Self::refund_if) and
    /// [`settle`](Self::settle) mean nothing here, but a [`cost_fn`](Self::cost_fn) of 0 takes a request out. The layer has to be one that
    /// [reads bodies](crate::RateLimitLayer::settling) for downloads, and to have an [`UploadLayer`](crate::bandwidth::UploadLayer) around it
    /// for uploads. Default: requests are counted.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::bandwidth::Direction;
    /// use sluicegate_tower::{Limit, RateLimitLayer};
    ///
    /// let downloads = Policy::gcra("downloads", "1MB/s burst 2MB").on(&MemoryStore::new())?;
    /// let layer = RateLimitLayer::new(Limit::new(downloads).bandwidth(Direction::Down)).settling();
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn bandwidth(mut self, direction: Direction) -> Self {
        self.bandwidth = Some(direction);
        self
    }

    /// Sets the name by which a [`Meter`](crate::Meter) finds this limit. Default: the name of the policy that was asked,
    /// which differs from request to request with tiers.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into().into());
        self
    }

    /// Sets how to treat a request whose key is missing. Default: [`OnMissingKey::Share`]; but a request whose peer address
    /// is unknown is refused with 500, and an error that tells how to fix it is logged once. Such a server does not
    /// tell who connects, and one bucket for all clients is unlikely to be meant, unless it is chosen here.
    pub fn on_missing_key(mut self, action: OnMissingKey) -> Self {
        self.when_missing.chosen = Some(action);
        self
    }

    /// Whether all conditions hold for this request.
    #[inline]
    pub(crate) fn applies_to(&self, request: RequestView<'_>) -> bool {
        self.only_if.iter().all(|applies| applies(request))
    }

    pub(crate) fn is_unconditional(&self) -> bool {
        self.only_if.is_empty()
    }

    /// Its limiter and cost, if it asks the same of all requests.
    pub(super) fn plain(&self) -> Option<Plain> {
        let is_plain = self.is_unconditional()
            && self.cost_of.is_none()
            && self.bandwidth.is_none()
            && !self.source.chooses();
        let limiter = self.source.known().first().filter(|_| is_plain && self.cost > 0)?;
        Some(Plain { limiter: limiter.clone(), cost: self.cost })
    }

    #[inline]
    pub(crate) fn cost_of(&self, request: RequestView<'_>) -> u64 {
        self.cost_of.as_ref().map_or(self.cost, |cost_of| cost_of(request))
    }

    /// The mode of this limiter's policy; if the limiter is unknown, the strictest mode of the limit's policies.
    #[inline]
    pub(crate) fn mode(&self, which: Option<&Which>) -> PolicyMode {
        let mode = |limiter: &RateLimiter| limiter.with_policy(Policy::mode);
        match which {
            Some(which) => mode(self.source.limiter(which)),
            None => self.source.known().iter().map(mode).max().unwrap_or_default(),
        }
    }

    /// Whether the limit can be skipped, because all its policies are off.
    #[inline]
    pub(crate) fn is_off(&self) -> bool {
        let is_off = |limiter: &RateLimiter| limiter.with_policy(Policy::mode) == PolicyMode::Off;
        let known = self.source.known();
        self.source.chooses() && !known.is_empty() && known.iter().all(is_off)
    }

    /// The name for logs and errors: the limit's own, or that of its first policy.
    pub(crate) fn title(&self) -> String {
        let of_policy = || self.source.known().first().map(|limiter| limiter.policy().name().to_owned());
        let own = self.name.as_deref().map(str::to_owned);
        own.or_else(of_policy).unwrap_or_else(|| "chosen per request".to_owned())
    }
}

impl From<RateLimiter> for Limit {
    fn from(limiter: RateLimiter) -> Self {
        Self::new(limiter)
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("limiters", &self.source)
            .field("cost", &self.cost)
            .field("on_missing_key", &self.when_missing.chosen)
            .finish_non_exhaustive()
    }
}
