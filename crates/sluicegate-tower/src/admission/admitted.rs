//! An admitted request: [`Admitted`].
//!
//! Most requests need nothing until their response, or only the numbers of one look at one key ([`Numbers`]). The full
//! [marks](Marked) of such a request are made when it turns out that its response or a give-back needs them.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{Extensions, Response};
use http_body::Body;
use sluicegate_core::limiter::policies;
use sluicegate_core::store::ShortAnswer;
use sluicegate_core::{Decision, Key, Policy};

use crate::admission::leave::with_head;
use crate::admission::marks::Marked;
use crate::admission::set::{BuiltLimits, Limits};
use crate::limits::walk::{AskTerms, RequestAsk};
use crate::respond::decided::Decided;
use crate::respond::headers::write::add_numbers;
use crate::respond::refusal::is_given_back;
use crate::settle::SettlingBody;
use crate::trace::{RequestTrace, TraceFields};

/// [`Limits`](crate::limits::Limits) have admitted a request.
///
/// Dropping it gives nothing back. A caller that answers the request itself passes the request's extensions to
/// [`enter`](Self::enter) and the response to [`leave`](Self::leave), as the layer does; other callers do not need these.
#[derive(Debug)]
#[must_use = "a response shows where the client stands, and may give back what the request has spent"]
pub struct Admitted(ForResponse);

/// What an admitted request keeps until its response.
#[derive(Debug)]
enum ForResponse {
    Nothing,
    Numbers(Box<Numbers>),
    Marks(Box<Marked>),
}

/// The key of a look: one that stands for a peer is only made if it is asked again.
#[derive(Debug)]
pub(super) enum LookedKey {
    Peer(IpAddr),
    Key(Key),
}

impl From<LookedKey> for Key {
    fn from(key: LookedKey) -> Self {
        match key {
            LookedKey::Peer(address) => address.into(),
            LookedKey::Key(key) => key,
        }
    }
}

/// The numbers of one look at one key, which has admitted the request.
#[derive(Debug)]
pub(super) struct Numbers {
    /// The limits that the request began with.
    made: Arc<BuiltLimits>,
    terms: AskTerms,
    key: LookedKey,
    answer: ShortAnswer,
    policies: Arc<[Arc<Policy>]>,
    /// Whether an outer layer reads this decision from the response.
    is_read: bool,
    /// The decision, once a caller has asked for it.
    decided: OnceLock<Box<Decided>>,
}

impl Admitted {
    /// A request that needs nothing later.
    #[inline]
    pub(super) fn unmarked() -> Self {
        Self(ForResponse::Nothing)
    }

    #[inline]
    pub(super) fn with_numbers(numbers: Box<Numbers>) -> Self {
        Self(ForResponse::Numbers(numbers))
    }

    /// An uncounted request.
    pub(super) fn uncounted(limits: &Limits) -> Self {
        match limits.settings().meters {
            // It has a meter too, so that handlers do not have to distinguish.
            true => Marked::bare(&limits.made).into(),
            false => Self::unmarked(),
        }
    }

    /// This request, with the fields for its span, if any.
    pub(super) fn traced(self, limits: &Limits, fields: Option<TraceFields>) -> Self {
        let Some(fields) = fields else { return self };
        let mut marked = match self.0 {
            ForResponse::Nothing => Marked::bare(&limits.made),
            ForResponse::Numbers(numbers) => numbers.into_marked(),
            ForResponse::Marks(marked) => marked,
        };
        marked.trace = RequestTrace::Fields(Box::new(fields));
        marked.into()
    }

    /// This request, which has waited for its turn, with the trace of its wait.
    pub(super) fn with_span(mut self, trace: RequestTrace) -> Self {
        if let (ForResponse::Marks(marked), RequestTrace::Span(_)) = (&mut self.0, &trace) {
            marked.trace = trace;
        }
        self
    }

    /// Keeps the decision for the span of the request with these extensions.
    pub(super) fn trace_in(&mut self, extensions: &Extensions) {
        if let ForResponse::Marks(marked) = &mut self.0 {
            marked.trace_in(extensions);
        }
    }

    /// The decision, if an enforced limit was asked, and if the limits show it or need it later.
    pub fn decided(&self) -> Option<&Decided> {
        match &self.0 {
            ForResponse::Nothing => None,
            ForResponse::Numbers(numbers) => Some(numbers.decided()),
            ForResponse::Marks(marked) => marked.decided.as_ref(),
        }
    }

    /// Whether [`decided`](Self::decided) has a decision.
    pub(super) fn is_decided(&self) -> bool {
        match &self.0 {
            ForResponse::Nothing => false,
            ForResponse::Numbers(_) => true,
            ForResponse::Marks(marked) => marked.decided.is_some(),
        }
    }

    /// Puts the decision into the extensions of the request, for handlers, and notes for inner layers that their decision is
    /// read from the response.
    pub fn enter(&mut self, extensions: &mut Extensions) {
        self.announce(extensions, true);
    }

