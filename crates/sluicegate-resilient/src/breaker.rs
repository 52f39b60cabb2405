//! A circuit breaker, which decides whether a store is asked: [`Breaker`], and its [`BreakerSettings`].
//!
//! Source: Michael Nygard, "Release It!", chapter 5; the settings are those of Resilience4j.
//! It has no lock: the state is one word that changes by compare-and-exchange, and the last results
//! are the bits of another word.
//!
//! ```text
//!             too many failures                      pause over
//!   Closed ----------------------> Open ----------------------------> HalfOpen
//!     ^                              ^        a trial failed             |
//!     |                              +-----------------------------------+
//!     |                  enough trials succeeded                         |
//!     +------------------------------------------------------------------+
//! ```
//!
//! # Invariants
//! - Each change of state is a new generation. A result counts only in the generation of its pass,
//!   so an answer from before an outage does not close or open the breaker after it.
//! - A pass comes back exactly once: as a success, as a failure, or as left. A dropped future leaves its
//!   pass, so no trial is lost.
//! - If a success and a failure come at the same moment, one wins, and its times are in
//!   force.
//!
//! Loom models run every interleaving of two threads.

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
#[expect(clippy::unwrap_used, reason = "a helper of tests")]
mod tests;

#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sluicegate_core::clock::micros;
use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::store::BreakerState;
use sluicegate_core::support::random;

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
    consecutive: u32,
    percent: u32,
    calls: u32,
    first_pause: Duration,
    longest_pause: Duration,
    jitter: u32,
    trials: u32,
    successes: u32,
    ramp: Duration,
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

    sluicegate_core::setters! {
        const;

        /// Opens after `failures` consecutive failures. Default: 5.
        ///
        /// This detects a store that is gone within five calls. A success in between resets the count;
        /// [`ratio`](Self::ratio) detects a store that fails occasionally.
        consecutive(failures: u32);

        /// Makes each pause up to `percent` (at most 90) longer or shorter, at random. Default: 20 %.
        ///
        /// The jitter keeps the instances of a service from trying at the same moment. With 0, the end of a pause is exact, for tests with a
        /// manual clock.
        jitter(percent: u32);

        /// Admits at most `trials` trials at the same time (1 to 255) while it is half open. Default:
        /// 1.
        ///
        /// Requests beyond them are decided without the store. More trials close it sooner under load,
        /// and let more requests wait if the store still hangs.
        trials(trials: u32);

        /// Closes after `successes` successful trials (1 to 255). Default: 3.
        successes(successes: u32);

        /// After closing, admits a growing share of the calls over `ramp`: 10 % at first, 100 % at the
        /// end. Default: 1 s; zero for all at once.
        ramp(ramp: Duration);
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

/// The breaker of one part of a store.
#[derive(Debug)]
pub(super) struct Breaker {
    /// Phase, trials under way, trials that succeeded, generation: see [`PackedState`].
    word: AtomicU64,
    /// The last results, the newest in the lowest bit, 1 for a failure; a leading 1 marks their number.
    results: AtomicU64,
    /// The end of the pause. Only an opening writes it, and only a closing writes the ramp's end: if a success
    /// and a failure come at the same moment, the loser must not change the time of the winner.
    pause_ends_us: AtomicU64,
    ramp_ends_us: AtomicU64,
    /// Pauses in a row.
    pauses: AtomicU32,
    /// Calls since the ramp began.
    ramped: AtomicU32,
}

/// Permission to ask the store once. Its result counts only if the breaker has not changed since.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallPermit {
    generation: u32,
    is_trial: bool,
}

/// The effect of a result on the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    Opened { pause: Duration },
    Closed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct PackedState {
    state: BreakerState,
    trials: u32,
    successes: u32,
    generation: u32,
}

impl PackedState {
    fn pack(self) -> u64 {
        let state = match self.state {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        };
        state
            | u64::from(self.trials) << 8
            | u64::from(self.successes) << 16
            | u64::from(self.generation) << 32
    }

