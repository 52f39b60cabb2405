//! Answers of a span of time, summed up: [`Samples`] and [`Window`].

use std::time::Duration;

use sluicegate_core::clock::micros;

/// One request, in thousandths.
pub(super) const ONE: u64 = 1_000;
/// A window is at least this long, and at least as long as its answers took on average.
const SHORTEST_US: u64 = 100_000;
/// Answers that take longer than this do not make a window longer.
const LONGEST_US: u64 = 10_000_000;
/// Answers that make a window meaningful, unless it lasts for [`PATIENCE_US`] or three times as long as they took.
const ENOUGH: u64 = 10;
const PATIENCE_US: u64 = 1_000_000;
/// More requests under way count as this number.
const MOST: u64 = 1_000_000;

/// The answer to a request, as a sign of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The service has done its work: the latency counts.
    Good,
    /// An error that does not speak of load. Its latency counts if it took as long as a good answer; a faster error says nothing.
    Error,
    /// The service had too much to do for it: it refused, or was too late.
    Overload,
}

/// A request that the service has answered.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what an algorithm learns of a request is this")]
pub struct Sample {
    /// The time that the service took, without the wait for a permit.
    pub latency: Duration,
    /// The number of requests under way, this one included.
    pub in_flight: u64,
    /// What the answer says.
    pub outcome: Outcome,
}

/// The latency of answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latency {
    /// A tenth is faster.
    pub(super) low_us: u64,
    pub(super) mean_us: u64,
}

/// What an algorithm learns of a span of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) end_us: u64,
    pub(super) span_us: u64,
    /// `None` if no answer says how long the service takes.
    pub(super) latency: Option<Latency>,
    /// The answers that say how long the service takes.
    pub(super) samples: u64,
    pub(super) answers: u64,
    /// The answers that speak of overload.
    pub(super) faults: u64,
    /// The most requests that were under way at once.
    pub(super) in_flight: u64,
    /// The time of all requests under way, finished or not, for each answer.
    pub(super) held_us: u64,
    /// Whether requests lacked permits, so that as many were under way as the number allows.
    pub(super) is_full: bool,
    /// Whether demand has raised the number, and it was enough.
    pub(super) is_raised: bool,
}

/// Collects answers until there are enough of them for a [`Window`].
#[derive(Clone, Debug)]
pub(super) struct Samples {
    /// The time of the last window's end, or of the last [restart](Self::restart).
    since_us: Option<u64>,
    /// The time of the last restart, until answers show the effect of the new number.
    settling_us: Option<u64>,
    times: Histogram,
    sum_us: u64,
    samples: u64,
    answers: u64,
    faults: u64,
    in_flight: u64,
    /// The time of all requests under way, up to the last answer.
    held_us: u64,
    last_us: u64,
    pub(super) is_full: bool,
    pub(super) is_raised: bool,
    /// The median of the last window, which a faster error does not reach.
    median_us: u64,
}

impl Samples {
    pub(super) fn new() -> Self {
        Self {
            since_us: None,
            settling_us: None,
            times: Histogram::new(),
            sum_us: 0,
            samples: 0,
            answers: 0,
            faults: 0,
            in_flight: 0,
            held_us: 0,
            last_us: 0,
            is_full: false,
            is_raised: false,
            median_us: 0,
        }
    }

    /// The median latency of the last window; zero before the first.
    pub(super) fn median_us(&self) -> u64 {
        self.median_us
    }

    /// The latency of the answers since the last window, if there are enough to say so.
    pub(super) fn so_far(&self) -> Option<Latency> {
        let is_enough = self.samples >= 2 * ENOUGH && self.settling_us.is_none();
        is_enough.then(|| self.latency(self.sum_us / self.samples))
    }

    fn latency(&self, mean_us: u64) -> Latency {
        Latency { low_us: self.times.percentile_us(10).max(1), mean_us: mean_us.max(1) }
    }

    /// Begins a window anew after a change of the number: when requests that begin from now on are answered.
    pub(super) fn restart(&mut self, now_us: u64) {
        self.clear(now_us);
        self.settling_us = Some(now_us);
    }

    fn settle(&mut self, now_us: u64, from_us: u64, latency_us: u64) {
        let span_us = now_us.saturating_sub(from_us);
        if latency_us > span_us {
            return;
        }
        self.sum_us = self.sum_us.saturating_add(latency_us);
        self.samples += 1;
        if span_us >= self.sum_us / self.samples {
            self.settling_us = None;
            self.clear(now_us);
        }
    }

