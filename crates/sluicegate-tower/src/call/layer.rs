//! The layer: [`CallLimitLayer`].

use std::sync::Arc;
use std::task::{Context, Poll};

use sluicegate_core::RateLimiter;
use tower_layer::Layer;

use crate::call::admission::{CallAsk, CallWait, QueuedLimiter};
use crate::call::key::WithCost;
use crate::call::{CallError, CallKey};
use crate::guard::service::Queue;
use crate::guard::{Gate, Guarded, Next, Place, sealed};

/// Puts a limit in front of any service: jobs, database queries, messages. For HTTP, [`RateLimitLayer`] answers
/// refused requests with a response; here a refusal is a [`CallError`].
///
/// A policy that waits makes calls wait their turn, first come, first served, and at most
/// [`longest_queue`](Self::longest_queue) of them at once. While the store cannot be reached, calls
/// pass or fail as the policy says.
///
/// ```
/// use std::convert::Infallible;
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::call::{CallError, CallLimitLayer};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// struct Job { tenant: u64, pages: u64 }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let print = service_fn(|job: Job| async move { Ok::<_, Infallible>(format!("{} pages", job.pages)) });
/// let pages = Policy::token_bucket("pages", "100/h").on(&MemoryStore::new())?;
/// let mut printer = ServiceBuilder::new()
///     .layer(CallLimitLayer::new(pages, |job: &Job| job.tenant).cost(|job: &Job| job.pages))
///     .service(print);
///
/// assert_eq!(printer.ready().await?.call(Job { tenant: 7, pages: 90 }).await?, "90 pages");
/// let refused = printer.ready().await?.call(Job { tenant: 7, pages: 11 }).await;
/// assert!(matches!(refused, Err(CallError::Limited(decision)) if decision.remaining() == 10));
/// # Ok(())
/// # }
/// ```
///
/// [`RateLimitLayer`]: crate::RateLimitLayer
pub struct CallLimitLayer<K> {
    limiter: RateLimiter,
    key: Arc<K>,
    queue: Queue,
}

impl<K> CallLimitLayer<K> {
    /// A limit with buckets by the keys of `key`: a closure from a request to its key, or a [`CallKey`].
    pub fn new(limiter: RateLimiter, key: K) -> Self {
        Self { limiter, key: Arc::new(key), queue: Queue::default() }
    }

    /// Sets the units that a call spends. Default: the cost of the [`CallKey`], which for a closure is 1.
    ///
    /// A call that costs 0 passes without asking the limiter, even while its key is in debt.
    pub fn cost<C, Req>(self, cost: C) -> CallLimitLayer<impl CallKey<Req>>
    where
        K: CallKey<Req>,
        C: Fn(&Req) -> u64 + Send + Sync + 'static,
    {
        let Self { limiter, key, queue } = self;
        CallLimitLayer { limiter, key: Arc::new(WithCost { key, cost }), queue }
    }

    /// Sets the number of calls that may wait for their turn at once, in all services of this layer together. A call that comes when
    /// this many wait fails at once with [`CallError::QueueFull`], and has spent nothing. Default: 10,000.
    #[must_use]
    pub fn longest_queue(mut self, calls: usize) -> Self {
        self.queue = Queue::up_to(calls);
        self
    }

    /// The number of calls that wait now, for their turn or then for the inner service to be ready.
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    fn under(&self) -> QueuedLimiter<'_> {
        QueuedLimiter { limiter: &self.limiter, queue: &self.queue }
    }
}

impl<K> Clone for CallLimitLayer<K> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), key: Arc::clone(&self.key), queue: self.queue.clone() }
    }
}

impl<S, K> Layer<S> for CallLimitLayer<K> {
    type Service = Guarded<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded::new(inner, self.clone())
    }
}

sluicegate_core::debug_as!(CallLimitLayer<K> { limiter });

impl<K> sealed::Sealed for CallLimitLayer<K> {}

impl<Req, Res, E, K: CallKey<Req>> Gate<Req, Res, E> for CallLimitLayer<K> {
    type Response = Res;
    type Error = CallError<E>;
    type Wait = CallWait;
    type Pass = ();

    fn begin(&self, request: &Req, place: &mut Place) -> Next<Self, Req, Res, E> {
        let ask = CallAsk { key: self.key.key(request), cost: self.key.cost(request), longest: None };
        self.under().begin(ask, place).map(drop)
    }

    fn poll(
        &self,
        wait: &mut CallWait,
        _: &mut Req,
        place: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Req, Res, E>> {
        self.under().poll(wait, place, cx).map(|next| next.map(drop))
    }

    fn after((): (), response: Res) -> Res {
        response
    }

    fn failed(error: E) -> CallError<E> {
        CallError::Inner(error)
    }
}
