//! A request that is not let through: [`Refused`].

use std::fmt;

use http::Response;

use crate::admission::set::{Limits, Settings};
use crate::key::RequestView;
use crate::respond::decided::Decided;
use crate::respond::headers::Already;
use crate::respond::refusal::{Refusal, Respond};
use crate::respond::spread;
use crate::respond::stop::Stop;

/// [`Limits`] have decided that a request is not let through.
///
/// It is an error, so that `limits.decide(&request).await?` reads as it should. Its text is for
/// logs; what clients may know is in the [`refusal`](Self::refusal) and the response.
#[derive(Debug)]
pub struct Refused {
    limits: Limits,
    stop: Stop,
}

impl Refused {
    pub(crate) fn new(limits: &Limits, stop: Stop) -> Self {
        Self { limits: limits.clone(), stop }
    }

    /// Why, with the request that was decided on.
    pub fn refusal<'a>(&'a self, request: impl Into<RequestView<'a>>) -> Refusal<'a> {
        Refusal::new(self.stop.reason(), request.into())
    }

    /// The decision, if it is refused because of that.
    pub(crate) fn decided(&self) -> Option<&Decided> {
        match &self.stop {
            Stop::Decided(decided) => Some(decided),
            _ => None,
        }
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
        let Settings { spread, extensions, .. } = self.limits.settings();
        let request: RequestView<'_> = request.into();
        let refusal = self.refusal(request).later_by(spread::seconds(spread.as_ref()));
        let mut response = refusal.answer(respond, *extensions);
        if let Some(shown) = refusal.shown {
            self.limits.write(&mut response, shown, refusal.retry_after_seconds(), Already::Replaced);
        }
        if *extensions && let Stop::Decided(decided) = self.stop {
            response.extensions_mut().insert(decided);
        }
        response
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stop.fmt(f)
    }
}

impl std::error::Error for Refused {}
