//! A comparison as a picture: limits and latencies over time.

use std::fmt::Write as _;

use crate::adaptive::{Compared, Played};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 200.0;
const TOP: f64 = 60.0;
const GAP: f64 = 40.0;
/// Steps of the median latency.
const SLICE_US: u64 = 250_000;

/// Light and dark, by what the reader has chosen; the colours can be told apart by those who see few.
const STYLE: &str = "svg{font:13px system-ui,sans-serif;fill:#222;background:#fff}path{fill:none;stroke-width:1.5}\
.l0{stroke:#4477aa}.l1{stroke:#ee6677}.l2{stroke:#228833}.l3{stroke:#aa3377}.fixed{stroke:#222;stroke-dasharray:4 3}\
.step{stroke:#999;stroke-dasharray:2 3}\
@media(prefers-color-scheme:dark){svg{fill:#ddd;background:#111}.fixed{stroke:#ddd}}";

impl Compared {
    /// An SVG of the limits above and the median latencies below, over the time of the scene; broken upright lines are steps.
    #[must_use]
    pub fn picture(&self) -> String {
        let end_us = self.scene.seconds * 1_000_000;
        let limits: Vec<Vec<(u64, f64)>> =
            self.rows.iter().map(|row| limits_of(&row.played, end_us)).collect();
        let latencies: Vec<Vec<(u64, f64)>> =
            self.rows.iter().map(|row| latencies_of(&row.played, end_us)).collect();
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\"><style>{STYLE}</style>\n\
             <title>{}</title>\n<text x=\"10\" y=\"20\">{}: {}; work {}</text>\n",
            TOP + 2.0 * (HEIGHT + GAP),
            self.scene.name,
            self.scene.name,
            self.scene.about,
            self.times.as_str()
        );
        for (index, row) in self.rows.iter().enumerate() {
            let left = 10.0 + index as f64 * 120.0;
            let _ = writeln!(
                svg,
                "<path class=\"l{index}\" d=\"M{left} 40h24\"/><text x=\"{}\" y=\"45\">{}</text>",
                left + 30.0,
                row.algorithm
            );
        }
        let left = 10.0 + self.rows.len() as f64 * 120.0;
        let _ = writeln!(
            svg,
            "<path class=\"fixed\" d=\"M{left} 40h24\"/><text x=\"{}\" y=\"45\">best fixed</text>",
            left + 30.0
        );
        let highest = highest(&limits).max(self.best as f64);
        draw(&mut svg, TOP, &limits, end_us, highest, "at once");
        let best = TOP + HEIGHT * (1.0 - self.best as f64 / highest);
        let _ = writeln!(svg, "<path class=\"fixed\" d=\"M0 {best:.1}h{WIDTH}\"/>");
        let below = TOP + HEIGHT + GAP;
        draw(&mut svg, below, &latencies, end_us, self::highest(&latencies), "ms, median");
        for phase in &self.scene.phases[1..] {
            let x = phase.from as f64 * WIDTH / self.scene.seconds as f64;
            let _ = writeln!(svg, "<path class=\"step\" d=\"M{x:.1} {TOP}V{}\"/>", below + HEIGHT);
        }
        let _ = writeln!(
            svg,
            "<text x=\"0\" y=\"{y}\">0 s</text><text x=\"{WIDTH}\" y=\"{y}\" text-anchor=\"end\">{} s</text>\n</svg>",
            self.scene.seconds,
            y = below + HEIGHT + 20.0
        );
        svg
    }
}

fn limits_of(played: &Played, end_us: u64) -> Vec<(u64, f64)> {
    let last = played.limits.last().map(|(_, limit)| (end_us, *limit));
    played.limits.iter().copied().chain(last).map(|(at_us, limit)| (at_us, limit as f64)).collect()
}

fn latencies_of(played: &Played, end_us: u64) -> Vec<(u64, f64)> {
    let mut answers = played.answers.as_slice();
    let mut points = Vec::new();
    for slice in 0..end_us / SLICE_US {
        let end_us = (slice + 1) * SLICE_US;
        let (within, after) = answers.split_at(answers.partition_point(|answer| answer.at_us < end_us));
        answers = after;
        let mut latencies: Vec<u64> = within.iter().map(|answer| answer.latency_us).collect();
        latencies.sort_unstable();
        if let Some(median) = latencies.get(latencies.len() / 2) {
            points.push((end_us - SLICE_US / 2, *median as f64 / 1e3));
        }
    }
    points
}

fn highest(lines: &[Vec<(u64, f64)>]) -> f64 {
    lines.iter().flatten().map(|(_, value)| *value).fold(1.0, f64::max)
}

fn draw(svg: &mut String, top: f64, lines: &[Vec<(u64, f64)>], end_us: u64, highest: f64, unit: &str) {
    let _ = writeln!(svg, "<text x=\"0\" y=\"{}\">{highest:.0} {unit}</text>", top - 4.0);
    for (index, line) in lines.iter().enumerate() {
        let _ = write!(svg, "<path class=\"l{index}\" d=\"");
        for (point, (at_us, value)) in line.iter().enumerate() {
            let x = *at_us as f64 * WIDTH / end_us as f64;
            let y = top + HEIGHT * (1.0 - value / highest);
            let _ = write!(svg, "{}{x:.1} {y:.1}", if point == 0 { 'M' } else { 'L' });
        }
        svg.push_str("\"/>\n");
    }
}
