//! A small harness for comparisons: our work and a reference's in the same run, in alternating slices of time.
//!
//! Absolute nanoseconds depend on the machine and on its neighbours; the ratio of two slices that lie side by side
//! does so far less. A row therefore is a ratio, with the range in which it lay over the rounds. Criterion measures
//! one side after the other, minutes apart, and reports no ratio.
//!
//! A side is a closure that does its work as many times as it is told. Work that is async is driven inside of the
//! closure: `|times| runtime.block_on(async { for _ in 0..times { .. } })`.
#![allow(dead_code, reason = "each bench is a crate of its own and uses a part of this")]

pub(crate) mod callgrind;
pub(crate) mod cpu;

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Collects rows, prints them as they come, and writes them as JSON if asked to.
pub(crate) struct Bench {
    options: Options,
    rows: Vec<Row>,
}

/// One comparison.
pub(crate) struct Row {
    pub(crate) work: String,
    pub(crate) ours: f64,
    /// None if there is nothing to compare with.
    pub(crate) reference: Option<f64>,
    pub(crate) unit: String,
    /// Ours to the reference: the median over the rounds, the lowest and the highest.
    pub(crate) ratio: Option<[f64; 3]>,
    pub(crate) aim: Aim,
}

/// What a row has to show.
#[derive(Clone, Copy)]
pub(crate) enum Aim {
    /// Nothing; it is there to be seen.
    None,
    /// A ratio of at most this.
    Ratio(f64),
    /// A ratio of at least this, for rates.
    RatioAtLeast(f64),
    /// At most this on our side, whatever the reference does.
    Ours(f64),
    /// At least this on our side.
    OursAtLeast(f64),
}

struct Options {
    json: Option<PathBuf>,
    append: bool,
    rounds: usize,
    slice: Duration,
    filter: Option<String>,
    smoke: bool,
}

impl Bench {
    /// A bench with the options on the command line:
    /// `[FILTER] [--json FILE [--append]] [--rounds N] [--slice-ms N]`.
    ///
    /// Without the `--bench` that `cargo bench` adds, every row is tried for a moment only: that is how
    /// `cargo test --all-targets` runs it.
    pub(crate) fn from_args(title: &str) -> Self {
        let mut options = Options {
            json: None,
            append: false,
            rounds: 21,
            slice: Duration::from_millis(50),
            filter: None,
            smoke: true,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
            match arg.as_str() {
                "--json" => options.json = Some(value().into()),
                "--append" => options.append = true,
                "--rounds" => options.rounds = value().parse().expect("--rounds is a number"),
                "--slice-ms" => {
                    options.slice = Duration::from_millis(value().parse().expect("--slice-ms is a number"));
                }
                "--bench" => options.smoke = false,
                filter => options.filter = Some(filter.to_owned()),
            }
        }
        if options.smoke {
            (options.rounds, options.slice) = (1, Duration::from_micros(100));
        }
        println!("\n{title}");
        println!(
            "{:<66} {:>9} {:>9} {:<7} {:>6}  {:>12}  {:>7}",
            "work", "ours", "reference", "unit", "ratio", "low..high", "aim"
        );
        Self { options, rows: Vec::new() }
    }

    /// Whether this run only tries whether everything runs; a bench may then prepare less.
    pub(crate) fn is_smoke(&self) -> bool {
        self.options.smoke
    }

    /// How many rounds there are, and how long a side has in each, for a bench that measures by itself.
    pub(crate) fn rounds(&self) -> (usize, Duration) {
        (self.options.rounds, self.options.slice)
    }

    /// Whether a row is to be measured, for a bench that prepares much for it.
    pub(crate) fn wants(&self, work: &str) -> bool {
        self.options.filter.as_deref().is_none_or(|filter| work.contains(filter))
    }

    /// Measures nanoseconds per operation of two sides.
    pub(crate) fn compare(
        &mut self,
        work: &str,
        aim: Aim,
        mut ours: impl FnMut(u64),
        mut reference: impl FnMut(u64),
    ) {
        self.measure(work, "ns", aim, &mut [&mut ours, &mut reference]);
    }

