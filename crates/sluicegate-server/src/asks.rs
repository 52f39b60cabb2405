//! The checks that one API call makes, decided together: [`LimiterAsks`].
//!
//! A call names policies, or describes a request for the rules. Either way it becomes a list of limiters with keys and costs.

use std::time::Duration;

use sluicegate_core::limiter::{Receipt, Turn, check_all, policies};
use sluicegate_core::store::{DecisionFuture, Mode};
use sluicegate_core::{Decision, Key, RateLimiter, StoreError};
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::{Limits, Meeting};
use sluicegate_tower::rate_limit::Decided;

/// Checks that are decided in one call of the store: all spend, or none does.
#[derive(Debug, Default)]
pub(crate) struct LimiterAsks {
    asks: Vec<LimiterAsk>,
    /// Checks of policies in shadow mode, which never refuse.
    shadow: Vec<LimiterAsk>,
}

/// One limiter with its key and cost.
#[derive(Debug)]
pub(crate) struct LimiterAsk {
    pub(crate) limiter: RateLimiter,
    pub(crate) key: Key,
    pub(crate) cost: u64,
}

impl LimiterAsks {
    /// The checks that the rules make for a described request: none if they exempt it or if no limit applies.
    ///
    /// # Errors
    /// When the rules refuse it without a limit, or when a limit has to be looked up: then [`Limits::decide`] answers.
    pub(crate) fn of(limits: &Limits, request: RequestView<'_>) -> Result<Self, Refuses> {
        let (mut asks, mut refuses) = (Self::default(), false);
        let meeting = limits.meet(request, |met| match met.asks {
            Ok(ask) => {
                let asked = LimiterAsk { limiter: ask.limiter.clone(), key: ask.key.clone(), cost: ask.cost };
                if ask.is_enforced { asks.asks.push(asked) } else { asks.shadow.push(asked) }
            }
            Err(_) => refuses = true,
        });
        match meeting {
            Meeting::Exempt => Ok(Self::default()),
            Meeting::Limits if !refuses => Ok(asks),
            _ => Err(Refuses),
        }
    }

    pub(crate) fn push(&mut self, asked: LimiterAsk) {
        self.asks.push(asked);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.asks.is_empty()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &LimiterAsk> {
        self.asks.iter()
    }

    /// Asks the store now, in one call.
    pub(crate) fn decide(&self, mode: Mode) -> DecisionFuture {
        check_all(self.asks.iter().map(|asked| asked.limiter.check(&asked.key).cost(asked.cost).mode(mode)))
    }

    /// Reserves a turn that comes within `longest`, and waits for it.
    ///
    /// # Cancel safety
    /// A turn that has not come is given back.
    pub(crate) async fn reserve(&self, longest: Duration) -> Result<Decision, StoreError> {
        let decision = self.decide(Mode::Reserve { longest }).await?;
        if !decision.is_counted() {
            return Ok(decision);
        }
        let owned = self.asks.iter().map(|asked| (asked.limiter.clone(), asked.key.clone(), asked.cost));
        Ok(match Turn::after(decision, owned, Some(longest)) {
            Ok(turn) => turn.await,
            Err(refused) => refused,
        })
    }

    /// Checks the policies in shadow mode, after the others have allowed the request. Their answers are only counted.
    pub(crate) fn check_shadows(&self) {
        for LimiterAsk { limiter, key, cost } in &self.shadow {
            if let Err(later) = limiter.check(key).cost(*cost).now() {
                tokio::spawn(later);
            }
        }
    }

    /// The decision, labelled with its policies.
    pub(crate) fn label(&self, decision: Decision) -> Decided {
        Decided::new(decision, policies(self.asks.iter().map(|asked| &asked.limiter)))
    }

    /// The receipts of the units that were spent, each with its limiter and key.
    pub(crate) fn receipts(&self, decision: &mut Decision) -> Vec<(&LimiterAsk, Receipt)> {
        let each = self.asks.iter().enumerate();
        each.filter_map(|(place, asked)| Some((asked, decision.take_receipt(place)?))).collect()
    }
}

/// The rules refuse a request without a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refuses;
