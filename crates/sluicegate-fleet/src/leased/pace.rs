//! How fast a key spends: [`Pace`].
//!
//! # Example
//! With 2 s ahead, a key that has spent 100 units within the last second is taken to spend 200 in the next two. After two seconds the
//! count is halved with the time that it is about, so that a key whose rate changes is known by its new rate after a few seconds. The
//! numbers are whole, and rounded down: a key with less than two units ahead is not leased.

/// The units that a key has spent by this instance since a moment, of which the older ones count less and less.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// The beginning of the time that the count is about; by the local clock.
    since_us: u64,
    units: u64,
}

impl Pace {
    pub(super) fn new(now_us: u64) -> Self {
        Self { since_us: now_us, units: 0 }
    }

    #[inline]
    pub(super) fn spend(&mut self, cost: u64) {
        self.units = self.units.saturating_add(cost);
    }

    /// How many units the key will spend within `ahead_us`, if it goes on as before.
    ///
    /// A key that has just come is taken for at most eight times as fast as it was seen to be.
    pub(super) fn within(&mut self, ahead_us: u64, now_us: u64) -> u64 {
        let past_us = now_us.saturating_sub(self.since_us);
        let units =
            u128::from(self.units) * u128::from(ahead_us) / u128::from(past_us.max(ahead_us / 8).max(1));
        let units = u64::try_from(units).unwrap_or(u64::MAX);
        if past_us >= ahead_us {
            // The same rate, seen for half as long: what comes now counts more.
            *self = Self { since_us: now_us.saturating_sub(ahead_us / 2), units: units / 2 };
        }
        units
    }

    /// When it was last begun anew.
    pub(super) fn since_us(&self) -> u64 {
        self.since_us
    }
}