    /// Measures what two sides add to the same base: a service without a layer, with ours and with the reference's.
    pub(crate) fn compare_added(
        &mut self,
        work: &str,
        aim: Aim,
        mut base: impl FnMut(u64),
        mut ours: impl FnMut(u64),
        mut reference: impl FnMut(u64),
    ) {
        self.measure(work, "ns more", aim, &mut [&mut ours, &mut reference, &mut base]);
    }

    fn measure(&mut self, work: &str, unit: &str, aim: Aim, sides: &mut [&mut dyn FnMut(u64)]) {
        if !self.wants(work) {
            return;
        }
        let slice = self.options.slice;
        let times: Vec<u64> = sides.iter_mut().map(|side| calibrate(slice, side)).collect();
        let mut seen: Vec<Vec<f64>> = vec![Vec::new(); sides.len()];
        for round in 0..self.options.rounds {
            // The order changes with every round, so that a drift is nobody's advantage.
            for position in 0..sides.len() {
                let side = if round % 2 == 0 { position } else { sides.len() - 1 - position };
                seen[side].push(nanos_of(times[side], sides[side]) / times[side] as f64);
            }
        }
        if let Some(base) = (sides.len() == 3).then(|| seen.pop()).flatten() {
            for side in &mut seen {
                for (nanos, base) in side.iter_mut().zip(&base) {
                    *nanos -= base;
                }
            }
        }
        let ratios: Vec<f64> =
            seen[0].iter().zip(&seen[1]).map(|(ours, reference)| ours / reference).collect();
        self.record(Row {
            work: work.to_owned(),
            ours: median(&seen[0]),
            reference: Some(median(&seen[1])),
            unit: unit.to_owned(),
            ratio: Some(spread(&ratios)),
            aim,
        });
    }

    /// Adds a row that was measured in another way.
    pub(crate) fn record(&mut self, row: Row) {
        let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), short);
        println!(
            "{:<66} {:>9} {:>9} {:<7} {:>6}  {:>12}  {:>7} {}",
            row.work,
            short(row.ours),
            optional(row.reference),
            row.unit,
            row.ratio.map_or_else(|| "-".to_owned(), |[ratio, ..]| format!("{ratio:.3}")),
            row.ratio.map_or_else(String::new, |[_, low, high]| format!("{low:.2}..{high:.2}")),
            row.aim.shown(),
            match row.is_met() {
                None => "",
                Some(true) => "ok",
                Some(false) => "missed",
            },
        );
        self.rows.push(row);
    }

    /// Prints a line under the row before it.
    pub(crate) fn note(&self, text: impl Display) {
        println!("    {text}");
    }

    /// Writes the JSON file. A missed aim is no failure: noise must not break a build.
    pub(crate) fn finish(self) -> ExitCode {
        let aims: Vec<bool> = self.rows.iter().filter_map(Row::is_met).collect();
        let met = aims.iter().filter(|&&met| met).count();
        println!("{met} of {} aims met", aims.len());
        let Some(path) = self.options.json else { return ExitCode::SUCCESS };
        let earlier = if self.options.append { std::fs::read(&path).ok() } else { None };
        let mut rows: Vec<Value> = earlier.map_or_else(Vec::new, |bytes| {
            serde_json::from_slice(&bytes).expect("the file to append to holds an array of rows")
        });
        rows.extend(self.rows.iter().map(Row::to_json));
        let text = serde_json::to_string_pretty(&rows).expect("rows are plain values");
        match std::fs::write(&path, text + "\n") {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("cannot write {}: {error}", path.display());
                ExitCode::FAILURE
            }
        }
    }
}

impl Row {
    /// A number with nothing beside it.
    pub(crate) fn alone(work: &str, unit: &str, ours: f64, aim: Aim) -> Self {
        Self { work: work.to_owned(), ours, reference: None, unit: unit.to_owned(), ratio: None, aim }
    }

