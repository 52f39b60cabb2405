//! The answer to a request that is refused: [`Refusal`] says why, [`Respond`] makes the response.

use std::time::Duration;

use http::{Response, StatusCode};
use sluicegate_core::ConfigError;
use sluicegate_core::in_flight::InFlight;
use sluicegate_core::store::QuotaStatus;

use crate::key::MissingKey;
use crate::key::RequestView;
use crate::rate_limit::decided::Decided;
use crate::respond::headers::lines::ceil_seconds;
use crate::respond::headers::{self, retry_after, violated};

/// A request that is not let through, and why.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    reason: RefusalReason<'a>,
    request: RequestView<'a>,
    /// Seconds that this client is told to wait longer than it has to.
    pub(crate) extra: u64,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RefusalReason<'a> {
    /// It exceeds a quota: 429, with the wait in `Retry-After`.
    Exceeded(&'a Decided),
    /// Its cost is above what a quota ever lets pass at once: 403, and no wait helps.
    Impossible(&'a Decided),
    /// It has no key, and the limit rejects such requests with this status; with 500, if this server does not say who
    /// connects.
    MissingKey(&'a MissingKey, StatusCode),
    /// The store could not be reached, and a policy refuses then
    /// ([`OnOutage::Deny`](sluicegate_core::OnOutage::Deny)): 503. The log says why it could not.
    Outage,
    /// It has to wait, and as many requests as may wait do so already: 503. With the wait for its turn; 0 if it is a key
    /// or a tier that has to be looked up. It has spent nothing.
    QueueFull(Duration),
    /// Its key or its tier was looked up, and did not come [within this time](crate::rate_limit::RateLimitLayerBuilder::longest_lookup):
    /// 503. It has spent nothing.
    LookupTimeout(Duration),
    /// As many requests as its key may have under way at once are: 429. It waited in vain, if it was to wait.
    ConcurrencyExceeded(&'a InFlight),
    /// Its limits cannot be decided, because the server is set up wrongly: 500. The error is for the log, not for clients.
    Mistake(&'a ConfigError),
    /// The layer [denies](crate::rate_limit::RateLimitLayerBuilder::deny) such requests: 403.
    Blocked,
}

impl<'a> Refusal<'a> {
    /// Why.
    pub fn reason(&self) -> RefusalReason<'a> {
        self.reason
    }

    /// The request that is refused, without its body.
    pub fn request(&self) -> RequestView<'a> {
        self.request
    }

    /// What the layer decided, if it came to that.
    pub fn decided(&self) -> Option<&'a Decided> {
        match self.reason {
            RefusalReason::Exceeded(decided) | RefusalReason::Impossible(decided) => Some(decided),
            RefusalReason::MissingKey(..)
            | RefusalReason::Outage
            | RefusalReason::QueueFull(_)
            | RefusalReason::LookupTimeout(_)
            | RefusalReason::ConcurrencyExceeded(_)
            | RefusalReason::Mistake(_)
            | RefusalReason::Blocked => None,
        }
    }

    /// The standing whose numbers the client may see, the same as in the header fields: that of the quota that decided,
    /// unless its policy is [hidden](sluicegate_core::policy::PolicyBuilder::hidden). `None` if nothing was decided, and if all
    /// policies are hidden.
    pub fn standing(&self) -> Option<&'a QuotaStatus> {
        self.decided().and_then(headers::shown)
    }

    /// The names of the quotas that refused, as header fields have them. Those of hidden policies are left out.
    pub fn violated(&self) -> impl Iterator<Item = &'a str> {
        let at_once = match self.reason {
            RefusalReason::ConcurrencyExceeded(in_flight) => Some(in_flight.name()),
            _ => None,
        };
        self.decided().into_iter().flat_map(violated).chain(at_once)
    }

    /// The status that fits the reason.
    pub fn status(&self) -> StatusCode {
        match self.reason {
            RefusalReason::Exceeded(_) | RefusalReason::ConcurrencyExceeded(_) => {
                StatusCode::TOO_MANY_REQUESTS
            }
            RefusalReason::Impossible(_) | RefusalReason::Blocked => StatusCode::FORBIDDEN,
            RefusalReason::MissingKey(_, status) => status,
            RefusalReason::Mistake(_) => StatusCode::INTERNAL_SERVER_ERROR,
            RefusalReason::Outage | RefusalReason::QueueFull(_) | RefusalReason::LookupTimeout(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// Whole seconds after which the same request could pass, and what is
    /// [added](crate::rate_limit::RateLimitLayerBuilder::spread_retry_after); the same number as in `Retry-After`.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        let seconds = match self.reason {
            RefusalReason::Exceeded(decided) | RefusalReason::Impossible(decided) => retry_after(decided),
            // No one knows when an outage ends or a permit comes back; a second keeps clients from hammering.
            RefusalReason::Outage
            | RefusalReason::LookupTimeout(_)
            | RefusalReason::ConcurrencyExceeded(_) => Some(1),
            RefusalReason::QueueFull(delay) => Some(ceil_seconds(delay).max(1)),
            RefusalReason::MissingKey(..) | RefusalReason::Mistake(_) | RefusalReason::Blocked => None,
        };
        seconds.map(|seconds| seconds.saturating_add(self.extra))
    }

    /// What is wrong and what helps, in one sentence without a full stop.
    pub(crate) fn detail(&self) -> Detail<'a> {
        match self.reason {
            RefusalReason::Exceeded(_) => Detail::TryAgainIn(self.retry_after_seconds().unwrap_or(1)),
            RefusalReason::Impossible(_) => Detail::Text(
                "this request costs more than the limit ever lets pass at once: no wait will help",
            ),
            RefusalReason::MissingKey(missing, _) => Detail::Text(missing.told(cfg!(debug_assertions))),
            RefusalReason::Outage => Detail::Text("the rate limiter gave no answer"),
            RefusalReason::QueueFull(_) => Detail::Text("too many requests are waiting for their turn"),
            RefusalReason::LookupTimeout(_) => {
                Detail::Text("it could not be found out in time which limit applies")
            }
            RefusalReason::ConcurrencyExceeded(in_flight) => Detail::AtOnce(in_flight.permits()),
            RefusalReason::Mistake(_) => Detail::Text("this server cannot decide which limits apply"),
            RefusalReason::Blocked => Detail::Text("requests like this one are not accepted"),
        }
    }

    pub(crate) fn new(reason: RefusalReason<'a>, request: RequestView<'a>) -> Self {
        Self { reason, request, extra: 0 }
    }

    /// The same, for a client that is told to wait longer than it has to.
    pub(crate) fn later_by(self, extra: u64) -> Self {
        Self { extra, ..self }
    }

    /// Whether the server is to blame, or nobody.
    pub(crate) fn is_no_clients_doing(&self) -> bool {
        match self.reason {
            RefusalReason::Outage
            | RefusalReason::QueueFull(_)
            | RefusalReason::LookupTimeout(_)
            | RefusalReason::Mistake(_) => true,
            RefusalReason::MissingKey(missing, _) => missing.is_mistake(),
            RefusalReason::Exceeded(_)
            | RefusalReason::Impossible(_)
            | RefusalReason::ConcurrencyExceeded(_)
            | RefusalReason::Blocked => false,
        }
    }
}

/// Makes the response to a refused request. The layer adds the rate limit fields and `Retry-After` to it.
///
/// Implemented by closures: `|refusal: &Refusal<'_>| Response::new(..)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not make responses with a body of `{B}`",
    label = "not a responder",
    note = "write `ProblemJson::new()`, or a closure with the type of its argument: `|refusal: &Refusal<'_>| Response::new(..)`"
)]
pub trait Respond<B>: Send + Sync + 'static {
    /// The response.
    fn respond(&self, refusal: &Refusal<'_>) -> Response<B>;
}

#[diagnostic::do_not_recommend]
impl<F, B> Respond<B> for F
where
    F: Fn(&Refusal<'_>) -> Response<B> + Send + Sync + 'static,
{
    fn respond(&self, refusal: &Refusal<'_>) -> Response<B> {
        self(refusal)
    }
}

/// What a body says in words.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Detail<'a> {
    Text(&'a str),
    /// Too many requests, for so many seconds.
    TryAgainIn(u64),
    /// Too many requests at once, of at most so many.
    AtOnce(u64),
}

/// In the extensions of a response that a layer refused for a reason that is not the client's: layers around it give
/// back what they spent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unserved;
