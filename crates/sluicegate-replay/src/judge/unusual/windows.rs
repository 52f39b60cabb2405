//! The windows of time of a log, in which it is compared with itself: [`Windows`].

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::net::IpAddr;
use std::ops::Range;

use foldhash::fast::RandomState;
use ipnet::IpNet;

use crate::judge::figures::MINUTE_US;
use crate::judge::keys::{Slots, hash_of, next_number};
use crate::judge::suggest::mixed;
use crate::judge::unusual::UnusualPart;
use crate::outcome::UnusualKind;
use crate::read::{Came, NO_CLIENT, network_of};

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

// Requests by minute, client, user agent and path: [`MinuteCells`].
//
// # Bounds
// A cell takes 16 bytes, and there are at most two million. A log with more keeps the cells of half of its clients, drawn by a hash of
// their numbers, next time of a quarter, and so on. Clients are drawn instead of requests, because all requests of a client characterize it.
// Each client takes about 80 bytes.

/// The most cells that are kept.
const MOST: usize = 2 << 20;

/// Equal requests of a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MinuteCell {
    /// The minute since the Unix epoch.
    pub(super) minute: u32,
    pub(super) client: u32,
    pub(super) agent: u16,
    pub(super) path: u16,
    pub(super) count: u32,
}

/// Requests of a log in their order, put together by minute, client, user agent and path.
#[derive(Debug)]
pub(in crate::judge) struct MinuteCells {
    /// Complete minutes, in order.
    pub(super) all: Vec<MinuteCell>,
    /// The requests of the last minute.
    open: Vec<MinuteCell>,
    most: usize,
    /// One in 2^level clients is kept.
    pub(super) level: u32,
    /// The numbers of clients, known by the bits of their addresses.
    numbers: Slots<u128>,
    hasher: RandomState,
    pub(super) addresses: Vec<IpAddr>,
    /// Networks whose clients are left out by hand, and whether each client is in one.
    without: Vec<IpNet>,
    is_left_out: Vec<bool>,
}

impl MinuteCells {
    /// No cells; clients of these networks are left out by hand.
    pub(in crate::judge) fn new(without: Vec<IpNet>) -> Self {
        Self {
            all: Vec::new(),
            open: Vec::new(),
            most: MOST,
            level: 0,
            numbers: Slots::default(),
            hasher: RandomState::default(),
            addresses: Vec::new(),
            without,
            is_left_out: Vec::new(),
        }
    }

    /// The numbers of the clients of a batch.
    pub(in crate::judge) fn clients(&mut self, addresses: impl Iterator<Item = Option<IpAddr>>) -> Vec<u32> {
        let hashed = |address| hashed(&self.hasher, address);
        let batch: Vec<Option<(usize, u128)>> = addresses.map(|address| address.map(hashed)).collect();
        // Each client is somewhere else in memory, as each key is: see `RowKeys::numbered`.
        black_box(batch.iter().flatten().fold(0, |seen, (hash, _)| seen ^ self.numbers.glance(*hash)));
        batch.into_iter().map(|client| client.map_or(NO_CLIENT, |client| self.client(client))).collect()
    }

    /// The number of a client: a new one for a client that was not seen before.
    fn client(&mut self, (hash, bits): (usize, u128)) -> u32 {
        if self.numbers.is_full() {
            self.numbers.widen(self.addresses.iter().map(|address| hashed(&self.hasher, *address)));
        }
        self.numbers.find(hash, |_, known| known == bits).unwrap_or_else(|place| {
            let number = next_number(self.addresses.len());
            let address = IpAddr::from(bits.to_be_bytes()).to_canonical();
            self.numbers.put(place, number, bits);
            self.addresses.push(address);
            self.is_left_out.push(self.without.iter().any(|network| network.contains(&address)));
            number
        })
    }

    /// Whether the client is in a network that is left out by hand.
    pub(in crate::judge) fn is_left_out(&self, client: u32) -> bool {
        self.is_left_out.get(client as usize).copied().unwrap_or(false)
    }

    /// Counts a request. Requests come in the order of time, as far as minutes go.
    pub(in crate::judge) fn count(&mut self, at_us: u64, came: Came) {
        let Came { client, agent, path, .. } = came;
        if client == NO_CLIENT || !is_drawn(client, self.level) {
            return;
        }
        let minute = u32::try_from(at_us / MINUTE_US).unwrap_or(u32::MAX);
        if self.open.first().is_some_and(|open| open.minute != minute) {
            self.close();
        }
        self.open.push(MinuteCell { minute, client, agent, path, count: 1 });
    }

