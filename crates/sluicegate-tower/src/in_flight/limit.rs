//! A limit on concurrent requests of a key: [`InFlightLimit`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use sluicegate_core::Key;
use sluicegate_in_flight::adaptive::Outcome;
use sluicegate_in_flight::{Class, InFlight, Permit, PermitRequest};

use crate::key::missing::{OnMissingKey, WhenMissing};
use crate::key::{KeyExtractor, PeerIp, RequestView};

/// An [`InFlight`] with the key that it is counted by, and the requests that it counts.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_in_flight::InFlight;
/// use sluicegate_tower::in_flight::{InFlightLayer, InFlightLimit};
/// use sluicegate_tower::key::HeaderKey;
/// use sluicegate_tower::limits::path_in;
///
/// // Twenty of each address, and two reports of each tenant among them.
/// let reports = InFlightLimit::new(InFlight::new("reports", 2)?)
///     .key(HeaderKey::new("x-tenant")?)
///     .only_if(path_in(["/reports/*"])?)
///     .wait_up_to(Duration::from_secs(10));
/// let layer = InFlightLayer::new(InFlight::new("requests", 20)?).and(reports);
/// # let _ = layer;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use = "a limit does nothing until it is put into a layer"]
pub struct InFlightLimit {
    pub(super) in_flight: InFlight,
    pub(super) key: Arc<dyn KeyExtractor>,
    pub(super) longest: Option<Duration>,
    pub(super) when_missing: WhenMissing,
    /// The conditions, which must all hold.
    only_if: Vec<RequestFn<bool>>,
    class: Option<RequestFn<Class>>,
    weight: Option<RequestFn<u64>>,
    is_fault: Option<ResponseFault>,
}

