//! Requests by minute, client, user agent and path: [`MinuteCells`].
//!
//! # Bounds
//! A cell takes 16 bytes, and there are at most two million. A log with more keeps the cells of half of its clients, drawn by a hash of
//! their numbers, next time of a quarter, and so on. Clients are drawn instead of requests, because all requests of a client characterize it.
//! Each client takes about 80 bytes.

use std::collections::HashMap;
use std::hint::black_box;
use std::net::IpAddr;

use foldhash::fast::RandomState;
use ipnet::IpNet;

use crate::judge::figures::MINUTE_US;
use crate::judge::states::{Slots, hash_of, next_number};
use crate::judge::suggest::mixed;
use crate::judge::unusual::windows::float;
use crate::read::{Came, NO_CLIENT, network_of};

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