    /// Notes for inner layers that their decision is read from the response, and puts the decision into the extensions of the request, if
    /// it is `asked_for`.
    #[inline]
    pub(crate) fn announce(&mut self, extensions: &mut Extensions, asked_for: bool) {
        match &mut self.0 {
            ForResponse::Nothing => {}
            ForResponse::Numbers(numbers) => {
                let decided = || numbers.to_decided();
                numbers.is_read = numbers.made.announce(decided, extensions, asked_for);
            }
            ForResponse::Marks(marked) => marked.enter(extensions, asked_for),
        }
    }

    /// Gives back the units that limits give back for this response, and writes the state of the client's quotas into it.
    ///
    /// Limits that [settle](crate::Limit::settle) do so only by its header fields; see [`leave_settling`](Self::leave_settling).
    #[inline]
    pub fn leave<B>(self, mut response: Response<B>) -> Response<B> {
        self.finish(&mut response);
        response
    }

    /// As [`leave`](Self::leave), in place: a response that needs nothing is not moved.
    #[inline]
    pub(crate) fn finish<B>(self, response: &mut Response<B>) {
        match self.0 {
            ForResponse::Nothing => {}
            ForResponse::Numbers(numbers) => numbers.finish(response),
            ForResponse::Marks(marked) => {
                // Reports limits that would have to delay the body.
                drop(marked.pacer(response, false));
                marked.finish(response, false);
            }
        }
    }

    /// As [`leave`](Self::leave), with a body that is read as it passes, for limits that [settle](crate::Limit::settle) by it, and that is
    /// limited to its [bandwidth](crate::bandwidth).
    pub fn leave_settling<B: Body>(self, mut response: Response<B>) -> Response<SettlingBody<B>> {
        match self.0 {
            ForResponse::Marks(marked) => {
                let pace = marked.pacer(&response, true);
                let tap = marked.finish(&mut response, true);
                response.map(|body| SettlingBody::new(body, tap, pace))
            }
            _ => self.leave(response).map(SettlingBody::plain),
        }
    }
}

impl From<Box<Marked>> for Admitted {
    fn from(marked: Box<Marked>) -> Self {
        Self(ForResponse::Marks(marked))
    }
}

impl Numbers {
    // Inlined always: the parts are large, and so they are not moved before they are in their place.
    #[inline(always)]
    pub(super) fn new(
        made: &Arc<BuiltLimits>,
        terms: AskTerms,
        key: LookedKey,
        answer: ShortAnswer,
    ) -> Box<Self> {
        let policies = policies([terms.limiter(&made.plan)]);
        let (made, decided) = (Arc::clone(made), OnceLock::new());
        // Written in its place.
        Box::write(Box::new_uninit(), Self { made, terms, key, answer, policies, is_read: false, decided })
    }

    /// The decision without a receipt, for those who only read it.
    #[inline]
    fn to_decided(&self) -> Decided {
        Decided::new(self.answer.numbers(), Arc::clone(&self.policies))
    }

    fn decided(&self) -> &Decided {
        self.decided.get_or_init(|| Box::new(self.to_decided()))
    }

    /// The full marks of the request, with the receipt of its spend.
    #[cold]
    pub(super) fn into_marked(self) -> Box<Marked> {
        let Self { made, terms, key, answer, policies, is_read, .. } = self;
        let ask = RequestAsk::new(terms, key.into());
        let decided = Decided::new(Decision::from(answer), policies);
        let mut marked = Marked::new(&made, ask.into(), Some(decided), Vec::new());
        marked.is_read = is_read;
        marked
    }

    /// Writes the state of the client's quota into the response, if that is all that it needs.
    #[inline(never)]
    fn finish<B>(self: Box<Self>, response: &mut Response<B>) {
        let inside = response.extensions();
        let is_decided_inside = !inside.is_empty() && inside.get::<Decided>().is_some();
        let gives_back =
            !inside.is_empty() && is_given_back(inside) || self.made.refunds && self.is_refunded(response);
        if gives_back || is_decided_inside || self.is_read {
            return self.finish_marked(response, gives_back);
        }
        let Self { made, answer, policies, .. } = &*self;
        let (style, headers) = (&made.settings.style, response.headers_mut());
        let is_hidden = policies.iter().any(|policy| policy.is_hidden());
        let stands_at = Duration::from_micros(answer.at_us());
        if is_hidden || !add_numbers(headers, style, answer.status(), stands_at) {
            made.write_fields(&self.to_decided(), headers);
        }
    }

    /// Whether the limit gives the units back for this response.
    fn is_refunded<B>(&self, response: &mut Response<B>) -> bool {
        let refund_if = self.made.plan.limits[self.terms.limit].refund_if.as_ref();
        refund_if.is_some_and(|refund| with_head(response, |head| refund(head)))
    }

    #[cold]
    fn finish_marked<B>(self, response: &mut Response<B>, gives_back: bool) {
        let mut marked = self.into_marked();
        if gives_back {
            marked.give_back_all();
        }
        marked.mark(response);
    }
}
