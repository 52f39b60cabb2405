//! The layer and the service: [`CallLimitLayer`] and [`CallLimit`].

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use sluicegate_core::RateLimiter;
use tower_layer::Layer;
use tower_service::Service;

use crate::call::future::Waiting;
use crate::call::{Admission, Admitted, CallError, CallFuture, CallKey, WithCost};
use crate::guard::inner::{for_later, inner_accessors};
use crate::guard::queue::Queue;

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
pub struct CallLimitLayer<M> {
    limiter: RateLimiter,
    meter: Arc<M>,
    queue: Queue,
}

impl<M> CallLimitLayer<M> {
    /// A limit with buckets by the keys of `meter`: a closure from a request to its key, or a [`CallKey`].
    pub fn new(limiter: RateLimiter, meter: M) -> Self {
        Self { limiter, meter: Arc::new(meter), queue: Queue::default() }
    }

    /// How many units a call spends. Default: what the [`CallKey`] says, which for a closure is 1.
    pub fn cost<C, Req>(self, cost: C) -> CallLimitLayer<WithCost<M, C>>
    where
        C: Fn(&Req) -> u64 + Send + Sync + 'static,
    {
        let Self { limiter, meter, queue } = self;
        CallLimitLayer { limiter, meter: Arc::new(WithCost { meter, cost }), queue }
    }

    /// How many calls may wait for their turn at once, in all services of this layer together. One that comes when this
    /// many wait fails at once with [`CallError::QueueFull`], and has spent nothing. Default: 10,000.
    #[must_use]
    pub fn longest_queue(mut self, calls: usize) -> Self {
        self.queue = Queue::up_to(calls);
        self
    }

    /// How many calls wait now: for their turn, or after that for the service inside to be ready.
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }
}

impl<M> Clone for CallLimitLayer<M> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), meter: Arc::clone(&self.meter), queue: self.queue.clone() }
    }
}

impl<S, M> Layer<S> for CallLimitLayer<M> {
    type Service = CallLimit<S, M>;

    fn layer(&self, inner: S) -> Self::Service {
        let Self { limiter, meter, queue } = self.clone();
        CallLimit { inner, limiter, meter, queue }
    }
}

impl<M> fmt::Debug for CallLimitLayer<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLimitLayer").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}

/// A service behind a limit; made by [`CallLimitLayer`].
///
/// It is ready when the inner service is. Waiting for a turn happens in the future of the call, which gives up that
/// readiness for as long as it waits.
pub struct CallLimit<S, M> {
    inner: S,
    limiter: RateLimiter,
    meter: Arc<M>,
    queue: Queue,
}

impl<S, M> CallLimit<S, M> {
    inner_accessors!("The service behind the limit.");
}

impl<S, M, Req> Service<Req> for CallLimit<S, M>
where
    S: Service<Req> + Clone,
    M: CallKey<Req>,
{
    type Response = S::Response;
    type Error = CallError<S::Error>;
    type Future = CallFuture<S, Req>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(CallError::Inner)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let (key, cost) = (self.meter.key(&request), self.meter.cost(&request));
        let mut place = None;
        match Admission::begin(&self.limiter, key, cost, None, &self.queue, &mut place) {
            // Decided at once, so the value that was polled ready is called here, and nothing is cloned.
            Admitted::Go(_) => CallFuture::calling(self.inner.call(request)),
            Admitted::Refuse(refused) => CallFuture::refused(refused.into()),
            Admitted::Wait(admission) => {
                let waiting = Waiting { admission: Some(admission), place, queue: self.queue.clone() };
                CallFuture::waiting(waiting, for_later(&mut self.inner), request)
            }
        }
    }
}

impl<S: Clone, M> Clone for CallLimit<S, M> {
    fn clone(&self) -> Self {
        let Self { inner, limiter, meter, queue } = self;
        let (inner, limiter, meter) = (inner.clone(), limiter.clone(), Arc::clone(meter));
        Self { inner, limiter, meter, queue: queue.clone() }
    }
}

impl<S: fmt::Debug, M> fmt::Debug for CallLimit<S, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, limiter, .. } = self;
        f.debug_struct("CallLimit").field("inner", inner).field("limiter", limiter).finish_non_exhaustive()
    }
}
