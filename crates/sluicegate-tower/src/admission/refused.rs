//! A refused request: [`Refused`].

use std::fmt;
use std::task::{Context, Poll, ready};

use http::{Extensions, HeaderValue, Response, StatusCode};
use sluicegate_core::RateLimiter;

use crate::admission::set::{Limits, LimitsSettings};
use crate::guard::Place;
use crate::guard::gate::Lookup;
use crate::key::RequestView;
use crate::respond::decided::{Decided, Shown};
use crate::respond::headers::style::Already;
use crate::respond::headers::whole::whole;
use crate::respond::headers::write::{repeat_wait, write};
use crate::respond::refusal::{Later, Refusal, Respond};
use crate::respond::stop;
use crate::respond::stop::Stop;
use crate::trace::{RequestTrace, TraceFields};

/// [`Limits`] have refused a request.
///
/// It is an error, so that `limits.decide(&request).await?` works. Its text is for
/// logs; the [`refusal`](Self::refusal) and the response have the part that clients may know.
#[derive(Debug)]
pub struct Refused {
    limits: Limits,
    /// The limit that is the reason, if it is known.
    limit: Option<usize>,
    stop: Stop,
    /// The reason for the span of the request.
    trace: RequestTrace,
}

impl Limits {
    /// Refuses a request, because of `limit` if a limit is the reason, and reports the refusal.
    pub(super) fn refuse(&self, limit: Option<usize>, stop: Stop) -> Box<Refused> {
        // Boxed first: the reason may be large, and is moved once.
        let refused = Box::new(Refused::new(self, limit, stop));
        if let Stop::Mistake(error) = &refused.stop {
            self.made.report_mistake(error);
        }
        if let Some(why) = refused.stop.undecided() {
            self.notice(limit, Some(why));
        }
        refused
    }
}

impl Refused {
    pub(crate) fn new(limits: &Limits, limit: Option<usize>, stop: Stop) -> Self {
        Self { limits: limits.clone(), limit, stop, trace: RequestTrace::None }
    }

    /// The reason, with the request that was refused.
    pub fn refusal<'a>(&'a self, request: impl Into<RequestView<'a>>) -> Refusal<'a> {
        let refusal = Refusal::new(self.stop.reason(), request.into());
        refusal.with_status(self.status()).in_form(self.limits.settings().style.form)
    }

    /// The status that the limits have for refusals by the policy that decided.
    fn status(&self) -> Option<StatusCode> {
        let status = self.limits.settings().refuse_with.as_ref()?;
        let limit = self.limit.and_then(|limit| self.limits.plan().limits.get(limit)?.name.as_deref());
        status(limit, self.decided()?.policy()?)
    }

    /// Joins the decision with the decision of an inner layer.
    pub(super) fn merge(&mut self, inner: &Decided) {
        if let Stop::Decided(decided) = &mut self.stop {
            *decided = decided.merge(inner);
            self.trace.replace(|| TraceFields::of(decided));
        }
    }

    /// The decision, if it is the reason.
    pub(crate) fn decided(&self) -> Option<&Decided> {
        match &self.stop {
            Stop::Decided(decided) => Some(decided),
            _ => None,
        }
    }

    /// Keeps the reason for the span of the request with these extensions.
    pub(super) fn trace_in(&mut self, extensions: &Extensions) {
        self.trace = RequestTrace::begin(|| Some(self.trace()), extensions);
    }

    fn trace(&self) -> TraceFields {
        if let Stop::Decided(decided) = &self.stop {
            return TraceFields::of(decided);
        }
        let limit = self.limit.map(|limit| &self.limits.plan().limits[limit]);
        let policy = limit.and_then(|limit| limit.source.known().first()).map(RateLimiter::policy);
        TraceFields::refused(policy, self.stop.as_str(), self.stop.wait())
    }