    /// Adds an answer; returns the window that it closes, if any.
    pub(super) fn add(&mut self, now_us: u64, sample: Sample) -> Option<Window> {
        let latency_us = micros(sample.latency).min(LONGEST_LATENCY_US);
        let in_flight = sample.in_flight.min(MOST);
        if let Some(from_us) = self.settling_us {
            self.settle(now_us, from_us, latency_us);
            return None;
        }
        // The first window begins with its first request.
        let since_us = *self.since_us.get_or_insert_with(|| now_us.saturating_sub(latency_us));
        let lasted_us = now_us.saturating_sub(self.last_us.max(since_us));
        self.held_us = self.held_us.saturating_add(lasted_us.saturating_mul(in_flight));
        self.last_us = now_us;
        let is_timed = match sample.outcome {
            Outcome::Good => true,
            Outcome::Error | Outcome::Overload => self.median_us > 0 && latency_us >= self.median_us,
        };
        if is_timed {
            self.times.add(latency_us);
            self.sum_us = self.sum_us.saturating_add(latency_us);
            self.samples += 1;
        }
        self.in_flight = self.in_flight.max(in_flight);
        self.answers += 1;
        self.faults += u64::from(sample.outcome == Outcome::Overload);
        let mean_us = self.sum_us / self.samples.max(1);
        let span_us = now_us.saturating_sub(since_us);
        let is_long = span_us >= mean_us.clamp(SHORTEST_US, LONGEST_US);
        let is_enough =
            self.answers >= ENOUGH || span_us >= PATIENCE_US.max(mean_us.saturating_mul(3)).min(LONGEST_US);
        (is_long && is_enough).then(|| self.close(now_us, span_us, mean_us))
    }

    fn close(&mut self, end_us: u64, span_us: u64, mean_us: u64) -> Window {
        let latency = (self.samples > 0).then(|| self.latency(mean_us));
        if self.samples > 0 {
            self.median_us = self.times.percentile_us(50);
        }
        let Self { samples, answers, faults, in_flight, is_full, is_raised, .. } = *self;
        let held_us = self.held_us / answers.max(1);
        self.clear(end_us);
        Window { held_us, end_us, span_us, latency, samples, answers, faults, in_flight, is_full, is_raised }
    }

    fn clear(&mut self, now_us: u64) {
        self.times.clear();
        (self.sum_us, self.samples, self.answers, self.faults) = (0, 0, 0, 0);
        self.held_us = 0;
        (self.since_us, self.in_flight, self.is_full, self.is_raised) = (Some(now_us), 0, false, false);
    }
}

impl Window {
    /// Whether more than one answer in twenty speaks of overload.
    pub(super) fn is_faulty(&self) -> bool {
        self.faults * 20 > self.answers
    }
}

/// Parts of an octave, so that a part is at most a sixteenth wider than it is long.
const PARTS: usize = 1 << BITS;
const BITS: u32 = 4;
/// Longer times count as this one: 19 hours.
const LONGEST_LATENCY_US: u64 = (1 << 36) - 1;

/// Times in microseconds, counted by their size.
#[derive(Clone, Debug)]
struct Histogram(Box<[u32]>);

impl Histogram {
    fn new() -> Self {
        Self(vec![0; part_of(LONGEST_LATENCY_US) + 1].into_boxed_slice())
    }

    fn add(&mut self, us: u64) {
        let count = &mut self.0[part_of(us.min(LONGEST_LATENCY_US))];
        *count = count.saturating_add(1);
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }

    /// The time that this many percent are below, as if the times of a part were spread evenly over it. Zero without times.
    fn percentile_us(&self, percent: u64) -> u64 {
        let all: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        let mut below = 0;
        for (part, count) in self.0.iter().enumerate() {
            let count = u64::from(*count);
            if 100 * (below + count) >= percent * all && count > 0 {
                // The middle of the time's own share of the part; for a single time, the middle of the part.
                let above = (percent * all).saturating_sub(100 * below).max(1);
                return begin_of(part) + width_of(part) * above / (100 * count);
            }
            below += count;
        }
        0
    }
}

fn part_of(us: u64) -> usize {
    let octave = us.checked_ilog2().unwrap_or(0).saturating_sub(BITS);
    octave as usize * PARTS + usize::try_from(us >> octave).unwrap_or(usize::MAX)
}

