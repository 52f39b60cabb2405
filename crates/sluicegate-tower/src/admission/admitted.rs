//! An admitted request: [`Admitted`].

use http::{Extensions, Response};
use http_body::Body;

use crate::admission::marks::Marked;
use crate::admission::set::Limits;
use crate::respond::decided::Decided;
use crate::settle::SettlingBody;
use crate::trace::{RequestTrace, TraceFields};

/// [`Limits`](crate::limits::Limits) have admitted a request.
///
/// Dropping it gives nothing back. A caller that answers the request itself passes the request's extensions to
/// [`enter`](Self::enter) and the response to [`leave`](Self::leave), as the layer does; other callers do not need these.
#[derive(Debug)]
#[must_use = "a response shows where the client stands, and may give back what the request has spent"]
pub struct Admitted(Option<Box<Marked>>);

impl Admitted {
    /// A request with these marks, if it needs any.
    #[inline]
    pub(super) fn new(marked: Option<Box<Marked>>) -> Self {
        Self(marked)
    }

    /// An uncounted request.
    pub(super) fn uncounted(limits: &Limits) -> Self {
        // It has a meter too, so that handlers do not have to distinguish.
        Self(limits.settings().meters.then(|| Marked::bare(&limits.made)))
    }

    /// This request, with the fields for its span, if any.
    pub(super) fn traced(self, limits: &Limits, fields: Option<TraceFields>) -> Self {
        let Some(fields) = fields else { return self };
        let mut marked = self.0.unwrap_or_else(|| Marked::bare(&limits.made));
        marked.trace = RequestTrace::Fields(Box::new(fields));
        Self(Some(marked))
    }

    /// This request, which has waited for its turn, with the trace of its wait.
    pub(super) fn with_span(mut self, trace: RequestTrace) -> Self {
        if let (Some(marked), RequestTrace::Span(_)) = (&mut self.0, &trace) {
            marked.trace = trace;
        }
        self
    }

    /// Keeps the decision for the span of the request with these extensions.
    pub(super) fn trace_in(&mut self, extensions: &Extensions) {
        if let Some(marked) = &mut self.0 {
            marked.trace_in(extensions);
        }
    }

    /// The decision, if an enforced limit was asked, and if the limits show it or need it later.
    pub fn decided(&self) -> Option<&Decided> {
        self.0.as_ref()?.decided.as_ref()
    }

    /// Puts the decision into the extensions of the request, for handlers, and notes for inner layers that their decision is
    /// read from the response.
    #[inline]
    pub fn enter(&mut self, extensions: &mut Extensions) {
        if let Some(marked) = &mut self.0 {
            marked.enter(extensions);
        }
    }

    /// Gives back the units that limits give back for this response, and writes the state of the client's quotas into it.
    ///
    /// Limits that [settle](crate::Limit::settle) do so only by its header fields; see [`leave_settling`](Self::leave_settling).
    #[inline]
    pub fn leave<B>(self, response: Response<B>) -> Response<B> {
        match self.0 {
            Some(marked) => {
                // Reports limits that would have to delay the body.
                drop(marked.pacer(&response, false));
                marked.leave(response, false).0
            }
            None => response,
        }
    }

    /// As [`leave`](Self::leave), with a body that is read as it passes, for limits that [settle](crate::Limit::settle) by it, and that is
    /// limited to its [bandwidth](crate::bandwidth).
    pub fn leave_settling<B: Body>(self, response: Response<B>) -> Response<SettlingBody<B>> {
        match self.0 {
            Some(marked) => {
                let pace = marked.pacer(&response, true);
                let (response, tap) = marked.leave(response, true);
                response.map(|body| SettlingBody::new(body, tap, pace))
            }
            None => response.map(SettlingBody::plain),
        }
    }
}
