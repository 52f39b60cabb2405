//! The builder of [`Limits`].

use std::future::Future;
use std::time::Duration;

use http::{HeaderName, StatusCode};
use sluicegate_core::{ConfigError, Policy};

use crate::admission::check;
use crate::admission::set::{Limits, LimitsSettings};
use crate::guard::gate::Waits;
use crate::guard::service::Queue;
use crate::key::RequestView;
use crate::limits::IntoGroup;
use crate::limits::door::FrontDoor;
use crate::limits::group::{Choose, Group};
use crate::respond::headers::{HeaderFields, LegacyReset};
use crate::respond::stop;

/// Collects limits and settings: for [`Limits`], or for a [`RateLimitLayer`](crate::RateLimitLayer), where `R` makes the
/// responses to refused requests.
///
/// | setting | default | see |
/// |---|---|---|
/// | more limits | none | [`and`](Self::and) |
/// | requests that pass, or are refused, without a limit | none | [`exempt`](Self::exempt), [`exempt_async`](Self::exempt_async), [`deny`](Self::deny), [`deny_with`](Self::deny_with) |
/// | header fields | both families, seconds from now | [`headers`](Self::headers), [`legacy_reset`](Self::legacy_reset), [`expose_headers`](Self::expose_headers) |
/// | the wait sent to a refused client | the true wait | [`spread_retry_after`](Self::spread_retry_after), [`retry_after_also_in`](Self::retry_after_also_in) |
/// | the most waiting requests, and the longest lookup | 10,000; 5 s | [`longest_queue`](Self::longest_queue), [`longest_lookup`](Self::longest_lookup) |
/// | costs that are known later | no meter | [`meter`](Self::meter) |
#[must_use = "a builder does nothing until `build` is called"]
pub struct LimitsBuilder<R = ()> {
    group: Group,
    settings: LimitsSettings,
    waits: Waits,
    pub(crate) respond: R,
}

impl Limits {
    /// Starts building several limits, or other settings.
    pub fn builder(limit: impl IntoGroup) -> LimitsBuilder {
        LimitsBuilder::new(limit.into_group(), ())
    }
}

impl LimitsBuilder {
    /// Checks that the limits can be decided together.
    ///
    /// # Errors
    /// When the limits are on different stores; and among limits that apply to every request, when two have the same policy,
    /// or when they have more than 16 quotas in all, a limit with tiers counts with its largest tier. If
    /// limits conflict only for some requests, such a request is refused with 500, and the error is logged.
    pub fn build(self) -> Result<Limits, ConfigError> {
        Ok(self.finish()?.0)
    }
}

impl<R> LimitsBuilder<R> {
    pub(crate) fn new(limit: Group, respond: R) -> Self {
        let group = Group::new(Choose::All).and(limit);
        Self { group, settings: LimitsSettings::default(), waits: Waits::default(), respond }
    }

    pub(crate) fn finish(self) -> Result<(Limits, R), ConfigError> {
        let Self { group, settings, waits, respond } = self;
        check::before_requests(&group)?;
        for limit in group.limits().filter(|limit| settings.meters || limit.gives_back()) {
            limit.source.keep_accounts()?;
        }
        group.limits().try_for_each(|limit| limit.source.take_quotas())?;
        Ok((Limits::of(group, settings, waits), respond))
    }

    pub(crate) fn with_respond<N>(self, respond: N) -> LimitsBuilder<N> {
        let Self { group, settings, waits, respond: _ } = self;
        LimitsBuilder { group, settings, waits, respond }
    }

    fn door(&mut self) -> &mut FrontDoor {
        self.settings.door.get_or_insert_default()
    }

    /// Adds a limit, or a [`Group`] of limits: all that apply must have room for a request, and all are spent from, or none.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::RateLimitLayer;
    ///
    /// let store = MemoryStore::new();
    /// let api = Policy::gcra("api", "100/min").on(&store)?;
    /// assert!(RateLimitLayer::builder(api.clone()).and(Policy::gcra("hourly", "1000/h").on(&store)?).build().is_ok());
    ///
    /// // Limits that cannot be decided together are found here, not by a request.
    /// let elsewhere = Policy::gcra("hourly", "1000/h").on(&MemoryStore::new())?;
    /// let error = RateLimitLayer::builder(api).and(elsewhere).build().unwrap_err();
    /// assert!(error.to_string().contains("on different stores"), "{error}");
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn and(mut self, limit: impl IntoGroup) -> Self {
        self.group = self.group.and(limit);
        self
    }

