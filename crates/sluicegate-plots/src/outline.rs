//! The outlines of bars: [`outlines`].

use std::fmt::Write as _;

/// The size of a plot in units of its drawing, which a page scales to its own width.
pub(crate) const WIDTH: u64 = 720;
pub(crate) const HEIGHT: u64 = 120;

/// The outlines of bars in layers, as a path for each layer: all bars side by side in a drawing of this size, each layer on top of those
/// before, with heights relative to the highest bar. A bar above 0 is at least one unit high. Each layer has as many values as there are bars.
///
/// ```
/// let [allowed, rejected] = &sluicegate_plots::outlines(&[vec![3, 1], vec![1, 0]], (20, 40))[..] else { panic!("two layers") };
/// assert_eq!(allowed, "M0.0 40.0V10.0H10.0V40.0zM10.0 40.0V30.0H20.0V40.0z");
/// assert_eq!(rejected, "M0.0 10.0V0.0H10.0V10.0z");
/// ```
pub fn outlines(layers: &[Vec<u64>], (wide, tall): (u64, u64)) -> Vec<String> {
    let bars = layers.iter().map(Vec::len).max().unwrap_or_default();
    let highest = highest(layers);
    let height = |count: u64| scaled(count, tall * 10, highest);
    let mut below = vec![0_u64; bars];
    let mut paths = Vec::with_capacity(layers.len());
    for layer in layers {
        let mut path = String::new();
        for ((place, count), below) in (0_u64..).zip(layer).zip(&mut below) {
            let sides = (place * wide * 10 / bars as u64, (place + 1) * wide * 10 / bars as u64);
            let top = below.saturating_add(*count);
            if *count > 0 {
                bar(&mut path, sides, (height(*below), height(top)), tall);
            }
            *below = top;
        }
        paths.push(path);
    }
    paths
}

/// The sum of the highest bar, at least 1.
pub(crate) fn highest(layers: &[Vec<u64>]) -> u64 {
    let bars = layers.iter().map(Vec::len).max().unwrap_or_default();
    let sum = |place: usize| {
        layers
            .iter()
            .filter_map(|layer| layer.get(place))
            .fold(0_u64, |sum, count| sum.saturating_add(*count))
    };
    (0..bars).map(sum).max().unwrap_or_default().max(1)
}

/// `count * size / of`, rounded down, for counts of any size.
fn scaled(count: u64, size: u64, of: u64) -> u64 {
    u64::try_from(u128::from(count) * u128::from(size) / u128::from(of)).unwrap_or(size)
}

/// Adds a bar between two heights above the ground of a drawing this tall; the other numbers are tenths.
fn bar(path: &mut String, (left, right): (u64, u64), (low, high): (u64, u64), tall: u64) {
    let tenths = |number: u64| format!("{}.{}", number / 10, number % 10);
    // A bar with requests is always visible.
    let (bottom, top) = (tall * 10 - low, (tall * 10).saturating_sub(high.max(low + 10)));
    let [left, right, bottom, top] = [left, right, bottom, top].map(tenths);
    _ = write!(path, "M{left} {bottom}V{top}H{right}V{bottom}z");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_any_size_stay_within_the_drawing() {
        let paths = outlines(&[vec![u64::MAX, 0], vec![u64::MAX, 1]], (20, 40));
        assert_eq!(paths[0], "M0.0 40.0V0.0H10.0V40.0z");
        assert_eq!(outlines(&[vec![], vec![]], (20, 40)), ["", ""]);
    }
}
