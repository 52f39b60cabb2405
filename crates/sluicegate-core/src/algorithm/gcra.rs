//! Generic cell rate algorithm: also the greedy token bucket and the leaky bucket.
//!
//! The state is one moment, at which the bucket is empty again. Every answer of GCRA is arithmetic
//! on the span between that moment and now, the *level*, counted in parts of a time unit so that
//! nothing is ever rounded:
//!
//! ```text
//! level = until - now        a unit of cost adds `spacing` parts
//! level + c * spacing <= full        it fits: until moves ahead by c * spacing
//! ```
//!
//! Time lowers the level by itself, so nothing has to be refilled.

use std::num::NonZeroU64;

use super::rule::gcd;
use super::shape::{Looked, Shape, SpendState, quotient};
use super::{Checked, DEBT_HORIZON_US, EXACT, LONGEST_US, NEVER, Numbers, Slot, Spent, State};
use crate::error::{ConfigError, ConfigErrorKind};

/// Generic cell rate algorithm: one theoretical arrival time per key, nothing to refill in the background.
///
/// From rest exactly `burst` units pass at once; then one more each `period / limit`. The greedy token bucket and
/// the leaky bucket are this code under other names.
///
/// # Source
/// ITU-T I.371 (03/2004), annex A.1, virtual scheduling: a cell conforms when it comes no earlier than
/// `TAT - tau`, with `T = period / limit` and, counting the cell itself, `tau = burst * T` (the recommendation's
/// `tau` leaves the cell out: `(burst - 1) * T`). Deviation: a cost of `c` is `c` cells at once, all or none.
///
/// # Rounding
/// None. `limit / period`, with the period in nanoseconds if it is not a whole number of microseconds, is reduced to `ticks / spacing`: a
/// time unit is cut into `ticks` equal parts, a unit of cost lasts `spacing` of them, and the theoretical arrival time is kept as a whole
/// time unit and the parts that it lies before it. The time unit is a microsecond, or a millisecond if `burst * spacing` would exceed 2^52.
///
/// # State
/// One 64-bit word if `ticks <= 4096` (all round figures), two otherwise.
///
/// # Example
/// Five a minute: a unit lasts 12 s. Five pass at once; half a minute later two and a half are
/// back, and two of them can be spent.
///
/// ```
/// use sluicegate_core::algorithm::{Rule, State};
/// use sluicegate_core::{Algorithm, Quota};
///
/// const SECOND: u64 = 1_000_000;
/// let rule = Rule::new(Algorithm::Gcra, Quota::per_minute(5))?;
/// let state = rule.spend(State::REST, 0, 0, 5);
/// assert_eq!(rule.slot(state, 0, 1).opens_us, 12 * SECOND); // the sixth
/// assert_eq!(rule.remaining(state, 30 * SECOND), 2);
/// assert_eq!(rule.reset_after_us(state, 30 * SECOND), 30 * SECOND);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gcra {
    /// The time unit, in microseconds: 1, or 1,000 if the products would not fit.
    unit_us: NonZeroU64,
    /// The number of parts in a time unit. `State::aux` is always below it.
    ticks: NonZeroU64,
    /// The number of parts that a unit of cost lasts.
    spacing: NonZeroU64,
    burst: u64,
    /// `burst * spacing`: the level at which nothing more fits.
    full: u64,
    /// The level above which a charge is forgotten.
    ceiling: u64,
    /// The level up to which nothing is delayed; above it, a shaping leaky bucket spaces its output.
    undelayed: u64,
    /// Whether a part is a microsecond, as in most quotas, and the rule delays nothing.
    pub(super) is_plain: bool,
}

/// The highest level that is exact; beyond it, a state still says when it is back at rest.
const LEVEL_MAX: u64 = 2 * EXACT - 1;

