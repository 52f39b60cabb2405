//! Rules in front of a service: [`RulesLayer`].

use std::sync::{Arc, Mutex};

use sluicegate_core::support::lock;
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::bandwidth::{UploadLayer, Uploads};
use sluicegate_tower::defer::{Defer, DeferLayer};
use sluicegate_tower::guard::Guarded;
use sluicegate_tower::in_flight::{InFlightHandle, InFlightLayer};
use sluicegate_tower::limits::LimitsHandle;
use sluicegate_tower::request_fields::{ReadFields, RequestFieldsLayer};
use sluicegate_tower::settle::SettlingLayer;
use tower_layer::Layer;

use crate::compile::Compiled;
use crate::in_force::SplitLimits;
use crate::rooms::RoomsLayer;

/// Puts the rules of a file in front of any service, and follows each change of them: made by [`Rules::layer`](crate::Rules::layer).
///
/// It consists of three layers: the waiting rooms outside, then the limits on concurrent requests, and the rate limits inside. So a
/// request that waits for a permit has spent nothing yet, and a visitor that waits in line neither spends nor holds a permit. A request
/// that waits for a permit keeps the limits that it began with, like all requests; a visitor that is held for the last second or two until
/// its turn meets the limits that are in force then.
///
/// ```
/// use std::convert::Infallible;
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use sluicegate_core::MemoryStore;
/// use sluicegate_rules::{Rules, RulesFile, Variables};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = RulesFile::parse("rules.yaml", "
/// version: 1
/// policies:
///   reports: { quota: 1/min }
/// in_flight:
///   at-once: { permits: 2 }
/// rules:
///   - { name: report, only_if: { path: /report }, limit: reports, key: everybody, in_flight: at-once }
/// ", &Variables::environment())?;
/// let layer = Rules::new(&MemoryStore::new(), file)?.layer();
///
/// let report = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
/// let request = || Request::get("/report").body(());
/// assert_eq!(layer.layer(report).oneshot(request()?).await?.status(), 200);
/// assert_eq!(layer.layer(report).oneshot(request()?).await?.status(), 429);
/// # Ok(())
/// # }
/// ```
///
/// # Responses
/// A refusal has a body of `application/problem+json`, `Retry-After` if a wait helps, and the fields that `headers` of the file names;
/// allowed responses have these fields as well. The permits of `in_flight` are shown in `RateLimit` and `RateLimit-Policy`, with the unit
/// `concurrent-requests`, if `headers` has these two. Both follow the file that a request began with.
///
/// | status | because |
/// |---|---|
/// | 429, or the `status` of the rule or the policy | a limit has no room, or no permit came in time; of several limits, the one with the longest wait decides |
/// | 403, or the `status` of the rule | a rule under `deny` |
/// | the status of `on_missing_key` | the request has no such key |
/// | 400 | its path has dots, and its readings meet different rules that may spend from one policy |
/// | 500 | two rules that both apply spend from one policy, or the server does not pass on the address of the peer |
/// | 202 | it exceeds a policy that defers, and is run later, with [`deferring`](Self::deferring) |
/// | 503, with a page or JSON | it waits in a waiting room; see `sluicegate::overflow::WaitingRoomLayer` |
/// | 503 | the store is down and a policy has `on_outage: deny`, the queue is full, or a key came too late |
///
/// # Cancel safety
/// A request that is dropped gives its permit and its place in a queue back. Its units stay spent.
#[derive(Clone, Debug)]
pub struct RulesLayer {
    pub(crate) rooms: RoomsLayer,
    pub(crate) in_flight: InFlightLayer,
    pub(crate) limits: SettlingLayer,
    pub(crate) fields: RequestFieldsLayer,
    pub(crate) unread: Arc<Unread>,
    /// `None` in a program that keeps no requests.
    pub(crate) deferring: Option<DeferringParts>,
}

/// The layers of a program that keeps requests, outer ones first.
#[derive(Clone, Debug)]
pub(crate) struct DeferringParts {
    pub in_flight: InFlightLayer,
    pub refusing: SettlingLayer,
    pub deferring: DeferLayer,
}

impl RulesLayer {
    /// This layer, which keeps the requests that exceed a policy with `on_exceeded: defer`, by the
    /// [deferral](crate::RulesBuilder::deferral) of the program: limits that refuse come first, and limits that defer last. The bodies of
    /// requests have to be of a type that implements `http_body::Body`, because they are read.
    ///
    /// Without this, such requests are refused with 429.
    ///
    /// # Panics
    /// When the rules were made without a deferral.
    pub fn deferring(self) -> DeferringRulesLayer {
        let parts = self.deferring.clone();
        let parts = parts.expect("the rules have a deferral: `Rules::builder().deferral(..)` gives them one");
        DeferringRulesLayer { layer: self, parts }
    }

    /// This layer, which also reads the fields of requests' bodies that the file uses, such as `{ body: { model: large } }`, counts their bytes for
    /// `cost: { bytes: request, .. }`, and delays these bodies if a rule has `bandwidth: up`. The inner service gets bodies of another type,
    /// [`PacedBody`](sluicegate_tower::bandwidth::PacedBody) of [`ReadBody`](sluicegate_tower::request_fields::ReadBody).
    ///
    /// Without this, no request has such a field, and no upload is held, and the log says so once. A file without such words changes nothing: no body is read or held.
    pub fn reading_requests(self) -> ReadingRulesLayer {
        ReadingRulesLayer(self)
    }

