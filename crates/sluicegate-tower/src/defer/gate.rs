//! The steps of a request through a [`DeferLayer`].
//!
//! ```text
//! begin -> kept before? -> no: the limits -> the service
//!                                         -> exceeded: the body is read -> it is kept -> the answer
//!                                                                       -> it comes too late, or cannot be kept: the refusal
//!                       -> the body decides: it is read -> the answer
//! ```

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{Request, Response};
use http_body::Body;
use sluicegate_core::Outcome;
use tokio::time::{Sleep, sleep};

use crate::RateLimitLayer;
use crate::admission::admitted::Admitted;
use crate::defer::{BeforeFuture, CompareBody, DeferFuture, DeferLayer, DeferredTurn, KeptBefore, WITHIN};
use crate::guard::{Gate, Next, Place, Step, sealed};
use crate::key::RequestView;
use crate::rate_limit::{Decided, LayerWait};
use crate::respond::ProblemJson;
use crate::respond::refusal::Respond;

impl sealed::Sealed for DeferLayer {}

/// The event that a request waits for.
#[expect(unnameable_types, reason = "only the guard has one")]
#[non_exhaustive]
pub enum DeferWait<B> {
    /// Whether the request was kept before.
    Before(BeforeFuture),
    Limits(LayerWait<B>),
    /// Its body is being read.
    Reading {
        next: AfterReading<B>,
        read: BytesMut,
        /// The deadline; set when the body has to be waited for.
        latest: Option<Pin<Box<Sleep>>>,
    },
    Deferring(DeferFuture, Box<Response<B>>),
}

/// The purpose of reading a body.
#[expect(unnameable_types, missing_debug_implementations, reason = "only the guard has one")]
#[non_exhaustive]
pub enum AfterReading<B> {
    /// The limits have refused the request, which is to be kept.
    Defer(Vec<DeferredTurn>, Box<Response<B>>),
    /// The request may have been kept before.
    Compare(CompareBody),
}

/// The next step of a request through the limits.
type LimitsStep<B, ResB, E> = Next<RateLimitLayer, Request<B>, Response<ResB>, E>;