impl Gcra {
    /// With `queue_above`, the rule is a leaky bucket that spaces its output once more than that many units are in it.
    pub(super) fn new(quota: Checked, queue_above: Option<u64>) -> Result<Self, ConfigError> {
        let reduced = |period: NonZeroU64| {
            let divisor = gcd(quota.limit, period);
            (quota.limit.get() / divisor, period.get() / divisor)
        };
        let (unit_us, period) = quota.unit(|period| quota.burst.get().saturating_mul(reduced(period).1))?;
        let (ticks, spacing) = reduced(period);
        let (Some(ticks), Some(spacing)) = (NonZeroU64::new(ticks), NonZeroU64::new(spacing)) else {
            unreachable!("a quotient by a common divisor is not 0");
        };
        let full = quota.burst.get().saturating_mul(spacing.get());
        if full > (LONGEST_US / unit_us).saturating_mul(ticks.get()) {
            return Err(ConfigError::new(
                ConfigErrorKind::Quota,
                format!(
                    "a burst of {} takes longer than ten years to refill at {}",
                    quota.burst, quota.quota
                ),
            ));
        }
        let undelayed = queue_above.map_or(u64::MAX, |units| units.saturating_mul(spacing.get()));
        let is_plain = unit_us.get() == 1 && ticks.get() == 1 && queue_above.is_none();
        let burst = quota.burst.get();
        let rule = Self { unit_us, ticks, spacing, burst, full, ceiling: 0, undelayed, is_plain };
        Ok(rule.with_debt(quota.most_debt()))
    }

    /// The time rounded down to whole units.
    #[inline]
    fn floor(&self, now_us: u64) -> u64 {
        // Almost every quota counts in microseconds; a branch is cheaper than a division.
        if self.unit_us.get() == 1 { now_us } else { now_us.saturating_sub(now_us % self.unit_us) }
    }

    #[inline]
    fn whole_units(&self, us: u64) -> u64 {
        if self.unit_us.get() == 1 { us } else { us / self.unit_us }
    }

    /// The time in which `level` drains, rounded up to whole units, in microseconds.
    #[inline]
    fn drain_us(&self, level: u64) -> u64 {
        self.in_us(if self.ticks.get() == 1 { level } else { level.div_ceil(self.ticks.get()) })
    }

    /// Converts whole time units to microseconds.
    #[inline]
    fn in_us(&self, units: u64) -> u64 {
        if self.unit_us.get() == 1 { units } else { units.saturating_mul(self.unit_us.get()) }
    }

    /// The state with a level lower by `parts`, exact however far ahead it reaches.
    #[inline]
    fn lowered(&self, state: State, now_us: u64, parts: u64) -> State {
        let aux = state.aux.saturating_add(parts);
        let units = aux / self.ticks;
        let until_us = state.until_us.saturating_sub(units.saturating_mul(self.unit_us.get()));
        if until_us <= self.floor(now_us) {
            return State::REST;
        }
        State { until_us, aux: aux.saturating_sub(units.saturating_mul(self.ticks.get())) }
    }

    /// When the level of a state has sunk to `target` parts, in microseconds; exact however far ahead it reaches.
    #[inline]
    fn sinks_to_us(&self, state: State, target: u64) -> u64 {
        let units = target.saturating_add(state.aux) / self.ticks;
        state.until_us.saturating_sub(units.saturating_mul(self.unit_us.get()))
    }

    /// The state with this level: the moment of rest is rounded up to a time unit, and `aux` keeps
    /// how many parts before that unit's end it really is. So the level can be read back exactly.
    #[inline]
    pub(super) fn state(&self, level: u64, now_us: u64) -> State {
        if level == 0 {
            return State::REST;
        }
        let (units, aux) = if self.ticks.get() == 1 {
            (level, 0)
        } else {
            let units = level.div_ceil(self.ticks.get());
            (units, units.saturating_mul(self.ticks.get()).saturating_sub(level))
        };
        let drain_us = self.in_us(units);
        State { until_us: self.floor(now_us).saturating_add(drain_us), aux }
    }

    /// `look` for a rule with a level that is a span of time: it counts no parts.
    #[inline(always)]
    pub(super) fn look_plainly(
        &self,
        state: State,
        now_us: u64,
        cost: u64,
        settle: impl SpendState,
    ) -> Option<Looked> {
        let level = state.until_us.saturating_sub(now_us);
        if cost > self.burst || level >= LEVEL_MAX {
            return None;
        }
        let after = level.saturating_add(cost.saturating_mul(self.spacing.get()));
        if after > self.full {
            settle.settle(None);
            let remaining = self.full.saturating_sub(level) / self.spacing;
            return Some(self.looked(false, (state, now_us), remaining, after.saturating_sub(self.full)));
        }
        let state = if cost == 0 { state } else { State::new(now_us.saturating_add(after), 0) };
        settle.settle((cost > 0).then_some(state));
        if after == 0 {
            return Some(self.looked(true, (state, now_us), self.burst, 0));
        }
        let free = self.full.saturating_sub(after);
        let available_after_us = self.spacing.get().saturating_sub(free % self.spacing);
        Some(self.looked(true, (state, now_us), free / self.spacing, available_after_us))
    }