    /// The response, with the fields that every such response has.
    ///
    /// It is for callers without a layer, and has the status, body and fields that the layer would answer
    /// with.
    pub fn respond<'a, B>(
        self,
        request: impl Into<RequestView<'a>>,
        respond: &(impl Respond<B> + ?Sized),
    ) -> Response<B> {
        let request: RequestView<'_> = request.into();
        let refusal = self.refusal(request).later_by(self.extra());
        let response = self.made_by(&refusal, respond);
        self.told(response)
    }

    /// As [`respond`](Self::respond), if the responder does not have to wait.
    pub(crate) fn answer<B>(
        self: Box<Self>,
        request: RequestView<'_>,
        respond: &impl Respond<B>,
    ) -> Result<Response<B>, Answering<B>> {
        let extra = self.extra();
        let refusal = self.refusal(request).later_by(extra);
        match respond.respond_later(&refusal) {
            Some(response) => Err(Answering { refused: Some(self), extra, response: Lookup::new(response) }),
            None => {
                let response = self.made_by(&refusal, respond);
                Ok(self.told(response))
            }
        }
    }

    /// The seconds that are added to the client's wait.
    fn extra(&self) -> u64 {
        stop::seconds(self.limits.settings().spread.as_ref())
    }

    /// The response by this responder, with the fields.
    fn made_by<B>(&self, refusal: &Refusal<'_>, respond: &(impl Respond<B> + ?Sized)) -> Response<B> {
        let Some((body, content_type)) = respond.content(refusal) else {
            return self.finish(refusal, respond.respond(refusal));
        };
        let (style, wait) = (&self.limits.settings().style, refusal.retry_after_seconds());
        let whole = |shown| whole(style, shown, wait, &|| self.policy_line(shown), &content_type);
        match refusal.shown.and_then(whole) {
            Some(headers) => {
                let mut response = Response::new(body);
                *response.status_mut() = refusal.status();
                *response.headers_mut() = headers;
                response
            }
            None => self.finish(refusal, refusal.response((body, content_type))),
        }
    }

    /// The value of `RateLimit-Policy`.
    fn policy_line(&self, shown: Shown<'_>) -> Option<HeaderValue> {
        self.limits.made().known.policy_line(&shown.decided.policies)
    }

    /// Adds the fields to the responder's response.
    fn finish<B>(&self, refusal: &Refusal<'_>, response: Response<B>) -> Response<B> {
        let LimitsSettings { extensions, style, .. } = self.limits.settings();
        let mut response = refusal.answer(response, *extensions);
        match refusal.shown {
            Some(shown) => {
                let (headers, wait) = (response.headers_mut(), refusal.retry_after_seconds());
                write(headers, style, shown, wait, &|| self.policy_line(shown), Already::Replaced);
            }
            None => repeat_wait(response.headers_mut(), style),
        }
        response
    }

    /// The finished response, with the decision for outer layers and middleware.
    fn told<B>(self, mut response: Response<B>) -> Response<B> {
        if self.limits.settings().extensions
            && let Stop::Decided(decided) = self.stop
        {
            response.extensions_mut().insert(decided);
        }
        response
    }
}

/// A refused request with a waiting responder.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only the guard has one")]
pub struct Answering<B> {
    /// The refusal, until it is answered.
    refused: Option<Box<Refused>>,
    extra: u64,
    response: Lookup<Later<B>>,
}

impl<B> Answering<B> {
    /// Polls the response. A flood of refusals must not wait without a bound: if no place is free, or the responder takes
    /// too long, the result is the response that the responder makes at once.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        request: RequestView<'_>,
        respond: &impl Respond<B>,
        place: &mut Place,
    ) -> Poll<Response<B>> {
        let refused = self.refused.as_ref().expect("a response is polled until it is ready, once");
        let answered = ready!(self.response.poll(cx, refused.limits.answers(), place));
        let refused = self.refused.take().expect("it was there a moment ago");
        let refusal = refused.refusal(request).later_by(self.extra);
        let response = match answered {
            Ok(answered) => refused.finish(&refusal, answered),
            Err(_) => refused.made_by(&refusal, respond),
        };
        Poll::Ready(refused.told(response))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stop.fmt(f)
    }
}

impl std::error::Error for Refused {}
