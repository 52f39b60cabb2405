//! The settings of a limit that adapts: [`AdaptiveBuilder`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::clock::{Clock, SystemClock, micros};
use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::policy::{PolicyMode, check_name};

use crate::adaptive::{LimitAlgorithm, LimitBounds};
use crate::line::QueueBounds;
use crate::{Class, InFlight};

/// Collects the settings of an [`InFlight::adaptive`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct AdaptiveBuilder {
    pub(super) name: String,
    pub(super) settings: InFlightSettings,
    pub(super) is_fair: bool,
    clock: Option<Arc<dyn Clock>>,
}

/// Settings that may change while the limit is in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlightSettings {
    pub(super) algorithm: LimitAlgorithm,
    pub(super) bounds: LimitBounds,
    pub(super) timeout_us: Option<u64>,
    pub(super) waits: QueueBounds,
    pub(super) mode: PolicyMode,
}

impl AdaptiveBuilder {
    pub(super) fn new(name: String) -> Self {
        let settings = InFlightSettings {
            algorithm: LimitAlgorithm::default(),
            bounds: LimitBounds::default(),
            timeout_us: None,
            waits: QueueBounds { queue: 1_000, longest_us: 100_000, guaranteed: [0; 4] },
            mode: PolicyMode::Enforce,
        };
        Self { name, settings, is_fair: false, clock: None }
    }

    /// Sets how the number follows the service. Default: [`LimitAlgorithm::Gradient`].
    pub fn algorithm(mut self, algorithm: LimitAlgorithm) -> Self {
        self.settings.algorithm = algorithm;
        self
    }

    /// Sets the smallest number of requests at once. Default: 1; a number that follows latency also stays above a quarter of the highest
    /// number that was fine, which it forgets only while the service is too slow.
    pub fn at_least(mut self, requests: u64) -> Self {
        self.settings.bounds.at_least = requests;
        self
    }

    /// Sets the largest number of requests at once. Default: 1,000.
    ///
    /// With the same number as [`at_least`](Self::at_least) the limit is fixed, for classes and fair parts of it.
    pub fn at_most(mut self, requests: u64) -> Self {
        self.settings.bounds.at_most = requests;
        self
    }

    /// Sets the number of requests at once before there are samples; if it is outside of the bounds, the nearer bound. A number that
    /// follows latency doubles at once with demand. Default: 20.
    pub fn first(mut self, requests: u64) -> Self {
        self.settings.bounds.first = requests;
        self
    }

    /// Counts an answer that takes longer than this as [overload](crate::adaptive::Outcome::Overload), and also a request that is dropped
    /// unanswered after this time. Default: no answer is by its latency, and a dropped request is no sample.
    pub fn timeout(mut self, longest: Duration) -> Self {
        self.settings.timeout_us = Some(micros(longest));
        self
    }

    /// Sets the longest wait of a request for a permit. Default: 100 ms; with [`Duration::ZERO`] no request waits.
    ///
    /// When the queue of its class and key has not been empty for this long, a new request waits at most a twentieth of it, and
    /// the newest is served first, because its client is most likely still connected. Unless the permits are [shared by
    /// keys](Self::fair), the requests of all keys are one queue.
    ///
    /// # Source
    /// Maurer: "Fail at Scale" (ACM Queue, 2015), "Controlled Delay" and "Adaptive LIFO", with 100 ms and 5 ms. Deviation: one
    /// queue for each class and key, so that the standing queue of one does not shorten the waits of another.
    pub fn wait_up_to(mut self, longest: Duration) -> Self {
        self.settings.waits.longest_us = micros(longest);
        self
    }

    /// Sets the most requests that wait. Default: 1,000.
    ///
    /// When the queue is full, a more important request takes the place of a less important one. If the permits are [shared by
    /// keys](Self::fair), a request also takes the place of one of its class whose key has and wants more.
    pub fn queue(mut self, longest: usize) -> Self {
        self.settings.waits.queue = longest;
        self
    }

    /// Sets the part of the number that requests of a class get before requests of other classes, in percent: while fewer of them are
    /// in progress, they get the next permit that comes back. Default: 0, so that classes are served by their order alone.
    pub fn guarantee(mut self, class: Class, percent: u64) -> Self {
        self.settings.waits.guaranteed[class.place()] = percent;
        self
    }

    /// Shares the permits by keys, in proportion to the [weights](crate::PermitRequest::weight) of their requests: within a
    /// class, the next permit goes to the key with the fewest. A key has more than its part only while no other key waits.
    /// Default: keys make no difference.
    pub fn fair(mut self) -> Self {
        self.is_fair = true;
        self
    }

    /// Sets whether the limit is enforced. In [`Shadow`](PolicyMode::Shadow) every request has a permit at once, and requests that would
    /// not have one are counted; when it is [`Off`](PolicyMode::Off), they are not. The number adapts in all modes. Default: enforced.
    pub fn mode(mut self, mode: PolicyMode) -> Self {
        self.settings.mode = mode;
        self
    }

    /// Sets the source of time. Default: [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// For a name outside `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`, for bounds below 1, above 1,000,000 or in the wrong order, and for guaranteed
    /// parts that are more than the whole.
    pub fn build(self) -> Result<InFlight, ConfigError> {
        self.check()?;
        let clock = self.clock.clone().unwrap_or_else(|| Arc::new(SystemClock::new()));
        Ok(InFlight::adapting(self, clock))
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        const MOST: u64 = 1_000_000;
        check_name("name for requests in flight", &self.name)?;
        let LimitBounds { at_least, at_most, .. } = self.settings.bounds;
        let guaranteed =
            self.settings.waits.guaranteed.iter().fold(0_u64, |sum, part| sum.saturating_add(*part));
        let problem = if !(1..=MOST).contains(&at_least) || !(1..=MOST).contains(&at_most) {
            format!("cannot adapt between {at_least} and {at_most} requests at once: use 1 to {MOST}")
        } else if at_least > at_most {
            format!(
                "cannot have at least {at_least} and at most {at_most} requests at once: use a lower number and a higher one"
            )
        } else if guaranteed > 100 {
            format!("guarantees {guaranteed} % of what there is: use at most 100 % for all classes together")
        } else {
            return Ok(());
        };
        Err(ConfigError::new(ConfigErrorKind::Policy, format!("{:?} {problem}", self.name)))
    }
}

impl fmt::Debug for AdaptiveBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AdaptiveBuilder").field(&self.name).field(&self.settings).finish()
    }
}
