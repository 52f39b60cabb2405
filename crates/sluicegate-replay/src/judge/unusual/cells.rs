//! Requests by minute, client, user agent and path: [`MinuteCells`].
//!
//! # Bounds
//! A cell takes 16 bytes, and there are at most two million. A log with more keeps the cells of half of its clients, drawn by a hash of
//! their numbers, next time of a quarter, and so on. Clients are drawn instead of requests, because all requests of a client characterize it.
//! Each client takes about 80 bytes.

use std::hint::black_box;
use std::net::IpAddr;

use foldhash::fast::RandomState;
use ipnet::IpNet;

use crate::judge::figures::MINUTE_US;
use crate::judge::slots::{Slots, hash_of, next_number};
use crate::judge::suggest::mixed;
use crate::read::{Came, NO_CLIENT};

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
