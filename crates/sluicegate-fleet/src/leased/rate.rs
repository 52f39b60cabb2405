//! The rate of a key: [`SpendRate`].
//!
//! # Example
//! With 2 s ahead, a key that has spent 100 units within the last second is expected to spend 200 in the next two. After two seconds the
//! count is halved with the time that it covers, so that a changed rate of a key is known after a few seconds. The numbers
//! are whole, and rounded down: a key with less than two units ahead is not leased.

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
