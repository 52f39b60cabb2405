//! Permits that the instances of a service share: [`InstancePermits`].
//!
//! The store knows one number for each key and instance: the permits that the instance holds. This table gives them out, and has the
//! waiting requests. A task of the store sends the instance's permits and demands to the store ([`demands`](SharedPermits::demands)), and
//! passes the store's grants to this table ([`answer`](SharedPermits::answer)). All keys share one lock: each permit costs a call anyway.

mod held;
mod sharing;
mod task;
#[cfg(test)]
mod tests;
mod ticket;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use foldhash::quality::RandomState;
use sluicegate_core::clock::Clock;
use sluicegate_core::key::{Key, KeyRef};
use sluicegate_core::policy::OnOutage;
use sluicegate_core::store::{Event, SharedPermits, Subject};

use self::held::{HeldPermits, PermitAsk};
pub use self::sharing::Sharing;
use self::ticket::Fate;
pub(super) use self::ticket::PermitTicket;
use crate::NoPermitKind;
use crate::line::Wakers;
use crate::permit::{PermitOf, PermitReply, SeatOf};
use crate::place::QueuePlace;
use crate::registry::Reports;
use crate::status::SharedStatus;

/// The permits of one limit that this instance holds, for all keys; the store manages them by [`SharedPermits`].
pub(crate) struct InstancePermits {
    name: String,
    number: AtomicU64,
    sharing: Sharing,
    queue: usize,
    queue_in_all: usize,
    clock: Arc<dyn Clock>,
    reports: Arc<Reports>,
    lost: AtomicU64,
    /// Keeps the store's task running.
    keep_reporting: OnceLock<KeepReporting>,
    state: Mutex<SharedState>,
}

type KeepReporting = Box<dyn Fn() -> bool + Send + Sync>;

#[derive(Default)]
struct SharedState {
    keys: HashMap<Key, HeldPermits, RandomState>,
    /// The keys to report to the store.
    changed: Vec<Key>,
    /// The number of requests that wait for permits that come back.
    waiting: usize,
    /// Whether the last call had no answer.
    is_down: bool,
    /// The time of the last answer.
    answered_us: Option<u64>,
    is_closed: bool,
    /// The task of the store.
    task: Option<Waker>,
}

/// The lost permits of a key, to be reported outside of the lock.
type LostPermits = Vec<(Key, u64)>;

impl InstancePermits {
    pub(super) fn new(
        name: String,
        (permits, sharing): (u64, Sharing),
        (queue, queue_in_all): (usize, usize),
        clock: Arc<dyn Clock>,
        reports: Arc<Reports>,
    ) -> Self {
        let (number, lost, state) = (AtomicU64::new(permits), AtomicU64::default(), Mutex::default());
        let keep_reporting = OnceLock::new();
        Self { name, number, sharing, queue, queue_in_all, clock, reports, lost, keep_reporting, state }
    }

    /// A permit, or a place in the queue. It waits for the store's answer; with `waits` also for permits that come back.
    pub(super) fn ask(&self, key: &Key, waits: bool) -> PermitReply {
        let is_reported = self.keep_reporting();
        let now_us = self.clock.now_us();
        let mut state = self.lock();
        state.is_down |= !is_reported;
        let SharedState { keys, changed, waiting, is_down, .. } = &mut *state;
        let held = keys.entry(key.clone()).or_default();
        let ticket = Arc::<PermitTicket>::default();
        let full = if held.asks.is_empty() && self.room(held, *is_down, now_us) > 0 {
            held.put(Arc::clone(&ticket), if *is_down { Fate::Alone } else { Fate::InStore });
            return PermitReply::Taken(PermitOf::Shared(ticket));
        } else if *is_down && self.sharing.on_outage == OnOutage::Deny {
            Some(NoPermitKind::Outage)
        } else if *is_down && !waits {
            Some(NoPermitKind::Permits)
        } else {
            let of_key = || held.asks.iter().filter(|ask| ask.waits).count();
            let is_full = waits && (*waiting >= self.queue_in_all || of_key() >= self.queue);
            is_full.then_some(NoPermitKind::Queue)
        };
        if let Some(kind) = full {
            if held.is_idle() {
                keys.remove(key);
            }
            return PermitReply::Full(kind);
        }
        let place = Arc::<QueuePlace>::default();
        let (held_place, held_ticket) = (Arc::clone(&place), Arc::clone(&ticket));
        let ask =
            PermitAsk { place: held_place, ticket: held_ticket, since_us: now_us, waits, is_sent: false };
        held.asks.push_back(ask);
        *waiting += usize::from(waits);
        change(key, held, changed);
        self.release(state, Wakers::new(), LostPermits::new());
        PermitReply::Waiting(place, SeatOf::Shared(ticket), None)
    }

