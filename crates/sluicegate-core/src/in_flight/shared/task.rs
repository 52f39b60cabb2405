//! The side of [`SharedPermits`] that the task of a store works on.

use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::demand::{DemandsOf, PermitDemand, PermitGrant};
use super::held::{HeldPermits, PermitAsk};
use super::ticket::Fate;
use super::{LostPermits, SharedPermits, SharedState, change};
use crate::clock::micros;
use crate::in_flight::NoPermitKind;
use crate::in_flight::line::Wakers;
use crate::key::Key;
use crate::policy::OnOutage;

impl SharedPermits {
    /// Waits until demands have changed, or nobody can ask any more.
    ///
    /// # Cancel safety
    /// It may be dropped at any time. One task may wait at a time.
    pub fn changed(&self) -> impl Future<Output = ()> + Send {
        poll_fn(|cx| {
            let mut state = self.lock();
            if !state.changed.is_empty() || state.is_closed {
                return Poll::Ready(());
            }
            state.task = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    /// Whether nobody can ask any more, and nobody holds a permit.
    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Whether requests wait for permits of other instances.
    pub fn is_waiting(&self) -> bool {
        self.lock().waiting > 0
    }

    /// The demands to tell the store now. Permits whose lease is over are lost, and no part of them.
    pub fn demands(&self, of: DemandsOf) -> Vec<PermitDemand> {
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
                // This process has stood still, and others may have had them since.
                lost.push((key.clone(), held.expire(&mut woken)));
            }
            // More is given out when the store has answered: it may not count what is not in use any more.
            (held.granted, held.returned) = (held.in_use(), 0);
            held.asks.iter_mut().for_each(|ask| ask.is_sent = true);
            let waited_us = held.asks.front().map_or(0, |ask| now_us.saturating_sub(ask.since_us));
            Some(PermitDemand {
                in_use: held.in_use(),
                wanted: held.in_use().saturating_add(held.asks.len() as u64),
                waiting: held.asks.iter().filter(|ask| ask.waits).count() as u64,
                waited: Duration::from_micros(waited_us),
                asked_at_us: now_us,
                key,
            })
        };
        let demands = told.into_iter().filter_map(demand).collect();
        self.release(state, woken, lost);
        demands
    }

    /// Takes the answer to a demand.
    pub fn answer(&self, demand: &PermitDemand, grant: PermitGrant) {
        let now_us = self.clock.now_us();
        let mut woken = Wakers::new();
        let mut state = self.lock();
        (state.is_down, state.answered_us) = (false, Some(now_us));
        let SharedState { keys, changed, waiting, .. } = &mut *state;
        let Some(held) = keys.get_mut(&demand.key) else { return };
        held.until_us = demand.asked_at_us.saturating_add(micros(self.sharing.lease));
        (held.left, held.instances) = (grant.left, grant.instances);
        let lost = held.grant(grant.held, &mut woken);
        // Permits that came back for other instances while the call was under way.
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

    /// Notes that the store gave no answer to these demands. Until it gives one, requests are treated as
    /// [`InFlightBuilder::on_outage`](crate::in_flight::InFlightBuilder::on_outage) says.
    pub fn unanswered(&self, demands: &[PermitDemand]) {
        let now_us = self.clock.now_us();
        let mut woken = Wakers::new();
        let mut state = self.lock();
        state.is_down = true;
        let SharedState { keys, changed, waiting, .. } = &mut *state;
        for demand in demands {
            if let Some(held) = keys.get_mut(&demand.key) {
                // The store may have granted what this instance does not know.
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

    /// Lets the next request ask the store again, although the last call had no answer: for when there is nothing to tell it.
    pub fn resume(&self) {
        self.lock().is_down = false;
    }

    /// Gives up the permits whose lease is over, and tells their holders. The time until the next lease is over, if there is one.
    pub fn expire(&self) -> Option<Duration> {
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
