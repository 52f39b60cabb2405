//! The layer: [`OutgoingLayer`].

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use sluicegate_core::clock::{Clock, SystemClock};
use sluicegate_core::store::Event;
use sluicegate_core::{Key, RateLimiter};
use tokio::time::Instant;
use tower_layer::Layer;

use crate::call::{QueuedLimiter, notice};
use crate::guard::Guarded;
use crate::guard::service::Queue;
use crate::outgoing::advice::asked_wait;
use crate::outgoing::holds::{HostHolds, after};
use crate::outgoing::wire::WireFn;
use crate::outgoing::{HttpWire, Wire};

/// Makes a client wait: for its turn under our own limit, and for as long as a server asks for a pause.
///
/// - After a 429 or 503 with `Retry-After` (seconds, or a date), no call to the same host is made before then.
/// - When a response says that no units are left (`RateLimit: "x";r=0;t=30`, or `X-RateLimit-Remaining: 0` with a reset), the
///   next call waits until the reset. Malformed fields, and fields of cached responses, are ignored.
/// - A call that would have to wait longer than [`longest_wait`](Self::longest_wait) fails at once with
///   [`CallError::HeldOff`](crate::call::CallError::HeldOff) or [`CallError::Limited`](crate::call::CallError::Limited).
/// - At most [`longest_queue`](Self::longest_queue) calls wait at once.
///
/// The advice of up to 1,024 hosts is heeded, for up to an hour.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::convert::Infallible;
/// use http::{HeaderValue, Request, Response, StatusCode};
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::outgoing::OutgoingLayer;
/// use tokio::time::Instant;
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// // A service in place of a client, whose server always refuses.
/// let client = service_fn(|_: Request<()>| async {
///     let mut response = Response::new(());
///     *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
///     response.headers_mut().insert("retry-after", HeaderValue::from_static("20"));
///     Ok::<_, Infallible>(response)
/// });
/// // At most ten a second at the partner.
/// let per_host = Policy::gcra("partner", "10/1100ms burst 1").on(&MemoryStore::new())?;
/// let mut client = ServiceBuilder::new().layer(OutgoingLayer::new().limit(per_host)).service(client);
///
/// let start = Instant::now();
/// for _ in 0..2 {
///     let response = client.ready().await?.call(Request::get("https://api.example.org/").body(())?).await?;
///     assert_eq!(response.status(), 429);
/// }
/// assert_eq!(start.elapsed().as_secs(), 20);
/// # Ok(())
/// # }
/// ```
///
/// # A partner's limit
/// A quota of `10/s` with GCRA or a token bucket lets through a burst of ten and then the refill: up to 19 calls within a second.
/// To stay below a partner's N a second, however it counts, take one of these, with a period that is longer by the jitter of the
/// network (the difference of the longest and the shortest way):
///
/// | | with 100 ms of jitter |
/// |---|---|
/// | spread evenly | `Policy::gcra("partner", "10/1100ms burst 1")` |
/// | up to N at once, then a pause | `Policy::sliding_log("partner", "10/1100ms")` |
///
/// # Retries
/// It makes no call twice: a 429 is passed on like any response. With `tower::retry` around it, an immediate retry
/// waits here for as long as the server asks; the retry policy only decides whether to retry, and how often.
///
/// When a wait ends, all waiting calls proceed at once, unless a [`limit`](Self::limit) spaces them.
///
/// # Clients
/// Clients with types of the `http` crate work directly. With the feature `reqwest` the layer is also a middleware of
/// `reqwest-middleware`, so that `client.get(url).send()` waits. For clients with other types, see [`reading`](Self::reading). If a client
/// follows redirects by itself, they count as one call, to the first host.
///
/// # Cancel safety
/// A call that is dropped while it waits is not made, and its turn is given back. If it is dropped after its turn has come and before the
/// client is ready, its units stay spent. If it is dropped later, the server's advice is lost with the
/// response.
pub struct OutgoingLayer<W = HttpWire> {
    pub(super) wire: Arc<W>,
    pub(super) state: Arc<OutgoingState>,
}

/// The parts that clones of a layer share, and its settings.
#[derive(Clone)]
pub(super) struct OutgoingState {
    pub(super) limiter: Option<RateLimiter>,
    /// The longest wait of a call.
    pub(super) longest: Duration,
    pub(super) queue: Queue,
    /// The longest time for which advice is heeded.
    heeded: Duration,
    clock: Arc<dyn Clock>,
    pub(super) holds: Arc<HostHolds>,
}

impl OutgoingLayer {
    /// A layer that heeds servers' advice, for clients with types of the `http` crate.
    pub fn new() -> Self {
        Self::with_wire(HttpWire)
    }

