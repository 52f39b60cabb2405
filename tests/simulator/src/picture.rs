//! A run as a picture.

use std::fmt::Write as _;

use crate::fault::Fault;
use crate::log::Slice;
use crate::network::Cut;
use crate::run::Run;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 300.0;
const TOP: f64 = 40.0;

/// Light and dark, by what the reader has chosen.
const STYLE: &str = "svg{font:13px system-ui,sans-serif;fill:#222;background:#fff}\
.store{fill:#4477aa}.local{fill:#66ccee}.alone{fill:#ee6677}.ideal{fill:none;stroke:#222;stroke-width:1.5}\
.fault{stroke:#aa3377;stroke-width:1;stroke-dasharray:2 3}\
@media(prefers-color-scheme:dark){svg{fill:#ddd;background:#111}.ideal{stroke:#ddd}}";

impl Run {
    /// An SVG of what was admitted over time, by whom, beside what one exact store would have admitted; broken lines are faults.
    #[must_use]
    pub fn picture(&self) -> String {
        let slices = &self.log.slices;
        let admitted = |slice: &Slice| slice.by_store + slice.locally + slice.alone;
        let highest = slices.iter().map(|slice| admitted(slice).max(slice.ideal)).max().unwrap_or(0).max(1);
        let (step, unit) = (WIDTH / slices.len() as f64, HEIGHT / highest as f64);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\"><style>{STYLE}</style>\n\
             <title>Units admitted over time</title>\n",
            HEIGHT + TOP + 30.0
        );
        let names = [
            ("store", "by the store"),
            ("local", "locally, by its knowledge"),
            ("alone", "by instances alone"),
        ];
        for (index, (class, name)) in names.iter().enumerate() {
            let left = 10.0 + index as f64 * 210.0;
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{left}\" y=\"10\" width=\"12\" height=\"12\"/><text x=\"{}\" y=\"21\">{name}</text>",
                left + 18.0
            );
        }
        let _ = writeln!(
            svg,
            "<path class=\"ideal\" d=\"M640 16h24\"/><text x=\"670\" y=\"21\">by one exact store</text>"
        );
        for (index, slice) in slices.iter().enumerate() {
            let mut below = TOP + HEIGHT;
            for (class, units) in
                [("store", slice.by_store), ("local", slice.locally), ("alone", slice.alone)]
            {
                let height = units as f64 * unit;
                below -= height;
                if units > 0 {
                    let left = index as f64 * step;
                    let _ = writeln!(
                        svg,
                        "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{below:.1}\" width=\"{step:.1}\" height=\"{height:.1}\"/>"
                    );
                }
            }
        }
        svg.push_str("<path class=\"ideal\" d=\"");
        for (index, slice) in slices.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            let _ = write!(
                svg,
                "{command}{:.1} {:.1}",
                (index as f64 + 0.5) * step,
                TOP + HEIGHT - slice.ideal as f64 * unit
            );
        }
        svg.push_str("\"/>\n");
        for (at_us, fault) in &self.faults {
            let left = *at_us as f64 * WIDTH / self.lasted_us.max(1) as f64;
            let name = match fault {
                Fault::Crash(_) => "crash",
                Fault::Close(_) => "close",
                Fault::Part(_, Cut::Whole) | Fault::Start(_) => continue,
                Fault::Part(..) => "partition",
                Fault::Pause(..) => "pause",
                Fault::Flush => "flush",
                Fault::Failover(_) => "failover",
                Fault::Replace => "replace",
                Fault::Reset(_) => "reset",
            };
            let _ = writeln!(
                svg,
                "<path class=\"fault\" d=\"M{left:.1} {TOP}v{HEIGHT}\"><title>{name}</title></path>"
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"10\" y=\"{y}\">0 s</text><text x=\"{WIDTH}\" y=\"{y}\" text-anchor=\"end\">{:.1} s</text>\n</svg>",
            self.lasted_us as f64 / 1e6,
            y = TOP + HEIGHT + 20.0
        );
        svg
    }
}
