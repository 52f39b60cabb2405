//! The algorithms once more, from their definitions and not from our code: slow, and exact in 128-bit fractions.
//!
//! A rational time is kept as a whole number of `1 / limit` microseconds, in which `period / limit` is `period`; a
//! rational number of tokens as a whole number of `1 / period` tokens. Nothing is ever rounded inside a model. Time
//! itself is cut to milliseconds for those quotas whose products exceed 2^52 in microseconds: that is a promise too.

use std::collections::BTreeMap;

use sluicegate_core::algorithm::{Anchor, Drain, Refill};
use sluicegate_core::{Algorithm, Quota};

/// One key under one quota.
pub(crate) trait Exact {
    /// Whether `cost` passes at `now`. It only ever changes from no to yes while nothing arrives.
    fn passes(&self, now: u64, cost: u64) -> bool;
    /// What would pass now at most.
    fn remaining(&self, now: u64) -> u64;
    /// Enters `cost` as admitted at `now`, whether it fits or not.
    fn spend(&mut self, now: u64, cost: u64);
    /// Enters the `cost` of a refused request, as far as it makes the key full: not at all if it is.
    fn reject(&mut self, now: u64, cost: u64);
    /// Gives `cost` back, at most to rest.
    fn refund(&mut self, now: u64, cost: u64);
    /// When what is admitted now may go on: later only in a queue.
    fn departs(&self, now: u64) -> u64 {
        now
    }
    /// A key that is known is full from now on; returns that moment, as far as it is known. Where a level drains, its arrival time is
    /// kept as now, so that a clock that goes back finds it fuller than it was.
    fn fill(&mut self, now: u64) -> u64 {
        now
    }
    /// Called once an instant was seen. What is over for a log stays over if the clock goes back.
    fn observe(&mut self, _now: u64) {}
}

/// The model of an algorithm.
pub(crate) fn exact(algorithm: Algorithm, quota: Quota) -> Box<dyn Exact> {
    let terms = Terms::new(algorithm, quota);
    let tat = |undelayed| Box::new(Tat { terms, undelayed, tat: None });
    match algorithm {
        Algorithm::TokenBucket(Refill::Greedy) => Box::new(Tokens { terms, left: None }),
        Algorithm::TokenBucket(refill) => {
            Box::new(Refills { terms, aligned: refill == Refill::AlignedInterval, left: None })
        }
        Algorithm::LeakyBucket(Drain::Queue) => tat(Some(0)),
        Algorithm::LeakyBucket(Drain::QueueAbove(units)) => tat(Some(units)),
        Algorithm::FixedWindow(anchor) => {
            Box::new(Windows { terms, aligned: anchor == Anchor::Epoch, current: None })
        }
        Algorithm::SlidingCounter => Box::new(Counter { terms, counts: BTreeMap::new(), newest: None }),
        Algorithm::SlidingLog => Box::new(Log { terms, part: 1, admitted: Vec::new() }),
        Algorithm::SlidingLogIn(parts) => {
            let part = units(terms.period).div_ceil(parts.into());
            Box::new(Log { terms, part, admitted: Vec::new() })
        }
        _ => tat(None),
    }
}

/// The model of what an algorithm promises of all that departs. A log with a resolution promises what an exact one does: turns
/// that it has given may come before units of the same part, which join the entry later.
pub(crate) fn promised(algorithm: Algorithm, quota: Quota) -> Box<dyn Exact> {
    exact(if let Algorithm::SlidingLogIn(_) = algorithm { Algorithm::SlidingLog } else { algorithm }, quota)
}

/// The numbers of a quota, wide enough for their products.
#[derive(Clone, Copy)]
struct Terms {
    limit: i128,
    period: i128,
    burst: i128,
    unit: u64,
}