/// A value read from a request.
type RequestFn<T> = Arc<dyn Fn(RequestView<'_>) -> T + Send + Sync>;
type ResponseFault = Arc<dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync>;

impl InFlightLimit {
    /// Counts per peer address, and refuses at once. A limit that [adapts](InFlight::adaptive) counts all requests together, and lets them
    /// wait up to its own bound.
    pub fn new(in_flight: InFlight) -> Self {
        let key: Arc<dyn KeyExtractor> =
            if in_flight.is_adaptive() { Arc::new(Key::shared()) } else { Arc::new(PeerIp::new()) };
        Self {
            in_flight,
            key,
            longest: None,
            when_missing: WhenMissing::default(),
            only_if: Vec::new(),
            class: None,
            weight: None,
            is_fault: None,
        }
    }

    /// Sets the key by which requests are counted. Default: [`PeerIp`]; if the limit adapts, one key for all, because keys make a
    /// difference only if it is [shared by keys](sluicegate_in_flight::AdaptiveBuilder::fair).
    pub fn key(mut self, key: impl KeyExtractor) -> Self {
        self.key = Arc::new(key);
        self
    }

    /// Sets the treatment of a request without a key. Default: as for [`Limit`](crate::Limit::on_missing_key).
    pub fn on_missing_key(mut self, action: OnMissingKey) -> Self {
        self.when_missing.chosen = Some(action);
        self
    }

    /// Makes a request above the limit wait for up to `longest`, first come, first served, in the bounded
    /// queue of the [`InFlight`]. Default: it is refused at once; if the limit adapts, it waits up to that limit's
    /// [bound](sluicegate_in_flight::AdaptiveBuilder::wait_up_to), which is never exceeded.
    pub fn wait_up_to(mut self, longest: Duration) -> Self {
        self.longest = Some(longest);
        self
    }

    /// Counts only requests for which `applies` is true. With several such conditions, all must hold.
    pub fn only_if(mut self, applies: impl Fn(RequestView<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.only_if.push(Arc::new(applies));
        self
    }

    /// Sets the importance of a request, if the limit [adapts](InFlight::adaptive). Read a header field only if your proxy writes or
    /// removes it: otherwise every client claims the highest class. Default: [`Class::Critical`] for all.
    ///
    /// ```
    /// use sluicegate_in_flight::{Class, InFlight};
    /// use sluicegate_tower::in_flight::InFlightLimit;
    /// use sluicegate_tower::key::RequestView;
    ///
    /// let api = InFlightLimit::new(InFlight::adaptive("api").build()?).class(|request: RequestView<'_>| match request.path() {
    ///     "/checkout" => Class::CriticalPlus,
    ///     path if path.starts_with("/export/") => Class::Sheddable,
    ///     _ => Class::Critical,
    /// });
    /// # let _ = api;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn class(mut self, class: impl Fn(RequestView<'_>) -> Class + Send + Sync + 'static) -> Self {
        self.class = Some(Arc::new(class));
        self
    }

    /// Sets the share of a request's key in proportion to the shares of others, if the limit is [shared by
    /// keys](sluicegate_in_flight::AdaptiveBuilder::fair), for example by tier. Default: 1 for all.
    pub fn weight(mut self, weight: impl Fn(RequestView<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.weight = Some(Arc::new(weight));
        self
    }

    /// Sets which responses speak of [overload](Outcome::Overload), if the limit adapts. A late answer always does if there is a
    /// [timeout](sluicegate_in_flight::AdaptiveBuilder::timeout). Other responses with a status from 500 on, and errors of the service, are
    /// [errors](Outcome::Error): if they come faster than good answers, they change nothing. Default: the statuses 429, 503 and 504, and
    /// gRPC responses with `RESOURCE_EXHAUSTED`, `DEADLINE_EXCEEDED` or `UNAVAILABLE` in their header fields.
    pub fn fault_if(
        mut self,
        is_fault: impl Fn(StatusCode, &HeaderMap) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.is_fault = Some(Arc::new(is_fault));
        self
    }

    /// The request for a permit of this key.
    pub(super) fn request(&self, key: &Key, request: RequestView<'_>) -> PermitRequest {
        let mut asks = self.in_flight.request(key);
        if let Some(class) = &self.class {
            asks = asks.class(class(request));
        }
        if let Some(weight) = &self.weight {
            asks = asks.weight(weight(request));
        }
        asks
    }

    /// The class of a request, if it makes a difference.
    pub(super) fn class_of(&self, request: RequestView<'_>) -> Option<Class> {
        let class = || self.class.as_ref().map_or_else(Class::default, |class| class(request));
        self.in_flight.is_adaptive().then(class)
    }

    /// Reports the response to a permit of this limit.
    pub(super) fn answered(&self, permit: &Permit, status: StatusCode, headers: &HeaderMap) {
        let is_overload = match &self.is_fault {
            Some(is_fault) => is_fault(status, headers),
            None => speaks_of_overload(status, headers),
        };
        permit.answered(
            match status.is_server_error() || headers.get("grpc-status").is_some_and(|code| code != "0") {
                _ if is_overload => Outcome::Overload,
                true => Outcome::Error,
                false => Outcome::Good,
            },
        );
    }

    pub(super) fn applies_to(&self, request: RequestView<'_>) -> bool {
        self.only_if.iter().all(|applies| applies(request))
    }
}

/// Of gRPC, `RESOURCE_EXHAUSTED`, `DEADLINE_EXCEEDED` or `UNAVAILABLE` of a response without a body; others have it in trailers.
fn speaks_of_overload(status: StatusCode, headers: &HeaderMap) -> bool {
    [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT]
        .contains(&status)
        || headers.get("grpc-status").is_some_and(|code| [&b"4"[..], b"8", b"14"].contains(&code.as_bytes()))
}

impl From<InFlight> for InFlightLimit {
    fn from(in_flight: InFlight) -> Self {
        Self::new(in_flight)
    }
}

impl fmt::Debug for InFlightLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.in_flight.fmt(f)
    }
}