    /// A layer for a client with its own types: `key` names the server of a request, `head` reads a response.
    ///
    /// ```
    /// use sluicegate_tower::outgoing::OutgoingLayer;
    /// use tower::ServiceBuilder;
    ///
    /// let layer = OutgoingLayer::reading(
    ///     |request: &reqwest::Request| request.url().host_str().unwrap_or_default().to_owned(),
    ///     |response: &reqwest::Response| (response.status(), response.headers()),
    /// );
    /// let client = ServiceBuilder::new().layer(layer).service(reqwest::Client::new());
    /// ```
    pub fn reading<Req, Res, Q>(
        key: impl Fn(&Req) -> Q + Send + Sync + 'static,
        head: impl Fn(&Res) -> (StatusCode, &HeaderMap) + Send + Sync + 'static,
    ) -> OutgoingLayer<impl Wire<Req, Res>>
    where
        Q: Into<Key>,
    {
        OutgoingLayer::with_wire(WireFn { key, head })
    }
}

impl Default for OutgoingLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<W> OutgoingLayer<W> {
    /// A layer that reads requests and responses with `wire`.
    pub fn with_wire(wire: W) -> Self {
        let state = OutgoingState {
            limiter: None,
            longest: Duration::from_secs(30),
            queue: Queue::default(),
            heeded: Duration::from_secs(3_600),
            clock: Arc::new(SystemClock::new()),
            holds: Arc::default(),
        };
        Self { wire: Arc::new(wire), state: Arc::new(state) }
    }

    /// Sets our own limit, with a bucket for each host: calls wait for their turn, first come, first served, whatever the policy
    /// does with requests above it. Default: none.
    #[must_use]
    pub fn limit(mut self, limiter: RateLimiter) -> Self {
        Arc::make_mut(&mut self.state).limiter = Some(limiter);
        self
    }

    /// Sets the longest total wait of a call before it is made; a call that would have to wait longer fails at once. Default: 30 s.
    #[must_use]
    pub fn longest_wait(mut self, longest: Duration) -> Self {
        Arc::make_mut(&mut self.state).longest = longest;
        self
    }

    /// Sets the number of calls that may wait at once, to all hosts and in all services of this layer together. A further call
    /// fails at once with [`CallError::QueueFull`](crate::call::CallError::QueueFull), and spends nothing.
    /// Default: 10,000.
    #[must_use]
    pub fn longest_queue(mut self, calls: usize) -> Self {
        Arc::make_mut(&mut self.state).queue = Queue::up_to(calls);
        self
    }

    /// Sets the longest time for which a server's advice is heeded, because some servers ask for years. Default: an hour.
    #[must_use]
    pub fn heed_up_to(mut self, longest: Duration) -> Self {
        Arc::make_mut(&mut self.state).heeded = longest;
        self
    }

    /// Sets the clock for the time of day, from which a date is measured if a response has no date of its own. The clock has to
    /// count from the Unix epoch. Default: [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        Arc::make_mut(&mut self.state).clock = Arc::new(clock);
        self
    }

    /// The number of calls that wait now: for the server, for their turn, or after that for the client to be ready.
    pub fn waiting(&self) -> usize {
        self.state.queue.waiting()
    }
}

impl<W> Clone for OutgoingLayer<W> {
    fn clone(&self) -> Self {
        Self { wire: Arc::clone(&self.wire), state: Arc::clone(&self.state) }
    }
}

impl<S, W> Layer<S> for OutgoingLayer<W> {
    type Service = Guarded<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded::new(inner, self.clone())
    }
}

sluicegate_core::debug_as!(OutgoingLayer<W>, layer => layer.state.limiter);

impl OutgoingState {
    /// Our own limit, if there is one.
    pub(super) fn under(&self) -> Option<QueuedLimiter<'_>> {
        self.limiter.as_ref().map(|limiter| QueuedLimiter { limiter, queue: &self.queue })
    }

    /// Records the advice of a response with this head.
    pub(super) fn heed(&self, key: &Key, (status, headers): (StatusCode, &HeaderMap)) {
        let wait = asked_wait(status, headers, Duration::from_micros(self.clock.now_us()));
        let Some(wait) = wait.map(|wait| wait.min(self.heeded)).filter(|wait| !wait.is_zero()) else {
            return;
        };
        let now = Instant::now();
        self.holds.hold(key, after(now, wait), now);
        if let Some(limiter) = &self.limiter {
            notice(limiter, key, |subject| Event::Paused(subject, wait));
        }
    }
}
