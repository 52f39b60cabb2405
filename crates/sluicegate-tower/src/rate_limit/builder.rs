//! Putting a [`RateLimitLayer`] together.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use sluicegate_core::ConfigError;
use sluicegate_core::error::ConfigErrorKind;

use crate::guard::lookup::Waits;
use crate::guard::queue::Queue;
use crate::key::RequestView;
use crate::limits::limit::Limit;
use crate::limits::predicate::Door;
use crate::rate_limit::RateLimitLayer;
use crate::rate_limit::check::check;
use crate::rate_limit::shared::Shared;
use crate::respond::headers::{HeaderFields, LegacyReset, Style};
use crate::respond::problem::ProblemJson;
use crate::respond::spread::{self, Spread};

/// Collects the settings of a [`RateLimitLayer`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct RateLimitLayerBuilder<R = ProblemJson> {
    limits: Vec<Limit>,
    respond: R,
    settings: Settings,
}

/// What does not depend on who responds.
struct Settings {
    door: Door,
    style: Style,
    spread: Option<Spread>,
    waits: Waits,
    extensions: bool,
    meters: bool,
}

impl RateLimitLayerBuilder {
    pub(crate) fn new(limit: Limit) -> Self {
        let settings = Settings {
            door: Door::default(),
            style: Style::default(),
            spread: None,
            waits: Waits::default(),
            extensions: true,
            meters: false,
        };
        Self { limits: vec![limit], respond: ProblemJson::new(), settings }
    }
}

impl<R> RateLimitLayerBuilder<R> {
    /// Adds a limit: all limits must have room for a request, and all are spent from, or none.
    pub fn and(mut self, limit: impl Into<Limit>) -> Self {
        self.limits.push(limit.into());
        self
    }

