//! The choice of an algorithm: [`Algorithm`], its names, and the kind of its rule.

use std::fmt;
use std::str::FromStr;

use super::{Anchor, Checked, Drain, FixedWindow, Gcra, Refill, Rule, SlidingCounter, SlidingLog};
use crate::error::ConfigError;
use crate::text::value_of;

/// How a quota is counted. The README has a table that compares them.
///
/// If in doubt, take [`Gcra`](Self::Gcra): one number per key, no borders that a client could aim at,
/// and an exact wait in each refusal. Take [`SlidingLog`](Self::SlidingLog) if the limit is a
/// security promise, such as failed logins; [`SlidingCounter`](Self::SlidingCounter) or
/// [`FixedWindow`](Self::FixedWindow) where a contract speaks of windows; a [queue](Drain::Queue)
/// if traffic should be smoothed, not refused.
///
/// # At most
/// For a limit of L per period P and a burst of B (L unless it is set), this much passes in the
/// worst half-open span of one period:
///
/// | algorithm | in the worst span of P | words of state | after a burst from rest |
/// |---|---|---|---|
/// | [`Gcra`](Self::Gcra), [`Refill::Greedy`], [`Drain::Meter`] | B + L - 1 | 1 or 2 | one more each P / L |
/// | [`Drain::Queue`] | L depart, P / L apart | 1 or 2 | one more each P / L |
/// | [`Refill::Interval`], [`Refill::AlignedInterval`] | B + L | 2 | L at once at the next border |
/// | [`FixedWindow`](Self::FixedWindow) | 2 L, across a border | 2 | L at once at the next border |
/// | [`SlidingCounter`](Self::SlidingCounter) | 2 L, see there | 2 | gradually, once the next window begins |
/// | [`SlidingLog`](Self::SlidingLog) | L | one entry per admission | L at once, one P later |
/// | [`SlidingLogIn(n)`](Self::SlidingLogIn) | L | at most n + 1 entries | L at once, up to P / n later than that |
///
/// A bucket limits the average: a limit of "5/min" under GCRA lets five pass at once and nine in
/// the worst minute. Give it a smaller burst (`"5/min burst 1"`) if that is too many, or use a
/// log.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::algorithm::Anchor;
/// use sluicegate_core::clock::ManualClock;
/// use sluicegate_core::{Algorithm, MemoryStore, Policy};
///
/// /// The units of "10/10s" that pass within ten seconds, for a client that starts just before a
/// /// border of windows and then takes every unit it can get.
/// fn in_ten_seconds(algorithm: Algorithm) -> Result<u64, Box<dyn std::error::Error>> {
///     let clock = ManualClock::new();
///     let store = MemoryStore::builder().clock(clock.clone()).build()?;
///     let limiter = Policy::builder("api", algorithm, "10/10s").on(&store)?;
///     clock.set(Duration::from_micros(9_999_999));
///     let mut passed = 0;
///     for _hundredth_of_a_second in 0..1_000 {
///         while limiter.check("ada").now().expect("memory answers at once")?.is_allowed() {
///             passed += 1;
///         }
///         clock.advance(Duration::from_millis(10));
///     }
///     Ok(passed)
/// }
///
/// assert_eq!(in_ten_seconds(Algorithm::SlidingLog)?, 10);
/// assert_eq!(in_ten_seconds(Algorithm::Gcra)?, 19);
/// assert_eq!(in_ten_seconds(Algorithm::FixedWindow(Anchor::Epoch))?, 20);
/// assert_eq!(in_ten_seconds(Algorithm::SlidingCounter)?, 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # As text
/// Prints and parses as `fixed-window`, `fixed-window-from-first-hit`, `sliding-log`,
/// `sliding-log-in-N`, `sliding-counter`, `token-bucket`, `token-bucket-interval`, `token-bucket-aligned`,
/// `leaky-bucket`, `leaky-bucket-queue`, `leaky-bucket-queue-above-N` and `gcra`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A count per window: cheapest to explain; at a border up to twice the limit passes.
    ///
    /// All keys of an [aligned](Anchor::Epoch) window come back at the same instant, and so do the
    /// refused clients. If that is a problem, let windows begin with [a key's first
    /// unit](Anchor::FirstHit), or use GCRA.
    FixedWindow(Anchor),
    /// The time of every admission: exact, and the only algorithm with memory that grows with the limit,
    /// so the limit is at most [a million](crate::algorithm::SlidingLog::MAX_LIMIT).
    ///
    /// Choose it for logins, password resets and payments: no more than the limit passes in
    /// any span of one period, wherever the span begins.
    SlidingLog,
    /// A [`SlidingLog`](Self::SlidingLog) with a resolution: the units admitted within one of this many parts of the period are
    /// one entry, as old as the newest of them. Begun by [`Policy::sliding_log`](crate::Policy::sliding_log) with
    /// [`resolution`](crate::policy::PolicyBuilder::resolution).
    ///
    /// It never passes more than the limit in any span of one period, and room comes back at most a part of the period late.
    /// Its memory is bounded by the parts, whatever the limit.
    SlidingLogIn(u32),
    /// Two counts, the older weighted by its overlap: two words at any limit.
    ///
    /// It is exact for evenly spread traffic. Traffic that takes every unit it can get passes up to
    /// twice the limit in some span of one period: a full window's worth at the end of one window,
    /// and another as the first one fades. Use the log if that is too much.
    SlidingCounter,
    /// A bucket of tokens that starts full, or with [fewer](crate::Quota::starting_with): an average rate, and a burst on top of it.
    TokenBucket(Refill),
    /// A bucket that leaks at the quota's rate: a meter that refuses, or a queue that delays.
    LeakyBucket(Drain),
    /// One timestamp per key; decides exactly as the greedy token bucket.
    Gcra,
}

