//! The parts of a store that fail on their own, each with a breaker: [`Parts`], and the [`CallPermits`]
//! to ask some of them.
//!
//! A single store has one part. A Cluster has up to 64, groups of hash slots, because a node
//! that hangs says nothing about the others. The whole outage begins with the first part that
//! is no longer asked and ends with the last one that is asked again; a gauge shows its length.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sluicegate_core::clock::Clock;
use sluicegate_core::error::{StoreError, StoreErrorKind};
use sluicegate_core::store::{BreakerState, Event, Listeners, ResilientStatus};
use sluicegate_core::support::lock;
use smallvec::SmallVec;

use super::breaker::{Breaker, BreakerSettings, CallPermit, Transition};

/// The number of parts that a store may name: the bits of [`Parts`](sluicegate_core::store::Parts).
const PARTS: usize = 64;

/// A breaker for each part of a store.
pub(super) struct Parts {
    settings: BreakerSettings,
    breakers: Box<[Breaker]>,
    clock: Arc<dyn Clock>,
    opened: AtomicU64,
    closed: AtomicU64,
    outage: Mutex<Outage>,
    pub(super) listeners: Listeners,
}

/// The parts that are not asked, and the time since the first of them.
#[derive(Clone, Copy, Default)]
struct Outage {
    parts: u64,
    since_us: u64,
    before: Duration,
}

/// Permission to ask some parts of the store. Dropped without a result, it makes room for others.
///
/// It holds a trial's place where a breaker is half open. So it must not be kept
/// beyond the call: it is moved into the call's future, and dropped with it.
pub(super) struct CallPermits {
    parts: Arc<Parts>,
    permits: SmallVec<[(usize, CallPermit); 1]>,
}

/// The counts of failures, and of decisions without the store.
#[derive(Default)]
pub(super) struct OutageCounts {
    timeouts: AtomicU64,
    unavailable: AtomicU64,
    protocol: AtomicU64,
    alone: AtomicU64,
}

/// The parts that these bits name.
fn each(parts: u64) -> impl Iterator<Item = usize> {
    (0..PARTS).filter(move |part| parts >> part & 1 == 1)
}

impl Parts {
    pub(super) fn new(settings: BreakerSettings, clock: Arc<dyn Clock>) -> Self {
        Self {
            settings,
            breakers: (0..PARTS).map(|_| Breaker::new()).collect(),
            clock,
            opened: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            outage: Mutex::default(),
            listeners: Listeners::default(),
        }
    }

    /// Permission to ask the parts whose breakers allow it, and the bits of the other parts, which must not be asked.
    pub(super) fn permits(self: &Arc<Self>, parts: u64) -> (CallPermits, u64) {
        let mut permits = CallPermits { parts: Arc::clone(self), permits: SmallVec::new() };
        let (now_us, mut away) = (self.clock.now_us(), 0);
        for part in each(parts) {
            match self.breakers[part].admit(&self.settings, now_us) {
                Some(permit) => permits.permits.push((part, permit)),
                None => away |= 1 << part,
            }
        }
        (permits, away)
    }

    /// Whether the breakers of all these parts are closed.
    pub(super) fn are_closed(&self, parts: u64) -> bool {
        each(parts).all(|part| self.breakers[part].state() == BreakerState::Closed)
    }

    /// The number of times that a breaker has closed.
    pub(super) fn closings(&self) -> u64 {
        // Relaxed: a late change is seen by the next request.
        self.closed.load(Ordering::Relaxed)
    }

    /// The longest remaining pause of any part.
    pub(super) fn longest_pause(&self) -> Duration {
        let now_us = self.clock.now_us();
        self.breakers.iter().map(|breaker| breaker.pause(now_us)).max().unwrap_or_default()
    }

    /// Adds the state of the worst part, and the time in which at least one breaker was not closed.
    pub(super) fn report(&self, status: &mut ResilientStatus) {
        let (outage, now_us) = (*self.outage(), self.clock.now_us());
        let current_us = if outage.parts == 0 { 0 } else { now_us.saturating_sub(outage.since_us) };
        status.breaker = self.breakers.iter().map(Breaker::state).max().unwrap_or(BreakerState::Closed);
        // Relaxed: a number to look at.
        status.opened = self.opened.load(Ordering::Relaxed);
        status.in_fallback = outage.before + Duration::from_micros(current_us);
    }

