//! The windows of time of a log, in which it is compared with itself: [`Windows`].

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::judge::unusual::UnusualPart;
use crate::judge::unusual::cells::{MinuteCell, MinuteCells};
use crate::outcome::UnusualKind;

/// The widths of windows that are tried, in minutes.
const WIDTHS: [u32; 6] = [1, 5, 15, 60, 240, 1_440];

/// The windows of a log that have requests, in order.
///
/// They are as narrow as possible while at least half of all windows have requests: hours for a quiet site, minutes for a busy one.
#[derive(Debug)]
pub(super) struct Windows {
    /// The width in minutes.
    pub(super) width: u32,
    /// The cells of each window.
    pub(super) all: Vec<Range<usize>>,
}

/// The requests and clients of a window that share a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowValue {
    pub(super) value: u32,
    pub(super) requests: u64,
    pub(super) clients: u64,
    /// The requests of the busiest client.
    pub(super) most: u64,
}

impl Windows {
    pub(super) fn of(cells: &[MinuteCell]) -> Self {
        let cut = |width: u32| {
            let mut all: Vec<Range<usize>> = Vec::new();
            for chunk in cells.chunk_by(|one, next| one.minute / width == next.minute / width) {
                let begin = all.last().map_or(0, |last| last.end);
                all.push(begin..begin + chunk.len());
            }
            Self { width, all }
        };
        let is_enough = |windows: &Self| match (cells.first(), cells.last()) {
            (Some(first), Some(last)) => {
                let possible = last.minute / windows.width - first.minute / windows.width + 1;
                windows.all.len() * 2 >= possible as usize
            }
            _ => true,
        };
        let all = WIDTHS.iter().map(|width| cut(*width));
        all.into_iter().find(is_enough).unwrap_or_else(|| cut(WIDTHS[WIDTHS.len() - 1]))
    }

    /// The width in words, as a rate has it.
    pub(super) fn per(&self) -> &'static str {
        match self.width {
            1 => "a minute",
            5 => "in 5 minutes",
            15 => "in 15 minutes",
            60 => "an hour",
            240 => "in 4 hours",
            _ => "a day",
        }
    }

    /// The requests of a window by a value of its cells, for values of at least this many clients.
    pub(super) fn shared(
        &self,
        cells: &[MinuteCell],
        window: usize,
        value: impl Fn(&MinuteCell) -> Option<u32>,
        least: u64,
    ) -> Vec<WindowValue> {
        let cells = &cells[self.all[window].clone()];
        let mut counts: HashMap<(u32, u32), u64> = HashMap::new();
        for cell in cells {
            if let Some(value) = value(cell) {
                *counts.entry((value, cell.client)).or_default() += u64::from(cell.count);
            }
        }
        let mut shared: HashMap<u32, WindowValue> = HashMap::new();
        for ((value, _), count) in counts {
            let of = shared.entry(value).or_insert(WindowValue { value, requests: 0, clients: 0, most: 0 });
            of.requests += count;
            of.clients += 1;
            of.most = of.most.max(count);
        }
        let mut shared: Vec<WindowValue> = shared.into_values().filter(|of| of.clients >= least).collect();
        shared.sort_unstable_by_key(|of| (std::cmp::Reverse(of.requests), of.value));
        shared
    }
}

/// Runs of windows for which `is_it` is true, with up to two others between them as part of a run. A run begins as early as `is_raised` has
/// been true without end before it, and ends as late.
pub(super) fn episodes(
    windows: usize,
    is_it: impl Fn(usize) -> bool,
    is_raised: impl Fn(usize) -> bool,
) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for window in (0..windows).filter(|window| is_it(*window)) {
        let before = runs.last().map_or(0, |run| run.end);
        let begin = (before..window).rev().take_while(|before| is_raised(*before)).last().unwrap_or(window);
        let end =
            (window + 1..windows).take_while(|after| is_raised(*after)).last().map_or(window, |last| last)
                + 1;
        match runs.last_mut() {
            Some(run) if begin <= run.end + 2 => run.end = run.end.max(end),
            _ => runs.push(begin..end),
        }
    }
    runs
}

// Clients that ask minute after minute at one rate: [`even`].
//
// It compares clients with each other instead of windows, so it also finds an attack that lasts from the first line to the last. People
// come in bursts: the variance of their requests per minute is far above the mean.

/// The least number of minutes of a client, without its first and its last one.
const FEWEST_MINUTES: f64 = 3.0;
/// The least number of such clients that are unusual together.
const FEWEST: usize = 30;
/// Requests that come by chance have a variance that equals their mean; those of a program have a lower one.
const EVEN: f64 = 1.5;

/// The requests of a client per minute, without its first and its last minute, in which it was only partly there.
#[derive(Clone, Copy, Debug, Default)]
struct Minutes {
    first: u32,
    last: u32,
    /// The requests of its last minute.
    in_last: f64,
    count: f64,
    sum: f64,
    squares: f64,
    requests: u64,
}

