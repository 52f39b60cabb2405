//! The terms of a [`Limit`] for one request: whether it applies, and what it asks.

use sluicegate_core::limiter::ForLayers;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{Policy, RateLimiter};

use crate::key::RequestView;
use crate::limits::limit::Limit;
use crate::limits::pick::Which;

impl Limit {
    /// Whether a response may change the spend of its request.
    pub(crate) fn gives_back(&self) -> bool {
        self.bandwidth.is_none() && (self.refund_if.is_some() || self.settle.is_some())
    }

    /// Whether all conditions hold for this request.
    #[inline]
    pub(crate) fn applies_to(&self, request: RequestView<'_>) -> bool {
        self.only_if.iter().all(|applies| applies(request))
    }

    pub(crate) fn is_unconditional(&self) -> bool {
        self.only_if.is_empty()
    }

    #[inline]
    pub(crate) fn cost_of(&self, request: RequestView<'_>) -> u64 {
        self.cost_of.as_ref().map_or(self.cost, |cost_of| cost_of(request))
    }

    /// The mode of this limiter's policy; if the limiter is unknown, the strictest mode of the limit's policies.
    #[inline]
    pub(crate) fn mode(&self, which: Option<&Which>) -> PolicyMode {
        let mode = |limiter: &RateLimiter| limiter.with_policy(Policy::mode);
        match which {
            Some(which) => mode(self.source.limiter(which)),
            None => self.source.known().iter().map(mode).max().unwrap_or_default(),
        }
    }

    /// Whether the limit can be skipped, because all its policies are off.
    #[inline]
    pub(crate) fn is_off(&self) -> bool {
        let is_off = |limiter: &RateLimiter| limiter.with_policy(Policy::mode) == PolicyMode::Off;
        let known = self.source.known();
        self.source.chooses() && !known.is_empty() && known.iter().all(is_off)
    }

    /// The name for logs and errors: the limit's own, or the name of its first policy.
    pub(crate) fn title(&self) -> String {
        let of_policy = || self.source.known().first().map(|limiter| limiter.policy().name().to_owned());
        let own = self.name.as_deref().map(str::to_owned);
        own.or_else(of_policy).unwrap_or_else(|| "chosen per request".to_owned())
    }
}
