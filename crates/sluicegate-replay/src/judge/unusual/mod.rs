//! Traffic that is unusual for the log: bursts of new clients, and networks, user agents and paths that many clients suddenly share.
//!
//! ```text
//! requests in order --> cells, by minute and client --> windows, and what is usual in them --> episodes --> their clients
//! ```
//!
//! It reads no limit and changes no decision: floats are fine here.

mod windows;

pub(super) use self::windows::MinuteCells;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use smallvec::SmallVec;

use self::windows::{ClientSum, MinuteCell, members, sums};
use crate::judge::figures::MINUTE_US;
use crate::judge::unusual::windows::{TypicalValue, Windows, episodes, even, float};
use crate::outcome::{Unusual, UnusualKind};
use crate::read::{Marks, NO_TEXT, network_of};

/// An unusual part of the log, and the clients that make it.
#[derive(Debug)]
pub(super) struct UnusualPart {
    pub(super) kind: UnusualKind,
    pub(super) what: String,
    /// The first minute, and the one after the last.
    pub(super) minutes: (u32, u32),
    pub(super) requests: u64,
    pub(super) keys: u64,
    /// The numbers of the clients.
    pub(super) clients: Vec<u32>,
}

/// All findings of a log, and whether a request is part of one.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) all: Vec<UnusualPart>,
    /// The spans of each client, in minutes.
    spans: HashMap<u32, SmallVec<[(u32, u32); 1]>>,
}

impl Findings {
    /// Findings in the order of their beginnings.
    fn of(mut all: Vec<UnusualPart>) -> Self {
        all.sort_by_key(|found| (found.minutes, std::cmp::Reverse(found.requests)));
        let mut spans: HashMap<u32, SmallVec<[(u32, u32); 1]>> = HashMap::new();
        for found in &all {
            for client in &found.clients {
                let known = spans.entry(*client).or_default();
                if !known.contains(&found.minutes) {
                    known.push(found.minutes);
                }
            }
        }
        Self { all, spans }
    }

    /// Whether a request of this client at this time is part of any finding.
    pub(super) fn hold(&self, client: u32, at_us: u64) -> bool {
        let minute = u32::try_from(at_us / MINUTE_US).unwrap_or(u32::MAX);
        self.spans
            .get(&client)
            .is_some_and(|spans| spans.iter().any(|(first, end)| (*first..*end).contains(&minute)))
    }

    /// The findings for the outcome.
    pub(super) fn told(&self) -> Vec<Unusual> {
        let of = |found: &UnusualPart| Unusual {
            kind: found.kind,
            what: found.what.clone(),
            from_us: u64::from(found.minutes.0) * MINUTE_US,
            to_us: u64::from(found.minutes.1) * MINUTE_US,
            requests: found.requests,
            keys: found.keys,
        };
        self.all.iter().map(of).collect()
    }
}

// The unusual parts of a log: [`find`].
//
// A window is compared with the median of all windows. New clients are found by the number of clients in a window; networks, user agents
// and paths by their part of its requests, if several clients share them. A single busy client is not unusual: limits handle
// it.

/// With fewer windows, none of them is usual.
const FEWEST_WINDOWS: usize = 6;
/// Fewer clients or requests than these are never unusual.
const FEWEST_CLIENTS: u64 = 10;
const FEWEST_REQUESTS: f64 = 20.0;
/// The least part of a window's requests that is unusual.
const LEAST_PART: f64 = 1.0 / 3.0;
/// The most episodes of one kind that are told, so that the time that a search takes stays in proportion to the log.
const MOST: usize = 16;