impl Terms {
    fn new(algorithm: Algorithm, quota: Quota) -> Self {
        let limit = i128::from(quota.limit());
        let period = i128::try_from(quota.period().as_micros()).expect("ten years fit");
        let burst = i128::from(quota.burst_size());
        // What has to be exact: a burst's length in the smallest parts, or a count times the period.
        let product = match algorithm {
            Algorithm::SlidingCounter => limit * period,
            Algorithm::SlidingLog | Algorithm::SlidingLogIn(_) | Algorithm::FixedWindow(_) => 0,
            Algorithm::TokenBucket(Refill::Interval | Refill::AlignedInterval) => 0,
            _ => burst * (period / gcd(limit, period)),
        };
        Self { limit, period, burst, unit: if product <= 1 << 52 { 1 } else { 1_000 } }
    }

    fn floor(&self, now: u64) -> i128 {
        i128::from(now - now % self.unit)
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn units(number: i128) -> u64 {
    u64::try_from(number.max(0)).expect("a count fits")
}

/// GCRA: passes when `max(TAT, now) + cost * T - now <= burst * T`, with `T = period / limit`.
struct Tat {
    terms: Terms,
    /// A leaky bucket that shapes delays what finds more than this in it.
    undelayed: Option<u64>,
    /// In parts of `1 / limit` microseconds.
    tat: Option<i128>,
}

impl Tat {
    /// `max(TAT, now) - now`.
    fn level(&self, now: u64) -> i128 {
        self.tat.map_or(0, |tat| (tat - self.terms.floor(now) * self.terms.limit).max(0))
    }

    fn set(&mut self, now: u64, level: i128) {
        self.tat = (level > 0).then(|| self.terms.floor(now) * self.terms.limit + level);
    }
}

impl Exact for Tat {
    fn passes(&self, now: u64, cost: u64) -> bool {
        self.level(now) + i128::from(cost) * self.terms.period <= self.terms.burst * self.terms.period
    }

    fn remaining(&self, now: u64) -> u64 {
        units((self.terms.burst * self.terms.period - self.level(now)).div_euclid(self.terms.period))
    }

    fn spend(&mut self, now: u64, cost: u64) {
        self.set(now, self.level(now) + i128::from(cost) * self.terms.period);
    }

    fn reject(&mut self, now: u64, cost: u64) {
        let before = self.level(now);
        let full = self.terms.burst * self.terms.period;
        self.set(now, (before + i128::from(cost) * self.terms.period).min(full.max(before)));
    }

    fn refund(&mut self, now: u64, cost: u64) {
        self.set(now, self.level(now) - i128::from(cost) * self.terms.period);
    }

    fn fill(&mut self, now: u64) -> u64 {
        self.tat = Some(self.terms.floor(now) * self.terms.limit);
        units(self.terms.floor(now))
    }

    fn departs(&self, now: u64) -> u64 {
        let Some(undelayed) = self.undelayed else { return now };
        let ahead = self.level(now) - i128::from(undelayed) * self.terms.period;
        let unit = i128::from(self.terms.unit);
        let exact = self.terms.floor(now) * self.terms.limit + ahead.max(0);
        // The first whole unit of time at or after the exact moment.
        let whole = (exact + self.terms.limit * unit - 1).div_euclid(self.terms.limit * unit) * unit;
        now.max(units(whole))
    }
}

/// Token bucket: starts full, and gets `limit / period` of a token each microsecond.
struct Tokens {
    terms: Terms,
    /// Tokens in parts of `1 / period`, and the moment at which there were so many; none for a full bucket.
    left: Option<(i128, i128)>,
}

impl Tokens {
    fn full(&self) -> i128 {
        self.terms.burst * self.terms.period
    }

    fn at(&self, now: u64) -> i128 {
        let refilled = |(left, at): (i128, i128)| left + self.terms.limit * (self.terms.floor(now) - at);
        self.left.map_or_else(|| self.full(), |left| refilled(left).min(self.full()))
    }

    fn set(&mut self, now: u64, tokens: i128) {
        self.left = (tokens < self.full()).then(|| (tokens, self.terms.floor(now)));
    }
}

impl Exact for Tokens {
    fn passes(&self, now: u64, cost: u64) -> bool {
        self.at(now) >= i128::from(cost) * self.terms.period
    }

    fn remaining(&self, now: u64) -> u64 {
        units(self.at(now).div_euclid(self.terms.period))
    }

    fn spend(&mut self, now: u64, cost: u64) {
        self.set(now, self.at(now) - i128::from(cost) * self.terms.period);
    }

    fn reject(&mut self, now: u64, cost: u64) {
        let before = self.at(now);
        self.set(now, (before - i128::from(cost) * self.terms.period).max(before.min(0)));
    }

    fn refund(&mut self, now: u64, cost: u64) {
        self.set(now, self.at(now) + i128::from(cost) * self.terms.period);
    }

    fn fill(&mut self, now: u64) -> u64 {
        self.left = Some((self.full(), self.terms.floor(now)));
        units(self.terms.floor(now))
    }
}

/// A bucket that gets `limit` tokens at each refill instant: one instant after the other, until it is full.
struct Refills {
    terms: Terms,
    aligned: bool,
    /// Tokens, and the next refill; none for a full bucket.
    left: Option<(i128, i128)>,
}

impl Refills {
    fn at(&self, now: u64) -> Option<(i128, i128)> {
        let (mut tokens, mut next) = self.left?;
        while next <= i128::from(now) && tokens < self.terms.burst {
            (tokens, next) = (tokens + self.terms.limit, next + self.terms.period);
        }
        (tokens < self.terms.burst).then_some((tokens, next))
    }

    fn change(&mut self, now: u64, by: i128) {
        let (tokens, next) = self.at(now).unwrap_or_else(|| {
            let now = i128::from(now);
            let since = if self.aligned { now % self.terms.period } else { 0 };
            (self.terms.burst, now - since + self.terms.period)
        });
        self.left = (tokens + by < self.terms.burst).then_some((tokens + by, next));
    }
}

impl Exact for Refills {
    fn passes(&self, now: u64, cost: u64) -> bool {
        self.at(now).map_or(self.terms.burst, |(tokens, _)| tokens) >= i128::from(cost)
    }

    fn remaining(&self, now: u64) -> u64 {
        units(self.at(now).map_or(self.terms.burst, |(tokens, _)| tokens))
    }

    fn spend(&mut self, now: u64, cost: u64) {
        self.change(now, -i128::from(cost));
    }

    fn reject(&mut self, now: u64, cost: u64) {
        let tokens = self.at(now).map_or(self.terms.burst, |(tokens, _)| tokens);
        if tokens > 0 {
            self.change(now, -i128::from(cost).min(tokens));
        }
    }

    fn refund(&mut self, now: u64, cost: u64) {
        self.change(now, i128::from(cost));
    }
}

/// Fixed window: a count per window, `count + cost <= limit`; a debt ends with its window.
struct Windows {
    terms: Terms,
    aligned: bool,
    /// Where the window begins, and its count.
    current: Option<(u64, u64)>,
}

impl Windows {
    fn at(&self, now: u64) -> (u64, u64) {
        let period = units(self.terms.period);
        match self.current.filter(|(begin, _)| now.saturating_sub(*begin) < period) {
            Some(current) => current,
            None if self.aligned => (now - now % period, 0),
            None => (now, 0),
        }
    }

    fn set(&mut self, begin: u64, count: u64) {
        self.current = (count > 0).then_some((begin, count));
    }
}

impl Exact for Windows {
    fn passes(&self, now: u64, cost: u64) -> bool {
        self.at(now).1 + cost <= units(self.terms.limit)
    }

    fn remaining(&self, now: u64) -> u64 {
        units(self.terms.limit).saturating_sub(self.at(now).1)
    }

    fn spend(&mut self, now: u64, cost: u64) {
        let (begin, count) = self.at(now);
        self.set(begin, count + cost);
    }

    fn reject(&mut self, now: u64, cost: u64) {
        if self.remaining(now) > 0 {
            self.spend(now, cost.min(self.remaining(now)));
        }
    }

    fn refund(&mut self, now: u64, cost: u64) {
        let (begin, count) = self.at(now);
        self.set(begin, count.saturating_sub(cost));
    }
}

/// Sliding window counter: `floor(previous * (period - elapsed) / period) + current + cost <= limit`.
struct Counter {
    terms: Terms,
    counts: BTreeMap<u64, u64>,
    /// The newest window that was counted in: a clock that goes back does not reopen an older one.
    newest: Option<u64>,
}

impl Counter {
    fn window(&self, now: u64) -> u64 {
        self.newest.unwrap_or(0).max(now / units(self.terms.period))
    }

    fn count(&self, window: u64) -> i128 {
        self.counts.get(&window).copied().unwrap_or(0).into()
    }

    fn weighted(&self, now: u64) -> i128 {
        let window = self.window(now);
        let (unit, begin) = (i128::from(self.terms.unit), i128::from(window) * self.terms.period);
        let period = self.terms.period / unit;
        let elapsed = (i128::from(now) - begin).max(0) / unit;
        let previous = window.checked_sub(1).map_or(0, |window| self.count(window));
        previous * (period - elapsed) / period + self.count(window)
    }
}

impl Exact for Counter {
    fn passes(&self, now: u64, cost: u64) -> bool {
        self.weighted(now) + i128::from(cost) <= self.terms.limit
    }

    fn remaining(&self, now: u64) -> u64 {
        units(self.terms.limit - self.weighted(now))
    }

    fn spend(&mut self, now: u64, cost: u64) {
        let window = self.window(now);
        *self.counts.entry(window).or_default() += cost;
        self.newest = Some(window);
    }

    fn reject(&mut self, now: u64, cost: u64) {
        let room = units(self.terms.limit - self.count(self.window(now)));
        if room > 0 {
            self.spend(now, cost.min(room));
        }
    }

    fn refund(&mut self, now: u64, mut cost: u64) {
        let window = self.window(now);
        for window in [Some(window), window.checked_sub(1)].into_iter().flatten() {
            let count = self.counts.entry(window).or_default();
            (*count, cost) = (count.saturating_sub(cost), cost.saturating_sub(*count));
        }
        let is_counted = (self.count(window), window.checked_sub(1).map_or(0, |w| self.count(w))) != (0, 0);
        self.newest = is_counted.then_some(window);
        // A key back at rest is forgotten, even if the clock goes back to where its older windows counted.
        if !is_counted {
            self.counts.clear();
        }
    }
}

/// Sliding window log: the sum of what was admitted in `(now - period, now]`, plus `cost`, is at most `limit`. All that was
/// admitted in one part of the period counts from the last of it.
struct Log {
    terms: Terms,
    part: u64,
    admitted: Vec<(u64, u64)>,
}

impl Log {
    fn sum(&self, now: u64) -> i128 {
        let counts = |at: u64| i128::from(at) + self.terms.period > i128::from(now);
        self.admitted.iter().filter(|(at, _)| counts(*at)).map(|(_, cost)| i128::from(*cost)).sum()
    }
}

impl Exact for Log {
    fn passes(&self, now: u64, cost: u64) -> bool {
        self.sum(now) + i128::from(cost) <= self.terms.limit
    }

    fn remaining(&self, now: u64) -> u64 {
        units(self.terms.limit - self.sum(now))
    }

    fn spend(&mut self, now: u64, cost: u64) {
        let newest = self.admitted.last().map_or(0, |(at, _)| *at);
        let now = now.max(newest);
        for (at, _) in &mut self.admitted {
            if *at / self.part == now / self.part {
                *at = now;
            }
        }
        self.admitted.push((now, cost));
    }

    fn reject(&mut self, now: u64, cost: u64) {
        self.observe(now);
        let most = self.sum(now).max(self.terms.limit);
        self.spend(now, cost.min(units(self.terms.limit)));
        let mut over = units(self.admitted.iter().map(|(_, cost)| i128::from(*cost)).sum::<i128>() - most);
        for (_, cost) in &mut self.admitted {
            let gone = over.min(*cost);
            (*cost, over) = (*cost - gone, over - gone);
        }
        self.admitted.retain(|(_, cost)| *cost > 0);
    }

    fn refund(&mut self, _now: u64, mut cost: u64) {
        while let Some((at, admitted)) = self.admitted.pop() {
            if admitted > cost {
                return self.admitted.push((at, admitted - cost));
            }
            cost -= admitted;
        }
    }

    fn observe(&mut self, now: u64) {
        self.admitted.retain(|(at, _)| i128::from(*at) + self.terms.period > i128::from(now));
    }
}
