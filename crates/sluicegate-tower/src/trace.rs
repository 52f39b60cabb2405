//! Decisions and waits in traces.
//!
//! A span that declares `rate_limit.outcome` gets the decision on its request: [`RequestTrace`]. A wait for a turn is a span of its own:
//! [`WaitSpan`]. Without a subscriber both cost a look at a number.
//!
//! The fields of a span are recorded once, when its request is answered or dropped. Layers around each other share
//! them, because exporters keep both values of a field that is recorded twice.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http::Extensions;
use sluicegate_core::support::{ceil_millis, lock};
use sluicegate_core::{Decision, Policy, RateLimiter};
use tracing::Span;
use tracing::level_filters::LevelFilter;

use crate::respond::decided::Decided;

const POLICY: &str = "rate_limit.policy";
const OUTCOME: &str = "rate_limit.outcome";
const REMAINING: &str = "rate_limit.remaining";
const DECIDED_BY: &str = "rate_limit.decided_by";
const WAIT_MS: &str = "rate_limit.wait_ms";
const ENDED_BY: &str = "rate_limit.ended_by";

/// Whether any span could be enabled.
#[inline]
pub(crate) fn is_on() -> bool {
    LevelFilter::current() != LevelFilter::OFF
}

/// Whether the current span declares the fields of a decision.
#[inline]
pub(crate) fn is_wanted() -> bool {
    is_on() && is_declared()
}

#[cold]
fn is_declared() -> bool {
    // Without a clone of the span, because most spans do not declare them.
    tracing::dispatcher::get_default(|subscriber| {
        let current = subscriber.current_span();
        current.metadata().is_some_and(|metadata| metadata.fields().field(OUTCOME).is_some())
    })
}

/// The fields of a decision.
#[derive(Debug)]
pub(crate) struct TraceFields {
    policy: Option<Arc<Policy>>,
    outcome: &'static str,
    strictness: Strictness,
    remaining: Option<u64>,
    decided_by: Option<&'static str>,
    wait: Option<Duration>,
}

/// The stricter one of two layers is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Strictness {
    Allows,
    Delays,
    Refuses,
}

impl TraceFields {
    /// The fields of a decision of this policy.
    pub(crate) fn new(policy: Option<Arc<Policy>>, decision: &Decision) -> Self {
        let (strictness, outcome) = match decision.is_allowed() {
            true if decision.delay().is_zero() => (Strictness::Allows, decision.outcome().as_str()),
            true => (Strictness::Delays, "delayed"),
            false => (Strictness::Refuses, decision.outcome().as_str()),
        };
        Self {
            policy,
            outcome,
            strictness,
            // The numbers are those of a key at rest if nobody has counted.
            remaining: decision.is_counted().then(|| decision.remaining()),
            decided_by: Some(decision.decided_by().as_str()),
            wait: if decision.is_allowed() { Some(decision.delay()) } else { decision.retry_after() },
        }
    }

    pub(crate) fn of(decided: &Decided) -> Self {
        let policy = decided.policies.get(decided.deciding().policy_index());
        Self::new(policy.cloned(), &decided.decision)
    }

    /// The fields of a request that is refused without a decision.
    pub(crate) fn refused(policy: Option<Arc<Policy>>, why: &'static str, wait: Option<Duration>) -> Self {
        let strictness = Strictness::Refuses;
        Self { policy, outcome: why, strictness, remaining: None, decided_by: None, wait }
    }

    fn is_stricter(&self, other: &Self) -> bool {
        let of = |fields: &Self| (fields.strictness, Reverse(fields.remaining.unwrap_or(u64::MAX)));
        of(self) > of(other)
    }

    fn record(&self, span: &Span) {
        span.record(OUTCOME, self.outcome);
        if let Some(policy) = &self.policy {
            span.record(POLICY, policy.name());
        }
        if let Some(remaining) = self.remaining {
            span.record(REMAINING, remaining);
        }
        if let Some(decided_by) = self.decided_by {
            span.record(DECIDED_BY, decided_by);
        }
        if let Some(wait) = self.wait {
            span.record(WAIT_MS, ceil_millis(wait));
        }
    }
}

/// The decision on a request, for its span.
#[derive(Debug, Default)]
pub(crate) enum RequestTrace {
    /// The span does not want it, or an outer layer has it.
    #[default]
    None,
    /// It is not known yet whether a span wants it.
    Fields(Box<TraceFields>),
    /// It is recorded when this is dropped.
    Span(Arc<Recorded>),
}

/// A span and its fields, which are recorded when this is dropped.
#[derive(Debug)]
pub(crate) struct Recorded {
    span: Span,
    fields: Mutex<TraceFields>,
}

/// For layers further in, in the extensions of a request.
#[derive(Clone, Debug)]
struct OuterTrace(Weak<Recorded>);