/// Finds what is unusual. Texts of the log are shown unless they are hidden.
pub(super) fn find(mut cells: MinuteCells, marks: &Marks, hides: bool) -> Findings {
    cells.close();
    let windows = Windows::of(&cells.all);
    let search = WindowSearch::new(&cells, &windows);
    let mut all = Vec::new();
    if windows.all.len() >= FEWEST_WINDOWS {
        all.extend(search.new_clients());
        let mut numbers = HashMap::new();
        let mut networks = Vec::new();
        let network: Vec<u32> = cells
            .addresses
            .iter()
            .map(|address| {
                let network = network_of(*address);
                *numbers.entry(network).or_insert_with(|| {
                    networks.push(network);
                    u32::try_from(networks.len() - 1).unwrap_or(u32::MAX)
                })
            })
            .collect();
        let of_network = |cell: &MinuteCell| network.get(cell.client as usize).copied();
        all.extend(search.shared(UnusualKind::Network, of_network, |network| {
            let network = networks.get(network as usize).filter(|_| !hides);
            network.map_or_else(|| "one network".to_owned(), |network| format!("the network {network}"))
        }));
        let text = |text: Option<&str>, name: &str| match text.filter(|_| !hides) {
            Some(text) => format!("the {name} {text}"),
            None => format!("one {name}"),
        };
        let bucket = |bucket: u32| u16::try_from(bucket).unwrap_or(NO_TEXT);
        let of_agent = |cell: &MinuteCell| (cell.agent != NO_TEXT).then_some(cell.agent.into());
        all.extend(search.shared(UnusualKind::Agent, of_agent, |agent| {
            text(marks.agents.text(bucket(agent)), "user agent")
        }));
        let of_path = |cell: &MinuteCell| (cell.path != NO_TEXT).then_some(cell.path.into());
        all.extend(
            search.shared(UnusualKind::Path, of_path, |path| text(marks.paths.text(bucket(path)), "path")),
        );
    }
    if let Some(found) = even(&cells, cells.weight()) {
        let known: HashSet<u32> = all.iter().flat_map(|found| &found.clients).copied().collect();
        if found.clients.iter().filter(|client| known.contains(client)).count() * 2 < found.clients.len() {
            all.push(found);
        }
    }
    Findings::of(all)
}

/// A search in the windows of a log.
struct WindowSearch<'a> {
    cells: &'a MinuteCells,
    windows: &'a Windows,
    /// The window in which each client came first.
    first: HashMap<u32, usize>,
    /// The requests of each window.
    requests: Vec<f64>,
    /// Its clients, and those that are new.
    clients: Vec<f64>,
    new: Vec<f64>,
}

impl<'a> WindowSearch<'a> {
    fn new(cells: &'a MinuteCells, windows: &'a Windows) -> Self {
        let mut first = HashMap::new();
        let (mut requests, mut clients, mut new) = (Vec::new(), Vec::new(), Vec::new());
        for (window, range) in windows.all.iter().enumerate() {
            let (mut seen, mut count, mut newcomers) = (HashSet::new(), 0, 0_u32);
            for cell in &cells.all[range.clone()] {
                count += cell.count;
                seen.insert(cell.client);
                first.entry(cell.client).or_insert_with(|| {
                    newcomers += 1;
                    window
                });
            }
            requests.push(f64::from(count));
            clients.push(f64::from(u32::try_from(seen.len()).unwrap_or(u32::MAX)));
            new.push(f64::from(newcomers));
        }
        Self { cells, windows, first, requests, clients, new }
    }

    /// Bursts of new clients.
    fn new_clients(&self) -> Vec<UnusualPart> {
        let clients = TypicalValue::of_counts(self.clients.iter().copied());
        // At the beginning of a log all clients are new.
        let begin = (self.new.len() / 20).max(2);
        let new = TypicalValue::of_counts(self.new[begin..].iter().copied());
        let is_it = |window: usize| {
            clients.is_exceeded(self.clients[window]) || window >= begin && new.is_exceeded(self.new[window])
        };
        let raised = raised(&self.clients, &clients);
        let runs = episodes(self.clients.len(), is_it, |window| raised[window]);
        let runs = largest(runs, |run| run.clone().map(|window| self.new[window]).sum());
        let found = runs.into_iter().filter_map(|run| {
            // It may have begun at the end of a window that was usual.
            let run = run.start.saturating_sub(1)..run.end;
            let is_new = |client: u32| self.first.get(&client).is_some_and(|first| run.contains(first));
            let candidates = sums(self.within(&run), is_new);
            let expected = new.median * float(run.len());
            let others = self.others(&run, |client| !is_new(client));
            let chosen = members(&candidates, &others, expected, &self.cells.addresses);
            let most = run.clone().map(|window| self.new[window]).fold(0.0, f64::max);
            let elsewhere = (begin..self.new.len()).filter(|window| !run.contains(window));
            let usual = TypicalValue::of_counts(elsewhere.map(|window| self.new[window] * self.weight()));
            let words = format!(
                "new clients: up to {} {}, usually {}",
                most * self.weight(),
                self.windows.per(),
                between(usual.low, usual.high)
            );
            self.finding(UnusualKind::NewKeys, words, &run, chosen)
        });
        found.collect()
    }

