//! Bars over time: [`Bars`].

use maud::{Markup, html};

use crate::number::grouped;
use crate::outline::{HEIGHT, WIDTH, highest, outlines};

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
