//! The choice of an algorithm: [`LimitAlgorithm`].

use std::fmt;
use std::str::FromStr;

use sluicegate_core::error::{ConfigError, ConfigErrorKind};

/// How the number of requests follows the capacity of the service.
///
/// All of them keep the number while fewer than half of it are in progress.
///
/// | algorithm | input | finds its number when | beware |
/// |---|---|---|---|
/// | [`Gradient`](Self::Gradient) | latency against the latency with half as many requests, measured occasionally | latency is a fifth longer than that, plus a headroom | the default |
/// | [`Gradient2`](Self::Gradient2) | latency against its own average of the last minutes | latency is about 1.5 times that | a lasting overload becomes the average, and the number keeps growing |
/// | [`Vegas`](Self::Vegas) | the shortest latency seen, which represents an idle service | 3 to 6 requests wait, by its estimate | if latency varies by itself, the shortest is too short, and the number too small |
/// | [`Aimd`](Self::Aimd) | faults only | faults occur | latency grows until a request times out |
///
/// The default is based on a simulator: of the four, only it comes near the best fixed number in every scene, at a latency
/// near the unloaded one. The page [waiting](https://docs.rs/sluicegate/latest/sluicegate/docs/waiting/index.html) has its table.
///
/// # As text
/// Prints and parses as `gradient`, `gradient2`, `vegas` and `aimd`.
///
/// ```
/// use sluicegate_in_flight::adaptive::LimitAlgorithm;
///
/// assert_eq!("vegas".parse::<LimitAlgorithm>()?, LimitAlgorithm::Vegas);
/// assert_eq!(LimitAlgorithm::default().to_string(), "gradient");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitAlgorithm {
    /// Latency against the latency with half as many requests, which is measured every 100 windows, and when latency has changed.
    ///
    /// # Source
    /// Envoy's gradient controller (`adaptive_concurrency` filter, "Gradient Controller"): `gradient = minRTT * (1 + buffer) /
    /// sampleRTT`, and `limit * gradient + sqrt(limit)` as the next limit, with the minRTT measured at times at which fewer
    /// requests are admitted. The buffer is 20 %. Deviations:
    /// - The minRTT is measured with half of the limit, not with 3 requests, so that the service stays busy. If latency falls by about as
    ///   much as the limit, half is still too much, and it is measured again soon.
    /// - It is also measured when latency is above twice the minRTT or below four fifths of it, so that a service that is slower for a
    ///   while is distinguished from an overloaded one.
    /// - A window moves the limit a fifth of the way, so by -10 % to +6 % and a fifth of the headroom; less if it has below 50 samples.
    /// - The limit grows only while all of it is in use, and shrinks by a tenth in windows with
    ///   [many faults](crate::adaptive::SampleWindow::is_faulty).
    ///
    /// # Rounding
    /// The limit is kept in thousandths, and times in microseconds; all are rounded down.
    #[default]
    Gradient,
    /// Latency against its own long average.
    ///
    /// # Source
    /// Netflix, concurrency-limits, `Gradient2Limit` with its defaults: tolerance 1.5, four requests of growth, smoothing 0.2, an
    /// average over 600 windows. Deviations: the median of a window, not its average, and bounds of its own.
    ///
    /// # Rounding
    /// As under [`Gradient`](Self::Gradient).
    Gradient2,
    /// The number of requests that wait inside the service, estimated from the shortest latency.
    ///
    /// # Source
    /// Brakmo, Peterson: "TCP Vegas: End to End Congestion Avoidance on a Global Internet" (1995), section 3.2, as Netflix has
    /// turned it to concurrency: concurrency-limits, `VegasLimit`, with `alpha = 3 log10(limit)` and `beta = 6 log10(limit)`.
    /// Deviations: it counts windows with [many faults](crate::adaptive::SampleWindow::is_faulty) as a drop, and
    /// forgets the shortest latency after 30 windows, while the original does so after up to 30 times the limit of samples,
    /// drawn at random.
    ///
    /// # Rounding
    /// As under [`Gradient`](Self::Gradient).
    Vegas,
    /// One more after each window that used the whole limit, a tenth less after each window with [many
    /// faults](crate::adaptive::SampleWindow::is_faulty).
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
    pub const ALL: [Self; 4] = [Self::Gradient, Self::Gradient2, Self::Vegas, Self::Aimd];

    /// The algorithm's name, as in rules files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gradient => "gradient",
            Self::Gradient2 => "gradient2",
            Self::Vegas => "vegas",
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