impl Algorithm {
    /// Every algorithm with every setting; for a setting that is a number, one example.
    pub const ALL: [Self; NAMED.len() + 2] = [
        Self::FixedWindow(Anchor::Epoch),
        Self::FixedWindow(Anchor::FirstHit),
        Self::SlidingLog,
        Self::SlidingLogIn(20),
        Self::SlidingCounter,
        Self::TokenBucket(Refill::Greedy),
        Self::TokenBucket(Refill::Interval),
        Self::TokenBucket(Refill::AlignedInterval),
        Self::LeakyBucket(Drain::Meter),
        Self::LeakyBucket(Drain::Queue),
        Self::LeakyBucket(Drain::QueueAbove(2)),
        Self::Gcra,
    ];

    /// The rule of a quota under this algorithm, without a calendar, and for keys that start full.
    pub(super) fn rule(self, quota: Checked) -> Result<Rule, ConfigError> {
        let window = |anchor| match anchor {
            Anchor::Epoch => FixedWindow::new(quota, Some(if quota.is_week() { MONDAY_US } else { 0 })),
            Anchor::FirstHit => FixedWindow::new(quota, None),
        };
        let bucket = |queue_above| Gcra::new(quota, queue_above).map(Rule::Gcra);
        match self {
            Self::FixedWindow(anchor) => Ok(Rule::FixedWindow(window(anchor)?.ending_debts())),
            Self::TokenBucket(Refill::Interval) => window(Anchor::FirstHit).map(Rule::FixedWindow),
            Self::TokenBucket(Refill::AlignedInterval) => window(Anchor::Epoch).map(Rule::FixedWindow),
            Self::SlidingLog => SlidingLog::new(quota, None).map(Rule::SlidingLog),
            Self::SlidingLogIn(parts) => SlidingLog::new(quota, Some(parts)).map(Rule::SlidingLog),
            Self::SlidingCounter => SlidingCounter::new(quota).map(Rule::SlidingCounter),
            Self::LeakyBucket(Drain::Queue) => bucket(Some(0)),
            Self::LeakyBucket(Drain::QueueAbove(units)) => bucket(Some(units)),
            Self::Gcra | Self::TokenBucket(Refill::Greedy) | Self::LeakyBucket(Drain::Meter) => bucket(None),
        }
    }

