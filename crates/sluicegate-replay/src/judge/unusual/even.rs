//! Clients that ask minute after minute at one rate: [`even`].
//!
//! It compares clients with each other instead of windows, so it also finds an attack that lasts from the first line to the last. People
//! come in bursts: the variance of their requests per minute is far above the mean.

use std::collections::{BTreeMap, HashMap};

use super::UnusualPart;
use super::cells::{MinuteCell, MinuteCells};
use super::robust::TypicalValue;
use crate::unusual::UnusualKind;

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
