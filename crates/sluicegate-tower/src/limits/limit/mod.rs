//! One limit of a layer: a limiter, a key, and the cost of a request.

mod limiters;
mod terms;

use std::fmt;
use std::sync::Arc;

use http::response;
use sluicegate_core::{ConfigError, RateLimiter};

use crate::bandwidth::Direction;
use crate::key::PeerIp;
use crate::key::missing::{OnMissingKey, WhenMissing};
use crate::key::text::config_error;
use crate::key::{KeyExtractor, KeyKind, RequestView};
use crate::limits::predicate::Predicate;
use crate::limits::source::LimiterSource;
use crate::settle::{Reserve, Settle};

/// A limiter with the key and the cost of a request.
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
    /// The same extractor, if its keys are the addresses of peers, which need no key of their own.
    pub(crate) peers: Option<PeerIp>,
    /// The kind of its keys.
    pub(crate) kind: KeyKind,
    pub(crate) cost: u64,
    /// Computes the cost of a request, if costs differ.
    cost_of: Option<CostOf>,
    /// The conditions, which must all hold.
    only_if: Vec<Predicate>,
    pub(crate) when_missing: WhenMissing,
    pub(crate) refund_if: Option<RefundIf>,
    pub(crate) settle: Option<Arc<Settle>>,
    /// The bodies with bytes that it counts, if it does not count requests.
    pub(crate) bandwidth: Option<Direction>,
    pub(crate) name: Option<Arc<str>>,
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

    fn of(source: LimiterSource) -> Self {
        Self {
            source,
            key: Box::new(PeerIp::new()),
            peers: Some(PeerIp::new()),
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

    /// Sets the key of the bucket that a request spends from. Default: [`PeerIp`].
    ///
    /// The [crate](crate#whose-bucket) lists the extractors. A tuple of extractors has a bucket per
    /// combination.
    pub fn key(mut self, key: impl KeyExtractor) -> Self {
        (self.kind, self.peers) = (key.kind(), key.peers());
        self.key = Box::new(key);
        self
    }

    /// Sets the units that a request spends. Default: 1.
    ///
    /// # Errors
    /// When the cost is 0, which would limit nothing, or above the most that a quota of the policy ever passes at once, which would refuse
    /// all requests.
    pub fn cost(mut self, cost: u64) -> Result<Self, ConfigError> {
        for limiter in self.source.known() {
            // The policy without an operator's override, which is checked request by request.
            let policy = limiter.own_policy();
            let name = policy.name();
            if cost == 0 {
                return Err(config_error(format!(
                    "a cost of 0 would let every request pass policy {name:?}: use at least 1"
                )));
            }
            if let Some(quota) = policy.quotas().iter().find(|quota| quota.rule().capacity() < cost) {
                return Err(config_error(format!(
                    "cost {cost} is above burst {} of {} in policy {name:?}: no request would ever pass; lower the cost, or raise the limit or its burst",
                    quota.rule().capacity(),
                    quota.quota(),
                )));
            }
        }
        self.cost = cost;
        Ok(self)
    }

    /// Computes the units that a request spends from the request. With a cost of 0 this limit does not apply to
    /// the request. A cost above the most that a quota ever passes at once is refused with 403, because no wait helps.
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

    /// Finds the true cost of a request in its response, and gives back or charges the difference to its first spend: its
    /// [`cost`](Self::cost), or its [reservation](Self::reserve). Units charged in this way are spent whether they fit or not: units that
    /// do not fit are a debt, and later requests wait until it is paid off.
    ///
    /// The layer has to read the bodies of responses for all places but a header: see [`RateLimitLayer::settling`](crate::RateLimitLayer::settling).
    /// Routes of axum do this by themselves. A request that gets its units back by [`refund_if`](Self::refund_if) is not
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

    /// Lets requests set their first spend, until the response [settles](Self::settle) it. It replaces
    /// [`cost`](Self::cost) and [`cost_fn`](Self::cost_fn).
    pub fn reserve(self, reserve: Reserve) -> Self {
        self.cost_fn(move |request| reserve.of(request))
    }

    /// Makes this a limit on bytes of bodies instead of requests: its policy is in bytes, and bodies take them in pieces as they
    /// pass. See the [module](crate::bandwidth).
    ///
    /// The request itself spends nothing from the policy and is never refused by it; [`cost`](Self::cost), [`refund_if`](Self::refund_if)
    /// and [`settle`](Self::settle) have no meaning here, but a [`cost_fn`](Self::cost_fn) of 0 exempts a request. The layer has to
    /// [read bodies](crate::RateLimitLayer::settling) for downloads, and have an [`UploadLayer`](crate::bandwidth::UploadLayer) around it
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

    /// Sets the treatment of a request without a key. Default: [`OnMissingKey::Share`]; but a request with a peer address that
    /// is unknown is refused with 500, and an error with the fix is logged once. Such a server does not
    /// pass on the peer, and one bucket for all clients is unlikely to be intended, unless it is set here.
    pub fn on_missing_key(mut self, action: OnMissingKey) -> Self {
        self.when_missing.chosen = Some(action);
        self
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
