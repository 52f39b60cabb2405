//! The answer to a refused request: [`Refusal`] gives the reason, [`Respond`] makes the response.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderValue, Response, StatusCode};
use sluicegate_core::ConfigError;
use sluicegate_core::store::QuotaStatus;
#[cfg(feature = "in-flight")]
use sluicegate_in_flight::InFlight;

use crate::guard::gate::NotFound;
use crate::key::{MissingKey, RequestView};
use crate::respond::decided::{Decided, MOST, Shown, ceil_seconds};
use crate::respond::headers::style::{BodyForm, Form};
use crate::respond::headers::write::{come_back_after, forbid_caching};

/// A refused request, with the reason.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    reason: RefusalReason<'a>,
    request: RequestView<'a>,
    /// The part of the decision that the client may see, if there is one.
    pub(crate) shown: Option<Shown<'a>>,
    status: StatusCode,
    wait: Option<u64>,
    /// The format of the default responder's body.
    pub(crate) body: BodyForm,
    /// Whether the client caused the refusal. If not, layers around this one give their units back.
    is_clients_doing: bool,
}

/// The reason why a request is refused.
///
/// | reason | status | `Retry-After` |
/// |---|---|---|
/// | [`Exceeded`](Self::Exceeded), [`Suspended`](Self::Suspended) | 429, or the [limits'](crate::rate_limit::RateLimitLayerBuilder::refuse_with) | the exact wait |
/// | `ConcurrencyExceeded` | 429, or the limit's | 1, because it is unknown when a permit comes back |
/// | `Overloaded` | 503 | the time for the current requests, plus a few seconds that differ per client |
/// | [`Impossible`](Self::Impossible) | 403 | none |
/// | [`Blocked`](Self::Blocked) | 403, or the layer's status | none |
/// | [`MissingKey`](Self::MissingKey) | the limit's status | none |
/// | [`Outage`](Self::Outage), [`LookupTimeout`](Self::LookupTimeout) | 503 | 1 |
/// | [`QueueFull`](Self::QueueFull) | 503 | the wait for the turn, at least 1 |
/// | [`Mistake`](Self::Mistake) | 500 | none |
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RefusalReason<'a> {
    /// It exceeds a quota: 429, or the status of the limits, with the wait in `Retry-After`.
    Exceeded(&'a Decided),
    /// Its key is suspended, because it continued after many refusals: 429, with the rest of the suspension in `Retry-After`.
    Suspended(&'a Decided),
    /// Its cost is above the most that a quota ever passes at once: 403, and no wait helps.
    Impossible(&'a Decided),
    /// It has no key, and the limit rejects such requests with this status; with 500 if this server does not pass on the
    /// peer.
    MissingKey(&'a MissingKey, StatusCode),
    /// The store could not be reached, and a policy refuses in an outage
    /// ([`OnOutage::Deny`](sluicegate_core::OnOutage::Deny)): 503. The log has the cause.
    Outage,
    /// It has to wait, and the queue is full: 503. Has the wait for its turn; 0 if a key or a tier has to be
    /// looked up. The request has spent nothing.
    QueueFull(Duration),
    /// The lookup of its key or its tier did not end [within this time](crate::rate_limit::RateLimitLayerBuilder::longest_lookup):
    /// 503. It has spent nothing.
    LookupTimeout(Duration),
    /// Its key has reached the limit of concurrent requests: 429. If the limit waits, the request has waited in vain.
    #[cfg(feature = "in-flight")]
    #[cfg_attr(docsrs, doc(cfg(feature = "in-flight")))]
    ConcurrencyExceeded(&'a InFlight),
    /// The service is fully loaded, by a limit that [adapts](InFlight::adaptive), and this request is not more important than
    /// the others: 503. With the time until the current requests [will be done](InFlight::drains_in). It has spent nothing.
    #[cfg(feature = "in-flight")]
    #[cfg_attr(docsrs, doc(cfg(feature = "in-flight")))]
    Overloaded(&'a InFlight, Duration),
    /// Its limits cannot be decided, because the server is set up wrongly: 500. The error is for the log, not for clients.
    Mistake(&'a ConfigError),
    /// The layer [denies](crate::rate_limit::RateLimitLayerBuilder::deny) such requests: 403, or the status that is set there.
    Blocked(StatusCode),
}

impl From<NotFound> for RefusalReason<'_> {
    fn from(not_found: NotFound) -> Self {
        match not_found {
            NotFound::QueueFull => Self::QueueFull(Duration::ZERO),
            NotFound::TooLate(longest) => Self::LookupTimeout(longest),
        }
    }
}

impl<'a> Refusal<'a> {
    /// The reason.
    pub fn reason(&self) -> RefusalReason<'a> {
        self.reason
    }

    /// The refused request, without its body.
    pub fn request(&self) -> RequestView<'a> {
        self.request
    }

    /// The decision of the layer, if there is one.
    pub fn decided(&self) -> Option<&'a Decided> {
        self.shown.map(|shown| shown.decided)
    }

    /// The status with the numbers that the client may see, as in the header fields: of the quota that decided,
    /// unless its policy is [hidden](sluicegate_core::policy::PolicyBuilder::hidden). `None` if nothing was decided, and if all
    /// policies are hidden.
    pub fn standing(&self) -> Option<&'a QuotaStatus> {
        self.shown?.status
    }

    /// The names of the quotas that refused, as in header fields. Quotas of hidden policies are left out.
    pub fn violated(&self) -> impl Iterator<Item = &'a str> {
        self.shown.into_iter().flat_map(Shown::violated).chain(self.at_once().map(|(name, _)| name))
    }

    /// The name and the permits of the limit on requests at once that is reached, if it is the reason.
    pub(super) fn at_once(&self) -> Option<(&'a str, u64)> {
        match self.reason {
            #[cfg(feature = "in-flight")]
            RefusalReason::ConcurrencyExceeded(in_flight) => Some((in_flight.name(), in_flight.permits())),
            _ => None,
        }
    }

    /// The status that fits the reason.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The whole seconds after which the same request could pass, with the
    /// [addition](crate::rate_limit::RateLimitLayerBuilder::spread_retry_after): the number in `Retry-After`.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.wait
    }

    /// A new reason needs a variant, a line here, and its text in `say`.
    pub(crate) fn new(reason: RefusalReason<'a>, request: RequestView<'a>) -> Self {
        let shown = match reason {
            RefusalReason::Exceeded(decided)
            | RefusalReason::Suspended(decided)
            | RefusalReason::Impossible(decided) => Some(Shown::of(decided)),
            _ => None,
        };
        // It is unknown when an outage ends or a permit comes back; a second keeps clients from retrying in a tight loop.
        let (status, wait, is_clients_doing) = match reason {
            RefusalReason::Exceeded(_) | RefusalReason::Suspended(_) => {
                (StatusCode::TOO_MANY_REQUESTS, shown.and_then(|shown| shown.wait), true)
            }
            RefusalReason::Impossible(_) => (StatusCode::FORBIDDEN, None, true),
            RefusalReason::MissingKey(missing, status) => (status, None, !missing.is_mistake()),
            RefusalReason::Outage => (StatusCode::SERVICE_UNAVAILABLE, Some(1), false),
            RefusalReason::QueueFull(delay) => {
                (StatusCode::SERVICE_UNAVAILABLE, Some(ceil_seconds(delay).max(1)), false)
            }
            RefusalReason::LookupTimeout(_) => (StatusCode::SERVICE_UNAVAILABLE, Some(1), false),
            #[cfg(feature = "in-flight")]
            RefusalReason::ConcurrencyExceeded(_) => (StatusCode::TOO_MANY_REQUESTS, Some(1), false),
            #[cfg(feature = "in-flight")]
            RefusalReason::Overloaded(_, drains_in) => {
                (StatusCode::SERVICE_UNAVAILABLE, Some(ceil_seconds(drains_in).max(1)), false)
            }
            RefusalReason::Mistake(_) => (StatusCode::INTERNAL_SERVER_ERROR, None, false),
            RefusalReason::Blocked(status) => (status, None, true),
        };
        Self { reason, request, shown, status, wait, body: BodyForm::default(), is_clients_doing }
    }

    /// The refusal with this status, if a limit is exceeded or a key is suspended.
    pub(crate) fn with_status(self, status: Option<StatusCode>) -> Self {
        let is_of_limit = matches!(self.reason, RefusalReason::Exceeded(_) | RefusalReason::Suspended(_))
            || self.at_once().is_some();
        Self { status: status.filter(|_| is_of_limit).unwrap_or(self.status), ..self }
    }

    /// The refusal with the body for header fields of this form.
    pub(crate) fn in_form(self, form: Form) -> Self {
        Self { body: form.body, ..self }
    }

    /// The refusal with `extra` seconds added to the client's wait.
    pub(crate) fn later_by(self, extra: u64) -> Self {
        Self { wait: self.wait.map(|wait| wait.saturating_add(extra)), ..self }
    }

    /// Writes the reason and the remedy, in one sentence without a full stop. The frequent reasons avoid `fmt`, because floods cause
    /// millions of refusals.
    pub(crate) fn say(&self, text: &mut impl fmt::Write) -> fmt::Result {
        let words = match self.reason {
            RefusalReason::Exceeded(_) => {
                text.write_str("too many requests: try again in ")?;
                write_number(text, self.wait.unwrap_or(1))?;
                " s"
            }
            RefusalReason::Suspended(_) => {
                text.write_str("suspended after too many refused requests: try again in ")?;
                write_number(text, self.wait.unwrap_or(1))?;
                " s"
            }
            RefusalReason::Impossible(_) => {
                "this request costs more than the limit ever lets pass at once: no wait will help"
            }
            RefusalReason::MissingKey(missing, _) => missing.told(),
            RefusalReason::Outage => "the rate limiter gave no answer",
            RefusalReason::QueueFull(_) => "too many requests are waiting for their turn",
            RefusalReason::LookupTimeout(_) => "it could not be found out in time which limit applies",
            #[cfg(feature = "in-flight")]
            RefusalReason::ConcurrencyExceeded(in_flight) => {
                text.write_str("too many requests at once: at most ")?;
                write_number(text, in_flight.permits())?;
                ", so try again when one has ended"
            }
            #[cfg(feature = "in-flight")]
            RefusalReason::Overloaded(..) => {
                text.write_str("the service has too much to do: try again in ")?;
                write_number(text, self.wait.unwrap_or(1))?;
                " s"
            }
            RefusalReason::Mistake(_) => "this server cannot decide which limits apply",
            RefusalReason::Blocked(_) => "requests like this one are not accepted",
        };
        text.write_str(words)
    }

    /// A response with this body, its type, and the status.
    pub(crate) fn response<B>(&self, (body, content_type): (B, HeaderValue)) -> Response<B> {
        let mut response = Response::new(body);
        // Room for the rate limit fields and what servers add.
        response.headers_mut().reserve(10);
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    }

    /// Adds the fields that every refusal has, except those of a decision, to a responder's response. With `tells`, outer
    /// layers learn of it, and whether to give their units back.
    pub(crate) fn answer<B>(&self, mut response: Response<B>, tells: bool) -> Response<B> {
        forbid_caching(response.headers_mut());
        if let Some(seconds) = self.wait.filter(|_| self.shown.is_none()) {
            come_back_after(response.headers_mut(), seconds);
        }
        if tells && self.shown.is_none() {
            response.extensions_mut().insert(Unserved { is_clients_doing: self.is_clients_doing });
        }
        response
    }
}

