//! One request's asks of its limiters.

use std::sync::Arc;

use sluicegate_core::limiter::{Receipt, Turn, change_all, check_all, policies};
use sluicegate_core::store::{DecisionFuture, Mode};
use sluicegate_core::{ConfigError, Decision, Key, Policy, RateLimiter};
use smallvec::SmallVec;

use crate::admission::check;
use crate::admission::set::BuiltLimits;
use crate::limits::plan::LimitPlan;
use crate::limits::walk::RequestAsk;
use crate::respond::decided::Decided;

/// The limiters that apply to a request.
#[derive(Debug, Default)]
pub(crate) struct RequestAsks(SmallVec<[RequestAsk; 1]>);

impl RequestAsks {
    #[inline]
    pub(crate) fn push(&mut self, asked: RequestAsk) {
        self.0.push(asked);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &RequestAsk> {
        self.0.iter()
    }

    #[inline]
    pub(crate) fn limiters<'a>(
        &'a self,
        plan: &'a LimitPlan,
    ) -> impl ExactSizeIterator<Item = &'a RateLimiter> + Clone {
        self.0.iter().map(|asked| asked.limiter(plan))
    }

    /// Checks that the limiters can be decided together: the combination of limits may depend on the request.
    ///
    /// # Errors
    /// When a policy is asked twice, or when there are too many quotas.
    #[inline]
    pub(crate) fn check(&self, plan: &LimitPlan) -> Result<(), ConfigError> {
        if self.0.len() < 2 { Ok(()) } else { check::of_request(self.limiters(plan)) }
    }

    /// Decides all asks together, in this mode or else in the modes of their policies.
    #[inline]
    pub(crate) fn decide(&self, plan: &LimitPlan, mode: Option<Mode>) -> DecisionFuture {
        check_all(
            self.0.iter().map(|asked| asked.limiter(plan).check(&asked.key).cost(asked.cost).mode(mode)),
        )
    }

    /// The turn of an allowed request.
    pub(crate) fn turn(&self, plan: &LimitPlan, decision: Decision) -> Turn {
        Turn::new(decision, self.owned(plan))
    }

    fn owned<'a>(&'a self, plan: &'a LimitPlan) -> impl Iterator<Item = (RateLimiter, Key, u64)> + 'a {
        self.0.iter().map(|asked| (asked.limiter(plan).clone(), asked.key.clone(), asked.cost))
    }

    /// The current policies, one per ask.
    #[inline]
    pub(crate) fn policies(&self, made: &BuiltLimits) -> Arc<[Arc<Policy>]> {
        match &self.0[..] {
            [only] => policies([only.limiter(&made.plan)]),
            _ => made.known.policies(self.limiters(&made.plan)),
        }
    }

    /// The current policy that decided.
    pub(crate) fn deciding(&self, plan: &LimitPlan, decision: &Decision) -> Option<Arc<Policy>> {
        let asked = self.0.get(decision.deciding().policy_index())?;
        Some(asked.limiter(plan).policy())
    }

    /// The index of the limit that decided.
    pub(crate) fn deciding_limit(&self, decision: &Decision) -> Option<usize> {
        self.0.get(decision.deciding().policy_index()).map(|asked| asked.limit)
    }

    /// The decision with its policies.
    #[inline]
    pub(crate) fn label(&self, made: &BuiltLimits, decision: Decision) -> Decided {
        Decided::new(decision, self.policies(made))
    }

    /// Gives back the spends of the asks with indices for which `is_given_back` is true, and returns the new state of the keys if the
    /// store answers at once.
    pub(crate) fn give_back(
        &self,
        made: &BuiltLimits,
        decision: &mut Decision,
        is_given_back: impl Fn(usize) -> bool,
    ) -> Option<Decided> {
        let mut receipts: SmallVec<[Option<Receipt>; 1]> = (0..self.0.len())
            .map(|index| is_given_back(index).then(|| decision.take_receipt(index)).flatten())
            .collect();
        if receipts.iter().all(Option::is_none) {
            return None;
        }
        let changes = self.0.iter().zip(&mut receipts).map(|(asked, receipt)| {
            let refund = |cost| asked.limiter(&made.plan).refund(&asked.key, cost);
            match receipt {
                Some(receipt) => refund(asked.cost).of(receipt),
                None => refund(0),
            }
        });
        // The store starts at once; its answer is not awaited.
        let decision = change_all(changes).now().ok()?.ok()?;
        Some(self.label(made, decision))
    }
}

impl From<RequestAsk> for RequestAsks {
    #[inline]
    fn from(only: RequestAsk) -> Self {
        let mut asks = Self::default();
        asks.push(only);
        asks
    }
}
