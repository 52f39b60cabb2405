//! The layer: [`InFlightLayer`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use sluicegate_core::in_flight::InFlight;
use sluicegate_core::store::QuotaStatus;
use sluicegate_core::{Decision, Outcome, Policy, Quota};
use tower_layer::Layer;

use crate::guard::lookup::Waits;
use crate::in_flight::{InFlightProblem, LimitInFlight, PermitBody};
use crate::key::PeerIp;
use crate::key::missing::OnMissingKey;
use crate::key::missing::WhenMissing;
use crate::key::{KeyExtractor, MissingKey, RequestView};
use crate::rate_limit::mark::Unserved;
use crate::respond::headers::{HeaderFields, RATELIMIT, RATELIMIT_POLICY, forbid_caching};
use crate::respond::refusal::{Refusal, RefusalReason, Respond};

/// Limits how many requests of a key are under way at once.
///
/// A request is under way until the body of its response has ended or is dropped, and until the server has let go of its
/// data: slow downloads and streams of events count for as long as they last, and so does a file in memory that is
/// handed over at once. One too many is refused with 429, or waits if [`wait_up_to`](Self::wait_up_to) says so.
/// Responses say where the key stands in the fields of the rate limit draft, with the unit `concurrent-requests`; what is
/// there already stays.
///
/// ```
/// use std::convert::Infallible;
/// use bytes::Bytes;
/// use http::{Request, Response, StatusCode};
/// use http_body_util::Full;
/// use sluicegate_core::in_flight::InFlight;
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
/// # Where to put it
/// Around a [`RateLimitLayer`](crate::RateLimitLayer), so that what is refused here is not asked there. Inside of one it works
/// as well: what the limits around it have spent is given back.
///
/// Inside of a cache: each piece of data holds the permit, so a layer around this one that keeps the data of responses
/// keeps their permits. One that copies them, as compression does, lets go of them early.
///
/// # Upgrades
/// The body of a response that switches protocols ends at once, and this layer cannot see the connection after that.
/// So requests that ask for an upgrade carry a [`HeldPermit`](crate::in_flight::HeldPermit) in their extensions, and the request is under way until the
/// last clone of it is dropped. A task that owns the request until the connection closes, as in
/// `hyper::upgrade::on(&mut request)`, holds it without doing anything; an axum handler takes
/// `Option<Extension<HeldPermit>>` and moves it into the closure for `on_upgrade`. Where nobody keeps one, the permit
/// comes back with the response.
pub struct InFlightLayer<R = InFlightProblem> {
    shared: Shared<R>,
}

/// What all services of a layer share.
pub(crate) struct Shared<R> {
    pub(crate) in_flight: InFlight,
    pub(crate) key: Arc<dyn KeyExtractor>,
    pub(crate) longest: Option<Duration>,
    /// For keys; permits are waited for in the queue of the `InFlight`.
    pub(crate) waits: Waits,
    when_missing: WhenMissing,
    respond: Arc<R>,
    headers: HeaderFields,
    /// The name, as the policy of the decisions that refuse.
    policies: Option<Arc<[Arc<Policy>]>>,
}

impl InFlightLayer {
    /// A layer that counts per peer address, refuses at once, and says so with [`InFlightProblem`].
    pub fn new(in_flight: InFlight) -> Self {
        let named = Policy::gcra(in_flight.name(), Quota::per_second(in_flight.permits())).build().ok();
        let shared = Shared {
            in_flight,
            key: Arc::new(PeerIp::new()),
            longest: None,
            waits: Waits::default(),
            when_missing: WhenMissing::default(),
            respond: Arc::new(InFlightProblem::new()),
            headers: HeaderFields::Ietf,
            policies: named.map(|policy| Arc::from([Arc::new(policy)])),
        };
        Self { shared }
    }
}

impl<R> InFlightLayer<R> {
    /// Whose requests are counted together. Default: [`PeerIp`].
    #[must_use]
    pub fn key(mut self, key: impl KeyExtractor) -> Self {
        self.shared.key = Arc::new(key);
        self
    }

    /// What happens to a request whose key is missing. Default: as of [`Limit`](crate::Limit::on_missing_key).
    #[must_use]
    pub fn on_missing_key(mut self, action: OnMissingKey) -> Self {
        self.shared.when_missing.chosen = Some(action);
        self
    }

    /// Makes a request that would be one too many wait for up to `longest`, first come, first served, in the bounded
    /// queue of the [`InFlight`]. Default: it is refused at once.
    #[must_use]
    pub fn wait_up_to(mut self, longest: Duration) -> Self {
        self.shared.longest = Some(longest);
        self
    }

    /// How long a request may wait for a key that has to be looked up, as with
    /// [`Extraction::pending`](crate::key::Extraction::pending). After that it is refused with 503, and so is one that comes when
    /// 10,000 wait for their keys. Default: 5 s.
    #[must_use]
    pub fn longest_lookup(mut self, longest: Duration) -> Self {
        self.shared.waits.longest_lookup = longest;
        self
    }

