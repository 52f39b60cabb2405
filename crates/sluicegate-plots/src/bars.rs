//! Bars over time: [`Bars`].

use std::fmt::{Display, Write as _};

use maud::{Markup, html};

/// Bars over time, in layers that stand on top of each other, with a scale, times, the value under the pointer and a table.
///
/// The outline of each layer is one path, because a browser draws one path faster than a thousand elements; it stretches to the width of
/// the page, and text beside it does not.
#[derive(Clone, Debug)]
#[must_use = "a plot is nothing until it is drawn"]
pub struct Bars {
    title: String,
    caption: String,
    unit: &'static str,
    at: Vec<String>,
    marks: Vec<String>,
    layers: Vec<Layer>,
}

/// A kind of bar.
#[derive(Clone, Debug)]
struct Layer {
    name: &'static str,
    color: &'static str,
    values: Vec<Option<u64>>,
}

impl Bars {
    /// A plot with this title, which names it for readers who do not see it.
    pub fn new(title: impl Into<String>) -> Self {
        let title = title.into();
        Self {
            title,
            caption: String::new(),
            unit: "",
            at: Vec::new(),
            marks: Vec::new(),
            layers: Vec::new(),
        }
    }

    /// Sets the text above the bars, after the names of the layers: the time that a bar covers, and what is counted. Default: none.
    pub fn caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = caption.into();
        self
    }

    /// Sets the unit of the values, as it follows a number: ` ms`. Default: none.
    pub fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// Sets the moments at which the bars begin, in their order.
    pub fn at(mut self, moments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.at = moments.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the times below the bars: at equal distances from the beginning of the first to the end of the last. Default: none.
    pub fn marks(mut self, marks: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.marks = marks.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a layer on top of those before: its name in words, its color (`allowed`, `rejected`, or another that the page defines), and a value for each moment, or none
    /// where nothing is known.
    pub fn layer(
        mut self,
        name: &'static str,
        color: &'static str,
        values: impl IntoIterator<Item = Option<u64>>,
    ) -> Self {
        self.layers.push(Layer { name, color, values: values.into_iter().collect() });
        self
    }

    /// The plot as HTML.
    pub fn draw(&self) -> String {
        let Self { title, caption, at, marks, layers, unit } = self;
        let values: Vec<Vec<u64>> = layers
            .iter()
            .map(|layer| layer.values.iter().map(|value| value.unwrap_or_default()).collect())
            .collect();
        let paths = outlines(&values, (WIDTH, HEIGHT));
        let top = highest(&values);
        html! {
            figure.plotted {
                figcaption {
                    @for Layer { name, color, .. } in layers { span class=(color) { "■ " (name) } " " }
                    (caption)
                }
                div.plot {
                    div.up aria-hidden="true" {
                        span { (grouped(top)) (unit) }
                        @if top > 1 { span { (grouped(top / 2)) (unit) } }
                        span { "0" }
                    }
                    svg role="img" aria-label=(format!("{title}, as a table below")) {
                        svg width="100%" height="100%" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" {
                            path.line d=(format!("M0 {}H{WIDTH}", HEIGHT / 2)) {}
                            @for (path, layer) in paths.iter().zip(layers) { path class=(layer.color) d=(path) {} }
                        }
                        @for place in 0..at.len() { (self.under(place)) }
                    }
                    @if !marks.is_empty() { div.marks { @for mark in marks { span { (mark) } } } }
                }
                (self.table())
            }
        }
        .into_string()
    }

    /// The value of a bar, which is seen while the pointer is over it, or over the room above it.
    fn under(&self, place: usize) -> Markup {
        let share = |place: usize| format!("{:.3}%", ratio(place, self.at.len()));
        let anchor = match place * 3 / self.at.len().max(1) {
            0 => ("start", "0"),
            1 => ("middle", "50%"),
            _ => ("end", "100%"),
        };
        let numbers =
            self.layers.iter().filter_map(|layer| Some((layer, layer.values.get(place).copied().flatten()?)));
        let numbers: Vec<String> =
            numbers.map(|(layer, value)| format!("{}{} {}", grouped(value), self.unit, layer.name)).collect();
        html! {
            @if !numbers.is_empty() {
                g.under {
                    rect x=(share(place)) width=(share(1)) height="100%" {}
                    text x=(anchor.1) y="1em" text-anchor=(anchor.0) { (self.at[place]) ": " (numbers.join(", ")) }
                }
            }
        }
    }

    fn table(&self) -> Markup {
        let Self { title, at, layers, unit, .. } = self;
        html! {
            details {
                summary { (title) " as a table" }
                table {
                    thead { tr { th scope="col" { "from (UTC)" } @for layer in layers { th.number scope="col" { (layer.name) } } } }
                    tbody {
                        @for (place, moment) in at.iter().enumerate() {
                            tr {
                                th scope="row" { (moment) }
                                @for Layer { name, values, .. } in layers {
                                    td.number data-label=(name) {
                                        @match values.get(place).copied().flatten() {
                                            Some(value) => { (grouped(value)) (unit) },
                                            None => "-",
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// This part of the whole, in percent.
#[expect(clippy::cast_precision_loss, reason = "a place on a screen")]
fn ratio(place: usize, of: usize) -> f64 {
    place as f64 * 100.0 / of.max(1) as f64
}

// The outlines of bars: [`outlines`].

/// The size of a plot in units of its drawing, which a page scales to its own width.
const WIDTH: u64 = 720;
const HEIGHT: u64 = 120;

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
fn highest(layers: &[Vec<u64>]) -> u64 {
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

// The part of a whole: [`part`].

/// A bar as long as its part of the largest one, in the color of what was `rejected` or `allowed`. A part above nothing is always visible.
/// The number stands beside it, so readers who do not see it miss nothing.
///
/// ```
/// assert!(sluicegate_plots::part(25, 100, "rejected").contains(r#"class="rejected" width="25""#));
/// ```
pub fn part(count: u64, largest: u64, color: &str) -> String {
    let width = u128::from(count) * 100 / u128::from(largest.max(1));
    html! {
        svg.part viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
            rect class=(color) width=(width.clamp(u128::from(count > 0), 100)) height="8" {}
        }
    }
    .into_string()
}

// Numbers as people write them.

/// Writes a number with commas between its thousands, as `12,345`.
pub fn grouped(number: impl Display) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_a_scale_times_values_and_a_table_and_no_script() {
        let plot = Bars::new("Latency <b>")
            .caption("in two minutes")
            .unit(" ms")
            .at(["14:00", "14:02"])
            .marks(["14:00", "14:04"]);
        let drawn = plot.layer("median", "allowed", [Some(1_200), None]).draw();
        for part in [
            "<span>1,200 ms</span><span>600 ms</span><span>0</span>",
            "Latency &lt;b&gt;, as a table below",
            "14:00: 1,200 ms median</text>",
            "<td class=\"number\" data-label=\"median\">-</td>",
            "<span>14:04</span>",
            "in two minutes",
        ] {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
        assert!(
            !drawn.contains("style") && !drawn.contains("<script") && !drawn.contains("14:02: "),
            "{drawn}"
        );
    }

    #[test]
    fn a_plot_of_nothing_is_drawn() {
        let drawn = Bars::new("Requests").layer("allowed", "allowed", []).draw();
        assert!(drawn.contains("<figure") && !drawn.contains("NaN"), "{drawn}");
        let drawn = Bars::new("Requests").at(["14:00"]).layer("allowed", "allowed", [Some(0)]).draw();
        assert!(drawn.contains("14:00: 0 allowed") && drawn.contains("d=\"\""), "{drawn}");
    }
}

#[cfg(test)]
mod outline_tests {
    use super::*;

    #[test]
    fn bars_of_any_size_stay_within_the_drawing() {
        let paths = outlines(&[vec![u64::MAX, 0], vec![u64::MAX, 1]], (20, 40));
        assert_eq!(paths[0], "M0.0 40.0V0.0H10.0V40.0z");
        assert_eq!(outlines(&[vec![], vec![]], (20, 40)), ["", ""]);
    }
}

#[cfg(test)]
mod number_tests {
    use super::*;

    #[test]
    fn thousands_are_told_apart() {
        let read = [1, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(read, ["1", "999", "1,000", "1,234,567"]);
    }
}
