//! Policies that are off: nobody is asked about them, whoever asks.

use std::time::Duration;

use smallvec::SmallVec;

use super::RateLimiter;
use crate::clock::{Clock, SystemClock};
use crate::decision::DecidedBy;
use crate::policy::PolicyMode;
use crate::store::{Ask, DecisionFuture, Mode, assumed};

/// Whether the ask passes without a store, because its policy is off. What was spent before is the store's to give back.
#[inline]
pub(super) fn is_off(ask: &Ask<'_>) -> bool {
    ask.policy().policy().mode() == PolicyMode::Off && (ask.mode().asks() || ask.mode() == Mode::Charge)
}

impl RateLimiter {
    /// Decides without those that are off: they spend nothing, and beside others they have no numbers.
    #[cold]
    pub(super) fn decide_without_off(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        let (places, rest): (SmallVec<[u8; 4]>, SmallVec<[Ask<'_>; 4]>) =
            (0_u8..).zip(asks.iter().copied()).filter(|(_, ask)| !is_off(ask)).unzip();
        if rest.is_empty() {
            let each = asks.iter().map(|ask| (&**ask.policy().policy(), false));
            let decision = assumed(each, SystemClock::new().now_us(), Duration::ZERO).by(DecidedBy::Off);
            return DecisionFuture::ready(Ok(decision));
        }
        self.decide(&rest).map(move |result| Ok(result?.of_asks(&places)))
    }
}