    /// `look` for a rule with a level in parts. It also returns `None` for a queue, because a queue may delay.
    #[inline(never)]
    fn look_in_parts(&self, state: State, now_us: u64, cost: u64) -> Option<Looked> {
        let level = self.level(state, now_us);
        // At the highest level, reserved turns may reach further ahead than a level can express.
        if self.undelayed != u64::MAX || cost > self.burst || level == LEVEL_MAX {
            return None;
        }
        let after = level.saturating_add(cost.saturating_mul(self.spacing.get()));
        let excess = after.saturating_sub(self.full);
        let passed = excess == 0;
        let spends = passed && cost > 0;
        let (state, level) = if spends { (self.state(after, now_us), after) } else { (state, level) };
        let free = self.full.saturating_sub(level);
        let lacking = if passed { self.spacing.get().saturating_sub(free % self.spacing) } else { excess };
        // Levels are computed for the beginning of the time unit.
        let begun_us = now_us.saturating_sub(self.floor(now_us));
        let available_after_us = if level == 0 { 0 } else { self.drain_us(lacking).saturating_sub(begun_us) };
        Some(self.looked(passed, (state, now_us), free / self.spacing, available_after_us))
    }

    /// The state under this rate with the units of `level`, which comes from another rate with `per_unit` parts per unit.
    pub(super) fn state_of(&self, level: u64, per_unit: u64, now_us: u64) -> State {
        let parts = u128::from(level).saturating_mul(u128::from(self.spacing.get()));
        let parts = parts.div_ceil(u128::from(per_unit.max(1)));
        self.state(u64::try_from(parts).unwrap_or(u64::MAX).min(LEVEL_MAX), now_us)
    }
}

impl Shape for Gcra {
    #[inline]
    fn capacity(&self) -> u64 {
        self.burst
    }

    fn debt_ceiling(&self) -> u64 {
        self.ceiling / self.spacing
    }

    fn longest_spend_us(&self) -> u64 {
        self.drain_us(self.full)
    }

    fn is_queue(&self) -> bool {
        self.undelayed != u64::MAX
    }

    fn lease_lasts_us(&self, after: State, at_us: u64, behind: u64) -> u64 {
        // The time until the bucket has drained down to this unit and the units behind it, rounded down to a time unit.
        let parts = behind.saturating_add(1).saturating_mul(self.spacing.get());
        let units = parts.saturating_add(after.aux).div_ceil(self.ticks.get());
        let end_us = after.until_us.saturating_sub(units.saturating_mul(self.unit_us.get()));
        end_us.saturating_sub(at_us)
    }

    fn aux_bound(&self) -> u64 {
        self.ticks.get()
    }

    fn per_unit(&self) -> u64 {
        self.spacing.get()
    }

    fn floor_us(&self, now_us: u64) -> u64 {
        self.floor(now_us)
    }

    fn at_level(&self, level: u64, now_us: u64) -> State {
        self.state(level.min(self.ceiling), now_us)
    }

    fn drains_in(&self, span_us: u64) -> Option<u64> {
        Some(quotient(self.whole_units(span_us), self.ticks, self.spacing))
    }

    fn is_level(&self) -> bool {
        true
    }

    fn numbers(&self) -> Numbers {
        let (unit_us, ticks, spacing) = (self.unit_us.get(), self.ticks.get(), self.spacing.get());
        // A rule that delays nothing has the highest number already.
        Numbers::new(1, [unit_us, ticks, spacing, self.burst, self.ceiling, self.undelayed])
    }

    fn take_back(&self, state: State, turn: &Spent) -> Option<State> {
        (state == turn.after).then_some(turn.before)
    }

    fn weight(&self, state: State, _now_us: u64) -> (u64, u64) {
        (state.until_us, !state.aux)
    }

    fn carried(&self, from: &Self, state: State, now_us: u64) -> Option<State> {
        Some(self.state_of(from.level(state, now_us), from.spacing.get(), now_us))
    }

