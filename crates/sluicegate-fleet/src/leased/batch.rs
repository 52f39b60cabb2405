//! The number of units that are leased at a time: [`Batch`].
//!
//! The size follows from three numbers: the key's rate here, the units left by the store's answer, and the speed at which units drain
//! while they wait. All divisions round down, so a lease is never larger than its share, except for units that have come back since the
//! store's last answer, and for one unit near the limit, so that a key is not refused while units are left.

use std::time::Duration;

use sluicegate_core::ConfigError;
use sluicegate_core::clock::micros;
use sluicegate_core::error::ConfigErrorKind;

use super::measure::Measure;

/// Units of a key that come back while no call is made are leased together, up to this part of the burst.
const BACK_PART: u64 = 20;

/// Sets how many units an instance leases at a time.
///
/// A lease lasts [`ahead`](Self::ahead) at the key's own rate on this instance, and is at most a [`share`](Self::share) of the units that
/// the key has left in the tightest of its quotas. So a key that is far from its limit is leased in large batches, a key near its limit
/// unit by unit, and a rarely used key not at all. If units drain, the units that have come back since the store's last answer are leased
/// at once, up to a twentieth of the burst: a key that is always at its limit spends them in any case. Units are leased for whole requests:
/// in multiples of the cost of the request that asks.
///
/// | setting | default | too low | too high |
/// |---|---|---|---|
/// | [`ahead`](Self::ahead) | 2 s | more calls | resets and replacements elsewhere are seen late |
/// | [`share`](Self::share) | 20 % | more calls | instances hold units that others need |
/// | [`most`](Self::most) | 100,000 units | more calls | a crash loses more |
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::MemoryStore;
/// use sluicegate_fleet::leased::{Batch, Leased};
///
/// # let redis = MemoryStore::new();
/// let batch = Batch::new().ahead(Duration::from_millis(500)).share(10);
/// let store = Leased::builder(redis).batch(batch).build()?;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "settings do nothing until they are given to a store"]
pub struct Batch {
    ahead: Duration,
    share: u64,
    most: u64,
}

impl Batch {
    /// The defaults: see each setting.
    pub const fn new() -> Self {
        Self { ahead: Duration::from_secs(2), share: 20, most: 100_000 }
    }

    /// Sets how long a lease lasts at the key's own rate. Default: 2 s. At least 1 ms, at most an hour.
    pub const fn ahead(mut self, ahead: Duration) -> Self {
        self.ahead = ahead;
        self
    }

    /// Sets the largest part of the key's remaining units that one lease takes, in percent (1 to 100). Default: 20.
    ///
    /// A quota is not leased if this share of it is less than two units. With N instances, N shares may be leased at once.
    pub const fn share(mut self, percent: u64) -> Self {
        self.share = percent;
        self
    }

    /// Sets the most units of one lease. Default: 100,000.
    pub const fn most(mut self, units: u64) -> Self {
        self.most = units;
        self
    }

    /// # Errors
    /// When a setting is outside of its range; the message names it.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let Self { ahead, share, most } = *self;
        let problem = if ahead < Duration::from_millis(1) || ahead > Duration::from_secs(3_600) {
            format!("leases for {ahead:?} ahead: use 1 ms to 1 h")
        } else if share == 0 || share > 100 {
            format!("leases of {share} percent of what is left: use 1 to 100")
        } else if most == 0 {
            "leases of at most 0 units: use at least 1".to_owned()
        } else {
            return Ok(());
        };
        Err(ConfigError::new(ConfigErrorKind::Store, problem))
    }

    pub(super) fn ahead_us(&self) -> u64 {
        micros(self.ahead)
    }

    /// Whether a key at rest has a share of at least two units, because near the limit one unit is leased.
    pub(super) fn is_for(&self, measure: &Measure) -> bool {
        self.share_of(measure.capacity()) >= 2
    }

    fn share_of(&self, units: u64) -> u64 {
        u64::try_from(u128::from(units) * u128::from(self.share) / 100).unwrap_or(u64::MAX)
    }

    /// The units to lease for a key that will spend `rate` units within [`ahead`](Self::ahead); `stocks` are the assumed stocks of the
    /// quotas. Requests of `cost` spend all of it, so that no unusable rest is held. Returns 0 if a lease would
    /// save no call.
    ///
    /// If units drain while they wait, a slow key needs more of them than it will spend. A lease is worth its call if one of its units
    /// can be spent before it ends.
    pub(super) fn size(&self, measures: &[Measure], stocks: &[Stock], rate: u64, cost: u64) -> u64 {
        if rate < 2 {
            return 0;
        }
        let (mut needed, mut room) = (rate, self.most);
        for (measure, stock) in measures.iter().zip(stocks) {
            let used = measure.capacity().saturating_sub(stock.left);
            let drained = measure.drains_in(self.ahead_us());
            needed = needed.max(drained.saturating_sub(used));
            room = room.min(self.room(measure, stock, cost));
        }
        let units = needed.min(room);
        let units = units - units % cost.max(1);
        if units == 0 {
            return 0;
        }
        let can_be_spent = measures.iter().zip(stocks).all(|(measure, stock)| {
            let used = measure.capacity().saturating_sub(stock.left).saturating_add(units);
            let drained = measure.drains_in(self.ahead_us());
            u128::from(rate) * u128::from(used) >= u128::from(drained)
        });
        if can_be_spent { units } else { 0 }
    }

    /// The most units that a lease takes from a quota, beside a request of this cost.
    ///
    /// At least one unit while the quota has more than the request takes: near the limit the lease is the next request's unit.
    fn room(&self, measure: &Measure, stock: &Stock, cost: u64) -> u64 {
        if stock.left <= cost {
            return 0;
        }
        let back = stock.back.min(measure.capacity() / BACK_PART);
        self.share_of(stock.left).max(back).max(1)
    }
}

/// The units that a quota is assumed to have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stock {
    pub(super) left: u64,
    /// The units among them that have come back since the store's last answer.
    pub(super) back: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}
