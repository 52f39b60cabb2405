//! The units that a key has left under a new quota when its policy is replaced.

use super::{Rule, State};
use crate::text::words;

/// How the keys of a replaced policy start under the new one. Written `spent`, `reset`, `as-is`, `proportional` and `additive`.
///
/// Each key is converted as it was at the moment of the replacement, whichever request comes first: from then on its units come back at
/// the new rate, and a look or a refusal changes nothing. A key with quotas of its own keeps them until it spends by others. On Redis a
/// key that spends nothing after the replacement is forgotten when its units would have come back under the old policy, and a process
/// that begins with another policy converts keys as they were after their last change.
///
/// A quota inherits from the quota with the same rule; if there is none, from the quota with the same
/// id; if there is none, from the quota that has counted most. A quota with an unchanged rule is not
/// touched at all. A memory store follows a key through up to 32 replacements between two of its
/// requests.
///
/// # What a key has left
/// A key that has spent 60 of 100 units an hour, when the limit becomes 50 or 200:
///
/// | | of 50 | of 200 | take it when |
/// |---|---|---|---|
/// | [`Spent`](Self::Spent) | none, and a debt of 10 | 140 | the limit changes and the past counts: the default |
/// | [`Reset`](Self::Reset) | 50 | 200 | the old numbers were wrong, or all debts should be forgiven |
/// | [`AsIs`](Self::AsIs) | 40 | 40 | units were bought, and are neither given nor taken away |
/// | [`Proportional`](Self::Proportional) | 20 | 80 | the unit itself has changed |
/// | [`Additive`](Self::Additive) | 40 | 140 | an upgrade adds units, and a downgrade takes none |
///
/// All but [`Spent`](Self::Spent) are Bucket4j's (`TokensInheritanceStrategy`).
///
/// ```
/// use sluicegate_core::limiter::Inherit::{self, *};
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let left = |inherit: Inherit, limit: &str| {
///     let plan = Policy::fixed_window("plan", "100/h").on(&MemoryStore::new())?;
///     plan.check("ada").cost(60).now().expect("memory answers at once")?;
///     plan.replace(Policy::fixed_window("plan", limit).build()?, inherit)?;
///     let decision = plan.peek("ada").now().expect("memory answers at once")?;
///     Ok::<_, Box<dyn std::error::Error>>(decision.remaining())
/// };
/// for (inherit, of_50, of_200) in
///     [(Spent, 0, 140), (Reset, 50, 200), (AsIs, 40, 40), (Proportional, 20, 80), (Additive, 40, 140)]
/// {
///     assert_eq!((left(inherit, "50/h")?, left(inherit, "200/h")?), (of_50, of_200), "{inherit}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Inherit {
    /// With the spent units: 50 of 100 become 50 of 10, a debt of 40. No key gains by the replacement, whatever
    /// the old and the new algorithm. A debt under a fixed window ends with the window, and
    /// under a sliding counter or log it is forgotten after its periods.
    #[default]
    Spent,
    /// With no past: every key has the whole new burst, or the units that an unknown key [starts](crate::Quota::starting_with) with.
    Reset,
    /// With the units that remained, up to the new burst.
    AsIs,
    /// With the remaining part of the burst, in proportion.
    Proportional,
    /// With the units that remained, plus the growth of the burst.
    Additive,
}

words!(Inherit decides "how keys start under a policy that replaces another":
    "spent" => Spent, "reset" => Reset, "as-is" => AsIs, "proportional" => Proportional, "additive" => Additive);

/// Units as an exact fraction: `parts / per_unit`, negative for a debt.
///
/// ```
/// use sluicegate_core::algorithm::Units;
///
/// assert_eq!(Units::whole(40).missing_of(100), 60);
/// assert_eq!(Units::whole(-10).missing_of(100), 110); // a debt
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    parts: i128,
    per_unit: i128,
}

impl Units {
    /// A whole number of units.
    pub fn whole(units: i128) -> Self {
        Self { parts: units, per_unit: 1 }
    }

    fn scaled(self, numerator: u64, denominator: u64) -> Self {
        Self {
            parts: self.parts.saturating_mul(numerator.into()),
            per_unit: self.per_unit.saturating_mul(denominator.into()),
        }
    }

    fn plus(self, units: u64) -> Self {
        Self { parts: self.parts.saturating_add(self.per_unit.saturating_mul(units.into())), ..self }
    }

    fn minus(self, units: u64) -> Self {
        Self { parts: self.parts.saturating_sub(self.per_unit.saturating_mul(units.into())), ..self }
    }

