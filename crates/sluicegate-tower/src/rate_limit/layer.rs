//! The layer: [`RateLimitLayer`], and how a request goes through its limits, as through any [`Gate`].

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arc_swap::Guard;
use http::{Extensions, Request, Response};
use sluicegate_core::RateLimiter;
use tower_layer::Layer;

use crate::admission::admitted::Admitted;
use crate::admission::refused::Answering;
use crate::admission::way::{End, Waiting};
use crate::guard::{Gate, Guarded, Next, Place, Step, sealed};
use crate::limits::{IntoLimit, Limit, Limits, LimitsHandle, ShadowCount};
use crate::respond::problem::ProblemJson;
use crate::respond::refusal::Respond;

/// Puts limits in front of a service: see the [crate's example](crate).
///
/// Cheap to clone; all clones, and all services made by them, share the same buckets.
///
/// # Several limits: one layer, or layers around each other
/// The limits of one layer are decided together, and a client that waits as long as its `Retry-After` says has room in all of
/// them. Put limits into one layer where that matters, with [`and`](crate::limits::LimitsBuilder::and), and with
/// [`only_if`](Limit::only_if) for those of some paths.
///
/// Layers around each other show one set of fields, and give back what they spent when one further in refuses. But an
/// outer layer that refuses knows only of itself: the service inside is not called, and a layer of ours may be anywhere in
/// it, or nowhere. So its `Retry-After` is for its own limits, and after that wait a layer further in may name one of its
/// own. The numbers of an inner layer suffice for those around it.
///
/// The same limiter in two layers around each other may count a request twice; the log warns of that, once per layer.
///
/// ```
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::{Limit, RateLimitLayer};
/// use sluicegate_tower::limits::path_in;
///
/// let store = MemoryStore::new();
/// let login = Limit::new(Policy::sliding_counter("login", "5/min").on(&store)?).only_if(path_in(["/login"])?);
/// let layer = RateLimitLayer::builder(Policy::gcra("api", "200/min").on(&store)?).and(login).build()?;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
///
/// # When not to use it
/// - In front of calls that are not HTTP: a [`CallLimitLayer`](crate::call::CallLimitLayer) has
///   errors instead of responses.
/// - For calls to other servers: `OutgoingLayer` (feature `outgoing`) also heeds what they answer.
/// - For how many requests run at once: an [`InFlightLayer`](crate::in_flight::InFlightLayer).
pub struct RateLimitLayer<R = ProblemJson>(Arc<Inner<R>>);

struct Inner<R> {
    limits: LimitsHandle,
    respond: R,
}

impl RateLimitLayer {
    /// A layer with one limit. A [`RateLimiter`] alone counts peer addresses.
    pub fn new(limit: impl IntoLimit) -> Self {
        Limits::new(limit).into()
    }
}

impl<R> RateLimitLayer<R> {
    pub(crate) fn of(limits: LimitsHandle, respond: R) -> Self {
        Self(Arc::new(Inner { limits, respond }))
    }

    /// The limits of this layer, to look at them, to explain a request by them, and to swap them while it serves.
    pub fn limits_handle(&self) -> LimitsHandle {
        self.0.limits.clone()
    }

    /// The limits that requests meet now.
    #[inline]
    pub(crate) fn limits(&self) -> Guard<Arc<Limits>> {
        self.0.limits.load()
    }

    /// The limits that a request has kept while it waited for a permit.
    #[inline]
    fn kept<'a>(&self, extensions: &'a Extensions) -> Option<&'a Limits> {
        self.0.limits.kept(extensions)
    }

    /// The counts of what each policy in shadow would have done so far, in the order of the limits.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::RateLimitLayer;
    ///
    /// let store = MemoryStore::new();
    /// let tried = Policy::gcra("stricter", "10/min").shadow().on(&store)?;
    /// let layer = RateLimitLayer::builder(Policy::gcra("api", "100/min").on(&store)?).and(tried).build()?;
    /// // Once it has served requests:
    /// for count in layer.shadow_counts() {
    ///     println!("{} would have refused {} requests", count.policy, count.refused);
    /// }
    /// # assert_eq!(layer.shadow_counts().len(), 1);
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn shadow_counts(&self) -> Vec<ShadowCount> {
        self.limits().shadow_counts()
    }

    /// How many requests wait now: for a key, for a tier, for their turn, or after that for the service inside to be
    /// ready.
    pub fn waiting(&self) -> usize {
        self.limits().waiting()
    }
}