    /// Two numbers that are the same in every round.
    pub(crate) fn fixed(work: &str, unit: &str, ours: f64, reference: f64, aim: Aim) -> Self {
        let ratio = ours / reference;
        let ratio = ratio.is_finite().then_some([ratio; 3]);
        Self { reference: Some(reference), ratio, ..Self::alone(work, unit, ours, aim) }
    }

    /// Two numbers per round, such as requests per second.
    pub(crate) fn of_rounds(work: &str, unit: &str, ours: &[f64], reference: &[f64], aim: Aim) -> Self {
        let ratios: Vec<f64> = ours.iter().zip(reference).map(|(ours, reference)| ours / reference).collect();
        let (ratio, reference) = (Some(spread(&ratios)), Some(median(reference)));
        Self { reference, ratio, ..Self::alone(work, unit, median(ours), aim) }
    }

    fn is_met(&self) -> Option<bool> {
        let ratio = self.ratio.map_or(f64::NAN, |[ratio, ..]| ratio);
        match self.aim {
            Aim::None => None,
            Aim::Ratio(aim) => Some(ratio <= aim),
            Aim::RatioAtLeast(aim) => Some(ratio >= aim),
            Aim::Ours(aim) => Some(self.ours <= aim),
            Aim::OursAtLeast(aim) => Some(self.ours >= aim),
        }
    }

    fn to_json(&self) -> Value {
        let (aim, unit) = match self.aim {
            Aim::None => (None, self.unit.clone()),
            Aim::Ratio(aim) => (Some(aim), self.unit.clone()),
            Aim::RatioAtLeast(aim) => (Some(aim), format!("{} (aim at least)", self.unit)),
            Aim::Ours(aim) => (Some(aim), format!("{} (aim absolute)", self.unit)),
            Aim::OursAtLeast(aim) => (Some(aim), format!("{} (aim absolute, at least)", self.unit)),
        };
        let at = |index: usize| self.ratio.map(|ratio| rounded(ratio[index]));
        json!({
            "work": self.work,
            "ours": rounded(self.ours),
            "reference": self.reference.map(rounded),
            "unit": unit,
            "ratio": at(0),
            "low": at(1),
            "high": at(2),
            "aim": aim,
        })
    }
}

impl Aim {
    fn shown(self) -> String {
        match self {
            Self::None => String::new(),
            Self::Ratio(aim) => format!("<={aim:.2}"),
            Self::RatioAtLeast(aim) => format!(">={aim:.2}"),
            Self::Ours(aim) => format!("<={aim} abs"),
            Self::OursAtLeast(aim) => format!(">={aim} abs"),
        }
    }
}

/// Runs a closure on several threads at once and waits for all. A slice of it is the time of the slowest, so that a
/// row of it shows nanoseconds per operation of one thread.
pub(crate) fn on_threads(threads: usize, work: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for thread in 1..threads {
            let work = &work;
            scope.spawn(move || work(thread));
        }
        work(0);
    });
}

/// How often a side fits in a slice; warms it up, too.
fn calibrate(slice: Duration, side: &mut dyn FnMut(u64)) -> u64 {
    let mut times = 1;
    loop {
        let mut nanos = nanos_of(times, side);
        if nanos * 4.0 >= slice.as_nanos() as f64 {
            // Twice, or one preemption would pass for a slow side and leave it with slices of a few operations.
            nanos = nanos.min(nanos_of(times, side));
        }
        if nanos * 4.0 >= slice.as_nanos() as f64 {
            #[expect(clippy::cast_possible_truncation, reason = "a count of operations")]
            return ((slice.as_nanos() as f64 / nanos * times as f64) as u64).max(1);
        }
        times *= 2;
    }
}

fn nanos_of(times: u64, side: &mut dyn FnMut(u64)) -> f64 {
    let start = Instant::now();
    side(times);
    start.elapsed().as_nanos() as f64
}

fn median(values: &[f64]) -> f64 {
    spread(values)[0]
}

/// The median, the lowest and the highest.
fn spread(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (middle, last) = (sorted.len() / 2, sorted.len() - 1);
    let median =
        if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
    [median, sorted[0], sorted[last]]
}

fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}