fn begin_of(part: usize) -> u64 {
    let octave = (part / PARTS).saturating_sub(1);
    ((part - octave * PARTS) as u64) << octave
}

fn width_of(part: usize) -> u64 {
    1 << (part / PARTS).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn add(samples: &mut Samples, now_ms: u64, latency_ms: u64, outcome: Outcome) -> Option<Window> {
        let latency = Duration::from_millis(latency_ms);
        samples.add(now_ms * 1_000, Sample { latency, in_flight: 2, outcome })
    }

    #[test]
    fn a_window_ends_when_it_is_long_enough_and_has_answers_enough_or_after_a_second_or_three_answers() {
        let mut samples = Samples::new();
        for now_ms in 1_001..1_010 {
            assert!(add(&mut samples, now_ms * 10, 10, Outcome::Good).is_none());
        }
        let window = add(&mut samples, 10_100, 14, Outcome::Overload).expect("it has ten, in 100 ms");
        assert_eq!((window.samples, window.answers, window.faults, window.in_flight), (9, 10, 1, 2));
        assert!(add(&mut samples, 11_000, 10, Outcome::Good).is_none());
        let window = add(&mut samples, 11_101, 20, Outcome::Error).expect("a second is over");
        assert_eq!((window.samples, window.answers), (2, 2), "an error that took as long as a good answer");
        assert!(add(&mut samples, 12_601, 1_500, Outcome::Good).is_none(), "it is as long as one answer");
        assert!(add(&mut samples, 15_600, 1_500, Outcome::Good).is_none());
        let window = add(&mut samples, 15_601, 1_500, Outcome::Good).expect("it is as long as three");
        assert_eq!((window.samples, window.span_us), (3, 4_500_000));
    }

    #[test]
    fn after_a_change_of_the_number_only_answers_that_show_its_effect_count() {
        let mut samples = Samples::new();
        samples.restart(10_000_000);
        assert!(add(&mut samples, 10_030, 40, Outcome::Good).is_none(), "it began before");
        assert!(add(&mut samples, 10_050, 20, Outcome::Good).is_none(), "the window begins with it");
        let window = (0..20).find_map(|answer| add(&mut samples, 10_060 + 10 * answer, 20, Outcome::Good));
        let window = window.expect("a tenth of a second is over");
        assert_eq!((window.end_us, window.span_us, window.answers), (10_150_000, 100_000, 10));
    }

    #[test]
    fn a_clock_that_goes_back_closes_no_window_and_breaks_nothing() {
        let mut samples = Samples::new();
        assert!(add(&mut samples, 5_000, 200, Outcome::Good).is_none());
        assert!(add(&mut samples, 10, 200, Outcome::Good).is_none());
        let window =
            add(&mut samples, 5_800, 200, Outcome::Good).expect("a second is over since the first began");
        assert_eq!((window.span_us, window.answers), (1_000_000, 3));
    }

    #[test]
    fn each_part_begins_where_the_one_before_it_ends() {
        let parts = Histogram::new().0.len();
        assert_eq!(begin_of(0), 0);
        for part in 1..parts {
            assert_eq!(begin_of(part), begin_of(part - 1) + width_of(part - 1), "part {part}");
            assert_eq!((part_of(begin_of(part)), part_of(begin_of(part) - 1)), (part, part - 1));
        }
        assert_eq!(begin_of(parts - 1) + width_of(parts - 1), LONGEST_LATENCY_US + 1);
    }

    #[test]
    fn a_histogram_without_times_has_no_percentile() {
        assert_eq!(Histogram::new().percentile_us(50), 0);
    }

    proptest! {
        #[test]
        fn the_median_is_that_of_the_sorted_times_up_to_a_sixteenth(
            mut times in prop::collection::vec((0_u32..40).prop_flat_map(|bits| 0..1_u64 << bits), 1..200)
        ) {
            let mut histogram = Histogram::new();
            times.iter().for_each(|us| histogram.add(*us));
            times.sort_unstable();
            let exact = times[(times.len() - 1) / 2].min(LONGEST_LATENCY_US);
            let median = histogram.percentile_us(50);
            prop_assert!(median.abs_diff(exact) <= exact / 16 + 1, "{} is not about {}", median, exact);
        }
    }
}
