//! The choice of an algorithm: [`Algorithm`], with the settings that it takes.

use std::fmt;
use std::str::FromStr;

use crate::error::ConfigError;
use crate::text::value_of;

/// How a quota is counted. The README has a table that compares them.
///
/// Prints and parses as `fixed-window`, `fixed-window-from-first-hit`, `sliding-log`, `sliding-counter`,
/// `token-bucket`, `token-bucket-interval`, `token-bucket-aligned`, `leaky-bucket`, `leaky-bucket-queue`,
/// `leaky-bucket-queue-above-N` and `gcra`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A count per window: cheapest to explain; at a border up to twice the limit passes.
    FixedWindow(Anchor),
    /// The time of every admission: exact, and the only one whose memory grows with the limit.
    SlidingLog,
    /// Two counts, the older weighted by its overlap: nearly exact at any limit.
    SlidingCounter,
    /// A bucket of tokens that starts full.
    TokenBucket(Refill),
    /// A bucket that leaks at the quota's rate.
    LeakyBucket(Drain),
    /// One timestamp per key; decides exactly as the greedy token bucket.
    Gcra,
}

/// Where fixed windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Anchor {
    /// On multiples of the period since the Unix epoch: the full minute, the full hour.
    Epoch,
    /// With a key's first unit.
    FirstHit,
}

impl Anchor {
    pub(crate) fn is_aligned(self) -> bool {
        self == Self::Epoch
    }
}

/// How a token bucket is refilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refill {
    /// Continuously, one token each `period / limit`.
    Greedy,
    /// `limit` tokens at the end of each period, counted from the first draw on a full bucket.
    Interval,
    /// `limit` tokens on each multiple of the period since the Unix epoch.
    AlignedInterval,
}

/// What a leaky bucket does with what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Drain {
    /// Passes what fits at once and refuses the rest: a meter, nginx's `nodelay`.
    Meter,
    /// Delays what fits so that the output is evenly spaced: a queue.
    Queue,
    /// Passes at once until this many units are in the bucket, delays above: nginx's `delay=n`.
    QueueAbove(u64),
}

impl Algorithm {
    /// Every algorithm with every setting; of the queues that pass some units at once, the one that passes two.
    pub const ALL: [Self; NAMED.len() + 1] = {
        let mut all = [Self::LeakyBucket(Drain::QueueAbove(2)); NAMED.len() + 1];
        let (mut index, last) = (0, NAMED.len() - 1);
        while index < last {
            all[index] = NAMED[index].1;
            index += 1;
        }
        // Behind the other queue.
        all[last + 1] = NAMED[last].1;
        all
    };

    /// Whether it counts in windows, which have a limit and no burst.
    pub(crate) fn is_window(self) -> bool {
        matches!(self, Self::FixedWindow(_) | Self::SlidingLog | Self::SlidingCounter)
    }
}

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

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::LeakyBucket(Drain::QueueAbove(units)) = self {
            return write!(f, "{QUEUE_ABOVE}{units}");
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
        let more = format!(", or {QUEUE_ABOVE}N");
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