/// The reason and the remedy, in one sentence without a full stop: for bodies, so without details of the program, which are in
/// the log.
impl fmt::Display for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.say(f)
    }
}

pub(super) fn write_number(text: &mut impl fmt::Write, number: u64) -> fmt::Result {
    text.write_str(itoa::Buffer::new().format(number.min(MOST)))
}

/// Makes the response to a refused request. The layer adds the rate limit fields and `Retry-After` to it.
///
/// Implemented by closures, for your own body:
///
/// ```
/// use bytes::Bytes;
/// use http::Response;
/// use http_body_util::Full;
/// use serde_json::json;
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::RateLimitLayer;
/// use sluicegate_tower::respond::RefusalReason;
///
/// let api = Policy::gcra("api", "100/s").on(&MemoryStore::new())?;
/// let layer = RateLimitLayer::builder(api)
///     .respond(|refusal| {
///         let code = match refusal.reason() {
///             RefusalReason::Exceeded(_) => "RATE_LIMITED",
///             RefusalReason::MissingKey(..) => "KEY_MISSING",
///             _ => "REFUSED",
///         };
///         let body = json!({
///             "code": code,
///             "message": refusal.to_string(),
///             "limit": refusal.standing().map(|standing| standing.capacity()),
///             "retryAfterSeconds": refusal.retry_after_seconds(),
///         });
///         let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
///         *response.status_mut() = refusal.status();
///         response
///     })
///     .build()?;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not make responses with a body of `{B}`",
    label = "not a responder",
    note = "write `.responder(ProblemJson::new())`, or a closure: `.respond(|refusal| Response::new(..))`, in axum also `.respond(|refusal| (refusal.status(), ..))`"
)]
pub trait Respond<B>: Send + Sync + 'static {
    /// The response.
    fn respond(&self, refusal: &Refusal<'_>) -> Response<B>;

    /// The body of the response and its type, if the response has nothing else of its own.
    #[doc(hidden)]
    fn content(&self, refusal: &Refusal<'_>) -> Option<(B, HeaderValue)> {
        _ = refusal;
        None
    }

    /// The response, if it is asynchronous.
    #[doc(hidden)]
    fn respond_later(&self, refusal: &Refusal<'_>) -> Option<Later<B>> {
        _ = refusal;
        None
    }
}