    /// Whether an unknown key can [start](crate::Quota::starting_with) with less than a burst. Windows, counters and logs
    /// cannot: they start without a count. A queue cannot either: if it did not start empty, it would delay the first request.
    pub fn can_start_short(self) -> bool {
        matches!(self, Self::Gcra | Self::TokenBucket(_) | Self::LeakyBucket(Drain::Meter))
    }

    /// Whether this algorithm delays admitted requests to space its output.
    pub fn is_queue(self) -> bool {
        matches!(self, Self::LeakyBucket(Drain::Queue | Drain::QueueAbove(_)))
    }

    /// Whether this algorithm has borders that are the same for all keys.
    pub(crate) fn is_aligned(self) -> bool {
        matches!(self, Self::FixedWindow(Anchor::Epoch) | Self::TokenBucket(Refill::AlignedInterval))
    }

    /// Whether this algorithm counts in windows, which have a limit and no burst.
    pub(crate) fn is_window(self) -> bool {
        matches!(self, Self::FixedWindow(_) | Self::SlidingLog | Self::SlidingLogIn(_) | Self::SlidingCounter)
    }
}

/// The first Monday after the Unix epoch, which was a Thursday.
const MONDAY_US: u64 = 4 * 86_400_000_000;

/// All algorithms whose names have no number in them.
const NAMED: &[(&str, Algorithm)] = &[
    ("fixed-window", Algorithm::FixedWindow(Anchor::Epoch)),
    ("fixed-window-from-first-hit", Algorithm::FixedWindow(Anchor::FirstHit)),
    ("sliding-log", Algorithm::SlidingLog),
    ("sliding-counter", Algorithm::SlidingCounter),
    ("token-bucket", Algorithm::TokenBucket(Refill::Greedy)),
    ("token-bucket-interval", Algorithm::TokenBucket(Refill::Interval)),
    ("token-bucket-aligned", Algorithm::TokenBucket(Refill::AlignedInterval)),
    ("leaky-bucket", Algorithm::LeakyBucket(Drain::Meter)),
    ("leaky-bucket-queue", Algorithm::LeakyBucket(Drain::Queue)),
    ("gcra", Algorithm::Gcra),
];

const QUEUE_ABOVE: &str = "leaky-bucket-queue-above-";
const LOG_IN: &str = "sliding-log-in-";

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeakyBucket(Drain::QueueAbove(units)) => return write!(f, "{QUEUE_ABOVE}{units}"),
            Self::SlidingLogIn(parts) => return write!(f, "{LOG_IN}{parts}"),
            _ => {}
        }
        let name = NAMED.iter().find(|(_, algorithm)| algorithm == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for Algorithm {
    type Err = ConfigError;

    /// Reads the name that `Display` prints.
    ///
    /// # Errors
    /// [`Unreadable`](crate::error::ConfigErrorKind::Unreadable) for any other text; the message lists the names.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if let Some(units) = text.strip_prefix(QUEUE_ABOVE).and_then(|units| units.parse().ok()) {
            return Ok(Self::LeakyBucket(Drain::QueueAbove(units)));
        }
        if let Some(parts) = text.strip_prefix(LOG_IN).and_then(|parts| parts.parse().ok()) {
            return Ok(Self::SlidingLogIn(parts));
        }
        let more = format!(", {LOG_IN}N, or {QUEUE_ABOVE}N");
        value_of(text, NAMED, "by which algorithm the quota is counted", &more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_prints_as_it_reads() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        assert!("leaky".parse::<Algorithm>().unwrap_err().to_string().contains("leaky-bucket-queue"));
    }
}
