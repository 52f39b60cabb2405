//! The usual value of a series, which a part of less than half cannot move: [`TypicalValue`].
//!
//! # Source
//! Median and median absolute deviation, times 1.4826 to equal a standard deviation of normal values (Rousseeuw and Croux, 1993).

/// The usual value of a series, and how far values usually are from it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TypicalValue {
    pub(super) median: f64,
    pub(super) spread: f64,
    /// The bounds of the middle half.
    pub(super) low: f64,
    pub(super) high: f64,
}

/// A value this many spreads above the median is unusual.
const SPREADS: f64 = 6.0;

impl TypicalValue {
    /// The usual value of counts, which are never closer together than chance makes them: their spread is at least the root of the median.
    pub(super) fn of_counts(values: impl IntoIterator<Item = f64>) -> Self {
        let usual = Self::of(values, 1.0);
        Self { spread: usual.spread.max(usual.median.sqrt()), ..usual }
    }

    /// The usual value, with at least this spread.
    pub(super) fn of(values: impl IntoIterator<Item = f64>, least: f64) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let [low, median, high] = [1, 2, 3].map(|quarter| at(&values, quarter));
        let mut away: Vec<f64> = values.iter().map(|value| (value - median).abs()).collect();
        away.sort_unstable_by(f64::total_cmp);
        Self { median, spread: (1.4826 * at(&away, 2)).max(least), low, high }
    }

    /// Whether a value is far above the usual one.
    pub(super) fn is_exceeded(&self, value: f64) -> bool {
        value > self.median + SPREADS * self.spread && value > 1.5 * self.median
    }

    /// Whether a value is above the usual one by more than one spread.
    pub(super) fn is_raised(&self, value: f64) -> bool {
        value > self.median + self.spread
    }
}

/// A number of things, for a share of it or a comparison.
pub(super) fn float(count: usize) -> f64 {
    u32::try_from(count).unwrap_or(u32::MAX).into()
}

/// The value at a number of quarters of a sorted list; 0 of an empty one.
fn at(sorted: &[f64], quarters: usize) -> f64 {
    let place = (sorted.len().saturating_sub(1) * quarters).div_ceil(4);
    sorted.get(place).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_wild_values_does_not_move_what_is_usual() {
        let calm = (0..60).map(|place| f64::from(20 + place % 7));
        let alone = TypicalValue::of_counts(calm.clone());
        let mixed = TypicalValue::of_counts(calm.chain((0..30).map(|place| f64::from(500 + place))));
        assert!((mixed.median - alone.median).abs() < 3.0 && mixed.spread < 3.0 * alone.spread);
        assert!(mixed.is_exceeded(500.0) && !mixed.is_exceeded(30.0), "{mixed:?}");
    }

    #[test]
    fn an_empty_series_has_nothing_usual() {
        assert!(
            TypicalValue::of_counts([]).is_exceeded(7.0) && !TypicalValue::of_counts([]).is_exceeded(6.0)
        );
    }
}