    /// Whether responses carry the fields of the draft; there are no others for this. Default: [`HeaderFields::Ietf`].
    #[must_use]
    pub fn headers(mut self, headers: HeaderFields) -> Self {
        self.shared.headers = headers;
        self
    }

    /// Who makes the response to a refused request, which is told that it [exceeds](RefusalReason::Exceeded) a policy with the
    /// name and the permits of the [`InFlight`]. Default: [`InFlightProblem`].
    #[must_use]
    pub fn respond<N>(self, respond: N) -> InFlightLayer<N> {
        let Shared { in_flight, key, longest, waits, when_missing, respond: _, headers, policies } =
            self.shared;
        let respond = Arc::new(respond);
        let shared = Shared { in_flight, key, longest, waits, when_missing, respond, headers, policies };
        InFlightLayer { shared }
    }
}

impl<R> Clone for InFlightLayer<R> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<S, R> Layer<S> for InFlightLayer<R> {
    type Service = LimitInFlight<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        LimitInFlight::new(inner, Arc::new(self.shared.clone()))
    }
}

impl<R> fmt::Debug for InFlightLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InFlightLayer").field(&self.shared.in_flight).finish()
    }
}

impl<R> Clone for Shared<R> {
    fn clone(&self) -> Self {
        Self {
            in_flight: self.in_flight.clone(),
            key: Arc::clone(&self.key),
            longest: self.longest,
            waits: self.waits.clone(),
            when_missing: self.when_missing.clone(),
            respond: Arc::clone(&self.respond),
            headers: self.headers,
            policies: self.policies.clone(),
        }
    }
}

impl<R> Shared<R> {
    /// What the layer does with a request without a key.
    pub(crate) fn on_missing_key(&self, missing: &MissingKey) -> OnMissingKey {
        self.when_missing.action(missing, || self.in_flight.name().to_owned())
    }

    /// The refusal of a request that would be one too many.
    pub(crate) fn too_many<B>(&self, request: RequestView<'_>) -> Response<PermitBody<B>>
    where
        R: Respond<B>,
    {
        // Nobody knows when a permit comes back; a second keeps clients from hammering.
        let (limit, wait_us) = (self.in_flight.permits(), 1_000_000);
        let standing = QuotaStatus::new((0, 0), false, limit, 0, wait_us, wait_us);
        let mut decision = Decision::new(Outcome::Denied, 0, 0, [standing]);
        if let Some(policies) = &self.policies {
            decision.set_policies(Arc::clone(policies));
        }
        let mut response = self.unserved(RefusalReason::Exceeded(&decision), request);
        self.mark(response.headers_mut(), 0);
        response
    }

    /// The refusal of a request after which limits around this layer give back what they spent.
    pub(crate) fn unserved<B>(
        &self,
        reason: RefusalReason<'_>,
        request: RequestView<'_>,
    ) -> Response<PermitBody<B>>
    where
        R: Respond<B>,
    {
        let mut response = self.answer(reason, request);
        response.extensions_mut().insert(Unserved);
        response
    }

    pub(crate) fn keyless<B>(
        &self,
        missing: &MissingKey,
        status: StatusCode,
        request: RequestView<'_>,
    ) -> Response<PermitBody<B>>
    where
        R: Respond<B>,
    {
        self.answer(RefusalReason::MissingKey(missing, status), request)
    }

    fn answer<B>(&self, reason: RefusalReason<'_>, request: RequestView<'_>) -> Response<PermitBody<B>>
    where
        R: Respond<B>,
    {
        let refusal = Refusal::new(reason, request);
        let mut response = self.respond.respond(&refusal).map(|body| PermitBody::new(body, None));
        forbid_caching(response.headers_mut());
        if let Some(seconds) = refusal.retry_after_seconds() {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }

    /// Says where the key stands, behind what other layers have said.
    pub(crate) fn mark(&self, headers: &mut HeaderMap, remaining: u64) {
        if !matches!(self.headers, HeaderFields::All | HeaderFields::Ietf) {
            return;
        }
        let (name, permits) = (self.in_flight.name(), self.in_flight.permits());
        append(headers, RATELIMIT_POLICY, format!("\"{name}\";q={permits};qu=\"concurrent-requests\""));
        append(headers, RATELIMIT, format!("\"{name}\";r={remaining}"));
    }
}

/// Adds an item to a list in one line, for some readers take only the first.
fn append(headers: &mut HeaderMap, name: HeaderName, item: String) {
    let mut line = Vec::with_capacity(item.len());
    for value in headers.get_all(&name) {
        line.extend_from_slice(value.as_bytes());
        line.extend_from_slice(b", ");
    }
    line.extend_from_slice(item.as_bytes());
    // What was a valid value is one with more of the same behind it.
    if let Ok(value) = HeaderValue::from_bytes(&line) {
        headers.insert(name, value);
    }
}
