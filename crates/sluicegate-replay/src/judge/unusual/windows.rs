//! The windows of time of a log, in which it is compared with itself: [`Windows`].

use std::collections::HashMap;
use std::ops::Range;

use super::cells::MinuteCell;

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