impl<R> Clone for RateLimitLayer<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S, R> Layer<S> for RateLimitLayer<R> {
    type Service = Guarded<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded::new(inner, self.clone())
    }
}

impl From<Limits> for RateLimitLayer {
    fn from(limits: Limits) -> Self {
        LimitsHandle::new(limits).into()
    }
}

/// Layers from one handle have the same limits, and swap them together.
impl From<LimitsHandle> for RateLimitLayer {
    fn from(limits: LimitsHandle) -> Self {
        Self::of(limits, ProblemJson::new())
    }
}

impl From<Limit> for RateLimitLayer {
    fn from(limit: Limit) -> Self {
        Self::new(limit)
    }
}

impl From<RateLimiter> for RateLimitLayer {
    fn from(limiter: RateLimiter) -> Self {
        Self::new(limiter)
    }
}

impl<R> sealed::Sealed for RateLimitLayer<R> {}

/// The wait of a request, or of the response to one that is refused.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only the guard has one")]
#[non_exhaustive]
pub enum Wait<B> {
    /// It is not decided yet, or its turn has not come.
    Way(Box<Waiting>),
    /// The responder waits for something.
    Answer(Box<Answering<B>>),
}

/// A denial is a response, never an error.
impl<R, B, ResB, E> Gate<Request<B>, Response<ResB>, E> for RateLimitLayer<R>
where
    R: Respond<ResB>,
{
    type Response = Response<ResB>;
    type Error = E;
    type Wait = Wait<ResB>;
    type Pass = Admitted;

    #[inline]
    fn begin(&self, request: &Request<B>, place: &mut Place) -> Next<Self, Request<B>, Response<ResB>, E> {
        let current;
        let limits = match self.kept(request.extensions()) {
            Some(kept) => kept,
            None => {
                current = self.limits();
                &**current
            }
        };
        match limits.begin(request.into(), place) {
            Ok(end) => {
                if limits.settings().routes {
                    limits.tell_route(request.into(), &end);
                }
                self.ends(end, request)
            }
            Err(waiting) => Step::Wait(Wait::Way(waiting)),
        }
    }

    fn poll(
        &self,
        wait: &mut Wait<ResB>,
        request: &Request<B>,
        place: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Request<B>, Response<ResB>, E>> {
        match wait {
            Wait::Way(waiting) => {
                let end = ready!(waiting.poll(cx, request.into(), place));
                if end.is_err() {
                    // Its responder takes a place elsewhere.
                    *place = Place::default();
                }
                Poll::Ready(self.ends(end, request))
            }
            Wait::Answer(answering) => {
                let answer = answering.poll(cx, request.into(), &self.0.respond, place);
                answer.map(|response| Step::Refuse(Ok(response)))
            }
        }
    }

    #[inline]
    fn enter(&self, pass: &mut Admitted, request: &mut Request<B>) {
        pass.enter(request.extensions_mut());
    }

    #[inline]
    fn after(pass: Admitted, response: Response<ResB>) -> Response<ResB> {
        pass.leave(response)
    }

    fn failed(error: E) -> E {
        error
    }
}

impl<R> RateLimitLayer<R> {
    /// The last step of a request that the limits have decided on.
    #[inline]
    fn ends<B, ResB, E>(&self, end: End, request: &Request<B>) -> Next<Self, Request<B>, Response<ResB>, E>
    where
        R: Respond<ResB>,
    {
        match end {
            Ok(marked) => Step::Go(Admitted::new(marked)),
            Err(refused) => match refused.answer(request.into(), &self.0.respond) {
                Ok(response) => Step::Refuse(Ok(response)),
                Err(answering) => Step::Wait(Wait::Answer(Box::new(answering))),
            },
        }
    }
}

impl<R> fmt::Debug for RateLimitLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("limits", &*self.limits()).finish_non_exhaustive()
    }
}