    /// Puts the requests of the last minute together.
    pub(super) fn close(&mut self) {
        self.open.sort_unstable();
        for cell in self.open.drain(..) {
            match self.all.last_mut() {
                Some(last) if (MinuteCell { count: cell.count, ..*last }) == cell => last.count += 1,
                _ => self.all.push(cell),
            }
        }
        while self.all.len() > self.most {
            self.level += 1;
            self.all.retain(|cell| is_drawn(cell.client, self.level));
        }
    }

    /// The number of clients that one of the kept ones stands for.
    pub(super) fn weight(&self) -> u64 {
        1 << self.level
    }
}

/// The hash and the bits of an address; an IPv4 address has those of the IPv6 address that stands for it.
fn hashed(hasher: &RandomState, address: IpAddr) -> (usize, u128) {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
    .to_bits();
    (hash_of(hasher, bits), bits)
}

fn is_drawn(client: u32, level: u32) -> bool {
    level == 0 || mixed(client).trailing_zeros() >= level
}

// Separates the clients that make an unusual part from ordinary clients at the same time: [`members`].
//
// # Method
// Other times give the number of ordinary clients among the candidates, and their properties: how often they come,
// for how many minutes, with which agent, for which path, with how many neighbors in their network. Properties that are too frequent among
// the candidates belong to the others. A candidate is a member if it resembles the others more.
//
// # Source
// A naive Bayes classifier. Its second class is the rest of a mixture after a known part of a known first class is subtracted.

/// The number of properties by which clients are compared.
const LOOKS: usize = 5;

/// With fewer ordinary clients than this, nothing is known of how they look.
const FEWEST_ORDINARY: usize = 20;

/// The requests of a client, summed up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClientSum {
    pub(super) requests: u64,
    pub(super) minutes: u64,
    last_minute: u32,
    agent: Vote,
    path: Vote,
}

/// The value that is ahead among all requests of a client.
#[derive(Clone, Copy, Debug, Default)]
struct Vote {
    value: u16,
    votes: u64,
}

impl Vote {
    fn cast(&mut self, value: u16, votes: u64) {
        if self.value == value {
            self.votes += votes;
        } else if self.votes >= votes {
            self.votes -= votes;
        } else {
            *self = Self { value, votes: votes - self.votes };
        }
    }
}

impl ClientSum {
    fn add(&mut self, cell: &MinuteCell) {
        if self.minutes == 0 || self.last_minute != cell.minute {
            self.minutes += 1;
            self.last_minute = cell.minute;
        }
        self.requests += u64::from(cell.count);
        self.agent.cast(cell.agent, cell.count.into());
        self.path.cast(cell.path, cell.count.into());
    }

    /// Its properties, each as a small number.
    fn looks(&self, neighbours: u64) -> [u32; LOOKS] {
        // Half an octave a step: 6 a minute and 7 a minute look alike.
        let halves =
            self.requests.saturating_mul(self.requests) / self.minutes.saturating_mul(self.minutes).max(1);
        [
            halves.max(1).ilog2(),
            self.minutes.max(1).ilog2(),
            self.agent.value.into(),
            self.path.value.into(),
            neighbours.max(1).ilog2(),
        ]
    }
}

/// The sums of clients over these cells, of those clients for which `is_it` is true.
pub(super) fn sums<'a>(
    cells: impl IntoIterator<Item = &'a MinuteCell>,
    is_it: impl Fn(u32) -> bool,
) -> HashMap<u32, ClientSum> {
    let mut sums: HashMap<u32, ClientSum> = HashMap::new();
    for cell in cells.into_iter().filter(|cell| is_it(cell.client)) {
        sums.entry(cell.client).or_default().add(cell);
    }
    sums
}

