//! The terms of a [`Limit`] for one request: whether it applies, and what it asks.
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{Policy, RateLimiter};

use crate::guard::gate::Lookup;
use crate::key::RequestView;
use crate::limits::limit::Limit;
use crate::limits::quotas::{Pick, Which};
use crate::limits::walk::{AskTerms, LimitFinding, PendingLookup, WalkStep, WhyNot};
use crate::respond::stop::Stop;

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

    /// The terms of this limit, whose conditions hold and which is at this index.
    ///
    /// # Errors
    /// The step of the walk, if it asks nothing, or its limiter has to be waited for.
    #[inline]
    pub(crate) fn terms(&self, index: usize, request: &RequestView<'_>) -> Result<AskTerms, WalkStep> {
        let cost = self.cost_of.as_ref().map_or(self.cost, |cost_of| cost_of(*request));
        if cost == 0 {
            return Err(WalkStep::Found(index, LimitFinding::Nothing(WhyNot::Free)));
        }
        if !self.source.chooses() {
            return Ok(AskTerms { limit: index, which: Which::Known(0), cost });
        }
        self.choose_limiter(index, cost, *request)
    }

    /// The terms of a limit that chooses its limiter by the request.
    #[inline(never)]
    fn choose_limiter(
        &self,
        index: usize,
        cost: u64,
        request: RequestView<'_>,
    ) -> Result<AskTerms, WalkStep> {
        if self.is_off() {
            return Err(WalkStep::Found(index, LimitFinding::Nothing(WhyNot::Off)));
        }
        match self.source.pick(request) {
            Ok(pick) => self.picked(index, pick, cost),
            Err(picking) => {
                let lookup = PendingLookup::Limiter(index, Lookup::new(picking), cost);
                Err(WalkStep::Waits(Box::new(lookup)))
            }
        }
    }

    /// Continues with the result of a choice.
    pub(crate) fn picked(&self, index: usize, pick: Pick, cost: u64) -> Result<AskTerms, WalkStep> {
        let finding = match pick {
            Pick::Limiter(which) => return Ok(AskTerms { limit: index, which, cost }),
            Pick::Unlimited => LimitFinding::Nothing(WhyNot::Unlimited),
            Pick::Refused(status) => LimitFinding::refusing(self.mode(None), Stop::unknown_tier(status)),
            Pick::Mistake(error) => LimitFinding::refusing(self.mode(None), Stop::Mistake(error)),
        };
        Err(WalkStep::Found(index, finding))
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
        self.source.chooses() && self.source.known().iter().all(is_off)
    }

    /// The name for logs and errors: the limit's own, or the name of its first policy.
    pub(crate) fn title(&self) -> String {
        match &self.name {
            Some(name) => String::from(&**name),
            None => self.source.known()[0].policy().name().to_owned(),
        }
    }
}
