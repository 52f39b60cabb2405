//! The line in this process: [`MemoryLine`].
//!
//! It is a lock around one state. A poll holds the lock for a few steps and awaits nothing under it. Poisoning is ignored:
//! a room that refuses all visitors is worse than a number that is off by one.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use sluicegate_core::ConfigError;
use sluicegate_core::clock::Clock;
use sluicegate_core::support::lock;

use crate::line::schedule::Schedule;
use crate::line::{
    Line, LineAnswer, LineAsk, LineChange, LineFuture, LineHome, LinePlace, LineSettings, LineStatus,
};

/// Keeps lines in this process: for a service of one instance. A restart empties them; visitors then get new places.
///
/// # Memory
/// A place takes 24 bytes, and up to twice that while the list grows. A place is kept for one minute after its turn, or for ten minutes if it
/// was passed over. If places are counted by client, each waiting client takes about 20 bytes more.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct MemoryLine;

impl MemoryLine {
    /// A home for lines in this process.
    pub const fn new() -> Self {
        Self
    }
}

impl LineHome for MemoryLine {
    fn open(&self, settings: LineSettings, clock: Arc<dyn Clock>) -> Result<Arc<dyn Line>, ConfigError> {
        let schedule = Mutex::new(Schedule::new(settings, clock.now_us())?);
        Ok(Arc::new(InMemory { clock, schedule }))
    }
}

struct InMemory {
    clock: Arc<dyn Clock>,
    schedule: Mutex<Schedule>,
}

impl InMemory {
    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        lock(&self.schedule)
    }
}

impl Line for InMemory {
    fn ask(&self, ask: LineAsk) -> LineFuture<LineAnswer> {
        LineFuture::ready(self.schedule().ask(self.clock.now_us(), ask))
    }

    fn end(&self, place: LinePlace) -> LineFuture<()> {
        self.schedule().end(self.clock.now_us(), place);
        LineFuture::ready(())
    }

    fn has_ended(&self, place: LinePlace) -> bool {
        self.schedule().has_ended(place)
    }

    fn change(&self, change: LineChange) -> LineFuture<()> {
        // A rate is checked before it comes here.
        _ = self.schedule().change(self.clock.now_us(), change);
        LineFuture::ready(())
    }

    fn set(&self, settings: LineSettings, with_rate: bool) {
        let (now_us, rate, mut schedule) = (self.clock.now_us(), settings.rate, self.schedule());
        schedule.set(now_us, settings);
        if with_rate {
            // A rate is checked before it comes here.
            _ = schedule.change(now_us, LineChange::Rate(rate));
        }
    }

    fn status(&self) -> LineStatus {
        self.schedule().status(self.clock.now_us())
    }
}

impl fmt::Debug for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLine").field("status", &self.status()).finish()
    }
}
