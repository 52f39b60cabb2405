//! Permits that the instances of a service share: [`InstancePermits`].
//!
//! The store knows one number for each key and instance: the permits that the instance holds. This table gives them out, and has the
//! waiting requests. A task of the store sends the instance's permits and demands to the store ([`demands`](SharedPermits::demands)), and
//! passes the store's grants to this table ([`answer`](SharedPermits::answer)). All keys share one lock: each permit costs a call anyway.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use foldhash::quality::RandomState;
use sluicegate_core::clock::{Clock, micros};
use sluicegate_core::key::Key;
use sluicegate_core::policy::OnOutage;
use sluicegate_core::store::{DemandsOf, Event, PermitDemand, PermitGrant, SharedPermits, Subject};
use sluicegate_core::support::lock;

use crate::in_flight::Reports;
use crate::pool::{
    Fate, FixedPermits, Move, NoPermitKind, PermitAsk, PermitPool, PermitRecord, PermitReply, PermitTicket,
    QueuePlace, Seat, Sharing, Wakers,
};
use crate::status::SharedStatus;

/// The permits of one limit that this instance holds, for all keys; the store manages them by [`SharedPermits`].
pub(super) struct InstancePermits {
    name: String,
    number: AtomicU64,
    sharing: Sharing,
    /// As built: its number may have changed since.
    fixed: FixedPermits,
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

/// The permits of a key that this instance holds.
#[derive(Default)]
struct HeldPermits {
    /// Permits in use, the oldest first.
    permits: Vec<Arc<PermitTicket>>,
    /// The number of lost permits whose holders have not dropped them.
    lost: u64,
    /// The number of permits that the store has granted to this instance, and the end of the grant.
    granted: u64,
    until_us: u64,
    /// The number of permits that were left for all instances, by the last answer.
    left: u64,
    /// The number of instances that held permits, by the last answer.
    instances: u64,
    /// The number of permits to give back, because other instances have requests that wait longer.
    owed: u64,
    /// The number of permits given back for other instances since the last call to the store.
    returned: u64,
    asks: VecDeque<WaitingAsk>,
    /// Whether the store has to be called.
    is_changed: bool,
}

/// A request for a permit.
struct WaitingAsk {
    place: Arc<QueuePlace>,
    ticket: Arc<PermitTicket>,
    since_us: u64,
    /// Whether it waits for permits that come back.
    waits: bool,
    /// Whether the store has been asked for it.
    is_sent: bool,
}

impl InstancePermits {
    pub(super) fn new(
        name: String,
        fixed: FixedPermits,
        sharing: Sharing,
        clock: Arc<dyn Clock>,
        reports: Arc<Reports>,
    ) -> Self {
        Self {
            name,
            number: AtomicU64::new(fixed.number),
            sharing,
            fixed,
            clock,
            reports,
            lost: AtomicU64::default(),
            keep_reporting: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// Whether the store's task runs, perhaps from now on.
    fn keep_reporting(&self) -> bool {
        self.keep_reporting.get().is_none_or(|keep| keep())
    }

    fn put_back_locked(
        &self,
        mut state: MutexGuard<'_, SharedState>,
        key: &Key,
        ticket: Option<&Arc<PermitTicket>>,
    ) {
        let mut woken = Wakers::new();
        let SharedState { keys, changed, waiting, is_down, .. } = &mut *state;
        let Some(held) = keys.get_mut(key) else { return };
        let is_owed = ticket.is_some_and(|ticket| held.put_back(ticket));
        self.serve(held, *is_down, waiting, self.clock.now_us(), &mut woken);
        if is_owed || held.granted > held.in_use() {
            change(key, held, changed);
        } else if held.is_idle() {
            keys.remove(key);
        }
        self.release(state, woken, LostPermits::new());
    }

    /// The number of permits that may be given out now.
    fn room(&self, held: &HeldPermits, is_down: bool, now_us: u64) -> u64 {
        let granted = if now_us < held.until_us { held.granted.min(self.number()) } else { 0 };
        match self.sharing.on_outage {
            _ if !is_down => granted.saturating_sub(held.in_use()),
            OnOutage::Deny => 0,
            OnOutage::Allow => u64::MAX,
            // `Local`: a limit with a quota is not built.
            _ => {
                let share = (self.number() / self.sharing.replicas).max(1);
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
        lock(&self.state)
    }
}

impl PermitPool for InstancePermits {
    /// It waits for the store's answer; with `waits` also for permits that come back.
    fn ask(&self, ask: &PermitAsk<'_>) -> PermitReply {
        let PermitAsk { key, waits, .. } = *ask;
        let is_reported = self.keep_reporting();
        let now_us = self.clock.now_us();
        let mut state = self.lock();
        state.is_down |= !is_reported;
        let SharedState { keys, changed, waiting, is_down, .. } = &mut *state;
        let held = keys.entry(key.clone()).or_default();
        let ticket = Arc::<PermitTicket>::default();
        let full = if held.asks.is_empty() && self.room(held, *is_down, now_us) > 0 {
            held.put(Arc::clone(&ticket), if *is_down { Fate::Alone } else { Fate::InStore });
            return PermitReply::Taken(PermitRecord { ticket: Some(ticket), ..PermitRecord::default() });
        } else if *is_down && self.sharing.on_outage == OnOutage::Deny {
            Some(NoPermitKind::Outage)
        } else if *is_down && !waits {
            Some(NoPermitKind::Permits)
        } else {
            let of_key = || held.asks.iter().filter(|ask| ask.waits).count();
            let is_full = waits && (*waiting >= self.fixed.queue_in_all || of_key() >= self.fixed.queue);
            is_full.then_some(NoPermitKind::Queue)
        };
        if let Some(kind) = full {
            if held.is_idle() {
                keys.remove(key);
            }
            return PermitReply::Full(kind);
        }
        let seat = Seat { ticket: Some(Arc::clone(&ticket)), ..Seat::default() };
        let place = Arc::clone(&seat.place);
        held.asks.push_back(WaitingAsk { place, ticket, since_us: now_us, waits, is_sent: false });
        *waiting += usize::from(waits);
        change(key, held, changed);
        self.release(state, Wakers::new(), LostPermits::new());
        PermitReply::Waiting(seat, None)
    }

    fn put_back(&self, key: &Key, permit: &PermitRecord, _: bool) -> Move {
        self.put_back_locked(self.lock(), key, permit.ticket.as_ref());
        Move::default()
    }

    fn give_up(&self, key: &Key, seat: &Seat, _: bool) {
        let mut state = self.lock();
        // Under the lock, so that it is not given a permit after this.
        if seat.place.end() {
            return self.put_back_locked(state, key, seat.ticket.as_ref());
        }
        let SharedState { keys, changed, waiting, .. } = &mut *state;
        let Some(held) = keys.get_mut(key) else { return };
        if let Some(position) = held.asks.iter().position(|ask| Arc::ptr_eq(&ask.place, &seat.place)) {
            let ask = held.asks.remove(position);
            *waiting -= usize::from(ask.is_some_and(|ask| ask.waits));
            // Otherwise other requests wait behind a request that has left.
            change(key, held, changed);
            self.release(state, Wakers::new(), LostPermits::new());
        }
    }

    fn number(&self) -> u64 {
        // Relaxed: a number that orders nothing else.
        self.number.load(Ordering::Relaxed)
    }

    /// Each answer of the store uses the number that it was asked with.
    fn set_number(&self, permits: u64) -> Result<(), &'static str> {
        self.number.store(permits, Ordering::Relaxed);
        let mut state = self.lock();
        let SharedState { keys, changed, .. } = &mut *state;
        keys.iter_mut().for_each(|(key, held)| change(key, held, changed));
        self.release(state, Wakers::new(), LostPermits::new());
        Ok(())
    }

    fn in_use(&self, key: &Key) -> u64 {
        self.lock().keys.get(key).map_or(0, |held| held.in_use() + held.lost)
    }

    fn in_use_in_all(&self) -> u64 {
        self.lock().keys.values().map(|held| held.in_use() + held.lost).sum()
    }

    /// The number of permits that are left for all instances, as closely as this one knows it.
    fn remaining(&self, key: &Key) -> u64 {
        let known = self.lock().keys.get(key).filter(|held| held.until_us > 0).map(|held| held.left);
        known.unwrap_or_else(|| self.number())
    }

    fn keys(&self) -> usize {
        self.lock().keys.values().filter(|held| held.in_use() + held.lost > 0).count()
    }

    fn shared(&self) -> Option<SharedStatus> {
        let now_us = self.clock.now_us();
        let state = self.lock();
        let held = || state.keys.values().filter(|held| held.in_use() + held.lost > 0);
        let fullest = held().filter(|held| held.until_us > 0).min_by_key(|held| held.left);
        Some(SharedStatus {
            permits: self.number(),
            lease: self.sharing.lease,
            in_use: held().map(|held| held.in_use() + held.lost).sum(),
            keys: held().count(),
            waiting: state.waiting,
            held: fullest.map_or(0, |held| self.number().saturating_sub(held.left)),
            instances: fullest.map_or(0, |held| held.instances),
            answered: state.answered_us.map(|at_us| Duration::from_micros(now_us.saturating_sub(at_us))),
            is_down: state.is_down,
            lost: self.lost.load(Ordering::Relaxed),
        })
    }

    fn is_lost(&self, key: &Key, ticket: &PermitTicket) -> bool {
        match ticket.fate() {
            Fate::Lost => true,
            Fate::InStore => {
                let until_us = self.lock().keys.get(key).map_or(0, |held| held.until_us);
                until_us <= self.clock.now_us()
            }
            Fate::Asked | Fate::Refused(_) | Fate::Alone => false,
        }
    }

    fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let task = state.task.take();
        drop(state);
        task.into_iter().for_each(Waker::wake);
    }
}

impl SharedPermits for InstancePermits {
    fn name(&self) -> &str {
        &self.name
    }

    fn permits(&self) -> u64 {
        self.number()
    }

    fn lease(&self) -> Duration {
        self.sharing.lease
    }

    fn report_by(&self, keep_running: Box<dyn Fn() -> bool + Send + Sync>) {
        // The store shares the permits once.
        _ = self.keep_reporting.set(keep_running);
    }

    fn poll_changed(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if !state.changed.is_empty() || state.is_closed {
            return Poll::Ready(());
        }
        state.task = Some(cx.waker().clone());
        Poll::Pending
    }

    fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    fn is_waiting(&self) -> bool {
        self.lock().waiting > 0
    }

    fn demands(&self, of: DemandsOf) -> Vec<PermitDemand> {
        let now_us = self.clock.now_us();
        let (mut woken, mut lost) = (Wakers::new(), LostPermits::new());
        let mut state = self.lock();
        let SharedState { keys, changed, .. } = &mut *state;
        let mut told = std::mem::take(changed);
        if of != DemandsOf::Changed {
            let is_of = |held: &HeldPermits| of == DemandsOf::All || !held.asks.is_empty();
            told.extend(
                keys.iter().filter(|(_, held)| !held.is_changed && is_of(held)).map(|(key, _)| key.clone()),
            );
        }
        let demand = |key: Key| {
            let held = keys.get_mut(&key)?;
            held.is_changed = false;
            if held.until_us <= now_us && held.is_in_store() {
                // This process was paused, and others may have held the permits since.
                lost.push((key.clone(), held.expire(&mut woken)));
            }
            // More permits are given out after the store's answer: it may not count permits that are no longer in use.
            (held.granted, held.returned) = (held.in_use(), 0);
            held.asks.iter_mut().for_each(|ask| ask.is_sent = true);
            let waited_us = held.asks.front().map_or(0, |ask| now_us.saturating_sub(ask.since_us));
            let mut demand = PermitDemand::new(key, now_us);
            demand.in_use = held.in_use();
            demand.wanted = held.in_use().saturating_add(held.asks.len() as u64);
            demand.waiting = held.asks.iter().filter(|ask| ask.waits).count() as u64;
            demand.waited = Duration::from_micros(waited_us);
            Some(demand)
        };
        let demands = told.into_iter().filter_map(demand).collect();
        self.release(state, woken, lost);
        demands
    }

    fn answer(&self, demand: &PermitDemand, grant: PermitGrant) {
        let now_us = self.clock.now_us();
        let mut woken = Wakers::new();
        let mut state = self.lock();
        (state.is_down, state.answered_us) = (false, Some(now_us));
        let SharedState { keys, changed, waiting, .. } = &mut *state;
        let Some(held) = keys.get_mut(&demand.key) else { return };
        held.until_us = demand.asked_at_us.saturating_add(micros(self.sharing.lease));
        (held.left, held.instances) = (grant.left, grant.instances);
        let lost = held.grant(grant.held, &mut woken);
        // Permits that came back for other instances during the call.
        let returned = std::mem::take(&mut held.returned);
        held.granted = held.granted.saturating_sub(returned);
        held.owed = grant.owed.saturating_sub(returned);
        self.serve(held, false, waiting, now_us, &mut woken);
        held.asks.retain(|ask| {
            let stays = ask.waits || !ask.is_sent;
            if !stays {
                woken.extend(refuse(ask, NoPermitKind::Permits));
            }
            stays
        });
        if held.granted > held.in_use() {
            change(&demand.key, held, changed);
        } else if held.is_idle() {
            keys.remove(&demand.key);
        }
        self.release(state, woken, vec![(demand.key.clone(), lost)]);
    }

    fn unanswered(&self, demands: &[PermitDemand]) {
        let now_us = self.clock.now_us();
        let mut woken = Wakers::new();
        let mut state = self.lock();
        state.is_down = true;
        let SharedState { keys, changed, waiting, .. } = &mut *state;
        for demand in demands {
            if let Some(held) = keys.get_mut(&demand.key) {
                // The store may have granted permits that this instance does not know.
                change(&demand.key, held, changed);
            }
        }
        for held in keys.values_mut() {
            self.serve(held, true, waiting, now_us, &mut woken);
            let denies = self.sharing.on_outage == OnOutage::Deny;
            let kind = if denies { NoPermitKind::Outage } else { NoPermitKind::Permits };
            held.asks.retain(|ask| {
                let stays = ask.waits && !denies;
                if !stays {
                    *waiting -= usize::from(ask.waits);
                    woken.extend(refuse(ask, kind));
                }
                stays
            });
        }
        self.release(state, woken, LostPermits::new());
    }

    fn resume(&self) {
        self.lock().is_down = false;
    }

    fn expire(&self) -> Option<Duration> {
        let now_us = self.clock.now_us();
        let (mut woken, mut lost, mut next_us) = (Wakers::new(), LostPermits::new(), None::<u64>);
        let mut state = self.lock();
        for (key, held) in state.keys.iter_mut().filter(|(_, held)| held.is_in_store()) {
            match held.until_us.checked_sub(now_us).filter(|rest| *rest > 0) {
                Some(rest) => next_us = Some(next_us.map_or(rest, |next| next.min(rest))),
                None => lost.push((key.clone(), held.expire(&mut woken))),
            }
        }
        self.release(state, woken, lost);
        next_us.map(Duration::from_micros)
    }
}

/// Refuses a request; returns the waker to call.
fn refuse(ask: &WaitingAsk, kind: NoPermitKind) -> Option<Waker> {
    ask.ticket.turn_to(Fate::Refused(kind));
    ask.place.lose()
}

impl HeldPermits {
    /// The number of permits in use and not lost.
    fn in_use(&self) -> u64 {
        self.permits.len() as u64
    }

    /// Counts a permit as out.
    fn put(&mut self, ticket: Arc<PermitTicket>, fate: Fate) {
        ticket.turn_to(fate);
        self.permits.push(ticket);
    }

    /// Counts a permit as back; returns whether it goes back to the store for another instance.
    fn put_back(&mut self, ticket: &Arc<PermitTicket>) -> bool {
        let Some(position) = self.permits.iter().position(|other| Arc::ptr_eq(other, ticket)) else {
            self.lost = self.lost.saturating_sub(1);
            return false;
        };
        self.permits.remove(position);
        let is_owed = self.owed > 0 && self.granted > self.in_use();
        if is_owed {
            self.owed -= 1;
            self.granted -= 1;
            self.returned += 1;
        }
        is_owed
    }

    /// Notes the store's grant; returns the number of permits lost by it, and adds the wakers to call. The newest permits are
    /// lost, so that long-running work continues.
    fn grant(&mut self, granted: u64, woken: &mut Wakers) -> u64 {
        self.granted = granted;
        let kept = usize::try_from(granted).unwrap_or(usize::MAX).min(self.permits.len());
        let lost = self.permits.split_off(kept);
        self.permits.iter().for_each(|ticket| ticket.turn_to(Fate::InStore));
        self.lose(lost, woken)
    }

    /// Gives up the permits that the store has granted, because the lease is over.
    fn expire(&mut self, woken: &mut Wakers) -> u64 {
        self.granted = 0;
        let (lost, kept) = std::mem::take(&mut self.permits)
            .into_iter()
            .partition(|ticket: &Arc<PermitTicket>| ticket.fate() == Fate::InStore);
        self.permits = kept;
        self.lose(lost, woken)
    }

    /// Whether the store has granted some of the permits in use.
    fn is_in_store(&self) -> bool {
        self.permits.iter().any(|ticket| ticket.fate() == Fate::InStore)
    }

    fn lose(&mut self, lost: Vec<Arc<PermitTicket>>, woken: &mut Wakers) -> u64 {
        let number = lost.len() as u64;
        self.lost += number;
        lost.iter().for_each(|ticket| woken.extend(ticket.lose()));
        number
    }

    /// Whether there is no data of the key to keep.
    fn is_idle(&self) -> bool {
        self.permits.is_empty()
            && self.lost == 0
            && self.granted == 0
            && self.asks.is_empty()
            && !self.is_changed
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
            .field("permits", &self.number())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