    /// Lets requests of which `holds` is true pass, without asking any limit: they carry no rate limit fields. With
    /// several such conditions, one that holds is enough.
    ///
    /// ```
    /// use http::Method;
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::RateLimitLayer;
    /// use sluicegate_tower::limits::{method_in, path_in, preflight};
    ///
    /// let layer = RateLimitLayer::builder(Policy::gcra("api", "100/min").on(&MemoryStore::new())?)
    ///     .exempt(path_in(["/health", "/metrics*"])?)
    ///     .exempt(preflight())
    ///     .deny(|request| request.headers.get("user-agent").is_some_and(|agent| agent == "scraper"))
    ///     .build()?;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn exempt(mut self, holds: impl Fn(RequestView<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.settings.door.exempt.push(Box::new(holds));
        self
    }

    /// As [`exempt`](Self::exempt), where it has to be looked up: `holds` takes what it needs from the request and returns a
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
        self.settings.door.exempt_later.push(Box::new(move |request| Box::pin(holds(request))));
        self
    }

    /// Refuses requests of which `holds` is true with 403, without asking any limit. What is exempt is not refused.
    pub fn deny(mut self, holds: impl Fn(RequestView<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.settings.door.deny.push(Box::new(holds));
        self
    }

    /// Which header fields responses carry. Default: [`HeaderFields::All`].
    pub fn headers(mut self, headers: HeaderFields) -> Self {
        self.settings.style.chosen = headers;
        self
    }

    /// What `X-RateLimit-Reset` is. Default: [`LegacyReset::Delta`].
    pub fn legacy_reset(mut self, reset: LegacyReset) -> Self {
        self.settings.style.reset = reset;
        self
    }

    /// Lets scripts of other origins read the fields: `Access-Control-Expose-Headers` lists those that are there,
    /// besides what it lists already. Default: browsers keep them from such scripts.
    pub fn expose_headers(mut self) -> Self {
        self.settings.style.exposes = true;
        self
    }

    /// Tells refused clients to come back up to this much later than they have to, at random and in whole seconds: those
    /// that were refused together do not come back together. `Retry-After` and the body carry the longer wait, and it is
    /// never shorter than the true one, which `t` of the field `RateLimit` still is. Default: nothing is added.
    ///
    /// Where layers stack, it is for what this one refuses.
    pub fn spread_retry_after(mut self, longest: Duration) -> Self {
        self.settings.spread = Some(spread::up_to(longest));
        self
    }

    /// As [`spread_retry_after`](Self::spread_retry_after), by as much as `extra` says, rounded up to whole seconds: for
    /// tests, and for a randomness of your own.
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

    /// Marks refusals with `X-Envoy-RateLimited`, so that an Envoy in front does not try again. Default: it is not said.
    pub fn tell_envoy(mut self) -> Self {
        self.settings.style.tells_envoy = true;
        self
    }

    /// How many requests may wait at once, in all services of this layer together: for a key or a tier that has to be
    /// looked up, and for their turn. A request that comes when this many wait is refused with 503 at once, and what it
    /// has spent is given back. Default: 10,000.
    ///
    /// A waiting request keeps its head, its body and its connection, but not the readiness of the service inside: that
    /// is polled once the turn has come, and until it is ready the request keeps its place.
    ///
    /// # Clients that have left
    /// A server drops the request of a client that has left, and its place is free. Over HTTP/1, hyper does not notice
    /// that a client has left as long as it has bytes of a next request: a client that pipelines two requests and hangs
    /// up keeps one place for each of its connections until the turn has come. So bound how many places one client
    /// takes, with an [`InFlightLayer`](crate::in_flight::InFlightLayer) of a few permits around this layer and with the longest
    /// wait of the policy, or put a proxy in front that does not pipeline. Over HTTP/2, a stream that is reset is noticed
    /// at once.
    pub fn longest_queue(mut self, requests: usize) -> Self {
        self.settings.waits.queue = Queue::up_to(requests);
        self
    }

    /// How long a request may wait for each key, tier and exemption that has to be looked up, as with
    /// [`Extraction::pending`](crate::key::Extraction::pending) and [`Limit::tiered_async`](crate::Limit::tiered_async). After
    /// that it is refused with 503 and has spent nothing; where its policy is only tried out, it goes on without.
    /// Default: 5 s.
    pub fn longest_lookup(mut self, longest: Duration) -> Self {
        self.settings.waits.longest_lookup = longest;
        self
    }

    /// Puts a [`Meter`](crate::Meter) into the extensions of requests that are let through, for handlers that learn a
    /// request's cost while they serve it. Default: there is none, and nothing is kept for it.
    pub fn meter(mut self) -> Self {
        self.settings.meters = true;
        self
    }

    /// Who makes the response to a refused request: a closure, or a type of yours. Default: [`ProblemJson`].
    pub fn respond<N>(self, respond: N) -> RateLimitLayerBuilder<N> {
        let Self { limits, respond: _, settings } = self;
        RateLimitLayerBuilder { limits, respond, settings }
    }

    /// Leaves the extensions of requests and responses alone, which saves their allocation. Handlers then do not see
    /// the decision; and a layer around this one knows nothing of it: it takes the fields for those of the service, and
    /// keeps what it spent when this one refuses.
    pub fn without_extensions(mut self) -> Self {
        self.settings.extensions = false;
        self
    }

    /// Checks that the limits can be decided together, and makes the layer.
    ///
    /// # Errors
    /// When the limits are on different stores, when two have a policy of the same name, or when they have more than 16
    /// quotas in all. Of a limit with tiers, the tier with the most quotas counts.
    pub fn build(self) -> Result<RateLimitLayer<R>, ConfigError> {
        check(&self.limits).map_err(|problem| ConfigError::new(ConfigErrorKind::Layer, problem))?;
        let Self { limits, respond, settings } = self;
        let Settings { door, style, spread, waits, extensions, meters } = settings;
        for limit in limits.iter().filter(|limit| meters || limit.gives_back()) {
            limit.keep_accounts()?;
        }
        let mut shared = Shared::new(limits, respond);
        shared.spread = spread;
        shared.door = (!door.is_empty()).then(|| Box::new(door));
        (shared.style, shared.waits, shared.extensions, shared.meters) = (style, waits, extensions, meters);
        Ok(RateLimitLayer::of(shared))
    }
}

impl<R> fmt::Debug for RateLimitLayerBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayerBuilder").field("limits", &self.limits).finish_non_exhaustive()
    }
}