impl Minutes {
    fn add(&mut self, cell: &MinuteCell) {
        if self.requests == 0 {
            self.first = cell.minute;
        } else if self.last != cell.minute {
            if self.last != self.first {
                self.count += 1.0;
                self.sum += self.in_last;
                self.squares += self.in_last * self.in_last;
            }
            self.in_last = 0.0;
        }
        self.last = cell.minute;
        self.in_last += f64::from(cell.count);
        self.requests += u64::from(cell.count);
    }

    /// The requests in a minute and their variance as a part of that, if the client has come nearly every minute and about as often.
    fn rate(&self) -> Option<(f64, f64)> {
        let mean = self.sum / self.count.max(1.0);
        let variance = (self.squares / self.count.max(1.0) - mean * mean).max(0.0);
        let possible = f64::from(self.last - self.first) - 1.0;
        let is_even = self.count >= FEWEST_MINUTES
            && self.count >= 0.8 * possible
            && mean >= 2.0
            && variance <= EVEN * mean;
        is_even.then_some((mean, variance / mean))
    }
}

/// The clients that ask evenly, if there are many of them and they make more than half of the requests of their time.
pub(super) fn even(cells: &MinuteCells, weight: u64) -> Option<UnusualPart> {
    let mut clients: HashMap<u32, Minutes> = HashMap::new();
    cells.all.iter().for_each(|cell| clients.entry(cell.client).or_default().add(cell));
    let rates = clients.iter().filter_map(|(client, minutes)| Some((*client, minutes.rate()?)));
    let mut rates: Vec<(u32, (f64, f64))> = rates.collect();
    rates.sort_unstable_by_key(|(client, _)| *client);
    // The rate that most clients have, to the next whole number.
    let mut common: BTreeMap<u64, usize> = BTreeMap::new();
    rates.iter().for_each(|(_, (rate, _))| *common.entry(whole(*rate)).or_default() += 1);
    let (rate, _) = common.into_iter().max_by_key(|(rate, clients)| (*clients, std::cmp::Reverse(*rate)))?;
    let rate = f64::from(u32::try_from(rate).ok()?);
    let is_alike = |(client, (own, _)): &&(u32, (f64, f64))| {
        let by_chance = (rate / clients[client].count.max(1.0)).sqrt();
        (own - rate).abs() <= (0.1 * rate).max(3.0 * by_chance).max(1.0)
    };
    rates.retain(|known| is_alike(&known));
    // If most clients are as even as a clock, a person with about the same rate is not one of them.
    let usual = TypicalValue::of(rates.iter().map(|(_, (_, variance))| *variance), 0.0).median;
    rates.retain(|(_, (_, variance))| *variance <= (3.0 * usual).max(0.3));
    let alike: Vec<u32> = rates.iter().map(|(client, _)| *client).collect();
    let of = || alike.iter().map(|client| &clients[client]);
    let minutes = (of().map(|of| of.first).min()?, of().map(|of| of.last).max()? + 1);
    let requests: u64 = of().map(|of| of.requests).sum();
    let at_that_time = cells.all.iter().filter(|cell| (minutes.0..minutes.1).contains(&cell.minute));
    let all: u64 = at_that_time.map(|cell| u64::from(cell.count)).sum();
    let what = format!(
        "clients that ask evenly: {} come every minute, {rate} times each; they make {} % of the requests",
        alike.len() as u64 * weight,
        requests * 100 / all.max(1)
    );
    (alike.len() >= FEWEST && requests * 2 > all).then(|| UnusualPart {
        kind: UnusualKind::Even,
        what,
        minutes,
        requests: requests * weight,
        keys: alike.len() as u64 * weight,
        clients: alike,
    })
}

/// The next whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are positive and below 2^32"
)]
fn whole(rate: f64) -> u64 {
    rate.round() as u64
}

// The usual value of a series, which a part of less than half cannot move: [`TypicalValue`].
//
// # Source
// Median and median absolute deviation, times 1.4826 to equal a standard deviation of normal values (Rousseeuw and Croux, 1993).

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
    fn a_quiet_log_has_wide_windows_and_a_busy_one_narrow_ones() {
        let log = |minutes: u32, every: u32| -> Vec<MinuteCell> {
            let minutes = (0..minutes).step_by(every as usize);
            minutes.map(|minute| MinuteCell { minute, client: 0, agent: 0, path: 0, count: 1 }).collect()
        };
        let width = |minutes, every| Windows::of(&log(minutes, every)).width;
        assert_eq!([width(600, 1), width(600, 2), width(600, 3), width(6_000, 60)], [1, 1, 5, 60]);
        let windows = Windows::of(&log(6_000, 60));
        assert_eq!((windows.all.len(), windows.all[3].clone(), windows.per()), (100, 3..4, "an hour"));
    }

    #[test]
    fn an_episode_begins_where_its_ramp_does() {
        let values = [1, 1, 2, 3, 5, 9, 9, 1, 9, 2, 1, 1, 1, 1, 9, 1];
        let runs = episodes(values.len(), |at| values[at] > 6, |at| values[at] > 1);
        assert_eq!(runs, [2..10, 14..15]);
    }
}

#[cfg(test)]
mod robust_tests {
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