#[diagnostic::do_not_recommend]
impl<F, T, B> Respond<B> for F
where
    F: Fn(&Refusal<'_>) -> T + Send + Sync + 'static,
    T: IntoRefusalResponse<B>,
{
    fn respond(&self, refusal: &Refusal<'_>) -> Response<B> {
        self(refusal).into_refusal_response(refusal.status())
    }
}

/// The result of a closure that responds to refused requests: a [`Response`]. With the feature `axum` also a text, which gets the status of
/// the refusal, or a tuple that begins with the status, as `(refusal.status(), Json(..))`.
///
/// A bare `Json(..)` or `Html(..)` is left out, because axum would respond with it as 200.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no response to a refused request with a body of `{B}`",
    label = "not a response",
    note = "write a `Response`; in axum also a text, or `(refusal.status(), ..)` around anything that axum makes a response of, such as `Json(..)` or `Html(..)`"
)]
pub trait IntoRefusalResponse<B> {
    /// The response; `status` is that of the refusal.
    fn into_refusal_response(self, status: StatusCode) -> Response<B>;
}

impl<B> IntoRefusalResponse<B> for Response<B> {
    fn into_refusal_response(self, _: StatusCode) -> Self {
        self
    }
}

#[cfg(feature = "axum")]
mod of_axum {
    use axum::body::Body;
    use axum::response::IntoResponse;
    use http::{Response, StatusCode};

