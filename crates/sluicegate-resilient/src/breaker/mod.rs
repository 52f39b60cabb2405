//! A circuit breaker: decides whether a store is asked.
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
use sluicegate_core::store::BreakerState;

use super::settings::BreakerSettings;

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
        pause * (1_000 - most + random(2 * most + 1)) / 1_000
    }
}

/// A random number below `end`. It need not be unpredictable.
fn random(end: u32) -> u32 {
    use std::hash::{BuildHasher, RandomState};
    let [a, b, c, d, ..] = RandomState::new().hash_one(0).to_le_bytes();
    u32::from_le_bytes([a, b, c, d]) % end
}