    /// Values that several clients share and that make an unusual part of the requests.
    fn shared(
        &self,
        kind: UnusualKind,
        value: impl Fn(&MinuteCell) -> Option<u32> + Copy,
        named: impl Fn(u32) -> String,
    ) -> Vec<UnusualPart> {
        let usual_requests = TypicalValue::of_counts(self.requests.iter().copied()).median;
        let least = (LEAST_PART * usual_requests).max(FEWEST_REQUESTS);
        let mut highest = Vec::new();
        let mut heavy = BTreeSet::new();
        let mut parts: HashMap<u32, HashMap<usize, (f64, f64)>> = HashMap::new();
        for window in 0..self.windows.all.len() {
            let shared = self.windows.shared(&self.cells.all, window, value, 4);
            let part = |requests: u64| count(requests) / self.requests[window].max(1.0);
            // A value that mostly one client has is not shared.
            let shared: Vec<_> = shared.into_iter().filter(|of| of.most * 2 < of.requests).collect();
            highest.push(shared.first().map_or(0.0, |of| part(of.requests)));
            for of in shared {
                let known = (part(of.requests), count(of.requests));
                if known.0 >= LEAST_PART && known.1 >= least {
                    heavy.insert(of.value);
                }
                // Few values have several clients in a window, so this stays small.
                parts.entry(of.value).or_default().insert(window, known);
            }
        }
        let usual = TypicalValue::of(highest, 0.02);
        let mut found = Vec::new();
        let all = |of: &u32| parts[of].values().map(|(part, _)| *part).fold(0.0, f64::max);
        for of in largest(heavy.into_iter().collect(), all) {
            let part = |window: usize| parts[&of].get(&window).copied().unwrap_or_default();
            let all = 0..self.windows.all.len();
            let own = TypicalValue::of(all.clone().map(|window| part(window).0), 0.02);
            let own_count = TypicalValue::of_counts(all.map(|window| part(window).1));
            let is_it = |window: usize| {
                let (part, requests) = part(window);
                part >= LEAST_PART
                    && requests >= least
                    && own.is_exceeded(part)
                    && usual.is_exceeded(part)
                    && requests > 3.0 * own_count.median
            };
            let is_raised = |window| own_count.is_raised(part(window).1) && own.is_raised(part(window).0);
            let runs = episodes(self.windows.all.len(), is_it, is_raised);
            for run in largest(runs, |run| run.clone().map(|window| part(window).1).sum()) {
                let mostly = self.mostly(&run, |cell| value(cell) == Some(of));
                let candidates = sums(self.within(&run), |client| mostly.contains(&client));
                let others = self.others(&run, |client| !mostly.contains(&client));
                let expected = own_count.median / usual_requests.max(1.0)
                    * TypicalValue::of_counts(self.clients.iter().copied()).median
                    * float(run.len());
                let chosen = members(&candidates, &others, expected, &self.cells.addresses);
                let elsewhere = (0..self.windows.all.len()).filter(|window| !run.contains(window));
                let own = TypicalValue::of(elsewhere.map(|window| part(window).0), 0.02);
                let usually = between(own.low * 100.0, own.high * 100.0);
                let words = format!("{}: usually {usually} % of the requests", named(of));
                found.extend(self.finding(kind, words, &run, chosen));
            }
        }
        found
    }

    /// The finding that these clients make in a run of windows.
    fn finding(
        &self,
        kind: UnusualKind,
        words: String,
        run: &Range<usize>,
        mut chosen: Vec<u32>,
    ) -> Option<UnusualPart> {
        chosen.sort_unstable();
        let busy = self.busy(run, &chosen);
        let is_busy = |cell: &MinuteCell| busy.iter().any(|span| span.contains(&cell.minute));
        let own: Vec<MinuteCell> = self
            .within(run)
            .iter()
            .filter(|cell| is_busy(cell) && chosen.binary_search(&cell.client).is_ok())
            .copied()
            .collect();
        let seen: HashSet<u32> = own.iter().map(|cell| cell.client).collect();
        chosen.retain(|client| seen.contains(client));
        let own = || own.iter();
        let minutes = (own().map(|cell| cell.minute).min()?, own().map(|cell| cell.minute).max()? + 1);
        let requests: u64 = own().map(|cell| u64::from(cell.count)).sum();
        let meanwhile = self.within(run).iter().filter(|cell| (minutes.0..minutes.1).contains(&cell.minute));
        let all: u64 = meanwhile.map(|cell| u64::from(cell.count)).sum();
        let keys = chosen.len() as u64;
        let is_worth_it = keys >= FEWEST_CLIENTS || kind != UnusualKind::NewKeys && keys >= 4;
        let weight = self.cells.weight();
        (is_worth_it && count(requests) >= FEWEST_REQUESTS).then(|| UnusualPart {
            kind,
            what: format!("{words}; they make {} % of the requests", requests * 100 / all.max(1)),
            minutes,
            requests: requests * weight,
            keys: keys * weight,
            clients: chosen,
        })
    }

