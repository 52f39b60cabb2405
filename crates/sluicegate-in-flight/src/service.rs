//! The permits of a service, as many as it can handle: [`ServicePermits`].
//!
//! One lock for all requests, held for a short time: when a request asks, when it is answered, and when its permit comes back. No
//! step under it looks at all waiting requests, so that a full queue does not make it longer. Wakers are called after it is released.

use std::sync::{Arc, PoisonError};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};
use std::task::Waker;
use std::time::Duration;

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
use sluicegate_core::clock::Clock;
use sluicegate_core::key::Key;
use sluicegate_core::policy::PolicyMode;

use crate::adaptive::{Estimate, LimitAlgorithm, LimitBounds, Outcome, Sample};
use crate::line::{PermitLine, QueueBounds};
use crate::pool::{Move, NoPermitKind, PermitAsk, PermitPool, PermitRecord, PermitReply, Seat, Wakers};
use crate::status::{AdaptiveStatus, DrainRate, History};

pub(super) struct ServicePermits {
    clock: Arc<dyn Clock>,
    state: Mutex<LockedPermits>,
}

/// Settings that may change while the limit is in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServiceSettings {
    pub(super) algorithm: LimitAlgorithm,
    pub(super) bounds: LimitBounds,
    pub(super) timeout_us: Option<u64>,
    pub(super) waits: QueueBounds,
    pub(super) mode: PolicyMode,
}

struct LockedPermits {
    settings: ServiceSettings,
    estimate: Estimate,
    /// The number that listeners have heard of.
    told: u64,
    line: PermitLine,
    drain: DrainRate,
    history: History,
    /// Requests that were refused, by class, and requests that would have been refused while the limit was in shadow.
    shed: [u64; 4],
    would_shed: [u64; 4],
}

impl ServicePermits {
    pub(super) fn new(settings: ServiceSettings, is_fair: bool, clock: Arc<dyn Clock>) -> Self {
        let now_us = clock.now_us();
        let estimate = Estimate::new(settings.algorithm, settings.bounds);
        let state = LockedPermits {
            settings,
            told: estimate.limit(),
            estimate,
            line: PermitLine::new(is_fair),
            drain: DrainRate::since(now_us),
            history: History::default(),
            shed: [0; 4],
            would_shed: [0; 4],
        };
        Self { clock, state: Mutex::new(state) }
    }