    /// Whether the store's task runs, perhaps from now on.
    fn keep_reporting(&self) -> bool {
        self.keep_reporting.get().is_none_or(|keep| keep())
    }

    /// Puts a permit back.
    pub(super) fn leave(&self, key: &Key, ticket: &Arc<PermitTicket>) {
        self.put_back(self.lock(), key, ticket);
    }

    fn put_back(&self, mut state: MutexGuard<'_, SharedState>, key: &Key, ticket: &Arc<PermitTicket>) {
        let mut woken = Wakers::new();
        let SharedState { keys, changed, waiting, is_down, .. } = &mut *state;
        let Some(held) = keys.get_mut(key) else { return };
        let is_owed = held.put_back(ticket);
        self.serve(held, *is_down, waiting, self.clock.now_us(), &mut woken);
        if is_owed || held.granted > held.in_use() {
            change(key, held, changed);
        } else if held.is_idle() {
            keys.remove(key);
        }
        self.release(state, woken, LostPermits::new());
    }

    /// Leaves the queue, or passes on the permit that was given in the meantime.
    pub(super) fn give_up(&self, key: &Key, place: &Arc<QueuePlace>, ticket: &Arc<PermitTicket>) {
        let mut state = self.lock();
        // Under the lock, so that it is not given a permit after this.
        if place.end() {
            return self.put_back(state, key, ticket);
        }
        let SharedState { keys, changed, waiting, .. } = &mut *state;
        let Some(held) = keys.get_mut(key) else { return };
        if let Some(position) = held.asks.iter().position(|ask| Arc::ptr_eq(&ask.place, place)) {
            let ask = held.asks.remove(position);
            *waiting -= usize::from(ask.is_some_and(|ask| ask.waits));
            // Otherwise other requests wait behind a request that has left.
            change(key, held, changed);
            self.release(state, Wakers::new(), LostPermits::new());
        }
    }

    /// Whether the permit is lost, even if its holder was not notified yet.
    pub(super) fn is_lost(&self, key: &Key, ticket: &PermitTicket) -> bool {
        match ticket.fate() {
            Fate::Lost => true,
            Fate::InStore => {
                let until_us = self.lock().keys.get(key).map_or(0, |held| held.until_us);
                until_us <= self.clock.now_us()
            }
            Fate::Asked | Fate::Refused(_) | Fate::Alone => false,
        }
    }

    /// Changes the number of permits. Each answer of the store uses the number that it was asked with.
    pub(super) fn set_permits(&self, permits: u64) {
        self.number.store(permits, Ordering::Relaxed);
        let mut state = self.lock();
        let SharedState { keys, changed, .. } = &mut *state;
        keys.iter_mut().for_each(|(key, held)| change(key, held, changed));
        self.release(state, Wakers::new(), LostPermits::new());
    }

