//! The part of the permits for the task of a store: [`SharedPermits`].

use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sluicegate_core::clock::micros;
use sluicegate_core::key::Key;
use sluicegate_core::policy::OnOutage;
use sluicegate_core::store::{DemandsOf, PermitDemand, PermitGrant, SharedPermits};

use super::held::{HeldPermits, PermitAsk};
use super::ticket::Fate;
use super::{InstancePermits, LostPermits, SharedState, change};
use crate::NoPermitKind;
use crate::line::Wakers;

impl SharedPermits for InstancePermits {
    fn name(&self) -> &str {
        &self.name
    }

    fn permits(&self) -> u64 {
        // Relaxed: a number that orders nothing else.
        self.number.load(Ordering::Relaxed)
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
fn refuse(ask: &PermitAsk, kind: NoPermitKind) -> Option<Waker> {
    ask.ticket.turn_to(Fate::Refused(kind));
    ask.place.lose()
}
