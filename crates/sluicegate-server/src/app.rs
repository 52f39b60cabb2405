//! The state that all requests share: [`App`].

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::Response;
use hyper::body::{Body as _, Frame, SizeHint};
use metrics::{counter, describe_counter};
use sluicegate_core::store::DecidedBy;
use sluicegate_core::support::Seldom;
use sluicegate_observed::Observed;
use sluicegate_rules::Rules;
use sluicegate_status::StatusPage;
use sluicegate_tower::key::{Networks, PeerAddr};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use crate::asks::Access;
use crate::builder::Bounds;
use crate::connection::ended;
use crate::receipt::ReceiptTokens;

/// Renders the metrics of the process.
pub(crate) type Render = Box<dyn Fn() -> String + Send + Sync>;

/// The rules in force, and the server's own state.
pub(crate) struct App {
    pub(crate) rules: Rules,
    pub(crate) bounds: Bounds,
    pub(crate) charge: Charge,
    pub(crate) access: Access,
    pub(crate) proxies: Networks,
    pub(crate) receipts: ReceiptTokens,
    pub(crate) ready: Ready,
    /// One permit per request that may be in progress.
    pub(crate) in_progress: Arc<Semaphore>,
    /// One permit per request that may wait for its turn.
    pub(crate) waiting: Semaphore,
    pub(crate) observed: Option<Observed>,
    pub(crate) page: Option<StatusPage>,
    pub(crate) metrics: Option<Render>,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App")
            .field("bounds", &self.bounds)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

// Readiness: [`Ready`].

/// The interval between two checks of a store that has not answered yet.
const LOOKS_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The longest time that a starting server waits for its store's first answer. Without the wait, the fallback would decide
/// while the store still connects.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// Whether the store has answered once, the rules file is followed, and the server is not shutting down.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    rules: Rules,
    has_answered: watch::Sender<bool>,
    is_ending: watch::Receiver<bool>,
}

impl Ready {
    pub(crate) fn of(rules: Rules, is_ending: watch::Receiver<bool>) -> Self {
        Self { rules, has_answered: watch::Sender::new(false), is_ending }
    }

    /// The output of a future, unless the server begins to shut down first.
    pub(crate) async fn unless_ending<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut is_ending = self.is_ending.clone();
        tokio::select! {
            // An output that is ready at once is not lost to a shutdown.
            biased;
            output = future => Some(output),
            () = ended(&mut is_ending) => None,
        }
    }

    /// Waits for the first answer of the store, but not for long.
    pub(crate) async fn first_answer(&self) {
        let mut has_answered = self.has_answered.subscribe();
        // Without an answer it serves nevertheless, by the policies' `OnOutage`.
        _ = timeout(FIRST_ANSWER, has_answered.wait_for(|has_answered| *has_answered)).await;
    }

    /// Whether the server shuts down.
    pub(crate) fn is_ending(&self) -> bool {
        *self.is_ending.borrow()
    }

    /// Waits until the store has answered for the first time, or until the server shuts down.
    pub(crate) async fn changed(&self) {
        let (mut is_ending, mut has_answered) = (self.is_ending.clone(), self.has_answered.subscribe());
        let is_answered = *has_answered.borrow();
        tokio::select! {
            () = ended(&mut is_ending) => {}
            _ = has_answered.wait_for(|has_answered| *has_answered), if !is_answered => {}
        }
    }

    /// The reason why it is not ready.
    pub(crate) fn why_not(&self) -> Option<&'static str> {
        match () {
            () if self.is_ending() => Some("the server is shutting down"),
            () if !*self.has_answered.borrow() => Some("the store has not answered yet"),
            () if self.rules.has_lost_its_file() => {
                Some("the rules file is not followed: the log has the reason")
            }
            () => None,
        }
    }
}

/// Checks the store until it has answered once. Answers of a fallback do not count.
pub(crate) async fn ask_store(app: Arc<App>) {
    loop {
        let answer = app.receipts.ask_store().await;
        if answer.is_ok_and(|decision| decision.decided_by() == DecidedBy::Store) {
            app.ready.has_answered.send_replace(true);
            return;
        }
        tokio::time::sleep(LOOKS_AGAIN_AFTER).await;
    }
}

// Responses that are being sent: [`SendingBody`].

/// The permit of a request in progress, in the extensions of its response.
pub(crate) type InProgress = Arc<OwnedSemaphorePermit>;

/// The body of a response. It holds a guard until it is dropped and all of its data is sent.
pub(crate) struct SendingBody<G> {
    body: Body,
    guard: Option<SendingGuard<G>>,
}

/// A guard with the permit of the request.
type SendingGuard<G> = Arc<(G, Option<InProgress>)>;

/// Data with the guard that it is sent under.
struct SendingData<G> {
    bytes: Bytes,
    #[expect(dead_code, reason = "held for as long as the data")]
    guard: SendingGuard<G>,
}

impl<G> SendingBody<G> {
    /// Makes a response hold a guard, and the permit among its extensions.
    ///
    /// Only a stream that ends with the server, such as a watch of gRPC health, holds none: it has neither a permit nor a length.
    pub(crate) fn of(response: Response<Body>, guard: impl FnOnce() -> G) -> Response<Self> {
        let (mut head, body) = response.into_parts();
        let permit = head.extensions.remove::<InProgress>();
        let is_bounded = permit.is_some() || body.size_hint().exact().is_some();
        let guard = is_bounded.then(|| Arc::new((guard(), permit)));
        Response::from_parts(head, Self { body, guard })
    }
}

impl<G: Send + Sync + 'static> hyper::body::Body for SendingBody<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let Some(guard) = &self.guard else { return Poll::Ready(frame) };
        let held = |bytes| Bytes::from_owner(SendingData { bytes, guard: Arc::clone(guard) });
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(held))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<G> AsRef<[u8]> for SendingData<G> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

// Metrics of the server itself.

/// Connections above their bound, by `result`: `made_room`, `turned_away`.
pub(crate) const FULL_TOTAL: &str = "rate_limit_server_full_total";

/// Requests without a secret of this server.
pub(crate) const WRONG_SECRETS: &str = "rate_limit_server_wrong_secrets_total";

/// Describes the metrics, and shows their series before they grow.
pub(crate) fn describe_metrics() {
    describe_counter!(
        FULL_TOTAL,
        "Connections above their bound: another one made room, or they were turned away."
    );
    describe_counter!(
        WRONG_SECRETS,
        "Requests that were refused because they showed no secret, or a wrong one."
    );
    counter!(WRONG_SECRETS).increment(0);
    for result in ["made_room", "turned_away"] {
        counter!(FULL_TOTAL, "result" => result).increment(0);
    }
}

/// Counts a request without the secret.
pub(crate) fn refuse_stranger(peer: Option<&PeerAddr>) {
    static WRONG: Seldom = Seldom::new();
    counter!(WRONG_SECRETS).increment(1);
    if WRONG.is_due() {
        let peer = peer.map(|PeerAddr(peer)| peer.ip());
        tracing::warn!(?peer, "a caller showed no secret of this server, or a wrong one; said once a second");
    }
}

// Charging several descriptors of one call: [`Charge`].

/// Which descriptors of a call spend if one of them is over its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Charge {
    /// All descriptors spend, or none does: a refused request costs nothing.
    #[default]
    AllOrNone,
    /// Each descriptor that fits spends, as in Envoy's own server. A descriptor that does not fit spends if its policy counts refused requests.
    Each,
}