    fn unpack(word: u64) -> Self {
        let byte = |shift: u32| u32::from((word >> shift).to_le_bytes()[0]);
        let state = match byte(0) {
            0 => BreakerState::Closed,
            1 => BreakerState::HalfOpen,
            _ => BreakerState::Open,
        };
        let [.., a, b, c, d] = word.to_le_bytes();
        Self { state, trials: byte(8), successes: byte(16), generation: u32::from_le_bytes([a, b, c, d]) }
    }

    /// The word after a change of state: earlier results no longer count.
    fn next(self, state: BreakerState) -> Self {
        Self { state, trials: 0, successes: 0, generation: self.generation.wrapping_add(1) }
    }
}

/// No results yet.
const NO_RESULTS: u64 = 1;

impl Breaker {
    pub(super) fn new() -> Self {
        let word = PackedState { state: BreakerState::Closed, trials: 0, successes: 0, generation: 0 };
        Self {
            word: AtomicU64::new(word.pack()),
            results: AtomicU64::new(NO_RESULTS),
            pause_ends_us: AtomicU64::new(0),
            ramp_ends_us: AtomicU64::new(0),
            pauses: AtomicU32::new(0),
            ramped: AtomicU32::new(0),
        }
    }

    // Relaxed, here and below, except for `word`, which orders the times: counts order nothing else.
    fn load(&self) -> PackedState {
        // Acquire: a reader of the word sees the time that belongs to it.
        PackedState::unpack(self.word.load(Ordering::Acquire))
    }

    fn swap(&self, old: PackedState, new: PackedState) -> bool {
        // Release: pairs with the load above.
        let swapped = self.word.compare_exchange(old.pack(), new.pack(), Ordering::AcqRel, Ordering::Acquire);
        swapped.is_ok()
    }

    pub(super) fn state(&self) -> BreakerState {
        self.load().state
    }

    /// The rest of the pause in which the store is not asked.
    pub(super) fn pause(&self, now_us: u64) -> Duration {
        match self.load().state {
            BreakerState::Open => {
                Duration::from_micros(self.pause_ends_us.load(Ordering::Relaxed).saturating_sub(now_us))
            }
            BreakerState::HalfOpen | BreakerState::Closed => Duration::ZERO,
        }
    }

    /// Permission to ask the store, or `None`. A pass has to come back by [`succeeded`](Self::succeeded), [`failed`](Self::failed) or
    /// [`left`](Self::left).
    pub(super) fn admit(&self, settings: &BreakerSettings, now_us: u64) -> Option<CallPermit> {
        loop {
            let word = self.load();
            let generation = word.generation;
            let next = match word.state {
                BreakerState::Closed => {
                    return self
                        .admits_in_ramp(settings, now_us)
                        .then_some(CallPermit { generation, is_trial: false });
                }
                BreakerState::Open if now_us < self.pause_ends_us.load(Ordering::Relaxed) => return None,
                BreakerState::Open => PackedState { trials: 1, ..word.next(BreakerState::HalfOpen) },
                BreakerState::HalfOpen if word.trials >= settings.trials => return None,
                BreakerState::HalfOpen => PackedState { trials: word.trials + 1, ..word },
            };
            if self.swap(word, next) {
                return Some(CallPermit { generation: next.generation, is_trial: true });
            }
        }
    }

    /// Admits a tenth of the calls when the ramp begins, and all when it ends; evenly spread.
    fn admits_in_ramp(&self, settings: &BreakerSettings, now_us: u64) -> bool {
        let left_us = self.ramp_ends_us.load(Ordering::Relaxed).saturating_sub(now_us);
        let ramp_us = micros(settings.ramp);
        if left_us == 0 || ramp_us == 0 {
            return true;
        }
        let percent = 10 + 90 * (ramp_us - left_us.min(ramp_us)) / ramp_us;
        let calls = u64::from(self.ramped.fetch_add(1, Ordering::Relaxed));
        (calls * percent) % 100 < percent
    }

