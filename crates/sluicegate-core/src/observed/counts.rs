//! What is counted of a policy: [`Counts`].

use super::answer::{Answer, Judgement};
use super::lanes::Lanes;
use super::snapshot::{Totals, Units};
use crate::decision::DecidedBy;

const SPENT: usize = 0;
const REFUNDED: usize = 1;
const CHARGED: usize = 2;
const NEAR: usize = 3;
/// From here on a count of requests for each mode, answer, and who decided. Those that count most are in the first cache line.
const REQUESTS: usize = 4;
const MODES: usize = 2;
const ANSWERS: usize = Answer::ALL.len();
const ALL_WHO_DECIDE: [DecidedBy; 3] = [DecidedBy::Store, DecidedBy::Fallback, DecidedBy::Outage];
const COUNTERS: usize = REQUESTS + MODES * ANSWERS * ALL_WHO_DECIDE.len();

/// What was counted of a policy, in all modes that it had.
pub(super) struct Counts(Lanes<COUNTERS>);

/// The sums of one moment.
#[derive(Clone, Copy)]
pub(super) struct Sums([u64; COUNTERS]);

impl Counts {
    pub(super) fn new() -> Self {
        Self(Lanes::new())
    }

    #[inline]
    pub(super) fn request(&self, judgement: &Judgement, is_shadow: bool) {
        let Judgement { answer, by, spent, is_near } = *judgement;
        let counter = place(is_shadow, answer, by);
        // What a shadow spends nobody was charged.
        self.0.add([(counter, 1), (SPENT, spent), (NEAR, u64::from(is_near))]);
    }

    pub(super) fn refunded(&self, units: u64) {
        self.0.add([(REFUNDED, units)]);
    }

    pub(super) fn charged(&self, units: u64) {
        self.0.add([(CHARGED, units)]);
    }

    pub(super) fn sums(&self) -> Sums {
        Sums(self.0.sums())
    }
}

impl Sums {
    /// Requests that were answered so, by whoever decided, in both modes.
    pub(super) fn of(&self, answer: Answer) -> u64 {
        let each =
            [false, true].into_iter().flat_map(|mode| ALL_WHO_DECIDE.map(|by| place(mode, answer, by)));
        each.map(|counter| self.0[counter]).sum()
    }

    pub(super) fn totals(&self) -> Totals {
        Totals {
            allowed: self.of(Answer::Allowed),
            delayed: self.of(Answer::Delayed),
            rejected: self.of(Answer::Rejected),
            impossible: self.of(Answer::Impossible),
            suspended: self.of(Answer::Suspended),
            error: self.of(Answer::Error),
        }
    }

    pub(super) fn units(&self) -> Units {
        Units { spent: self.0[SPENT], refunded: self.0[REFUNDED], charged: self.0[CHARGED] }
    }

    pub(super) fn near(&self) -> u64 {
        self.0[NEAR]
    }
}

#[inline]
fn place(is_shadow: bool, answer: Answer, by: DecidedBy) -> usize {
    // Whoever is not in the list has counted nothing, as in an outage.
    let by = ALL_WHO_DECIDE.iter().position(|who| *who == by).unwrap_or(ALL_WHO_DECIDE.len() - 1);
    REQUESTS + (usize::from(is_shadow) * ALL_WHO_DECIDE.len() + by) * ANSWERS + answer as usize
}
