//! The layer: [`InFlightLayer`].

use std::sync::Arc;
use std::time::Duration;

#[cfg(doc)]
use sluicegate_in_flight::InFlight;
use tower_layer::Layer;

use crate::guard::Guarded;
use crate::guard::gate::Waits;
use crate::in_flight::{InFlightHandle, InFlightLimit, InFlightLimits};
use crate::key::KeyExtractor;
use crate::key::missing::OnMissingKey;
#[cfg(doc)]
use crate::respond::RefusalReason;
use crate::respond::{HeaderFields, ProblemJson, Refusal};

/// Limits the number of concurrent requests of a key.
///
/// A request is in flight until the body of its response has ended or is dropped, and until the server has released its
/// data: slow downloads and streams of events count for as long as they last, as does a file in memory that is
/// passed on at once. A request above the limit is refused with 429, or waits if [`wait_up_to`](Self::wait_up_to) is set.
/// Responses show the state of the key in the fields of the rate limit draft, with the unit `concurrent-requests`, beside fields
/// that are already there.
///
/// ```
/// use std::convert::Infallible;
/// use bytes::Bytes;
/// use http::{Request, Response, StatusCode};
/// use http_body_util::Full;
/// use sluicegate_in_flight::InFlight;
/// use sluicegate_tower::in_flight::InFlightLayer;
/// use sluicegate_tower::key::HeaderKey;
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let hello = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello")))) });
/// let downloads = InFlightLayer::new(InFlight::new("downloads", 1)?).key(HeaderKey::new("x-api-key")?);
/// let mut service = ServiceBuilder::new().layer(downloads).service(hello);
///
/// let request = || Request::get("/").header("x-api-key", "k1").body(());
/// let first = service.ready().await?.call(request()?).await?;
/// assert_eq!(first.headers()["ratelimit-policy"], r#""downloads";q=1;qu="concurrent-requests""#);
/// let second = service.ready().await?.call(request()?).await?;
/// assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
/// drop(first);
/// assert_eq!(service.ready().await?.call(request()?).await?.status(), StatusCode::OK);
/// # Ok(())
/// # }
/// ```
///
/// # Limits that adapt
/// If the service itself is the limit, [`InFlight::adaptive`] finds the number of requests that it can handle, for all clients together. A
/// request above it waits for a moment and is then refused with 503, a `Retry-After` from the current rate of responses, and a separate
/// problem type; [less important](InFlightLimit::class) requests are refused first. A sample is the time from the permit to the head of the
/// response: a body that lasts an hour holds its permit, but is not a sample, and neither is a response by which a layer further in refuses the
/// request. Put such a limit last, so that waits for other permits are not part of the sample.
///
/// # Permits that instances share
/// An [`InFlight`] [on a store](sluicegate_in_flight::InFlightBuilder::on) counts for all instances. Each request then carries its
/// [`HeldPermit`](crate::in_flight::HeldPermit) in its extensions: a handler that has to stop when the permit [is
/// lost](sluicegate_in_flight::Permit::lost) takes `Extension<HeldPermit>`. Nothing else stops it. While the store gives no answer
/// and the limit refuses in an outage, a request gets 503.
///
/// # Where to put it
/// Put it around a [`RateLimitLayer`](crate::RateLimitLayer), so that requests which it refuses spend nothing there. It also works
/// inside one: the limits around it get their units back.
///
/// Be careful inside a cache: each piece of data holds the permit, so a layer around this one that keeps the data of
/// responses keeps their permits. A layer that copies the data, as compression does, frees the permits early.
///
/// # Upgrades
/// The body of a response that switches protocols ends at once, and this layer cannot track the connection afterwards.
/// So requests that ask for an upgrade carry a [`HeldPermit`](crate::in_flight::HeldPermit) in their extensions, and the request is in
/// flight until the last clone of it is dropped. A task that owns the request until the connection closes, as in
/// `hyper::upgrade::on(&mut request)`, holds it by itself; an axum handler takes
/// `Option<Extension<HeldPermit>>` and moves it into the closure for `on_upgrade`. If no clone is kept, the permit
/// comes back with the response.
///
/// # Cancel safety
/// A dropped request leaves the queue, or gives its permit back, at any time.
pub struct InFlightLayer<R = ProblemJson> {
    limits: InFlightHandle,
    pub(super) shared: Arc<PermitSettings<R>>,
}

/// State that all clones of a layer share, apart from the limits.
pub(super) struct PermitSettings<R> {
    /// The bounds on waits for keys; waits for permits are in the queue of the `InFlight`.
    pub(super) waits: Waits,
    pub(super) respond: Arc<R>,
    pub(super) headers: HeaderFields,
    pub(super) exposes: bool,
}

impl InFlightLayer {
    /// A layer that counts per peer address, and refuses at once with [`ProblemJson`].
    pub fn new(limit: impl Into<InFlightLimit>) -> Self {
        InFlightHandle::new([limit.into()]).into()
    }
}

