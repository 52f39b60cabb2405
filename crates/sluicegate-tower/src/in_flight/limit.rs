//! A limit on concurrent requests of a key: [`InFlightLimit`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::in_flight::InFlight;

use crate::key::missing::{OnMissingKey, WhenMissing};
use crate::key::{KeyExtractor, PeerIp, RequestView};

/// An [`InFlight`] with the key that it is counted by, and the requests that it counts.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::in_flight::InFlight;
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
    only_if: Vec<Applies>,
}

type Applies = Arc<dyn Fn(RequestView<'_>) -> bool + Send + Sync>;

impl InFlightLimit {
    /// Counts per peer address, and refuses at once.
    pub fn new(in_flight: InFlight) -> Self {
        Self {
            in_flight,
            key: Arc::new(PeerIp::new()),
            longest: None,
            when_missing: WhenMissing::default(),
            only_if: Vec::new(),
        }
    }

    /// Sets the key by which requests are counted. Default: [`PeerIp`].
    pub fn key(mut self, key: impl KeyExtractor) -> Self {
        self.key = Arc::new(key);
        self
    }

    /// Sets how to treat a request whose key is missing. Default: that of [`Limit`](crate::Limit::on_missing_key).
    pub fn on_missing_key(mut self, action: OnMissingKey) -> Self {
        self.when_missing.chosen = Some(action);
        self
    }

    /// Makes a request above the limit wait for up to `longest`, first come, first served, in the bounded
    /// queue of the [`InFlight`]. Default: it is refused at once.
    pub fn wait_up_to(mut self, longest: Duration) -> Self {
        self.longest = Some(longest);
        self
    }

    /// Counts only requests for which `applies` is true. With several such conditions, all must hold.
    pub fn only_if(mut self, applies: impl Fn(RequestView<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.only_if.push(Arc::new(applies));
        self
    }

    pub(super) fn applies_to(&self, request: RequestView<'_>) -> bool {
        self.only_if.iter().all(|applies| applies(request))
    }
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
