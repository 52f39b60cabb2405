//! Requests by minute, client, user agent and path: [`MinuteCells`].
//!
//! # Bounds
//! A cell takes 16 bytes, and there are at most four million. A log with more keeps the cells of half of its clients, drawn by a hash of
//! their numbers, next time of a quarter, and so on. Clients are drawn instead of requests, because all requests of a client characterize it.
//! Each client takes about 60 bytes.

use std::collections::HashMap;
use std::net::IpAddr;

use foldhash::fast::RandomState;
use ipnet::IpNet;

use crate::judge::figures::MINUTE_US;
use crate::judge::suggest::mixed;
use crate::read::{Came, NO_CLIENT};

/// The most cells that are kept.
const MOST: usize = 4 << 20;

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
    numbers: HashMap<IpAddr, u32, RandomState>,
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
            numbers: HashMap::default(),
            addresses: Vec::new(),
            without,
            is_left_out: Vec::new(),
        }
    }

    /// The number of a client.
    pub(in crate::judge) fn client(&mut self, address: Option<IpAddr>) -> u32 {
        let Some(address) = address.map(|address| address.to_canonical()) else { return NO_CLIENT };
        *self.numbers.entry(address).or_insert_with(|| {
            let number = u32::try_from(self.addresses.len()).unwrap_or(NO_CLIENT - 1).min(NO_CLIENT - 1);
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
        let [one, other] = ["192.0.2.1", "198.51.100.7"].map(|text| cells.client(text.parse().ok()));
        assert_eq!((one, other, cells.client(None)), (0, 1, NO_CLIENT));
        assert_eq!(cells.client("::ffff:192.0.2.1".parse().ok()), one);
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
}
