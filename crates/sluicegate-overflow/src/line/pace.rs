//! The pace of a line: spaced turns at its rate, and spans of the line in time.
//!
//! # Source
//! Turns are GCRA (ITU-T I.371, annex A.1) with a burst of 1, by the rule of the core: the theoretical arrival time of that text is the
//! next free turn here. A room holds a visitor until its turn, where a rate limit would refuse it.
//!
//! # Rounding
//! A turn is never early: its time is exact, as microseconds and a remainder. Spans of ranks are rounded up, and the ranks of
//! a span are rounded down, so that each is the inverse of the other.

use sluicegate_core::algorithm::{Rule, State};
use sluicegate_core::{Algorithm, ConfigError, Quota};

/// Turns at a rate, one by one: never two within the spacing of the rate.
#[derive(Clone, Debug)]
pub(super) struct TurnPace {
    quota: Quota,
    rule: Rule,
    /// The turns that were given.
    given: State,
    /// The moment of the last given turn, if there was one.
    last_us: Option<u64>,
}

impl TurnPace {
    /// A pace without given turns. A burst or an algorithm of the quota has no effect: turns are spaced evenly.
    ///
    /// # Errors
    /// When the spacing of the rate cannot be kept exactly.
    pub(super) fn new(quota: Quota) -> Result<Self, ConfigError> {
        let quota = quota.burst(1);
        let rule = Rule::new(Algorithm::Gcra, quota.counted_by(Algorithm::Gcra))?;
        Ok(Self { quota, rule, given: State::REST, last_us: None })
    }

    /// Returns the pace at another rate, with its given turns: the next turn is no further away than the new spacing.
    pub(super) fn changed(&self, quota: Quota, now_us: u64) -> Result<Self, ConfigError> {
        let mut changed = Self::new(quota)?;
        changed.last_us = self.last_us;
        let spacing_us = changed.span_us(1);
        // Counted from the last turn, so that a change by itself costs no turn.
        if let Some(last_us) = self.last_us.filter(|last_us| last_us.saturating_add(spacing_us) > now_us) {
            changed.given = changed.rule.spend(State::REST, last_us, last_us, 1);
        }
        Ok(changed)
    }

    /// The rate in force, with a burst of 1.
    pub(super) fn quota(&self) -> Quota {
        self.quota
    }

    /// The time until the next free turn.
    pub(super) fn next_us(&self, now_us: u64) -> u64 {
        self.rule.slot(self.given, now_us, 1).opens_us.saturating_sub(now_us)
    }

    /// Gives the next free turn. Returns the time until it.
    pub(super) fn give(&mut self, now_us: u64) -> u64 {
        let after_us = self.next_us(now_us);
        let at_us = now_us.saturating_add(after_us);
        self.given = self.rule.spend(self.given, now_us, at_us, 1);
        self.last_us = Some(at_us);
        after_us
    }

    /// The time that these ranks take at the rate, rounded up.
    pub(super) fn span_us(&self, ranks: u64) -> u64 {
        // Below 2^123, because a period is at most ten years.
        let ns_limit = self.quota.period().as_nanos() * u128::from(ranks);
        u64::try_from(ns_limit.div_ceil(self.limit_ns())).unwrap_or(u64::MAX)
    }

    /// The ranks that fit into a time at the rate.
    pub(super) fn ranks_in(&self, us: u64) -> u64 {
        let ns_limit = self.limit_ns().checked_mul(u128::from(us));
        ns_limit
            .and_then(|ns_limit| u64::try_from(ns_limit / self.quota.period().as_nanos()).ok())
            .unwrap_or(u64::MAX)
    }

    /// The limit, for spans in microseconds and a period in nanoseconds.
    fn limit_ns(&self) -> u128 {
        u128::from(self.quota.limit()) * 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_spaced_by_the_rate_and_none_is_saved_up() {
        let mut pace = TurnPace::new(Quota::per_second(4)).unwrap();
        let after: Vec<u64> = (0..3).map(|_| pace.give(1_000_000)).collect();
        assert_eq!(after, [0, 250_000, 500_000]);
        assert_eq!(pace.next_us(1_000_000), 750_000);
        assert_eq!([pace.give(60_000_000), pace.give(60_000_000)], [0, 250_000]);
    }

    /// This product once overflowed 128 bits.
    #[test]
    fn spans_and_ranks_without_end_are_the_largest_there_are() {
        let slow = TurnPace::new("1/3650d".parse().unwrap()).unwrap();
        assert_eq!(slow.span_us(u64::MAX), u64::MAX);
        assert_eq!(slow.span_us(1), 315_360_000_000_000);
        let fast = TurnPace::new("3000000000000/300d".parse().unwrap()).unwrap();
        assert_eq!(fast.ranks_in(1_000_000), 115_740);
    }

    #[test]
    fn ranks_and_spans_are_inverse() {
        let pace = TurnPace::new("7919/30d".parse().unwrap()).unwrap();
        for ranks in [0, 1, 2, 999, 1_000_000] {
            assert_eq!(pace.ranks_in(pace.span_us(ranks)), ranks);
        }
    }

    #[test]
    fn another_rate_keeps_the_turns_that_are_given() {
        let mut pace = TurnPace::new(Quota::per_second(2)).unwrap();
        (0..3).for_each(|_| _ = pace.give(0));
        assert_eq!(pace.changed(Quota::per_second(10), 0).unwrap().next_us(0), 1_100_000);
    }

    #[test]
    fn a_rate_that_is_set_again_and_again_costs_no_turn() {
        let mut pace = TurnPace::new(Quota::per_minute(6)).unwrap();
        pace.give(0);
        for now_us in (0..10_000_000).step_by(500_000) {
            pace = pace.changed(Quota::per_minute(6), now_us).unwrap();
            assert_eq!(pace.next_us(now_us), 10_000_000 - now_us);
        }
        assert_eq!(pace.changed(Quota::per_minute(6), 10_000_000).unwrap().next_us(10_000_000), 0);
    }
}