    fn around<S>(&self, inner: S) -> RulesService<S> {
        self.rooms.layer(self.in_flight.layer(self.limits.layer(inner)))
    }
}

/// A [`RulesLayer`] that reads fields of requests' bodies and delays bodies: made by [`RulesLayer::reading_requests`].
#[derive(Clone, Debug)]
pub struct ReadingRulesLayer(RulesLayer);

/// A [`RulesLayer`] that keeps requests for later: made by [`RulesLayer::deferring`].
#[derive(Clone, Debug)]
pub struct DeferringRulesLayer {
    layer: RulesLayer,
    parts: DeferringParts,
}

impl<S> Layer<S> for DeferringRulesLayer {
    type Service = RulesService<Guarded<S, DeferLayer>>;

    fn layer(&self, inner: S) -> Self::Service {
        self.layer.unread.serve();
        let DeferringParts { in_flight, refusing, deferring } = &self.parts;
        self.layer.rooms.layer(in_flight.layer(refusing.layer(deferring.layer(inner))))
    }
}

/// A service behind a [`RulesLayer`].
pub type RulesService<S> = Guarded<Guarded<Guarded<S, SettlingLayer>, InFlightLayer>, RoomsLayer>;

impl<S> Layer<S> for RulesLayer {
    type Service = RulesService<S>;

    fn layer(&self, inner: S) -> RulesService<S> {
        self.unread.serve();
        self.around(inner)
    }
}

impl<S> Layer<S> for ReadingRulesLayer {
    type Service = ReadFields<Uploads<RulesService<S>>>;

    fn layer(&self, inner: S) -> Self::Service {
        let uploads = UploadLayer::new(&self.0.limits.limits_handle());
        self.0.fields.layer(uploads.layer(self.0.around(inner)))
    }
}

/// The limits of a program that keeps requests, in two parts.
pub(crate) struct Deferring {
    deferral: Arc<dyn Defer>,
    /// The limits that refuse.
    refusing: LimitsHandle,
    /// The limits on requests at once, before `refusing`.
    in_flight: InFlightHandle,
    /// The limits that defer.
    limits: LimitsHandle,
}

impl Deferring {
    pub(crate) fn new(
        deferral: Arc<dyn Defer>,
        SplitLimits { refusing, at_once, deferring }: SplitLimits,
    ) -> Self {
        let (refusing, in_flight) = (LimitsHandle::new(refusing), InFlightHandle::new([]));
        in_flight.swap_with(at_once.before(&refusing));
        Self { deferral, refusing, in_flight, limits: LimitsHandle::new(deferring) }
    }

    pub(crate) fn swap(&self, SplitLimits { refusing, at_once, deferring }: SplitLimits) {
        self.refusing.swap(refusing);
        self.limits.swap(deferring);
        self.in_flight.swap_with(at_once.before(&self.refusing));
    }

    pub(crate) fn parts(&self) -> DeferringParts {
        DeferringParts {
            in_flight: self.in_flight.clone().into(),
            refusing: RateLimitLayer::from(self.refusing.clone()).settling(),
            deferring: DeferLayer::new(self.limits.clone(), Arc::clone(&self.deferral)),
        }
    }
}

/// Whether the file in force needs bodies of requests, and whether a layer that neither reads nor delays them is in use: the log says so
/// once. Also whether it needs responses, and whether a server without responses decides: the log says so for each such file.
#[derive(Debug, Default)]
pub(crate) struct Unread(Mutex<UnreadNeeds>);

#[derive(Debug, Default)]
struct UnreadNeeds {
    /// The parts of requests that the file needs, in words.
    needs: Option<String>,
    /// Whether a layer without bodies is in use.
    serves: bool,
    is_said: bool,
    /// The rules that need responses.
    of_responses: Vec<String>,
    /// Whether a server decides for other processes.
    decides_apart: bool,
}

impl Unread {
    /// Notes the file in force.
    pub(crate) fn follow(&self, file: &Compiled) {
        let uploads = file.holds_requests().then(|| "the bandwidth of requests' bodies".to_owned());
        let needs: Vec<String> = file.reads.iter().cloned().chain(uploads).collect();
        self.change(|state| {
            state.needs = (!needs.is_empty()).then(|| needs.join(" and "));
            state.of_responses = file.needs_of_responses();
        });
    }

    /// Notes a server that decides by the rules without responses and connections of the requests.
    pub(crate) fn decide_apart(&self) {
        self.change(|state| state.decides_apart = true);
    }

    /// Notes a layer in front of a service that neither reads nor delays bodies of requests.
    pub(crate) fn serve(&self) {
        self.change(|state| state.serves = true);
    }

    fn change(&self, change: impl FnOnce(&mut UnreadNeeds)) {
        let mut state = lock(&self.0);
        change(&mut state);
        if let UnreadNeeds { needs: Some(needs), serves: true, is_said: false, .. } = &*state {
            tracing::warn!(
                "the rules look at {needs}, and the layer in front of the service does not: for it no request has such a field, and no \
                 upload is held; make the layer by `rules.layer().reading_requests()`; this is said once"
            );
            state.is_said = true;
        }
        if state.decides_apart && !state.of_responses.is_empty() {
            let rules = std::mem::take(&mut state.of_responses).join("; ");
            tracing::warn!(
                "{rules}: without effect, because this server decides before a request goes on, and has neither its response nor its \
                 connection; put the rules into a layer, or let the caller settle by /v1/reserve and /v1/settle"
            );
        }
    }
}