/// The candidates that look less like ordinary clients than like the others, in the order of their numbers. `expected` is the number of ordinary
/// clients among them.
pub(super) fn members(
    candidates: &HashMap<u32, ClientSum>,
    ordinary: &HashMap<u32, ClientSum>,
    expected: f64,
    addresses: &[IpAddr],
) -> Vec<u32> {
    let mut numbers: Vec<u32> = candidates.keys().copied().collect();
    numbers.sort_unstable();
    let all = float(candidates.len());
    let others = (all - expected).max(1.0);
    if ordinary.len() < FEWEST_ORDINARY {
        return numbers;
    }
    let [of_candidates, of_ordinary] = [candidates, ordinary].map(|clients| looks(clients, addresses));
    let [among, usually] = [&of_candidates, &of_ordinary].map(histograms);
    let usual = |property: usize, value: u32| {
        let of = &usually[property];
        (of.get(&value).copied().unwrap_or(0.0) + 1.0) / (float(ordinary.len()) + float(of.len()) + 1.0)
    };
    let begin = (others / expected.max(0.5)).ln();
    let is_member = |client: &u32| {
        let Some(looks) = of_candidates.get(client) else { return false };
        let sum: f64 = looks
            .iter()
            .enumerate()
            .map(|(property, value)| {
                let usual = usual(property, *value);
                let here = among[property].get(value).copied().unwrap_or(0.0);
                ((here - expected.min(all) * usual).max(0.5) / others / usual).ln()
            })
            .sum();
        begin + sum > 0.0
    };
    numbers.retain(is_member);
    numbers
}

/// The looks of each client.
fn looks(clients: &HashMap<u32, ClientSum>, addresses: &[IpAddr]) -> HashMap<u32, [u32; LOOKS]> {
    let network = |client: u32| addresses.get(client as usize).map(|address| network_of(*address));
    let mut neighbours = HashMap::new();
    clients.keys().for_each(|client| *neighbours.entry(network(*client)).or_insert(0_u64) += 1);
    let of = |(client, sum): (&u32, &ClientSum)| (*client, sum.looks(neighbours[&network(*client)]));
    clients.iter().map(of).collect()
}

/// The number of clients with each value of each property.
fn histograms(clients: &HashMap<u32, [u32; LOOKS]>) -> [HashMap<u32, f64>; LOOKS] {
    let mut all: [HashMap<u32, f64>; LOOKS] = Default::default();
    for looks in clients.values() {
        for (of, value) in all.iter_mut().zip(looks) {
            *of.entry(*value).or_default() += 1.0;
        }
    }
    all
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

#[cfg(test)]
mod cells_tests {
    use super::*;

    fn came(client: u32, path: u16) -> Came {
        Came { at_us: 0, is_whole: true, status: None, client, agent: 1, path }
    }

    #[test]
    fn equal_requests_of_a_minute_are_one_cell() {
        let mut cells = MinuteCells::new(vec!["198.51.100.0/24".parse().unwrap()]);
        let addresses = ["192.0.2.1", "198.51.100.7", "-", "::ffff:192.0.2.1"];
        let clients = cells.clients(addresses.iter().map(|text| text.parse().ok()));
        let [one, other, none, again] = clients[..] else { panic!("one was lost: {clients:?}") };
        assert_eq!((one, other, none, again), (0, 1, NO_CLIENT, one));
        assert_eq!(cells.addresses[0], addresses[0].parse::<IpAddr>().unwrap());
        assert_eq!([one, other, NO_CLIENT].map(|client| cells.is_left_out(client)), [false, true, false]);
        for (minute, client, path) in [(0, one, 1), (0, other, 1), (0, one, 1), (0, one, 2), (1, one, 1)] {
            cells.count(minute * MINUTE_US + 7, came(client, path));
        }
        cells.close();
        let counts: Vec<_> = cells.all.iter().map(|cell| (cell.minute, cell.client, cell.count)).collect();
        assert_eq!(counts, [(0, 0, 2), (0, 0, 1), (0, 1, 1), (1, 0, 1)]);
    }

    #[test]
    fn a_log_without_end_keeps_the_whole_of_some_clients() {
        let mut cells = MinuteCells { most: 1_000, ..MinuteCells::new(Vec::new()) };
        for minute in 0..10 {
            (0..800).for_each(|client| cells.count(minute * MINUTE_US, came(client, 1)));
        }
        cells.close();
        assert!(cells.all.len() <= 1_000 && cells.level >= 3, "{}", cells.all.len());
        let one = cells.all[0].client;
        assert_eq!(cells.all.iter().filter(|cell| cell.client == one).count(), 10);
    }

    #[test]
    fn clients_keep_their_numbers_while_the_table_grows() {
        let mut cells = MinuteCells::new(Vec::new());
        let address = |place: u32| match place % 2 {
            0 => IpAddr::V4(place.into()),
            _ => IpAddr::V6((u128::from(place) << 64).into()),
        };
        for _ in 0..2 {
            let numbers = cells.clients((0..3_000).map(|place| Some(address(place))));
            assert!(numbers.into_iter().eq(0..3_000));
        }
        assert!(cells.addresses.iter().copied().eq((0..3_000).map(address)));
    }
}