    /// Changes the settings, and keeps the estimate unless the algorithm changes.
    ///
    /// # Errors
    /// When the permits would begin or cease to be shared by keys.
    pub(super) fn set(&self, settings: ServiceSettings, is_fair: bool) -> Result<(), &'static str> {
        let now_us = self.clock.now_us();
        let mut state = self.lock();
        if state.line.is_fair() != is_fair {
            return Err("cannot begin or cease to share by keys while it limits: build another one");
        }
        if settings.algorithm == state.settings.algorithm {
            state.estimate.set_bounds(settings.bounds);
        } else {
            state.estimate = Estimate::new(settings.algorithm, settings.bounds);
        }
        state.settings = settings;
        let woken = state.serve(now_us);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        Ok(())
    }

    pub(super) fn drains_in(&self) -> Duration {
        let now_us = self.clock.now_us();
        let state = self.lock();
        let ahead = state.line.in_use().saturating_add(state.line.waiting_in_all() as u64);
        Duration::from_micros(state.drain.of(ahead, now_us))
    }

    pub(super) fn status(&self) -> AdaptiveStatus {
        let now_us = self.clock.now_us();
        let state = self.lock();
        AdaptiveStatus {
            algorithm: state.settings.algorithm,
            mode: state.settings.mode,
            bounds: state.settings.bounds,
            limit: state.estimate.limit(),
            in_flight: state.line.in_use(),
            waiting: state.line.waiting(),
            shed: state.shed,
            would_shed: state.would_shed,
            latency: state.estimate.latency(),
            history: state.history.until(now_us),
        }
    }

    /// No code panics while it holds the lock, so the protected data is consistent.
    fn lock(&self) -> MutexGuard<'_, LockedPermits> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PermitPool for ServicePermits {
    fn ask(&self, ask: &PermitAsk<'_>) -> PermitReply {
        let now_us = self.clock.now_us();
        let PermitAsk { class, key, waits, .. } = *ask;
        let mut state = self.lock();
        let LockedPermits { settings, estimate, line, shed, would_shed, .. } = &mut *state;
        let record = PermitRecord { class, begun_us: now_us, ticket: None };
        let mut is_taken = line.take(class, key, estimate.limit());
        if !is_taken && line.waiting_in_all() == 0 && estimate.demand(Duration::from_micros(now_us)) {
            is_taken = line.take(class, key, estimate.limit());
        }
        if is_taken {
            return PermitReply::Taken(record);
        }
        match settings.mode {
            PolicyMode::Off => {
                line.give(class, key);
                return PermitReply::Taken(record);
            }
            PolicyMode::Shadow => {
                line.give(class, key);
                would_shed[class.place()] += 1;
                return PermitReply::Spared(record);
            }
            // The limit is enforced.
            _ => {}
        }
        let Some((seat, lost)) = waits.then(|| line.wait(ask, &settings.waits, now_us)).flatten() else {
            shed[class.place()] += 1;
            let may_wait = waits && settings.waits.longest_us > 0;
            return PermitReply::Full(if may_wait { NoPermitKind::Queue } else { NoPermitKind::Permits });
        };
        if let Some((class, ..)) = &lost {
            shed[class.place()] += 1;
        }
        PermitReply::Waiting(seat, lost)
    }

    fn begin(&self, seat: &Seat) -> PermitRecord {
        PermitRecord { class: seat.class, begun_us: self.clock.now_us(), ticket: None }
    }

    fn answered(&self, permit: &PermitRecord, outcome: Outcome) -> Move {
        let now_us = self.clock.now_us();
        let mut state = self.lock();
        let woken = state.sample(permit.begun_us, now_us, outcome);
        let moved = state.tell();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        moved
    }

    fn put_back(&self, key: &Key, permit: &PermitRecord, is_answered: bool) -> Move {
        let now_us = self.clock.now_us();
        let mut state = self.lock();
        let mut woken = Wakers::new();
        if !is_answered && state.is_late(now_us.saturating_sub(permit.begun_us)) {
            woken = state.sample(permit.begun_us, now_us, Outcome::Overload);
        }
        state.line.put_back(permit.class, key);
        state.drain.end(now_us);
        woken.extend(state.serve(now_us));
        let moved = state.tell();
        drop(state);
        // Outside of the lock: a waker may take it.
        woken.into_iter().for_each(Waker::wake);
        moved
    }

    fn give_up(&self, key: &Key, seat: &Seat, is_shed: bool) {
        let now_us = self.clock.now_us();
        let mut state = self.lock();
        state.shed[seat.class.place()] += u64::from(is_shed);
        // Under the lock, so that it is not given a permit after this.
        let mut woken = Wakers::new();
        if seat.place.end() {
            state.line.put_back(seat.class, key);
            woken = state.serve(now_us);
        } else {
            state.line.leave(key, seat);
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    fn number(&self) -> u64 {
        self.lock().estimate.limit()
    }

    fn set_number(&self, _: u64) -> Result<(), &'static str> {
        Err("adapts its number: use `set_adaptive`")
    }

    fn in_use(&self, key: &Key) -> u64 {
        self.lock().line.in_use_of(key)
    }

    fn in_use_in_all(&self) -> u64 {
        self.lock().line.in_use()
    }

    fn remaining(&self, _: &Key) -> u64 {
        self.number().saturating_sub(self.in_use_in_all())
    }

    fn keys(&self) -> usize {
        self.lock().line.tenants()
    }
}

impl LockedPermits {
    fn is_late(&self, latency_us: u64) -> bool {
        self.settings.timeout_us.is_some_and(|longest| latency_us > longest)
    }

    fn sample(&mut self, begun_us: u64, now_us: u64, outcome: Outcome) -> Wakers {
        let latency_us = now_us.saturating_sub(begun_us);
        let outcome = if self.is_late(latency_us) { Outcome::Overload } else { outcome };
        let latency = Duration::from_micros(latency_us);
        let sample = Sample { latency, in_flight: self.line.in_use(), outcome };
        if !self.estimate.add(Duration::from_micros(now_us), sample) {
            return Wakers::new();
        }
        self.history.add(now_us, self.estimate.limit(), self.estimate.latency());
        self.serve(now_us)
    }

    /// The change of the number since the last answer, for listeners.
    fn tell(&mut self) -> Move {
        let to = self.estimate.limit();
        Move { from: std::mem::replace(&mut self.told, to), to }
    }

    fn serve(&mut self, now_us: u64) -> Wakers {
        if self.line.waiting_in_all() == 0 {
            return Wakers::new();
        }
        // A limit that is no longer enforced holds no request back.
        if self.settings.mode != PolicyMode::Enforce {
            return self.line.serve(u64::MAX, &self.settings.waits, now_us);
        }
        let mut woken = self.line.serve(self.estimate.limit(), &self.settings.waits, now_us);
        // Requests that wait are demand.
        while self.line.waiting_in_all() > 0 && self.estimate.demand(Duration::from_micros(now_us)) {
            woken.extend(self.line.serve(self.estimate.limit(), &self.settings.waits, now_us));
        }
        woken
    }
}

/// Every interleaving of two requests. Run with `RUSTFLAGS="--cfg loom"`.
#[cfg(all(test, loom))]
mod model;
