//! A request that is not let through: [`Refused`].

use std::fmt;

use http::{Response, StatusCode};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::store::Undecided;
use sluicegate_core::{ConfigError, Outcome, StoreError};

use crate::admission::set::{Limits, Settings};
use crate::key::{MissingKey, RequestView};
use crate::limits::walk::NoAsk;
use crate::respond::decided::Decided;
use crate::respond::headers::{self, Already};
use crate::respond::refusal::{Refusal, RefusalReason, Respond};
use crate::respond::spread;

/// [`Limits`] have decided that a request is not let through.
///
/// It is an error, so that `limits.decide(&request).await?` reads as it should. Its text is for
/// logs; what clients may know is in the [`refusal`](Self::refusal) and the response.
#[derive(Debug)]
pub struct Refused {
    limits: Limits,
    stop: Stop,
}

/// Why.
#[derive(Debug)]
pub(crate) enum Stop {
    Decided(Decided),
    MissingKey(MissingKey, StatusCode),
    /// As a missing key, for clients.
    UnknownTier(MissingKey, StatusCode),
    Mistake(ConfigError),
    /// For a reason that needs nothing else.
    Plain(RefusalReason<'static>),
}

impl Refused {
    pub(crate) fn new(limits: &Limits, stop: Stop) -> Self {
        Self { limits: limits.clone(), stop }
    }

    /// Why, with the request that was decided on.
    pub fn refusal<'a>(&'a self, request: impl Into<RequestView<'a>>) -> Refusal<'a> {
        let reason = match &self.stop {
            Stop::Decided(decided) => match decided.outcome() {
                Outcome::Impossible => RefusalReason::Impossible(decided),
                Outcome::Suspended => RefusalReason::Suspended(decided),
                _ => RefusalReason::Exceeded(decided),
            },
            Stop::MissingKey(missing, status) | Stop::UnknownTier(missing, status) => {
                RefusalReason::MissingKey(missing, *status)
            }
            Stop::Mistake(error) => RefusalReason::Mistake(error),
            Stop::Plain(reason) => *reason,
        };
        Refusal::new(reason, request.into())
    }

    /// The response, with the fields that every such response has.
    ///
    /// For callers without a layer: the same status, body and fields that the layer would answer
    /// with.
    pub fn respond<'a, B>(
        self,
        request: impl Into<RequestView<'a>>,
        respond: &(impl Respond<B> + ?Sized),
    ) -> Response<B> {
        let Settings { style, spread, extensions, .. } = self.limits.settings();
        let request: RequestView<'_> = request.into();
        let refusal = self.refusal(request).later_by(spread::seconds(spread.as_ref()));
        let mut response = refusal.answer(respond, *extensions);
        if let Some(shown) = refusal.shown {
            let (together, seconds) = (self.limits.made().together.load(), refusal.retry_after_seconds());
            let prepared = together.as_ref().map(|together| &together.prepared);
            headers::write(response.headers_mut(), *style, shown, seconds, prepared, Already::Replaced);
        }
        if *extensions && let Stop::Decided(decided) = self.stop {
            response.extensions_mut().insert(decided);
        }
        response
    }
}

impl Stop {
    /// The store takes the limits' asks for a mistake in the program. An outage is a decision, and no error.
    pub(crate) fn mistake(error: &StoreError) -> Self {
        Self::Mistake(ConfigError::new(ConfigErrorKind::Layer, error.to_string()))
    }

    /// Why no store was asked, if none was.
    pub(crate) fn undecided(&self) -> Option<Undecided> {
        match self {
            Self::MissingKey(..) => Some(Undecided::MissingKey),
            Self::UnknownTier(..) => Some(Undecided::UnknownTier),
            Self::Plain(RefusalReason::QueueFull(_)) => Some(Undecided::QueueFull),
            Self::Plain(RefusalReason::Blocked) => Some(Undecided::Blocked),
            Self::Decided(_) | Self::Mistake(_) | Self::Plain(_) => None,
        }
    }
}

impl From<NoAsk> for Stop {
    fn from(no_ask: NoAsk) -> Self {
        match no_ask {
            NoAsk::Key(missing, status) => Self::MissingKey(missing, status),
            NoAsk::Tier(status) => {
                Self::UnknownTier(MissingKey::new("the request is in no known tier"), status)
            }
            NoAsk::Mistake(error) => Self::Mistake(error),
            NoAsk::Late(reason) => Self::Plain(reason),
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decided(decided) => match decided.policy() {
                Some(policy) if decided.outcome() == Outcome::Suspended => {
                    write!(f, "the key of the request is suspended by policy {policy}")
                }
                Some(policy) => write!(f, "the request exceeds policy {policy}"),
                None => f.write_str("the request exceeds a limit"),
            },
            Self::MissingKey(missing, _) | Self::UnknownTier(missing, _) => missing.fmt(f),
            Self::Mistake(error) => error.fmt(f),
            Self::Plain(RefusalReason::QueueFull(_)) => f.write_str("as many requests wait as may wait"),
            Self::Plain(RefusalReason::LookupTimeout(longest)) => {
                write!(f, "its key or tier was looked up, and did not come within {longest:?}")
            }
            Self::Plain(RefusalReason::Outage) => f.write_str("the store gives no answer"),
            Self::Plain(RefusalReason::Blocked) => f.write_str("such requests are denied"),
            Self::Plain(_) => f.write_str("the request is refused"),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stop.fmt(f)
    }
}

impl std::error::Error for Refused {}
