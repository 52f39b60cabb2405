//! Separates the clients that make an unusual part from ordinary clients at the same time: [`members`].
//!
//! # Method
//! Other times give the number of ordinary clients among the candidates, and their properties: how often they come,
//! for how many minutes, with which agent, for which path, with how many neighbors in their network. Properties that are too frequent among
//! the candidates belong to the others. A candidate is a member if it resembles the others more.
//!
//! # Source
//! A naive Bayes classifier. Its second class is the rest of a mixture after a known part of a known first class is subtracted.

use std::collections::HashMap;
use std::net::IpAddr;

use super::cells::MinuteCell;
use super::robust::float;
use crate::read::network_of;

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
