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
///
/// A bucket of `burst` tokens that starts full; a unit of cost takes one.
///
/// [`Refill::Greedy`] adds tokens continuously and is GCRA: a bucket that lacks `n` tokens is one whose theoretical
/// arrival time lies `n * period / limit` ahead. [`Refill::Interval`] adds `limit` tokens at the end of each period,
/// counted from the moment a full bucket was first drawn from, [`Refill::AlignedInterval`] on whole multiples of
/// the period since the clock's epoch.
///
/// # Source
/// RFC 2697 section 3 (the committed bucket); the refill modes are Bucket4j's (`refillGreedy`, `refillIntervally`,
/// `refillIntervallyAligned`). Deviation: a bucket back at full is forgotten, so the interval mode counts anew from
/// the next draw instead of from the bucket's creation.
///
/// # Rounding
/// None; see GCRA.
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
///
/// A leaky bucket is GCRA in the words of queues. It holds `burst` units and leaks `limit` per `period`.
///
/// As a meter ([`Drain::Meter`]) it refuses what does not fit. As a queue ([`Drain::Queue`]) what fits waits until
/// what came before it has leaked out, so that the output is spaced exactly `period / limit`; a full queue refuses.
/// Between the two ([`Drain::QueueAbove`]) the first units pass without delay.
///
/// # Source
/// Turner, "New directions in communications" (1986), and ITU-T I.371 annex A.1 (continuous-state leaky bucket,
/// which equals GCRA). The delays are those of nginx's `ngx_http_limit_req_module`: its `burst=b` is `burst(b + 1)`
/// here, for there the request being served is not counted; `nodelay` is [`Drain::Meter`], `delay=n` is [`Drain::QueueAbove`].
/// Deviations: rates are exact (nginx rounds to thousandths of a request per second), and a cost of `c` goes on
/// when its first unit may.
///
/// # Rounding
/// As GCRA: none.
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
