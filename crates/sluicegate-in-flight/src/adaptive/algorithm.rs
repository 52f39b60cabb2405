//! The choice of an algorithm: [`LimitAlgorithm`].

use std::fmt;
use std::str::FromStr;

use sluicegate_core::error::{ConfigError, ConfigErrorKind};

/// How the number of requests follows the capacity of the service.
///
/// | algorithm | input | finds its number when | beware |
/// |---|---|---|---|
/// | [`Gradient`](Self::Gradient) | latency against the latency without load, and answers that speak of overload | latency is a fifth longer than that, plus a headroom | the default |
/// | [`Aimd`](Self::Aimd) | answers that speak of overload only | they come | latency grows until a request times out |
///
/// The page [waiting](https://docs.rs/sluicegate/latest/sluicegate/docs/waiting/index.html) has a table of both, beside algorithms of
/// others, in a simulator.
///
/// # As text
/// Prints and parses as `gradient` and `aimd`.
///
/// ```
/// use sluicegate_in_flight::adaptive::LimitAlgorithm;
///
/// assert_eq!("aimd".parse::<LimitAlgorithm>()?, LimitAlgorithm::Aimd);
/// assert_eq!(LimitAlgorithm::default().to_string(), "gradient");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitAlgorithm {
    /// Latency against the latency without load, which comes from what passes anyway.
    ///
    /// - While no request lacks a permit, the number never falls, and has room for twice the requests that came at once. The unloaded latency
    ///   follows the latency of such times, with their mean and their fastest tenth, in about ten seconds, but not up while requests accumulate.
    /// - With demand the number doubles at once, and again when answers show that latency is fine. Before the first answers it doubles each
    ///   quarter of a second.
    /// - When both the mean and the fastest tenth are too long, it falls to `limit * 120 % * unloaded / latency + sqrt(limit)`, by three
    ///   quarters at most at a time.
    /// - If latency is too long because demand has doubled the number, it falls to half or less at once.
    /// - If latency stays too long after the number has fallen, five thirds of it show, each five quarters of a second, whether latency follows.
    ///   If not, the service takes longer than it did: that becomes the unloaded latency, and the number comes back.
    /// - Each ten seconds of overload in which requests are refused, three fifths of the number show for a moment whether the unloaded
    ///   latency is shorter.
    /// - Both happen by the clock: instances before one service look together, as none of them alone changes its latency. Their clocks have to
    ///   agree to a tenth of a second.
    /// - It shrinks by a tenth in windows in which more than one answer in twenty [speaks of overload](super::Outcome::Overload), down to a
    ///   quarter of the highest number that was fine. An error that is faster than good answers changes nothing.
    ///
    /// Ten seconds are three answers, if those take longer.
    ///
    /// # Source
    /// The formula is that of Envoy's gradient controller (`adaptive_concurrency` filter, "Gradient Controller") with a buffer of 20 %;
    /// deviation: Envoy measures the unloaded latency with three requests at a time, and refuses all others meanwhile.
    ///
    /// # Rounding
    /// The limit is kept in thousandths, and times in microseconds; all are rounded down.
    #[default]
    Gradient,
    /// One more after each window that used half of the limit or more, a tenth less after each window in which more than one answer in
    /// twenty [speaks of overload](super::Outcome::Overload).
    ///
    /// # Source
    /// Chiu, Jain: "Analysis of the Increase and Decrease Algorithms for Congestion Avoidance in Computer Networks" (1989); the
    /// numbers come from Netflix, concurrency-limits, `AIMDLimit`. Deviation: per window, not per sample.
    ///
    /// # Rounding
    /// Down to whole requests after a decrease, as in the original.
    Aimd,
}

impl LimitAlgorithm {
    /// All algorithms.
    pub const ALL: [Self; 2] = [Self::Gradient, Self::Aimd];

    /// The algorithm's name, as in rules files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gradient => "gradient",
            Self::Aimd => "aimd",
        }
    }
}

impl fmt::Display for LimitAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for LimitAlgorithm {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == text).ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            let problem =
                format!("there is no algorithm {text:?} for a limit that adapts: use one of {words}");
            ConfigError::new(ConfigErrorKind::Policy, problem)
        })
    }
}