    /// Exempts requests for which `holds` is true from all limits; their responses carry no rate limit fields. With several such
    /// conditions, one is enough.
    ///
    /// ```
    /// use http::Method;
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::RateLimitLayer;
    /// use sluicegate_tower::limits::{method_in, path_in, preflight};
    ///
    /// let layer = RateLimitLayer::builder(Policy::gcra("api", "100/min").on(&MemoryStore::new())?)
    ///     .exempt(path_in(["/health", "/metrics", "/metrics/*"])?)
    ///     .exempt(preflight())
    ///     .deny(|request| request.headers.get("user-agent").is_some_and(|agent| agent == "scraper"))
    ///     .build()?;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn exempt(mut self, holds: impl Fn(RequestView<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.door().exempt.push(Box::new(holds));
        self
    }

    /// As [`exempt`](Self::exempt), for answers that have to be looked up: `holds` takes what it needs from the request and returns a
    /// future. It is asked if no `exempt` holds, before any [`deny`](Self::deny). The request takes a place in the
    /// [queue](Self::longest_queue) while it waits; if there is none, or the answer does not come in
    /// [time](Self::longest_lookup), the request is not exempt.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::RateLimitLayer;
    ///
    /// /// Asks a database.
    /// async fn is_partner(key: String) -> bool {
    ///     key == "partner"
    /// }
    ///
    /// let layer = RateLimitLayer::builder(Policy::gcra("api", "100/min").on(&MemoryStore::new())?)
    ///     .exempt_async(|request| {
    ///         let key = request.headers.get("x-api-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
    ///         async move {
    ///             match key {
    ///                 Some(key) => is_partner(key).await,
    ///                 None => false,
    ///             }
    ///         }
    ///     })
    ///     .build()?;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn exempt_async<F, A>(mut self, holds: F) -> Self
    where
        F: Fn(RequestView<'_>) -> A + Send + Sync + 'static,
        A: Future<Output = bool> + Send + 'static,
    {
        self.door().exempt_later.push(Box::new(move |request| Box::pin(holds(request))));
        self
    }

    /// Refuses requests for which `holds` is true with 403, without asking any limit. An exempt request is not refused.
    ///
    /// A [`path_in`](crate::limits::path_in) errs on the side of denial here.
    ///
    /// Use it for a few known offenders. It is not a firewall: denied requests have passed the
    /// server's parser.
    pub fn deny(self, holds: impl Fn(RequestView<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.deny_with(move |request| holds(request).then_some(StatusCode::FORBIDDEN))
    }

    /// As [`deny`](Self::deny), with the status that `status` returns; `None` does not deny the request. If several are set, the
    /// first status counts.
    ///
    /// ```
    /// use http::{Method, StatusCode};
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::builder(Policy::gcra("api", "100/min").on(&MemoryStore::new())?)
    ///     .deny_with(|request| (request.method == Method::TRACE).then_some(StatusCode::METHOD_NOT_ALLOWED))
    ///     .build()?;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn deny_with(
        mut self,
        status: impl Fn(RequestView<'_>) -> Option<StatusCode> + Send + Sync + 'static,
    ) -> Self {
        self.door().deny.push(Box::new(status));
        self
    }

    /// Sets the status of refusals by an exceeded policy, or of a key that it has suspended: `status` gets the name of the
    /// [limit](crate::Limit::named) that decided, and its policy; `None` is the default: 429. Other refusals keep their
    /// [statuses](crate::respond::RefusalReason), as the 503 of an outage.
    ///
    /// ```
    /// use http::{Request, StatusCode};
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::Limit;
    /// use sluicegate_tower::key::HeaderKey;
    /// use sluicegate_tower::limits::Limits;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let exports = Policy::gcra("exports", "1/h").on(&MemoryStore::new())?;
    /// let limits = Limits::builder(Limit::new(exports).key(HeaderKey::new("x-api-key")?))
    ///     .refuse_with(|_, policy| (policy.name() == "exports").then_some(StatusCode::SERVICE_UNAVAILABLE))
    ///     .build()?;
    ///
    /// let request = Request::get("/").header("x-api-key", "k1").body(())?;
    /// assert!(limits.decide(&request).await.is_ok());
    /// let refused = limits.decide(&request).await.unwrap_err();
    /// assert_eq!(refused.refusal(&request).status(), 503);
    /// # Ok(())
    /// # }
    /// ```
    pub fn refuse_with(
        mut self,
        status: impl Fn(Option<&str>, &Policy) -> Option<StatusCode> + Send + Sync + 'static,
    ) -> Self {
        self.settings.refuse_with = Some(Box::new(status));
        self
    }

    /// Sets the header fields of responses. Default: [`HeaderFields::AllOnRefusal`].
    ///
    /// This does not affect `Retry-After`: every refusal has it if a wait helps.
    pub fn headers(mut self, headers: HeaderFields) -> Self {
        self.settings.style.form = headers.form();
        self
    }

    /// Sets the meaning of `X-RateLimit-Reset`. Default: [`LegacyReset::Delta`].
    pub fn legacy_reset(mut self, reset: LegacyReset) -> Self {
        self.settings.style.reset = reset;
        self
    }

    /// Lets scripts of other origins read the fields: adds the fields of the response to `Access-Control-Expose-Headers`.
    /// Default: browsers hide them from such scripts.
    pub fn expose_headers(mut self) -> Self {
        self.settings.style.exposes = HeaderFields::names();
        self
    }

    /// Adds a random time up to this, in whole seconds, to the wait of refused clients, so that clients
    /// that were refused together do not come back together. `Retry-After` and the body carry the longer wait, which is
    /// never shorter than the true one; `t` of the field `RateLimit` stays the true one. Default: nothing is added.
    ///
    /// With nested layers, it applies to refusals of this layer.
    pub fn spread_retry_after(mut self, longest: Duration) -> Self {
        self.settings.spread = Some(stop::up_to(longest));
        self
    }

    /// As [`spread_retry_after`](Self::spread_retry_after), with the addition that `extra` returns, rounded up to whole seconds: for
    /// tests, and for your own source of randomness.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::builder(Policy::gcra("api", "100/min").on(&MemoryStore::new())?)
    ///     .spread_retry_after_by(|| Duration::from_secs(3))
    ///     .build()?;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn spread_retry_after_by(mut self, extra: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.settings.spread = Some(Box::new(extra));
        self
    }

    /// Repeats the number of `Retry-After` in another field, for clients that read it there: `x-ratelimit-retry-after`, or
    /// tower_governor's `x-ratelimit-after`. Default: it is not repeated.
    ///
    /// ```
    /// use http::HeaderName;
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::builder(Policy::gcra("api", "100/min").on(&MemoryStore::new())?)
    ///     .retry_after_also_in(HeaderName::from_static("x-ratelimit-retry-after"))
    ///     .build()?;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn retry_after_also_in(mut self, name: HeaderName) -> Self {
        self.settings.style.wait_also_in = Some(name);
        self
    }

    /// Marks refusals with `X-Envoy-RateLimited`, so that an Envoy in front does not try again. Default: there is no such field.
    pub fn tell_envoy(mut self) -> Self {
        self.settings.style.tells_envoy = true;
        self
    }

    /// Sets the number of requests that may wait at once, in all services of this layer together: for a key or a tier that has to
    /// be looked up, and for their turn. A request that comes when this many wait is refused with 503 at once, and its units
    /// are given back. Default: 10,000.
    ///
    /// A waiting request keeps its head, its body and its connection, but not the readiness of the inner service, which
    /// is polled once the turn has come, and until it is ready the request keeps its place.
    ///
    /// # Clients that have left
    /// A server drops the request of a client that has left, and its place is free. Over HTTP/1, hyper does not notice
    /// that a client has left while bytes of a next request are unread: a client that pipelines two requests and hangs
    /// up keeps one place for each of its connections until the turn has come. So bound the places that one client
    /// takes with an `InFlightLayer` of a few permits around this layer and with the longest
    /// wait of the policy, or put a proxy in front that does not pipeline. Over HTTP/2, a stream that is reset is noticed
    /// at once.
    pub fn longest_queue(mut self, requests: usize) -> Self {
        self.waits.queue = Queue::up_to(requests);
        self
    }

    /// Sets how long a request may wait for each key, tier and exemption that has to be looked up, as with
    /// [`Extraction::pending`](crate::key::Extraction::pending) and [`Limit::tiered_async`](crate::Limit::tiered_async). After
    /// that it is refused with 503 and has spent nothing; if its policy is in shadow, the request continues without the policy.
    /// Default: 5 s.
    pub fn longest_lookup(mut self, longest: Duration) -> Self {
        self.waits.longest_lookup = longest;
        self
    }

    /// Puts a [`Meter`](crate::Meter) into the extensions of admitted requests, for handlers that learn a
    /// request's cost while they serve it. Default: there is no meter.
    ///
    /// It switches [refunds](sluicegate_core::policy::PolicyBuilder::refunds) on for all policies
    /// of the limits, so that refunds are exact; in memory that costs a second word per
    /// key.
    pub fn meter(mut self) -> Self {
        self.settings.meters = true;
        self
    }

    /// Reports the axum route of each decided request to the store: an
    /// [`Observed`](https://docs.rs/sluicegate/latest/sluicegate/observed/struct.Observed.html) store counts them as
    /// `rate_limit_route_requests_total{route, result}`, and the time of their decisions as `rate_limit_route_duration_seconds{route}`,
    /// for which the clock is read twice. The route is the pattern, such as `/users/{id}`, and never the path;
    /// requests without a route count as `none`. The layer has to be on the router or on a route, not around the router.
    /// Default: routes are not counted.
    #[cfg(feature = "axum")]
    #[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
    pub fn count_routes(mut self) -> Self {
        self.settings.routes = true;
        self
    }

    /// Keeps the decision out of the extensions of requests and responses, whatever the layer's
    /// [`decided`](crate::RateLimitLayer::decided) says. A layer around this one does not see it either: it takes the fields for the service's own, and
    /// keeps its units spent when this layer refuses.
    pub fn without_extensions(mut self) -> Self {
        self.settings.extensions = false;
        self
    }
}

sluicegate_core::debug_as!(LimitsBuilder<R> { group });