    fn with_debt(mut self, units: u64) -> Self {
        let exact = LEVEL_MAX.min((DEBT_HORIZON_US / self.unit_us).saturating_mul(self.ticks.get()));
        self.ceiling = units.saturating_mul(self.spacing.get()).min(exact);
        self
    }

    #[inline]
    fn slot(&self, state: State, now_us: u64, cost: u64) -> Slot {
        if cost > self.burst {
            return Slot::at(NEVER);
        }
        let room = self.full.saturating_sub(cost.saturating_mul(self.spacing.get()));
        let opens_us = self.sinks_to_us(state, room).max(now_us);
        let departs_us = match self.undelayed {
            u64::MAX => opens_us,
            undelayed => self.sinks_to_us(state, undelayed).max(opens_us),
        };
        Slot { opens_us, departs_us }
    }

    #[inline]
    fn spend(&self, state: State, now_us: u64, at_us: u64, cost: u64) -> State {
        if cost == 0 {
            return state;
        }
        // A queue spaces its output exactly: its schedule does not move when a departure is rounded up to a
        // microsecond, only when something else holds the departure back.
        let is_own_turn = self.undelayed != u64::MAX && at_us <= self.slot(state, now_us, cost).departs_us;
        let at_us = if is_own_turn { now_us } else { at_us };
        let level = self.level(state, at_us);
        if level == LEVEL_MAX {
            return state;
        }
        self.state(level.saturating_add(cost.saturating_mul(self.spacing.get())).min(LEVEL_MAX), at_us)
    }

    // Inlined always, because it is most of a decision.
    #[inline(always)]
    fn look(&self, state: State, now_us: u64, cost: u64, settle: impl SpendState) -> Option<Looked> {
        if self.is_plain {
            return self.look_plainly(state, now_us, cost, settle);
        }
        let looked = self.look_in_parts(state, now_us, cost)?;
        settle.settle((looked.passed && cost > 0).then_some(looked.state));
        Some(looked)
    }

    /// Spends at once up to the ceiling; says how many whole units took effect.
    fn charge(&self, state: State, now_us: u64, cost: u64) -> (State, u64) {
        let level = self.level(state, now_us);
        let added = cost.saturating_mul(self.spacing.get()).min(self.ceiling.saturating_sub(level));
        if added == 0 {
            return (state, 0);
        }
        (self.state(level.saturating_add(added), now_us), added / self.spacing)
    }

    #[inline]
    fn refund(&self, state: State, now_us: u64, ago_us: u64, cost: u64) -> State {
        // Units that have leaked out since they were spent no longer count: giving them back would leave more in the bucket than
        // it would have without the cost.
        let leaked = ago_us.div_ceil(self.unit_us.get()).saturating_mul(self.ticks.get());
        let counts = cost.saturating_mul(self.spacing.get()).saturating_sub(leaked);
        self.lowered(state, now_us, counts)
    }

    /// Units leak in the order of their arrival: the spent cost begins to leak when the units found in the bucket,
    /// less the units given back since, have leaked.
    fn give_back(&self, state: State, now_us: u64, spent: &Spent, give: u64) -> (State, u64) {
        let passed_us = self.floor(now_us).saturating_sub(self.floor(spent.at_us));
        let drained = self.whole_units(passed_us).saturating_mul(self.ticks.get());
        let leaked = drained.saturating_sub(spent.found.saturating_sub(spent.given_since));
        let left = spent.cost.saturating_mul(self.spacing.get()).saturating_sub(leaked);
        let given = give.saturating_mul(self.spacing.get()).min(left);
        (self.lowered(state, now_us, given), given)
    }

    /// The level of the bucket, in parts: the theoretical arrival time less the current time.
    #[inline]
    fn level(&self, state: State, now_us: u64) -> u64 {
        let now = self.floor(now_us);
        if state.until_us <= now {
            return 0;
        }
        let ahead = self.whole_units(state.until_us.saturating_sub(now));
        ahead.saturating_mul(self.ticks.get()).saturating_sub(state.aux).min(LEVEL_MAX)
    }

    fn used(&self, state: State, now_us: u64) -> u64 {
        self.level(state, now_us).div_ceil(self.spacing.get())
    }

    #[inline]
    fn remaining(&self, state: State, now_us: u64) -> u64 {
        self.full.saturating_sub(self.level(state, now_us)) / self.spacing
    }
}
