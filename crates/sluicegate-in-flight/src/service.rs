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
use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::key::Key;
use sluicegate_core::policy::PolicyMode;

use crate::adaptive::{Estimate, Outcome, Sample};
use crate::line::{Contender, PermitLine, Seat, Wakers};
use crate::permit::{PermitOf, PermitReply, SeatOf};
use crate::place::QueuePlace;
use crate::settings::{AdaptiveBuilder, InFlightSettings};
use crate::status::{AdaptiveStatus, DrainRate, History};
use crate::{Class, NoPermitKind};

pub(super) struct ServicePermits {
    clock: Arc<dyn Clock>,
    state: Mutex<LockedPermits>,
}

struct LockedPermits {
    settings: InFlightSettings,
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

/// A permit of a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServicePermit {
    pub(super) class: Class,
    at_us: u64,
}

/// The number at once at the last answer, and now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub(super) from: u64,
    pub(super) to: u64,
}

impl ServicePermits {
    pub(super) fn new(builder: &AdaptiveBuilder, clock: Arc<dyn Clock>) -> Self {
        let settings = builder.settings;
        let now_us = clock.now_us();
        let estimate = Estimate::new(settings.algorithm, settings.bounds);
        let state = LockedPermits {
            settings,
            told: estimate.limit(),
            estimate,
            line: PermitLine::new(builder.is_fair),
            drain: DrainRate::since(now_us),
            history: History::default(),
            shed: [0; 4],
            would_shed: [0; 4],
        };
        Self { clock, state: Mutex::new(state) }
    }

    /// A permit, or a place in the queue if it `waits`.
    pub(super) fn ask(&self, tenant: &Key, class: Class, weight: u64, waits: bool) -> PermitReply {
        let now_us = self.clock.now_us();
        let mut state = self.lock();
        let LockedPermits { settings, estimate, line, shed, would_shed, .. } = &mut *state;
        let begun = ServicePermit { class, at_us: now_us };
        let mut is_taken = line.take(class, tenant, estimate.limit());
        if !is_taken && line.waiting_in_all() == 0 && estimate.demand(Duration::from_micros(now_us)) {
            is_taken = line.take(class, tenant, estimate.limit());
        }
        if is_taken {
            return PermitReply::Taken(PermitOf::Service(begun));
        }
        match settings.mode {
            PolicyMode::Off => {
                line.give(class, tenant);
                return PermitReply::Taken(PermitOf::Service(begun));
            }
            PolicyMode::Shadow => {
                line.give(class, tenant);
                would_shed[class.place()] += 1;
                return PermitReply::Spared(begun);
            }
            // The limit is enforced.
            _ => {}
        }
        let kind = if waits { NoPermitKind::Queue } else { NoPermitKind::Permits };
        let asks = Contender { class, tenant, weight, now_us };
        let Some((place, seat, lost)) = waits.then(|| line.wait(&asks, &settings.waits)).flatten() else {
            shed[class.place()] += 1;
            return PermitReply::Full(if settings.waits.longest_us == 0 {
                NoPermitKind::Permits
            } else {
                kind
            });
        };
        if let Some((class, ..)) = &lost {
            shed[class.place()] += 1;
        }
        PermitReply::Waiting(place, SeatOf::Service(seat), lost)
    }

    /// The permit of a request that has waited, from now on.
    pub(super) fn begin(&self, class: Class) -> ServicePermit {
        ServicePermit { class, at_us: self.clock.now_us() }
    }

    /// Takes the latency of a request that is answered as a sample.
    pub(super) fn answered(&self, begun: &ServicePermit, outcome: Outcome) -> Move {
        let now_us = self.clock.now_us();
        let mut state = self.lock();
        let woken = state.sample(begun, now_us, outcome);
        let moved = state.tell();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        moved
    }

    /// Puts a permit back; its request `is_answered`, or was dropped before its answer.
    pub(super) fn put_back(&self, tenant: &Key, begun: &ServicePermit, is_answered: bool) -> Move {
        let now_us = self.clock.now_us();
        let mut state = self.lock();
        let is_late =
            state.settings.timeout_us.is_some_and(|longest| now_us.saturating_sub(begun.at_us) > longest);
        let mut woken = Wakers::new();
        if !is_answered && is_late {
            woken = state.sample(begun, now_us, Outcome::Overload);
        }
        state.line.put_back(begun.class, tenant);
        state.drain.end(now_us);
        woken.extend(state.serve(now_us));
        let moved = state.tell();
        drop(state);
        // Outside of the lock: a waker may take it.
        woken.into_iter().for_each(Waker::wake);
        moved
    }

    /// Leaves the queue, or passes on the permit that was given in the meantime.
    pub(super) fn give_up(&self, tenant: &Key, place: &Arc<QueuePlace>, seat: &Seat, is_shed: bool) {
        let now_us = self.clock.now_us();
        let mut state = self.lock();
        state.shed[seat.class.place()] += u64::from(is_shed);
        // Under the lock, so that it is not given a permit after this.
        let mut woken = Wakers::new();
        if place.end() {
            state.line.put_back(seat.class, tenant);
            woken = state.serve(now_us);
        } else {
            state.line.leave(tenant, seat);
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Changes the settings, and keeps the estimate unless the algorithm changes.
    pub(super) fn set(&self, name: &str, builder: &AdaptiveBuilder) -> Result<(), ConfigError> {
        builder.check()?;
        let now_us = self.clock.now_us();
        let mut state = self.lock();
        let problem = if name != builder.name {
            format!("{name:?} cannot become {:?}: use settings of the same name", builder.name)
        } else if state.line.is_fair() != builder.is_fair {
            format!("{name:?} cannot begin or cease to share by keys while it limits: build another one")
        } else {
            let settings = builder.settings;
            if settings.algorithm == state.settings.algorithm {
                state.estimate.set_bounds(settings.bounds);
            } else {
                state.estimate = Estimate::new(settings.algorithm, settings.bounds);
            }
            state.settings = settings;
            let woken = state.serve(now_us);
            drop(state);
            woken.into_iter().for_each(Waker::wake);
            return Ok(());
        };
        Err(ConfigError::new(ConfigErrorKind::Policy, problem))
    }

    pub(super) fn limit(&self) -> u64 {
        self.lock().estimate.limit()
    }

    pub(super) fn in_use(&self) -> u64 {
        self.lock().line.in_use()
    }

    pub(super) fn in_use_of(&self, tenant: &Key) -> u64 {
        self.lock().line.in_use_of(tenant)
    }

    pub(super) fn tenants(&self) -> usize {
        self.lock().line.tenants()
    }

    pub(super) fn drain(&self) -> Duration {
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

impl LockedPermits {
    fn sample(&mut self, begun: &ServicePermit, now_us: u64, outcome: Outcome) -> Wakers {
        let latency_us = now_us.saturating_sub(begun.at_us);
        let is_late = self.settings.timeout_us.is_some_and(|longest| latency_us > longest);
        let outcome = if is_late { Outcome::Overload } else { outcome };
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
