//! What all services of a layer share.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sluicegate_core::StoreError;

use crate::guard::lookup::Waits;
use crate::limits::limit::Limit;
use crate::limits::predicate::Door;
use crate::rate_limit::plan::{Current, Plans, Slot};
use crate::rate_limit::shadow::Shadows;
use crate::respond::headers::Style;
use crate::respond::spread::Spread;

pub(crate) struct Shared<R> {
    pub(crate) limits: Box<[Limit]>,
    /// The limiters of all limits, in the order of the limits.
    pub(crate) slots: Box<[Slot]>,
    /// Before the limits, if anything was said of who does not come to them.
    pub(crate) door: Option<Box<Door>>,
    pub(crate) style: Style,
    pub(crate) respond: R,
    /// Finds the seconds that are added to the wait of a refusal.
    pub(crate) spread: Option<Spread>,
    /// Whether requests and responses carry the decision in their extensions.
    pub(crate) extensions: bool,
    /// Whether requests carry a [`Meter`](crate::Meter).
    pub(crate) meters: bool,
    /// Whether a limit gives back by the response.
    pub(crate) refunds: bool,
    pub(crate) waits: Waits,
    pub(crate) shadows: Shadows,
    plans: Plans,
    outage: OnceASecond,
}

impl<R> Shared<R> {
    pub(crate) fn new(mut limits: Vec<Limit>, respond: R) -> Self {
        let mut slots = Vec::with_capacity(limits.len());
        for (index, limit) in limits.iter_mut().enumerate() {
            limit.first_slot = slots.len();
            let limiters = limit.limiters().iter().cloned();
            slots.extend(limiters.map(|limiter| Slot { limiter, limit: index }));
        }
        Self {
            refunds: limits.iter().any(Limit::gives_back),
            plans: Plans::new(&slots),
            shadows: Shadows::new(slots.len()),
            limits: limits.into(),
            slots: slots.into(),
            door: None,
            style: Style::default(),
            respond,
            spread: None,
            extensions: true,
            meters: false,
            waits: Waits::default(),
            outage: OnceASecond::default(),
        }
    }

    /// What can be said of the policies in force.
    #[inline]
    pub(crate) fn plan(&self) -> Current<'_> {
        self.plans.current(&self.slots)
    }

    /// Whether all policies that a request may be asked of are only tried out.
    pub(crate) fn only_tries_out(&self, limit: &Limit) -> bool {
        let plan = self.plan();
        let mut policies = plan.policies.iter().skip(limit.first_slot).take(limit.limiters().len());
        plan.has_shadow && policies.all(|policy| policy.is_shadow())
    }

    /// Whether anything has to be kept of a request until its response comes.
    #[inline]
    pub(crate) fn marks_responses(&self) -> bool {
        self.extensions || self.style.shows() || self.refunds || self.meters
    }

    /// Logs that the store gave no answer, at most once a second: an outage must not fill the disk as well.
    pub(crate) fn report(&self, error: &StoreError, denies: bool) {
        if self.outage.is_due() {
            let error: &(dyn std::error::Error + 'static) = error;
            let action = if denies { "deny" } else { "allow" };
            tracing::error!(error, action, "the rate limit store gave no answer");
        }
    }
}

impl<R> fmt::Debug for Shared<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.limits).finish()
    }
}

/// Something that is said at most once a second.
#[derive(Debug)]
pub(crate) struct OnceASecond {
    started: Instant,
    /// The second after the start in which it was last said.
    said: AtomicU64,
}

impl Default for OnceASecond {
    fn default() -> Self {
        Self { started: Instant::now(), said: AtomicU64::new(0) }
    }
}

impl OnceASecond {
    pub(crate) fn is_due(&self) -> bool {
        let second = self.started.elapsed().as_secs() + 1;
        // Relaxed: at worst two threads say it in the same second.
        self.said.swap(second, Ordering::Relaxed) != second
    }
}