    /// The store answered.
    pub(super) fn succeeded(
        &self,
        pass: CallPermit,
        settings: &BreakerSettings,
        now_us: u64,
    ) -> Option<Transition> {
        if !pass.is_trial {
            self.record(pass, settings, false);
            return None;
        }
        loop {
            let word = self.load();
            if word.generation != pass.generation {
                return None;
            }
            let successes = word.successes + 1;
            let closes = successes >= settings.successes;
            let next = if closes {
                word.next(BreakerState::Closed)
            } else {
                PackedState { trials: word.trials - 1, successes, ..word }
            };
            if closes {
                self.results.store(NO_RESULTS, Ordering::Relaxed);
                self.ramped.store(0, Ordering::Relaxed);
                self.ramp_ends_us.store(now_us.saturating_add(micros(settings.ramp)), Ordering::Relaxed);
            }
            if self.swap(word, next) {
                if closes {
                    self.pauses.store(0, Ordering::Relaxed);
                }
                return closes.then_some(Transition::Closed);
            }
        }
    }

    /// The store failed to answer.
    pub(super) fn failed(
        &self,
        pass: CallPermit,
        settings: &BreakerSettings,
        now_us: u64,
    ) -> Option<Transition> {
        if !pass.is_trial && !self.record(pass, settings, true) {
            return None;
        }
        loop {
            let word = self.load();
            if word.generation != pass.generation {
                return None;
            }
            let pause = self.next_pause(settings);
            self.pause_ends_us.store(now_us.saturating_add(micros(pause)), Ordering::Relaxed);
            if self.swap(word, word.next(BreakerState::Open)) {
                self.pauses.fetch_add(1, Ordering::Relaxed);
                return Some(Transition::Opened { pause });
            }
        }
    }

    /// The caller left before the answer, so the result is unknown: the next trial may take its place.
    pub(super) fn left(&self, pass: CallPermit) {
        if !pass.is_trial {
            return;
        }
        loop {
            let word = self.load();
            if word.generation != pass.generation
                || self.swap(word, PackedState { trials: word.trials - 1, ..word })
            {
                return;
            }
        }
    }

    /// Records a result, and returns whether it is one failure too many.
    ///
    /// The last results are the bits of one word below a leading 1, so that both the ratio and the
    /// run of failures are counted by one instruction each.
    fn record(&self, pass: CallPermit, settings: &BreakerSettings, failed: bool) -> bool {
        let full = 1_u64 << settings.calls;
        if self.load().generation != pass.generation {
            return false;
        }
        // A working store writes nothing here, so its callers do not contend for the word.
        if !failed && self.results.load(Ordering::Relaxed) == full {
            return false;
        }
        let add = |results: u64| {
            let results = results << 1 | u64::from(failed);
            if results >= full << 1 { full | (results & (full - 1)) } else { results }
        };
        let before =
            self.results.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |results| Some(add(results)));
        let results = add(before.unwrap_or(NO_RESULTS));
        let calls = 63 - results.leading_zeros();
        let failures = results & !(1 << calls);
        let too_many = calls == settings.calls && failures.count_ones() * 100 >= settings.percent * calls;
        failed && (too_many || failures.trailing_ones() >= settings.consecutive)
    }

    /// The first pause, doubled for each earlier pause in a row, plus or minus the jitter.
    fn next_pause(&self, settings: &BreakerSettings) -> Duration {
        let doublings = self.pauses.load(Ordering::Relaxed).min(16);
        let pause = settings.first_pause.saturating_mul(1 << doublings).min(settings.longest_pause);
        let most = settings.jitter * 10;
        pause * (1_000 - most + u32::try_from(random() % u64::from(2 * most + 1)).unwrap_or(0)) / 1_000
    }
}