    /// Closes the table: no request comes after this.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let task = state.task.take();
        drop(state);
        task.into_iter().for_each(Waker::wake);
    }

    pub(super) fn in_use(&self, key: KeyRef<'_>) -> u64 {
        self.lock().keys.get(&key.to_key()).map_or(0, |held| held.in_use() + held.lost)
    }

    pub(super) fn in_use_in_all(&self) -> u64 {
        self.lock().keys.values().map(|held| held.in_use() + held.lost).sum()
    }

    /// The number of permits that are left for all instances, as closely as this one knows it.
    pub(super) fn remaining(&self, key: KeyRef<'_>) -> u64 {
        let known =
            self.lock().keys.get(&key.to_key()).filter(|held| held.until_us > 0).map(|held| held.left);
        known.unwrap_or_else(|| self.permits())
    }

    pub(super) fn keys(&self) -> usize {
        self.lock().keys.values().filter(|held| held.in_use() + held.lost > 0).count()
    }

    pub(super) fn status(&self) -> SharedStatus {
        let now_us = self.clock.now_us();
        let state = self.lock();
        let held = || state.keys.values().filter(|held| held.in_use() + held.lost > 0);
        let fullest = held().filter(|held| held.until_us > 0).min_by_key(|held| held.left);
        SharedStatus {
            permits: self.permits(),
            lease: self.sharing.lease,
            in_use: held().map(|held| held.in_use() + held.lost).sum(),
            keys: held().count(),
            waiting: state.waiting,
            held: fullest.map_or(0, |held| self.permits().saturating_sub(held.left)),
            instances: fullest.map_or(0, |held| held.instances),
            answered: state.answered_us.map(|at_us| Duration::from_micros(now_us.saturating_sub(at_us))),
            is_down: state.is_down,
            lost: self.lost(),
        }
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The number of permits that may be given out now.
    fn room(&self, held: &HeldPermits, is_down: bool, now_us: u64) -> u64 {
        let granted = if now_us < held.until_us { held.granted.min(self.permits()) } else { 0 };
        match self.sharing.on_outage {
            _ if !is_down => granted.saturating_sub(held.in_use()),
            OnOutage::Deny => 0,
            OnOutage::Allow => u64::MAX,
            // `Local`: a limit with a quota is not built.
            _ => {
                let share = (self.permits() / self.sharing.replicas).max(1);
                share.saturating_sub(held.in_use() + held.lost)
            }
        }
    }

    /// Gives permits to the first requests in the queue, and adds the wakers to call.
    fn serve(
        &self,
        held: &mut HeldPermits,
        is_down: bool,
        waiting: &mut usize,
        now_us: u64,
        woken: &mut Wakers,
    ) {
        while self.room(held, is_down, now_us) > 0
            && let Some(ask) = held.asks.pop_front()
        {
            *waiting -= usize::from(ask.waits);
            held.put(ask.ticket, if is_down { Fate::Alone } else { Fate::InStore });
            woken.extend(ask.place.give());
        }
    }

    /// Releases the lock, then wakes tasks, including the store's task if there are changes to report, and notifies listeners.
    fn release(&self, mut state: MutexGuard<'_, SharedState>, woken: Wakers, lost: LostPermits) {
        let is_changed = !state.changed.is_empty();
        let task = if is_changed { state.task.take() } else { None };
        drop(state);
        if is_changed {
            self.keep_reporting();
        }
        woken.into_iter().chain(task).for_each(Waker::wake);
        for (key, number) in lost {
            self.lost.fetch_add(number, Ordering::Relaxed);
            for _ in 0..number {
                self.reports.tell(|| Event::PermitLost(Subject::of(&self.name).with_key(key.as_ref())));
            }
        }
    }

    /// No code panics while it holds the lock, so the protected data is consistent.
    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes a key to report to the store.
fn change(key: &Key, held: &mut HeldPermits, changed: &mut Vec<Key>) {
    if !held.is_changed {
        held.is_changed = true;
        changed.push(key.clone());
    }
}

impl fmt::Debug for InstancePermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstancePermits")
            .field("name", &self.name)
            .field("permits", &self.permits())
            .finish_non_exhaustive()
    }
}