impl<B, ResB, E> Gate<Request<B>, Response<ResB>, E> for DeferLayer
where
    B: Body + Unpin,
    ResB: From<Bytes>,
    ProblemJson: Respond<ResB>,
{
    type Response = Response<ResB>;
    type Error = E;
    type Wait = Box<DeferWait<ResB>>;
    type Pass = Admitted;

    fn begin(&self, request: &Request<B>, place: &mut Place) -> Next<Self, Request<B>, Response<ResB>, E> {
        if let Some(before) = self.deferral.before(request.into())
            && !self.turns(request.into()).is_empty()
        {
            return waiting(DeferWait::Before(before));
        }
        let limited = self.limits.begin(request, place);
        self.limited(limited, request, place)
    }

    fn poll(
        &self,
        wait: &mut Self::Wait,
        request: &mut Request<B>,
        place: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Request<B>, Response<ResB>, E>> {
        Poll::Ready(match &mut **wait {
            DeferWait::Before(before) => match ready!(before.as_mut().poll(cx)) {
                KeptBefore::No => {
                    let limited = self.limits.begin(request, place);
                    self.limited(limited, request, place)
                }
                KeptBefore::Answer(answer) => Step::Refuse(Ok(answer.map(ResB::from))),
                KeptBefore::ByBody(compare) => {
                    let next = AfterReading::Compare(compare);
                    match self.may_read(request, place) {
                        true => waiting(DeferWait::reading(next)),
                        false => self.read(next, request, None),
                    }
                }
            },
            DeferWait::Limits(limits) => {
                let limited = ready!(self.limits.poll(limits, request, place, cx));
                self.limited(limited, request, place)
            }
            DeferWait::Reading { next, read, latest } => {
                let longest = self.deferral.longest_body();
                let body = match poll_body(Pin::new(request.body_mut()), read, longest, cx) {
                    Poll::Ready(is_whole) => is_whole.then(|| mem::take(read).freeze()),
                    Poll::Pending => {
                        ready!(latest.get_or_insert_with(|| Box::pin(sleep(WITHIN))).as_mut().poll(cx));
                        None
                    }
                };
                let next = mem::replace(next, AfterReading::Defer(Vec::new(), Box::new(empty())));
                self.read(next, request, body)
            }
            DeferWait::Deferring(kept, refusal) => {
                let answer = ready!(kept.as_mut().poll(cx)).map(|answer| answer.map(ResB::from));
                Step::Refuse(Ok(answer.unwrap_or_else(|| mem::replace(&mut **refusal, empty()))))
            }
        })
    }

    fn enter(&self, pass: &mut Admitted, request: &mut Request<B>) {
        Gate::<Request<B>, Response<ResB>, E>::enter(&self.limits, pass, request);
    }

    fn after(pass: Admitted, response: Response<ResB>) -> Response<ResB> {
        pass.leave(response)
    }

    fn failed(error: E) -> E {
        error
    }
}

impl DeferLayer {
    /// Continues after the limits: a request that exceeds one of them is read, to be kept.
    fn limited<B, ResB, E>(
        &self,
        limited: LimitsStep<B, ResB, E>,
        request: &Request<B>,
        place: &mut Place,
    ) -> Next<Self, Request<B>, Response<ResB>, E>
    where
        B: Body + Unpin,
        ResB: From<Bytes>,
        ProblemJson: Respond<ResB>,
    {
        match limited {
            Step::Go(pass) => Step::Go(pass),
            Step::Wait(limits) => waiting(DeferWait::Limits(limits)),
            Step::Refuse(Ok(refusal)) if is_exceeded(&refusal) => {
                let turns = self.turns(RequestView::from(request));
                if turns.is_empty() || !self.may_read(request, place) {
                    return Step::Refuse(Ok(refusal));
                }
                waiting(DeferWait::reading(AfterReading::Defer(turns, Box::new(refusal))))
            }
            Step::Refuse(answer) => Step::Refuse(answer),
        }
    }

    /// Whether the body is read: it is not too long, and there is room for it.
    fn may_read<B: Body>(&self, request: &Request<B>, place: &mut Place) -> bool {
        let longest = u64::try_from(self.deferral.longest_body()).unwrap_or(u64::MAX);
        // It no longer waits for a turn, and takes a place among the bodies.
        *place = Place::default();
        request.body().size_hint().lower() <= longest && self.queue.enter(place)
    }

    /// Continues with this body; `None` is one that could not be read.
    fn read<B, ResB, E>(
        &self,
        next: AfterReading<ResB>,
        request: &mut Request<B>,
        body: Option<Bytes>,
    ) -> Next<Self, Request<B>, Response<ResB>, E>
    where
        B: Body + Unpin,
        ResB: From<Bytes>,
        ProblemJson: Respond<ResB>,
    {
        match (next, body) {
            (AfterReading::Compare(compare), body) => {
                Step::Refuse(Ok(compare(head(request).map(|()| body)).map(ResB::from)))
            }
            (AfterReading::Defer(turns, refusal), Some(body)) => {
                let kept = self.deferral.defer(head(request).map(|()| body), turns);
                waiting(DeferWait::Deferring(kept, refusal))
            }
            (AfterReading::Defer(_, refusal), None) => Step::Refuse(Ok(*refusal)),
        }
    }
}

/// Whether a quota is exceeded, as opposed to a suspended key or a cost that never fits.
fn is_exceeded<B>(refusal: &Response<B>) -> bool {
    refusal.extensions().get::<Decided>().is_some_and(|decided| decided.outcome() == Outcome::Denied)
}

fn waiting<P, B, A>(wait: DeferWait<B>) -> Step<P, Box<DeferWait<B>>, A> {
    Step::Wait(Box::new(wait))
}

fn empty<B: From<Bytes>>() -> Response<B> {
    Response::new(Bytes::new().into())
}

/// Takes the head out of a request that the service will not get.
fn head<B>(request: &mut Request<B>) -> Request<()> {
    let mut taken = Request::new(());
    *taken.method_mut() = mem::take(request.method_mut());
    *taken.uri_mut() = mem::take(request.uri_mut());
    *taken.version_mut() = request.version();
    *taken.headers_mut() = mem::take(request.headers_mut());
    *taken.extensions_mut() = mem::take(request.extensions_mut());
    taken
}

/// Reads a body to its end; `false` if the body is longer than this, or ends early.
fn poll_body<B: Body>(
    mut body: Pin<&mut B>,
    read: &mut BytesMut,
    longest: usize,
    cx: &mut Context<'_>,
) -> Poll<bool> {
    loop {
        match ready!(body.as_mut().poll_frame(cx)) {
            None => return Poll::Ready(true),
            Some(Err(_)) => return Poll::Ready(false),
            Some(Ok(frame)) => {
                // Trailers are not kept.
                let Ok(data) = frame.into_data() else { continue };
                if data.remaining() > longest.saturating_sub(read.len()) {
                    return Poll::Ready(false);
                }
                read.put(data);
            }
        }
    }
}

impl<B> DeferWait<B> {
    fn reading(next: AfterReading<B>) -> Self {
        Self::Reading { next, read: BytesMut::new(), latest: None }
    }
}

impl<B> fmt::Debug for DeferWait<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before(_) => "DeferWait(before)",
            Self::Limits(_) => "DeferWait(limits)",
            Self::Reading { .. } => "DeferWait(reading)",
            Self::Deferring(..) => "DeferWait(deferring)",
        })
    }
}
