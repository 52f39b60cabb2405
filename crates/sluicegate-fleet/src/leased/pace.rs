//! How fast a key spends: [`Pace`].

/// The units that a key has spent by this instance since a moment, of which the older ones count less and less.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
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
