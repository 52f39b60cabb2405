//! Deciding without a service: [`Admission`].

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::admission::admitted::Admitted;
use crate::admission::refused::Refused;
use crate::admission::set::Limits;
use crate::admission::way::{HeldRequest, RequestEnd};
use crate::guard::Place;
use crate::key::RequestView;

/// A future that resolves to whether a request is admitted. It is ready at once if nothing has to be looked up, the store is in
/// memory, and the request does not have to wait for a turn.
///
/// # Cancel safety
/// As that of the layer's [`ResponseFuture`](crate::guard::ResponseFuture): dropped while it waits for its turn, the
/// turn is given back; dropped before the store has answered, it may or may not have spent.
///
/// # Panics
/// When polled again after it was ready, and when it has to wait for a key, a tier or a turn outside of a tokio runtime
/// that has its timer enabled.
#[must_use = "an admission says whether a request may go on"]
pub struct Admission<'a> {
    /// Dropped before the turn is.
    place: Place,
    /// The result, until it is taken, or the wait.
    state: Result<Option<RequestEnd>, Box<HeldRequest>>,
    request: RequestView<'a>,
}

impl Limits {
    /// Decides on a request, and spends if it is admitted, without the service and the body.
    ///
    /// # Errors
    /// When the request is refused.
    ///
    /// Use it in code that has a request but no service: a handler that decides about a part of its work,
    /// a server without Tower, a test. The caller answers admitted requests, and
    /// may show the state of the client's quotas:
    ///
    /// ```
    /// use http::{Request, Response};
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::Limit;
    /// use sluicegate_tower::key::HeaderKey;
    /// use sluicegate_tower::limits::Limits;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let per_key = Policy::gcra("per-key", "5/min").on(&MemoryStore::new())?;
    /// let limits = Limits::new(Limit::new(per_key).key(HeaderKey::new("x-api-key")?));
    ///
    /// let request = Request::get("/").header("x-api-key", "k1").body(())?;
    /// let admitted = limits.decide(&request).await?;
    /// let response = admitted.leave(Response::new("hello"));
    /// assert_eq!(response.headers()["x-ratelimit-remaining"], "4");
    /// # Ok(())
    /// # }
    /// ```
    pub fn decide<'a>(&self, request: impl Into<RequestView<'a>>) -> Admission<'a> {
        let request = request.into();
        let mut place = Place::default();
        let state = self.begin(request, &mut place).end().map(Some);
        Admission { place, state, request }
    }
}

impl Future for Admission<'_> {
    type Output = Result<Admitted, Box<Refused>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { place, state, request } = &mut *self;
        let end = match state {
            Ok(end) => end.take().expect("an admission is polled until it is ready, once"),
            Err(held) => ready!(held.poll(cx, *request, place)),
        };
        *state = Ok(None);
        *place = Place::default();
        Poll::Ready(end)
    }
}

sluicegate_core::debug_as!(Admission<'a> {});