impl<R> InFlightLayer<R> {
    /// Adds a limit after the existing ones. A request that several limits count needs a permit of each; it takes them in this
    /// order, and gives all back if one is refused.
    ///
    /// As with all settings of a layer, the layer has limits of its own from then on: the handle that it was made from no longer swaps
    /// them, and [`limits_handle`](Self::limits_handle) returns its new one. The [choice](InFlightLimits::select) among the
    /// existing limits stays, and so do the limits of a rate that [follow](InFlightLimits::before). The added limit applies to
    /// every request for which its [conditions](InFlightLimit::only_if) hold.
    #[must_use]
    pub fn and(self, limit: impl Into<InFlightLimit>) -> Self {
        self.with(|limits| limits.push(limit.into()))
    }

    /// As [`InFlightLimit::key`], of the last limit.
    #[must_use]
    pub fn key(self, key: impl KeyExtractor) -> Self {
        self.with_last(|limit| limit.key(key))
    }

    /// As [`InFlightLimit::on_missing_key`], of the last limit.
    #[must_use]
    pub fn on_missing_key(self, action: OnMissingKey) -> Self {
        self.with_last(|limit| limit.on_missing_key(action))
    }

    /// As [`InFlightLimit::wait_up_to`], of the last limit.
    #[must_use]
    pub fn wait_up_to(self, longest: Duration) -> Self {
        self.with_last(|limit| limit.wait_up_to(longest))
    }

    fn with_last(self, change: impl FnOnce(InFlightLimit) -> InFlightLimit) -> Self {
        self.with(|limits| {
            let last = limits.pop().map(change);
            limits.extend(last);
        })
    }

    fn with(self, change: impl FnOnce(&mut Vec<InFlightLimit>)) -> Self {
        let limits = InFlightHandle::new([]);
        limits.swap_with(self.limits().with(change));
        Self { limits, ..self }
    }

    /// The limits of this layer, to swap them while it serves.
    pub fn limits_handle(&self) -> InFlightHandle {
        self.limits.clone()
    }

    /// The limits that requests meet now.
    pub(super) fn limits(&self) -> Arc<InFlightLimits> {
        self.limits.limits()
    }

    /// Sets how long a request may wait for a key that has to be looked up, as with
    /// [`Extraction::pending`](crate::key::Extraction::pending). After that it is refused with 503, as is a request that comes when
    /// 10,000 wait for their keys. Default: 5 s.
    #[must_use]
    pub fn longest_lookup(mut self, longest: Duration) -> Self {
        Arc::make_mut(&mut self.shared).waits.longest_lookup = longest;
        self
    }

    /// Sets whether responses carry the fields of the draft, the only fields for this kind of limit. Limits with
    /// [fields of their own](InFlightLimits::headers) take precedence. Default: [`HeaderFields::Ietf`].
    #[must_use]
    pub fn headers(mut self, headers: HeaderFields) -> Self {
        Arc::make_mut(&mut self.shared).headers = headers;
        self
    }

    /// Lets scripts of other origins read the fields: adds the fields of the response to `Access-Control-Expose-Headers`, also
    /// `Retry-After`. Default: browsers hide them from such scripts.
    #[must_use]
    pub fn expose_headers(mut self) -> Self {
        Arc::make_mut(&mut self.shared).exposes = true;
        self
    }

    /// Sets a closure that makes the response to a refused request; the reason is
    /// [`ConcurrencyExceeded`](RefusalReason::ConcurrencyExceeded) with the [`InFlight`]. Default: [`ProblemJson`].
    #[must_use]
    pub fn respond<F, T>(self, respond: F) -> InFlightLayer<F>
    where
        F: Fn(&Refusal<'_>) -> T + Send + Sync + 'static,
    {
        self.responder(respond)
    }

    /// As [`respond`](Self::respond), with a type that implements [`Respond`](crate::respond::Respond).
    #[must_use]
    pub fn responder<N>(self, respond: N) -> InFlightLayer<N> {
        let PermitSettings { waits, respond: _, headers, exposes } = Arc::unwrap_or_clone(self.shared);
        let shared = Arc::new(PermitSettings { waits, respond: Arc::new(respond), headers, exposes });
        InFlightLayer { limits: self.limits, shared }
    }
}

/// Layers from one handle have the same limits, and swap them together.
impl From<InFlightHandle> for InFlightLayer {
    fn from(limits: InFlightHandle) -> Self {
        let respond = Arc::new(ProblemJson::new());
        let (waits, headers, exposes) = (Waits::default(), HeaderFields::Ietf, false);
        let shared = PermitSettings { waits, respond, headers, exposes };
        Self { limits, shared: Arc::new(shared) }
    }
}

impl<R> Clone for InFlightLayer<R> {
    fn clone(&self) -> Self {
        Self { limits: self.limits.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S, R> Layer<S> for InFlightLayer<R> {
    type Service = Guarded<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded::new(inner, self.clone())
    }
}

sluicegate_core::debug_as!(InFlightLayer<R>, layer => layer.limits());

impl<R> Clone for PermitSettings<R> {
    fn clone(&self) -> Self {
        let Self { waits, respond, headers, exposes } = self;
        Self { waits: waits.clone(), respond: Arc::clone(respond), headers: *headers, exposes: *exposes }
    }
}
