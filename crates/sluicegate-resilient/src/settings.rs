//! The settings of the breaker: [`BreakerSettings`].

use std::time::Duration;

use sluicegate_core::error::{ConfigError, ConfigErrorKind};

/// Sets when a failing store is no longer asked, for how long, and how it is tried again.
///
/// The breaker opens after failures in a row, or when their share of the last calls is too high. While it is open the
/// store is not asked. After a pause a few trials are let through; a failed one doubles the pause, and when enough have
/// succeeded the store is asked again, by a growing share of the requests at first, so that a fleet does not stampede
/// a store that has just come back.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_resilient::BreakerSettings;
///
/// // Resilience4j's defaults: half of ten calls, 30 seconds, three trials.
/// let patient = BreakerSettings::new()
///     .consecutive(10)
///     .ratio(50, 10)
///     .pause(Duration::from_secs(30), Duration::from_secs(30))
///     .trials(3)
///     .successes(3)
///     .ramp(Duration::ZERO);
/// ```
///
/// A value out of range is an error when the store is built:
///
/// ```
/// use sluicegate_resilient::BreakerSettings;
/// use sluicegate_core::MemoryStore;
/// use sluicegate_resilient::Resilient;
///
/// let error = Resilient::builder(MemoryStore::new()).breaker(BreakerSettings::new().trials(0)).build().unwrap_err();
/// assert_eq!(error.to_string(), "a breaker with 0 trials at once: use 1 to 255");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "settings do nothing until they are given to a store"]
pub struct BreakerSettings {
    pub(super) consecutive: u32,
    pub(super) percent: u32,
    pub(super) calls: u32,
    pub(super) first_pause: Duration,
    pub(super) longest_pause: Duration,
    pub(super) jitter: u32,
    pub(super) trials: u32,
    pub(super) successes: u32,
    pub(super) ramp: Duration,
}

impl BreakerSettings {
    /// The defaults: see each setting.
    pub const fn new() -> Self {
        Self {
            consecutive: 5,
            percent: 50,
            calls: 20,
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(1),
            jitter: 20,
            trials: 1,
            successes: 3,
            ramp: Duration::from_secs(1),
        }
    }

    /// Opens after `failures` consecutive failures. Default: 5.
    ///
    /// This detects a store that is gone within five calls. A success in between resets the count;
    /// [`ratio`](Self::ratio) detects a store that fails occasionally.
    pub const fn consecutive(mut self, failures: u32) -> Self {
        self.consecutive = failures;
        self
    }

    /// Opens when at least `percent` of the last `calls` (1 to 62) have failed. Default: 50 % of
    /// 20.
    ///
    /// It does not open before that number of calls.
    pub const fn ratio(mut self, percent: u32, calls: u32) -> Self {
        self.percent = percent;
        self.calls = calls;
        self
    }

    /// Stays open for `first`, and after each failed trial for twice as long, up to `longest`, plus or minus the
    /// [`jitter`](Self::jitter). Default: 200 ms, up to 1 s.
    ///
    /// A long pause spares the store but notices its return late: requests stay with the
    /// fallback until the pause is over.
    pub const fn pause(mut self, first: Duration, longest: Duration) -> Self {
        self.first_pause = first;
        self.longest_pause = longest;
        self
    }

    /// Makes each pause up to `percent` (at most 90) longer or shorter, at random. Default: 20 %.
    ///
    /// The jitter keeps the instances of a service from trying at the same moment. With 0, the end of a pause is exact, for tests with a
    /// manual clock.
    pub const fn jitter(mut self, percent: u32) -> Self {
        self.jitter = percent;
        self
    }

    /// Admits at most `trials` trials at the same time (1 to 255) while it is half open. Default:
    /// 1.
    ///
    /// Requests beyond them are decided without the store. More trials close it sooner under load,
    /// and let more requests wait if the store still hangs.
    pub const fn trials(mut self, trials: u32) -> Self {
        self.trials = trials;
        self
    }

    /// Closes after `successes` successful trials (1 to 255). Default: 3.
    pub const fn successes(mut self, successes: u32) -> Self {
        self.successes = successes;
        self
    }

    /// After closing, admits a growing share of the calls over `ramp`: 10 % at first, 100 % at the
    /// end. Default: 1 s; zero for all at once.
    pub const fn ramp(mut self, ramp: Duration) -> Self {
        self.ramp = ramp;
        self
    }

    /// # Errors
    /// For a setting outside of its range; the message names it.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        const LONGEST: Duration = Duration::from_secs(86_400);
        let numbers = [
            ("consecutive failures", self.consecutive, u32::MAX),
            ("a failure ratio in percent", self.percent, 100),
            ("calls of the failure ratio", self.calls, 62),
            ("trials at once", self.trials, 255),
            ("successes before it closes", self.successes, 255),
        ];
        let problem = if let Some((what, value, most)) =
            numbers.into_iter().find(|(_, value, most)| *value == 0 || value > most)
        {
            format!("{value} {what}: use 1 to {most}")
        } else if self.first_pause.is_zero() || self.first_pause > self.longest_pause {
            format!(
                "a pause of {:?}, up to {:?}: the first must be above 0 and at most the longest",
                self.first_pause, self.longest_pause
            )
        } else if self.jitter > 90 {
            format!("a jitter of {} percent: use at most 90", self.jitter)
        } else if self.longest_pause.max(self.ramp) > LONGEST {
            format!("a pause of {:?} and a ramp of {:?}: use at most a day", self.longest_pause, self.ramp)
        } else {
            return Ok(());
        };
        Err(ConfigError::new(ConfigErrorKind::Store, format!("a breaker with {problem}")))
    }
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self::new()
    }
}