    use super::IntoRefusalResponse;

    impl<T> IntoRefusalResponse<Body> for (StatusCode, T)
    where
        Self: IntoResponse,
    {
        fn into_refusal_response(self, _: StatusCode) -> Response<Body> {
            self.into_response()
        }
    }

    impl<H, T> IntoRefusalResponse<Body> for (StatusCode, H, T)
    where
        Self: IntoResponse,
    {
        fn into_refusal_response(self, _: StatusCode) -> Response<Body> {
            self.into_response()
        }
    }

    impl IntoRefusalResponse<Body> for String {
        fn into_refusal_response(self, status: StatusCode) -> Response<Body> {
            (status, self).into_response()
        }
    }

    impl IntoRefusalResponse<Body> for &'static str {
        fn into_refusal_response(self, status: StatusCode) -> Response<Body> {
            (status, self).into_response()
        }
    }
}

/// A pending response.
pub(crate) type Later<B> = Pin<Box<dyn Future<Output = Response<B>> + Send>>;

/// Marks a refusal without a decision, in the extensions of the response; other refusals carry their decision there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unserved {
    /// Whether the client caused the refusal. If not, outer layers give their units back.
    is_clients_doing: bool,
}

/// Whether a layer further in refused the request, and the layers around it give their units back.
pub(crate) fn is_given_back(extensions: &Extensions) -> bool {
    is_refused_by_decision(extensions)
        || extensions.get::<Unserved>().is_some_and(|unserved| !unserved.is_clients_doing)
}

/// Whether a layer further in refused the request, so that the response says nothing about the service.
#[cfg(feature = "in-flight")]
pub(crate) fn is_refused(extensions: &Extensions) -> bool {
    is_refused_by_decision(extensions) || extensions.get::<Unserved>().is_some()
}

fn is_refused_by_decision(extensions: &Extensions) -> bool {
    extensions.get::<Decided>().is_some_and(|decided| !decided.is_allowed())
}