    /// The spans of minutes in which these clients make most of their requests. A few that were chosen by mistake came at other times.
    fn busy(&self, run: &Range<usize>, chosen: &[u32]) -> Vec<Range<u32>> {
        let apart = (self.windows.width / 4).max(3);
        let mut spans: Vec<(Range<u32>, u64)> = Vec::new();
        for cell in self.within(run).iter().filter(|cell| chosen.binary_search(&cell.client).is_ok()) {
            match spans.last_mut() {
                Some((span, requests)) if cell.minute < span.end + apart => {
                    span.end = cell.minute + 1;
                    *requests += u64::from(cell.count);
                }
                _ => spans.push((cell.minute..cell.minute + 1, cell.count.into())),
            }
        }
        let all: u64 = spans.iter().map(|(_, requests)| requests).sum();
        // One in fifty requests is no part of its own.
        spans.into_iter().filter(|(_, requests)| requests * 50 > all).map(|(span, _)| span).collect()
    }

    /// The cells of a run of windows.
    fn within(&self, run: &Range<usize>) -> &'a [MinuteCell] {
        let of = |window: usize| self.windows.all[window].clone();
        &self.cells.all[of(run.start).start..of(run.end - 1).end]
    }

    /// The sums of clients at all other times.
    fn others(&self, run: &Range<usize>, is_it: impl Fn(u32) -> bool) -> HashMap<u32, ClientSum> {
        let of = |window: usize| self.windows.all[window].clone();
        let (begin, end) = (of(run.start).start, of(run.end - 1).end);
        sums(self.cells.all[..begin].iter().chain(&self.cells.all[end..]), is_it)
    }

    /// The clients most of whose requests in a run of windows are of this kind.
    fn mostly(&self, run: &Range<usize>, is_it: impl Fn(&MinuteCell) -> bool) -> HashSet<u32> {
        let mut counts: HashMap<u32, (u64, u64)> = HashMap::new();
        for cell in self.within(run) {
            let (of, all) = counts.entry(cell.client).or_default();
            *all += u64::from(cell.count);
            *of += if is_it(cell) { u64::from(cell.count) } else { 0 };
        }
        counts.into_iter().filter(|(_, (of, all))| of * 2 > *all).map(|(client, _)| client).collect()
    }

    fn weight(&self) -> f64 {
        count(self.cells.weight())
    }
}

/// Whether each value belongs to a rise above what is usual, by sums from both sides that fall back to 0 where values are usual again.
///
/// # Source
/// The cumulative sum of E. S. Page, "Continuous inspection schemes" (1954), with half a spread as its allowance.
fn raised(values: &[f64], usual: &TypicalValue) -> Vec<bool> {
    let step = |sum: &mut f64, value: &f64| {
        *sum = (*sum + value - usual.median - usual.spread / 2.0).max(0.0);
        Some(*sum > 0.0)
    };
    let ahead = values.iter().scan(0.0, step);
    let mut back: Vec<bool> = values.iter().rev().scan(0.0, step).collect();
    back.reverse();
    ahead.zip(back).map(|(ahead, back)| ahead && back).collect()
}

/// The largest few of these, in their order.
fn largest<T>(all: Vec<T>, size: impl Fn(&T) -> f64) -> Vec<T> {
    let mut sizes: Vec<f64> = all.iter().map(&size).collect();
    sizes.sort_unstable_by(|one, other| other.total_cmp(one));
    let least = sizes.get(MOST - 1).copied().unwrap_or(0.0);
    all.into_iter().filter(|one| size(one) >= least).take(MOST).collect()
}

/// The bounds of what is usual, in whole numbers.
fn between(low: f64, high: f64) -> String {
    let [low, high] = [low, high].map(|bound| format!("{bound:.0}"));
    if low == high { low } else { format!("{low} to {high}") }
}

fn count(count: u64) -> f64 {
    u32::try_from(count).unwrap_or(u32::MAX).into()
}