    fn outage(&self) -> MutexGuard<'_, Outage> {
        lock(&self.outage)
    }

    /// Notes that a part is not asked. A trial that has failed only prolongs that.
    fn note_opening(&self, part: usize, pause: Duration, error: &StoreError, now_us: u64) {
        let before = {
            let mut outage = self.outage();
            if outage.parts == 0 {
                outage.since_us = now_us;
            }
            let before = outage.parts;
            outage.parts |= 1 << part;
            before
        };
        if before >> part & 1 == 1 {
            return;
        }
        // Relaxed: a number to look at.
        self.opened.fetch_add(1, Ordering::Relaxed);
        let source: &(dyn std::error::Error + 'static) = error;
        tracing::error!(
            error = source,
            part,
            ?pause,
            "the rate limit store fails: policies now decide by what they say of an outage"
        );
        self.listeners.tell(&Event::BreakerOpened { part, pause, error });
        if before == 0 {
            self.listeners.tell(&Event::FallbackBegan);
        }
    }

    fn note_closing(&self, part: usize, now_us: u64) {
        self.closed.fetch_add(1, Ordering::Relaxed);
        let ended = {
            let mut outage = self.outage();
            let before = outage.parts;
            outage.parts &= !(1 << part);
            (before != 0 && outage.parts == 0).then(|| {
                let lasted = Duration::from_micros(now_us.saturating_sub(outage.since_us));
                outage.before += lasted;
                lasted
            })
        };
        self.listeners.tell(&Event::BreakerClosed { part });
        if let Some(lasted) = ended {
            tracing::info!(part, ?lasted, "the rate limit store decides again");
            self.listeners.tell(&Event::FallbackEnded { lasted });
        }
    }
}

impl CallPermits {
    /// Notes that the parts have answered.
    pub(super) fn succeeded(mut self) {
        let parts = Arc::clone(&self.parts);
        for (part, permit) in self.permits.drain(..) {
            let now_us = parts.clock.now_us();
            if let Some(Transition::Closed) = parts.breakers[part].succeeded(permit, &parts.settings, now_us)
            {
                parts.note_closing(part, now_us);
            }
        }
    }

    /// Notes the failure of the part that the error names, or of all these parts if it names none of them. Returns the failed parts.
    pub(super) fn failed(mut self, error: &StoreError) -> u64 {
        let named = self.permits.iter().any(|(part, _)| *part == error.part());
        let parts = Arc::clone(&self.parts);
        let mut failed = 0;
        for (part, permit) in self.permits.drain(..) {
            if named && part != error.part() {
                parts.breakers[part].left(permit);
                continue;
            }
            failed |= 1 << part;
            let now_us = parts.clock.now_us();
            if let Some(Transition::Opened { pause }) =
                parts.breakers[part].failed(permit, &parts.settings, now_us)
            {
                parts.note_opening(part, pause, error, now_us);
            }
        }
        failed
    }
}

impl Drop for CallPermits {
    fn drop(&mut self) {
        for (part, permit) in self.permits.drain(..) {
            self.parts.breakers[part].left(permit);
        }
    }
}

impl OutageCounts {
    // Relaxed, here and below: the counts order nothing else.
    pub(super) fn failed(&self, error: &StoreError) {
        let count = match error.kind() {
            StoreErrorKind::Timeout => &self.timeouts,
            StoreErrorKind::Protocol => &self.protocol,
            _ => &self.unavailable,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn decided_alone(&self) {
        self.alone.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn report(&self, status: &mut ResilientStatus) {
        status.timeouts = self.timeouts.load(Ordering::Relaxed);
        status.unavailable = self.unavailable.load(Ordering::Relaxed);
        status.protocol = self.protocol.load(Ordering::Relaxed);
        status.fallback_decisions = self.alone.load(Ordering::Relaxed);
    }
}
