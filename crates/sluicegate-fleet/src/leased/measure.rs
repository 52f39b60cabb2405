//! The time for which leased units may be spent under one quota: [`Measure`].
//!
//! Units that are debited now and spent later must not pass beside units that were admitted meanwhile. So a unit may be spent only while it
//! is wholly in the bucket: a bucket that has drained admits a whole burst again, and the additional unit would be one too many. Units
//! drain in the order of their arrival, the first of a lease first.
//!
//! # Example
//! Under 60 a minute with a burst of 10, ten units are leased from rest. The bucket is at rest again after ten seconds. The first unit
//! drains after one second, so from then on nine may be spent, after two seconds eight, and the last one until ten seconds are over. An
//! instance that spends all ten within the first second admits what the bucket would have admitted; an instance that keeps them longer
//! loses one a second, and the bucket admits these units for others.
//!
//! # Clocks
//! A lease ends by the clock of the store, and is spent by the clock of an instance. Their epochs do not matter, because only spans are
//! compared; their rates do. The allowed error of a thousandth is far above that of any real clock: quartz is off by up to a
//! ten-thousandth, and NTP slews by at most one two-thousandth.
//!
//! # The rate of a key: [`SpendRate`]
//! With 2 s ahead, a key that has spent 100 units within the last second is expected to spend 200 in the next two. After two seconds the
//! count is halved with the time that it covers, so that a changed rate of a key is known after a few seconds. The numbers
//! are whole, and rounded down: a key with less than two units ahead is not leased.

use sluicegate_core::algorithm::Rule;
use sluicegate_core::clock::micros;
use sluicegate_core::limiter::Receipt;
use sluicegate_core::policy::PolicyQuota;

use super::policy::Unleased;

/// One quota of a leased policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measure {
    rule: Rule,
    /// The time that a unit takes to drain, rounded up, if units drain one by one.
    unit_us: Option<u64>,
}

impl Measure {
    /// # Errors
    /// For a quota that cannot be leased.
    pub(super) fn new(quota: &PolicyQuota) -> Result<Self, Unleased> {
        let rule = *quota.rule();
        if rule.is_queue() {
            return Err(Unleased::Queue);
        }
        if rule.begins() {
            return Err(Unleased::Starts);
        }
        if !rule.can_lease() {
            return Err(Unleased::Log);
        }
        let unit_us = micros(quota.quota().period()).div_ceil(quota.quota().limit().max(1));
        Ok(Self { rule, unit_us: matches!(rule, Rule::Gcra(_)).then_some(unit_us) })
    }

    /// Units that pass at once from rest.
    #[inline]
    pub(super) fn capacity(&self) -> u64 {
        self.rule.capacity()
    }

    /// The time for which the last unit of a lease may be spent, in microseconds of the store's clock since its decision; `None` if the
    /// receipt does not say. `quota` is the index of this quota in its policy.
    pub(super) fn span_us(&self, receipt: &Receipt, quota: u8) -> Option<u64> {
        let trace = receipt.trace(quota)?;
        Some(self.rule.lease_lasts_us(trace.after, receipt.at_us(), 0))
    }

    /// The number of the last `left` units of a lease that may still be spent, `age_us` after its call was sent.
    #[inline]
    pub(super) fn alive(&self, left: u64, span_us: u64, age_us: u64) -> u64 {
        match (span_us.checked_sub(age_us), self.unit_us) {
            (None, _) => 0,
            (Some(_), None) => left,
            // Usually all of them may be spent, which needs no division. A millisecond is more than the rounding of unit times.
            (Some(rest_us), Some(unit_us))
                if left.saturating_mul(unit_us).saturating_add(1_000) <= rest_us =>
            {
                left
            }
            // The last one, and the units before it that drain in its remaining time.
            (Some(rest_us), Some(_)) => left.min(self.rule.drains_in(rest_us).unwrap_or(0).saturating_add(1)),
        }
    }

    /// The number of units that drain within this span while they wait to be spent.
    pub(super) fn drains_in(&self, span_us: u64) -> u64 {
        self.unit_us.and_then(|_| self.rule.drains_in(span_us)).unwrap_or(0)
    }

    /// The time until one more unit is available, without other requests and if the bucket is at rest after `reset_us`: for answers
    /// decided here.
    #[inline]
    pub(super) fn more_after_us(&self, reset_us: u64) -> u64 {
        self.unit_us.map_or(reset_us, |unit_us| unit_us.min(reset_us))
    }
}

/// The units that a key has spent on this instance since a moment; older ones count less and less.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpendRate {
    /// The beginning of the time that the count covers, by the local clock.
    pub(super) since_us: u64,
    units: u64,
}

impl SpendRate {
    pub(super) fn new(now_us: u64) -> Self {
        Self { since_us: now_us, units: 0 }
    }

    #[inline]
    pub(super) fn spend(&mut self, cost: u64) {
        self.units = self.units.saturating_add(cost);
    }

    /// The units that the key will spend within `ahead_us`, if its rate does not change.
    ///
    /// A new key counts as at most eight times as fast as measured.
    pub(super) fn within(&mut self, ahead_us: u64, now_us: u64) -> u64 {
        let past_us = now_us.saturating_sub(self.since_us);
        let units =
            u128::from(self.units) * u128::from(ahead_us) / u128::from(past_us.max(ahead_us / 8).max(1));
        let units = u64::try_from(units).unwrap_or(u64::MAX);
        if past_us >= ahead_us {
            // The rate stays, but covers half the time: new units count more.
            *self = Self { since_us: now_us.saturating_sub(ahead_us / 2), units: units / 2 };
        }
        units
    }
}

/// The largest allowed drift of a clock, in microseconds.
const MOST_DRIFT_US: u64 = 10_000_000;

/// The most time that may have passed by a correct clock, when this much has passed by the local one: a thousandth more, and at most 10 s
/// more. Leases end by this time: it is better to lose a unit than to spend one that has ended elsewhere.
#[inline]
pub(super) fn at_most(local_us: u64) -> u64 {
    local_us.saturating_add(local_us.div_ceil(999).min(MOST_DRIFT_US))
}

/// The least time that must have passed. Moments that others see are counted by this time, so that none of them is in the future.
#[inline]
pub(super) fn at_least(local_us: u64) -> u64 {
    local_us.saturating_sub(local_us.div_ceil(1_000).min(MOST_DRIFT_US))
}

#[cfg(test)]
mod tests {
    use sluicegate_core::Policy;

    use super::*;

    #[test]
    fn the_short_way_to_what_is_alive_is_that_of_a_division() {
        let mut shortened = 0;
        for quota in
            ["5/s", "1000000/s", "7/3s burst 20", "60/min burst 10", "1/d", "3000000000000/300d", "1000/300d"]
        {
            let policy = Policy::gcra("any", quota).build().expect("the quota is possible");
            let measure = Measure::new(&policy.quotas()[0]).expect("it can be leased");
            let unit_us = measure.unit_us.expect("its units drain");
            for left in [0, 1, 2, 9, 1_000, 70_000] {
                for rest_us in (0..60).flat_map(|near| {
                    let drained_us = left * unit_us;
                    [near, drained_us.saturating_sub(near * 97), drained_us + near * 97]
                }) {
                    let slowly = left.min(measure.rule.drains_in(rest_us).unwrap_or(0) + 1);
                    assert_eq!(measure.alive(left, rest_us, 0), slowly, "{quota}: {left} in {rest_us}");
                    shortened += u32::from(left * unit_us + 1_000 <= rest_us);
                }
            }
        }
        assert!(shortened > 500, "{shortened}");
    }
}
