//! Limits on concurrent calls: [`CallInFlightLayer`].
#![expect(unnameable_types, reason = "they are parts of a future that has a name")]

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sluicegate_in_flight::adaptive::Outcome;
use sluicegate_in_flight::{NoPermit, Permit, PermitRequest};
use tower_layer::Layer;

use crate::call::CallError;
use crate::guard::{Gate, Guarded, Next, Place, Step, sealed};
use crate::in_flight::PermitWait;

/// Limits the concurrent calls of a service: jobs, database queries, calls to other servers. For HTTP in front of a
/// service of yours, [`InFlightLayer`](crate::in_flight::InFlightLayer) answers with a response; here a refusal is
/// [`CallError::NoPermit`].
///
/// A closure makes the request for a permit: it sets the limit, the key, and the [class](PermitRequest::class) and
/// [weight](PermitRequest::weight) if the limit adapts. A call holds its permit until it has its response.
///
/// ```
/// use std::convert::Infallible;
/// use sluicegate_in_flight::{Class, InFlight};
/// use sluicegate_tower::call::{CallError, CallInFlightLayer};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// struct Query { tenant: u64, is_report: bool }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let run = service_fn(|query: Query| async move { Ok::<_, Infallible>(query.tenant) });
/// let pool = InFlight::adaptive("pool").at_most(32).fair().build()?;
/// let mut database = ServiceBuilder::new()
///     .layer(CallInFlightLayer::new(move |query: &Query| {
///         let class = if query.is_report { Class::Sheddable } else { Class::Critical };
///         pool.request(query.tenant).class(class)
///     }))
///     .service(run);
/// assert_eq!(database.ready().await?.call(Query { tenant: 7, is_report: true }).await?, 7);
/// # Ok(())
/// # }
/// ```
///
/// # Calls to other servers
/// A server that is slow, or that answers with 429 or 503, is sent fewer calls at once. Each host needs a limit of its own, because a limit
/// that adapts has one number for all of its keys:
///
/// ```
/// use std::time::Duration;
/// use http::{Request, Response, StatusCode};
/// use sluicegate_in_flight::InFlight;
/// use sluicegate_tower::call::CallInFlightLayer;
///
/// # fn main() -> Result<(), sluicegate_core::ConfigError> {
/// let partner = InFlight::adaptive("partner").at_most(50).timeout(Duration::from_secs(5)).build()?;
/// let layer = CallInFlightLayer::new(move |_: &Request<String>| partner.request("all"))
///     .fault_if(|response: &Response<String>| {
///         [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&response.status())
///     });
/// # let _ = layer;
/// # Ok(())
/// # }
/// ```
///
/// # When not to use it
/// If the work continues after the response, as in a body that is read later: take a [`Permit`] by hand and hold it.
///
/// # Cancel safety
/// A dropped call leaves the queue, or gives its permit back, at any time.
pub struct CallInFlightLayer<A, F = NoFault> {
    asks: Arc<A>,
    longest: Option<Duration>,
    is_fault: Arc<F>,
}

/// No response of a call shows an overloaded service.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NoFault;

/// Decides whether a response shows an overloaded service. Implemented by closures.
pub trait IsFault<Res>: Send + Sync + 'static {
    /// Whether the response shows an overloaded service.
    fn is_fault(&self, response: &Res) -> bool;
}

impl<Res> IsFault<Res> for NoFault {
    fn is_fault(&self, _: &Res) -> bool {
        false
    }
}

impl<Res, F: Fn(&Res) -> bool + Send + Sync + 'static> IsFault<Res> for F {
    fn is_fault(&self, response: &Res) -> bool {
        self(response)
    }
}