    /// Rounded down, towards debt.
    fn floor(self) -> i128 {
        self.parts.div_euclid(self.per_unit)
    }

    /// The whole units that are missing from `capacity`, rounded up.
    pub fn missing_of(self, capacity: u64) -> u64 {
        missing(self.floor(), capacity)
    }

    /// The units in parts, `per_unit` parts to a unit, rounded down.
    fn in_parts(self, per_unit: u64) -> i128 {
        self.parts.saturating_mul(per_unit.into()).div_euclid(self.per_unit)
    }
}

impl Inherit {
    /// The units that a key with `available` of `old` capacity has left of `new`; `None` if it has all of them.
    ///
    /// As Bucket4j's `TokensInheritanceStrategy`: proportional shares are rounded down, additive growth adds the
    /// difference, shrinking keeps what fits.
    pub fn units(self, available: Units, old: u64, new: u64) -> Option<Units> {
        let units = match self {
            Self::Reset => return None,
            // `Rule::converted` does this with finer precision.
            Self::Spent => available.plus(new).minus(old),
            Self::Proportional => available.scaled(new, old),
            Self::Additive => available.plus(new.saturating_sub(old)),
            Self::AsIs => available,
        };
        (units.floor() < i128::from(new)).then_some(units)
    }
}

impl Rule {
    /// The units that a key has available, with fractions where the algorithm has them. Not for the sliding log.
    pub fn available(&self, state: State, now_us: u64) -> Units {
        let per_unit = i128::from(self.per_unit());
        let full = i128::from(self.capacity()).saturating_mul(per_unit);
        Units { parts: full.saturating_sub(self.level(state, now_us).into()), per_unit }
    }

    /// The state of a key with `available` units from `now_us` on. Only GCRA keeps fractions.
    pub fn state_with(&self, available: Units, now_us: u64) -> State {
        let full = self.capacity().saturating_mul(self.per_unit());
        self.at_level(missing(available.in_parts(self.per_unit()), full), now_us)
    }

    /// The state under this rule of a key that has `state` under another rule: spent units stay spent, whatever the
    /// ceiling. Not for the sliding log, where the old rule's [`outstanding`](Self::outstanding) units start as one entry.
    ///
    /// Between two GCRA rules the level keeps its number of units, rounded up; the same arrival time would mean another number
    /// of units. Windows with the same borders and counters with the same period are unchanged. All other states
    /// start with the counted units, rounded up.
    ///
    /// ```
    /// use sluicegate_core::algorithm::{Rule, State};
    /// use sluicegate_core::{Algorithm, Quota};
    ///
    /// let old = Rule::new(Algorithm::Gcra, Quota::per_hour(60))?;
    /// let new = Rule::new(Algorithm::Gcra, Quota::per_hour(120))?;
    /// let state = old.spend(State::REST, 0, 0, 30);
    /// // Thirty units stay thirty, and drain twice as fast from now on.
    /// let state = new.converted(&old, state, 0);
    /// assert_eq!(new.used(state, 0), 30);
    /// assert_eq!(new.reset_after_us(state, 0), 15 * 60 * 1_000_000);
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    #[must_use]
    pub fn converted(&self, from: &Self, state: State, now_us: u64) -> State {
        let carried = if self == from { Some(state) } else { self.carried(from, state, now_us) };
        carried.unwrap_or_else(|| self.holding(from.outstanding(state, now_us), now_us))
    }

    /// The state of a known key that has spent `units` at `now_us`, whatever the ceiling.
    #[must_use]
    pub fn holding(&self, units: u64, now_us: u64) -> State {
        let full = self.full(now_us);
        if units == 0 { full } else { self.spend(full, now_us, now_us, units) }
    }
}

fn missing(available: i128, of: u64) -> u64 {
    u64::try_from(i128::from(of).saturating_sub(available).max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Quota};

    fn gcra(limit: u64) -> Rule {
        Rule::new(Algorithm::Gcra, Quota::new(limit, std::time::Duration::from_secs(8))).unwrap()
    }

    /// Bucket4j's "proportional rounding" and "proportional negative": 6 per 8 becomes 3 per 8 after three eighths.
    #[test]
    fn proportional_shares_round_towards_debt_and_keep_the_fraction() {
        let old = gcra(6);
        for (charged, whole, parts_of_8) in [(6, 1, 1), (11, -2, 5)] {
            let (state, _) = old.charge(State::REST, 0, charged);
            let kept = Inherit::Proportional.units(old.available(state, 3_000_000), 6, 3).unwrap();
            assert_eq!(kept.floor(), whole);
            assert_eq!(kept.in_parts(8) - whole * 8, parts_of_8);
        }
    }
}
