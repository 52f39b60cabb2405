//! Makes a decision from asks: policies that are off skip the store, policies that suspend keys ask it for more, and in an outage
//! the policies decide.

use std::time::Duration;

use smallvec::SmallVec;

use super::handle::RateLimiter;
use crate::clock::{Clock, SystemClock};
use crate::decision::DecidedBy;
use crate::policy::PolicyMode;
use crate::store::{Ask, DecisionFuture, Mode, Store};
use crate::suspension::{self, suspends};
use crate::wrap::{assumed, or_by_policy};

impl RateLimiter {
    /// Asks the store that all asks belong to.
    #[inline]
    pub(super) fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        // One test rules out all rare cases. A decision is large, and even inspecting an answer would copy it, which takes a tenth of the
        // time of a decision in memory.
        if self.handle.always_answers && asks.iter().all(|ask| ask.policy().is_plain()) {
            return self.handle.store.decide(asks);
        }
        self.decide_with_care(asks)
    }

    /// Decides when a policy is off or suspends keys, or when the store may not answer.
    #[inline(never)]
    fn decide_with_care(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        match () {
            () if asks.iter().any(is_off) => self.decide_without_off(asks),
            () if asks.iter().any(suspends) => suspension::decide(&self.handle.store, asks, decide_plainly),
            () => decide_plainly(&*self.handle.store, asks),
        }
    }

    /// Decides without asks of policies that are off: these asks spend nothing, and have no numbers if other asks do.
    #[cold]
    fn decide_without_off(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        let (mut places, mut rest) = (SmallVec::<[u8; 4]>::new(), SmallVec::<[Ask<'_>; 4]>::new());
        for (place, ask) in (0_u8..).zip(asks).filter(|(_, ask)| !is_off(ask)) {
            places.push(place);
            rest.push(*ask);
        }
        if rest.is_empty() {
            let each = asks.iter().map(|ask| (&**ask.numbers(), false));
            let decision = assumed(each, SystemClock::new().now_us(), Duration::ZERO).by(DecidedBy::Off);
            return DecisionFuture::ready(Ok(decision));
        }
        self.decide(&rest).map(move |result| Ok(result?.of_asks(&places)))
    }
}

/// Whether the ask passes without a store, because its policy is off. A refund is not, because only the store can give back units that were
/// spent before.
#[inline]
fn is_off(ask: &Ask<'_>) -> bool {
    ask.policy().policy().mode() == PolicyMode::Off && (ask.mode().asks() || ask.mode() == Mode::Charge)
}

/// Asks a store without regard to suspensions.
pub(super) fn decide_plainly(store: &dyn Store, asks: &[Ask<'_>]) -> DecisionFuture {
    or_by_policy(store.decide(asks), asks)
}