impl RequestTrace {
    /// The decision for the current span, if it declares the fields. If a layer further out has a decision for the same span, the
    /// stricter one is kept there.
    pub(crate) fn begin(fields: impl FnOnce() -> Option<TraceFields>, request: &Extensions) -> Self {
        let Some(fields) = is_declared().then(fields).flatten() else { return Self::None };
        let span = Span::current();
        let around = request.get::<OuterTrace>().and_then(|around| around.0.upgrade());
        if let Some(around) = around.filter(|around| around.span == span) {
            let mut known = lock(&around.fields);
            if fields.is_stricter(&known) {
                *known = fields;
            }
            return Self::None;
        }
        Self::Span(Arc::new(Recorded { span, fields: Mutex::new(fields) }))
    }

    /// Replaces the fields, if they are recorded here.
    pub(crate) fn replace(&self, fields: impl FnOnce() -> TraceFields) {
        if let Self::Span(recorded) = self {
            *lock(&recorded.fields) = fields();
        }
    }

    /// Tells layers further in of the span.
    #[inline]
    pub(crate) fn enter(&self, extensions: &mut Extensions) {
        if let Self::Span(recorded) = self {
            extensions.insert(OuterTrace(Arc::downgrade(recorded)));
        }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let Self { span, fields } = self;
        fields.get_mut().unwrap_or_else(PoisonError::into_inner).record(span);
    }
}

/// The wait of a request or a call for its turn or for a permit, as a span that ends with the wait. Boxed, because many may wait.
#[derive(Debug, Default)]
pub(crate) struct WaitSpan(Option<Box<TracedWait>>);

#[derive(Debug)]
struct TracedWait {
    span: Span,
    /// The decision for the span of the request, until that is told.
    fields: Option<TraceFields>,
    request: RequestTrace,
}

impl WaitSpan {
    /// Begins the wait for a turn under this policy, which is `delay` long if nothing changes.
    pub(crate) fn begin(policy: Option<&Policy>, delay: Duration, fields: Option<TraceFields>) -> Self {
        if !is_on() {
            return Self(None);
        }
        let span = tracing::info_span!(
            target: "sluicegate::wait",
            "rate_limit.wait",
            rate_limit.policy = policy.map(Policy::name),
            rate_limit.wait_ms = ceil_millis(delay),
            rate_limit.ended_by = tracing::field::Empty,
        );
        Self::of(span, fields)
    }

    /// Begins the wait for a permit of the limit of this name.
    #[cfg(feature = "in-flight")]
    pub(crate) fn for_permit(limit: &str) -> Self {
        let span = tracing::info_span!(
            target: "sluicegate::wait",
            "in_flight.wait",
            rate_limit.policy = limit,
            rate_limit.ended_by = tracing::field::Empty,
        );
        Self::of(span, None)
    }

    fn of(span: Span, fields: Option<TraceFields>) -> Self {
        let is_seen = !span.is_disabled() || fields.is_some();
        Self(is_seen.then(|| Box::new(TracedWait { span, fields, request: RequestTrace::None })))
    }

    /// Tells the span of the request with these extensions that it waits.
    pub(crate) fn report(&mut self, request: &Extensions) {
        if let Some(wait) = &mut self.0
            && let Some(fields) = wait.fields.take()
        {
            wait.request = RequestTrace::begin(|| Some(fields), request);
        }
    }

    /// Ends the wait for this reason, and returns the decision for the span of the request.
    pub(crate) fn end(&mut self, by: &'static str) -> RequestTrace {
        let Some(wait) = self.0.take() else { return RequestTrace::None };
        wait.span.record(ENDED_BY, by);
        wait.request
    }
}

/// Nothing has ended it, so the request or the call was dropped.
impl Drop for WaitSpan {
    fn drop(&mut self) {
        self.end("given_up");
    }
}

/// The waits of a body for its bandwidth, as one span from the first of them to the end of the body.
#[derive(Debug, Default)]
pub(crate) struct BandwidthSpan(Option<Box<TracedBody>>);

#[derive(Debug)]
struct TracedBody {
    span: Span,
    waited: Duration,
}

impl BandwidthSpan {
    /// The body waits for this long under this policy.
    pub(crate) fn waits(&mut self, wait: Duration, limiter: &RateLimiter) {
        if !is_on() {
            return;
        }
        let body = self.0.get_or_insert_with(|| {
            let span = limiter.with_policy(|policy| {
                tracing::info_span!(
                    target: "sluicegate::wait",
                    "bandwidth.wait",
                    rate_limit.policy = policy.name(),
                    rate_limit.wait_ms = tracing::field::Empty,
                )
            });
            Box::new(TracedBody { span, waited: Duration::ZERO })
        });
        body.waited = body.waited.saturating_add(wait);
    }
}

impl Drop for TracedBody {
    fn drop(&mut self) {
        self.span.record(WAIT_MS, ceil_millis(self.waited));
    }
}