impl<A> CallInFlightLayer<A> {
    /// A limit on calls; this closure requests their permits. A call above the limit fails at once; if the limit adapts, it waits up to
    /// that limit's [bound](sluicegate_in_flight::AdaptiveBuilder::wait_up_to).
    pub fn new<Req>(asks: A) -> Self
    where
        A: Fn(&Req) -> PermitRequest + Send + Sync + 'static,
    {
        Self { asks: Arc::new(asks), longest: None, is_fault: Arc::new(NoFault) }
    }
}

impl<A, F> CallInFlightLayer<A, F> {
    /// Makes a call above the limit wait for up to `longest`, in the bounded queue of the
    /// [`InFlight`](sluicegate_in_flight::InFlight). Default: it fails at once. If the limit adapts, its own bound is never
    /// exceeded.
    #[must_use]
    pub fn wait_up_to(mut self, longest: Duration) -> Self {
        self.longest = Some(longest);
        self
    }

    /// Sets which responses show an overloaded service, if the limit adapts. An answer after the
    /// [timeout](sluicegate_in_flight::AdaptiveBuilder::timeout) always does; an error of the service shows it by its latency alone. Default:
    /// no response does.
    #[must_use]
    pub fn fault_if<Res, N: Fn(&Res) -> bool + Send + Sync + 'static>(
        self,
        is_fault: N,
    ) -> CallInFlightLayer<A, N> {
        CallInFlightLayer { asks: self.asks, longest: self.longest, is_fault: Arc::new(is_fault) }
    }
}

impl<A, F> Clone for CallInFlightLayer<A, F> {
    fn clone(&self) -> Self {
        Self { asks: Arc::clone(&self.asks), longest: self.longest, is_fault: Arc::clone(&self.is_fault) }
    }
}

impl<S, A, F> Layer<S> for CallInFlightLayer<A, F> {
    type Service = Guarded<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded::new(inner, self.clone())
    }
}

sluicegate_core::debug_as!(CallInFlightLayer < A, F > { longest });

/// A call that has its permit.
pub struct Permitted<F> {
    permit: Permit,
    is_fault: Arc<F>,
}

sluicegate_core::debug_as!(Permitted<F>, permitted => permitted.permit);

impl<A, F> CallInFlightLayer<A, F> {
    fn asked<W, Res, E>(
        &self,
        result: Result<Permit, NoPermit>,
    ) -> Step<Permitted<F>, W, Result<Res, CallError<E>>> {
        match result {
            Ok(permit) => Step::Go(Permitted { permit, is_fault: Arc::clone(&self.is_fault) }),
            Err(none) => Step::Refuse(Err(CallError::NoPermit(none))),
        }
    }
}

impl<A, F> sealed::Sealed for CallInFlightLayer<A, F> {}

impl<Req, Res, E, A, F> Gate<Req, Res, E> for CallInFlightLayer<A, F>
where
    A: Fn(&Req) -> PermitRequest + Send + Sync + 'static,
    F: IsFault<Res>,
{
    type Response = Res;
    type Error = CallError<E>;
    type Wait = Box<PermitWait>;
    type Pass = Permitted<F>;

    fn begin(&self, request: &Req, _: &mut Place) -> Next<Self, Req, Res, E> {
        match PermitWait::begin((self.asks)(request), self.longest) {
            Ok(result) => self.asked(result),
            Err(wait) => Step::Wait(wait),
        }
    }

    fn poll(
        &self,
        wait: &mut Box<PermitWait>,
        _: &mut Req,
        _: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Req, Res, E>> {
        let result = ready!(wait.poll(cx));
        Poll::Ready(self.asked(result))
    }

    fn after(pass: Permitted<F>, response: Res) -> Res {
        let is_fault = pass.is_fault.is_fault(&response);
        pass.permit.answered(if is_fault { Outcome::Overload } else { Outcome::Good });
        response
    }

    fn failed(error: E) -> CallError<E> {
        CallError::Inner(error)
    }

    fn failed_after(pass: Permitted<F>, error: E) -> CallError<E> {
        pass.permit.answered(Outcome::Error);
        CallError::Inner(error)
    }
}
