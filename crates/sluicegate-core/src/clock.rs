//! The source of time. Time is a parameter everywhere: tests set it by hand.
//!
//! A store has a clock: the machine's ([`SystemClock`]) unless it is given another clock. All
//! decisions, waits and resets are numbers of that clock, in whole microseconds. Redis decides by
//! its own `TIME`, so that the clocks of the instances of a service do not matter; a clock that is
//! given to a Redis store is for tests.
//!
//! A test that sleeps is slow and fails on a busy machine. A test that moves a [`ManualClock`] takes
//! no time:
//!
//! ```
//! use std::time::Duration;
//! use sluicegate_core::clock::ManualClock;
//! use sluicegate_core::{MemoryStore, Policy};
//!
//! let clock = ManualClock::new();
//! let store = MemoryStore::builder().clock(clock.clone()).build()?;
//! let login = Policy::fixed_window("login", "1/h").on(&store)?;
//!
//! assert!(login.check("ada").now().expect("memory answers at once")?.is_allowed());
//! assert!(!login.check("ada").now().expect("memory answers at once")?.is_allowed());
//! clock.advance(Duration::from_secs(3_600));
//! assert!(login.check("ada").now().expect("memory answers at once")?.is_allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Requests that wait for a turn sleep on tokio's timer, which tests pause with `start_paused =
//! true`. `TokioClock`, with the feature `tokio`, gives a store that time too, so that one sleep moves both.
//!
//! # Writing a clock
//! A [`Clock`] is asked once per decision, so it has to be cheap and must not block.
//!
//! [`SystemClock`] asks the operating system. Reading the processor's time stamp counter directly takes half the time, but a program
//! cannot know whether the counters of all cores agree. If they do not, time runs backwards when a thread moves to another core, and
//! valid traffic is refused. On machines with counters that are known to agree, use a clock of a few lines around the crate `quanta`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Tells the time in whole microseconds.
///
/// A clock that counts from the Unix epoch gives windows that begin on the full minute or hour; a clock that counts
/// from elsewhere shifts them. It must stay below 2^52 (the year 2112). It should not go backwards: a store never admits more after a step back,
/// but keys may have to wait for the length of the step.
///
/// A clock that is an hour ahead of UTC begins the windows of a day at midnight of UTC+1:
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::clock::{Clock, ManualClock};
/// use sluicegate_core::{MemoryStore, Policy};
///
/// struct Ahead<C>(C);
///
/// impl<C: Clock> Clock for Ahead<C> {
///     fn now_us(&self) -> u64 {
///         self.0.now_us() + 3_600_000_000
///     }
/// }
///
/// let utc = ManualClock::new();
/// utc.set(Duration::from_secs(23 * 3_600)); // 23:00, which is midnight there
/// let store = MemoryStore::builder().clock(Ahead(utc)).build()?;
/// let daily = Policy::fixed_window("daily", "100/d").on(&store)?;
/// let decision = daily.check("ada").now().expect("memory answers at once")?;
/// assert_eq!(decision.reset_after(), Duration::from_secs(24 * 3_600));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Clock: Send + Sync + 'static {
    /// Microseconds since the clock's epoch.
    fn now_us(&self) -> u64;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now_us(&self) -> u64 {
        (**self).now_us()
    }
}

/// The monotonic clock of the machine ([`Instant`]), anchored once at the Unix epoch.
///
/// It never steps: when the machine's wall clock is corrected, the windows of this process do not move, and a leap second, an
/// NTP step or a manual correction changes no limit.
///
/// # Drift
/// The windows of this process differ from those of the wall clock
/// - by all steps of the wall clock since the process began;
/// - on Linux and macOS, by the time for which the machine was suspended, which this clock does not count;
/// - by nothing else on Linux, where time synchronisation slows down or speeds up both clocks alike. Elsewhere this clock keeps the rate of
///   the hardware, which is off by some seconds a day at most.
///
/// If windows have to follow the wall clock exactly, give the store a clock that reads [`SystemTime`]: a store stays within its
/// limits when such a clock steps back.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    origin: Instant,
    origin_us: u64,
}

impl SystemClock {
    /// A clock that starts at the current time of the wall clock.
    pub fn new() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { origin: Instant::now(), origin_us: micros(unix) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now_us(&self) -> u64 {
        self.origin_us.saturating_add(micros(self.origin.elapsed()))
    }
}

/// A clock that moves only when it is set or advanced. Clones show the same time.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::clock::{Clock, ManualClock};
///
/// let clock = ManualClock::new();
/// clock.advance(Duration::from_secs(2));
/// assert_eq!(clock.now_us(), 2_000_000);
/// ```
#[derive(Clone, Default)]
pub struct ManualClock {
    now_us: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.set(Duration::from_micros(self.now_us().saturating_add(micros(by))));
    }

    /// Sets the time since the clock's epoch; it may move backwards.
    /// For tests of a clock that is corrected; [`advance`](Self::advance) is the usual one.
    pub fn set(&self, since_epoch: Duration) {
        // Relaxed: the clock is one number and orders no other memory.
        self.now_us.store(micros(since_epoch), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    #[inline]
    fn now_us(&self) -> u64 {
        self.now_us.load(Ordering::Relaxed)
    }
}

crate::debug_as!(ManualClock, clock => Duration::from_micros(clock.now_us()));

/// The time of tokio's timer, for tests: it stands at zero when the clock is made. With `start_paused = true` a sleep, a wait for a turn
/// and `tokio::time::advance` move the store and the timer together. Where tokio's time is not paused, it goes on by itself.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::clock::TokioClock;
/// use sluicegate_core::{MemoryStore, Policy};
///
/// #[tokio::main(flavor = "current_thread", start_paused = true)]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let store = MemoryStore::builder().clock(TokioClock::new()).build()?;
///     let mail = Policy::gcra("mail", "1/min").on(&store)?;
///     for _ in 0..3 {
///         mail.check("ada").acquire(Duration::from_secs(60)).await?; // the second and the third wait for a minute, at once
///     }
///     tokio::time::sleep(Duration::from_secs(60)).await;
///     assert!(mail.check("ada").await?.is_allowed());
///     Ok(())
/// }
/// ```
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
#[derive(Clone, Copy, Debug)]
pub struct TokioClock(tokio::time::Instant);

#[cfg(feature = "tokio")]
impl TokioClock {
    /// A clock at zero.
    pub fn new() -> Self {
        Self(tokio::time::Instant::now())
    }
}

#[cfg(feature = "tokio")]
impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(feature = "tokio")]
impl Clock for TokioClock {
    fn now_us(&self) -> u64 {
        micros(self.0.elapsed())
    }
}

/// Whole microseconds of a duration, rounded down; `u64::MAX` if it does not fit (584,000 years).
pub fn micros(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(duration.subsec_micros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_counts_from_the_unix_epoch_and_never_goes_back() {
        let clock = SystemClock::new();
        let wall = micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
        let (first, second) = (clock.now_us(), clock.now_us());
        assert!(first.abs_diff(wall) < 3_600_000_000, "{first} is not about {wall}");
        assert!(second >= first);
    }

    #[test]
    fn huge_durations_saturate() {
        assert_eq!(micros(Duration::MAX), u64::MAX);
    }
}
