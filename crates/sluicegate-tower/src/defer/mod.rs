//! Deferral instead of a refusal: [`DeferLayer`], and the trait that keeps the requests, [`Defer`].
//!
//! A [`DeferLayer`] has limits like a [`RateLimitLayer`]. A request that exceeds one of them is not refused: its head and its
//! body go to a [`Defer`], which answers instead of the service. `Deferral` of `sluicegate-overflow` is one: it answers 202, keeps the request
//! in a queue, and hands it to a worker when its limits have room.

mod gate;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use sluicegate_core::{Key, RateLimiter};
use tower_layer::Layer;

use super::guard::service::Queue;
use crate::RateLimitLayer;
use crate::guard::Guarded;
use crate::key::RequestView;
use crate::limits::{LimitsHandle, Meeting};

/// The most bodies that are read at once.
const AT_ONCE: usize = 1_000;

/// The longest time that a body is read.
const WITHIN: Duration = Duration::from_secs(5);

/// Keeps requests for later, and answers them instead of the service.
pub trait Defer: Send + Sync + 'static {
    /// Whether a request was kept before, for example with a known `Idempotency-Key`. It is called before the limits, so that no request is both
    /// kept and served. Returns `None` at once for a request that cannot have been kept.
    fn before(&self, request: RequestView<'_>) -> Option<BeforeFuture>;

    /// The most bytes of a body. A request with a longer body is not read to its end, and gets the limit's refusal.
    fn longest_body(&self) -> usize;

    /// Keeps a request, which takes these turns before it runs. Returns `None` if it cannot be kept: then it gets the limit's refusal.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, the request may have been kept or not.
    fn defer(&self, request: Request<Bytes>, turns: Vec<DeferredTurn>) -> DeferFuture;
}

/// The pending answer of [`Defer::before`].
pub type BeforeFuture = Pin<Box<dyn Future<Output = KeptBefore> + Send>>;

/// Whether a request was kept before.
#[non_exhaustive]
pub enum KeptBefore {
    /// It was not: its limits decide.
    No,
    /// It has this answer, whatever its body is.
    Answer(Response<Bytes>),
    /// Its body decides, which is read for this.
    ByBody(CompareBody),
}

/// Answers a request by its body; `None` is a body that is too long, or could not be read in time.
pub type CompareBody = Box<dyn FnOnce(Request<Option<Bytes>>) -> Response<Bytes> + Send>;

/// The pending answer of a [`Defer`].
pub type DeferFuture = Pin<Box<dyn Future<Output = Option<Response<Bytes>>> + Send>>;

/// The turn that a request would have taken, and that its job takes instead.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeferredTurn {
    /// The limiter of the policy, which follows replacements.
    pub limiter: RateLimiter,
    /// The key of the bucket.
    pub key: Key,
    /// The units.
    pub cost: u64,
}

/// Puts limits in front of a service that defer requests instead of refusing them.
///
/// A request that exceeds a limit is kept by the [`Defer`], with its body. A request that may not pass for another reason is refused as by a
/// [`RateLimitLayer`]: in an outage by the policy's [`OnOutage`](sluicegate_core::OnOutage), if its cost never fits, if its key is suspended, or
/// if its key has to be waited for. A policy in shadow mode defers no request.
///
/// # Bounds
/// A body is read for 5 s at most. At most 1,000 requests are read and kept at once, in all services of the layer together. A request
/// whose body takes longer, or that comes while as many are being read, gets the limit's refusal.
///
/// # Together with other limits
/// Put limits that refuse around this layer: their refusals come first, and a request that they let through has
/// spent their units, whether it is served or kept.
#[derive(Clone)]
pub struct DeferLayer {
    limits: RateLimitLayer,
    deferral: Arc<dyn Defer>,
    /// The requests that are being read and kept.
    queue: Queue,
}

impl DeferLayer {
    /// A layer with these limits that passes requests above them to `deferral`.
    pub fn new(limits: LimitsHandle, deferral: Arc<dyn Defer>) -> Self {
        Self { limits: limits.into(), deferral, queue: Queue::up_to(AT_ONCE) }
    }

    /// The turns of a request: none if no limit applies, or if this is not known at once.
    fn turns(&self, request: RequestView<'_>) -> Vec<DeferredTurn> {
        let mut turns = Vec::new();
        let meeting = self.limits.limits_handle().current().meet(request, |met| {
            if let Ok(asks) = met.asks
                && asks.is_enforced
            {
                let (limiter, key) = (asks.limiter.clone(), asks.key.clone());
                turns.push(DeferredTurn { limiter, key, cost: asks.cost });
            }
        });
        if meeting == Meeting::Limits { turns } else { Vec::new() }
    }
}

impl<S> Layer<S> for DeferLayer {
    type Service = Guarded<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded::new(inner, Self { limits: self.limits.apart(), ..self.clone() })
    }
}

impl fmt::Debug for KeptBefore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::No => "No",
            Self::Answer(_) => "Answer(..)",
            Self::ByBody(_) => "ByBody(..)",
        })
    }
}

sluicegate_core::debug_as!(DeferLayer { limits });
