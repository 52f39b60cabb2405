//! The permits of a key that this instance holds, and the requests for them: [`HeldPermits`].

use std::collections::VecDeque;
use std::sync::Arc;

use super::ticket::{Fate, PermitTicket};
use crate::line::Wakers;
use crate::place::QueuePlace;

/// The permits of a key that this instance holds.
#[derive(Default)]
pub(super) struct HeldPermits {
    /// Permits in use, the oldest first.
    permits: Vec<Arc<PermitTicket>>,
    /// The number of lost permits whose holders have not dropped them.
    pub(super) lost: u64,
    /// The number of permits that the store has granted to this instance, and the end of the grant.
    pub(super) granted: u64,
    pub(super) until_us: u64,
    /// The number of permits that were left for all instances, by the last answer.
    pub(super) left: u64,
    /// The number of instances that held permits, by the last answer.
    pub(super) instances: u64,
    /// The number of permits to give back, because other instances have requests that wait longer.
    pub(super) owed: u64,
    /// The number of permits given back for other instances since the last call to the store.
    pub(super) returned: u64,
    pub(super) asks: VecDeque<PermitAsk>,
    /// Whether the store has to be called.
    pub(super) is_changed: bool,
}

/// A request for a permit.
pub(super) struct PermitAsk {
    pub(super) place: Arc<QueuePlace>,
    pub(super) ticket: Arc<PermitTicket>,
    pub(super) since_us: u64,
    /// Whether it waits for permits that come back.
    pub(super) waits: bool,
    /// Whether the store has been asked for it.
    pub(super) is_sent: bool,
}

impl HeldPermits {
    /// The number of permits in use and not lost.
    pub(super) fn in_use(&self) -> u64 {
        self.permits.len() as u64
    }

    /// Counts a permit as out.
    pub(super) fn put(&mut self, ticket: Arc<PermitTicket>, fate: Fate) {
        ticket.turn_to(fate);
        self.permits.push(ticket);
    }

    /// Counts a permit as back; returns whether it goes back to the store for another instance.
    pub(super) fn put_back(&mut self, ticket: &Arc<PermitTicket>) -> bool {
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
    pub(super) fn grant(&mut self, granted: u64, woken: &mut Wakers) -> u64 {
        self.granted = granted;
        let kept = usize::try_from(granted).unwrap_or(usize::MAX).min(self.permits.len());
        let lost = self.permits.split_off(kept);
        self.permits.iter().for_each(|ticket| ticket.turn_to(Fate::InStore));
        self.lose(lost, woken)
    }

    /// Gives up the permits that the store has granted, because the lease is over.
    pub(super) fn expire(&mut self, woken: &mut Wakers) -> u64 {
        self.granted = 0;
        let (lost, kept) = std::mem::take(&mut self.permits)
            .into_iter()
            .partition(|ticket: &Arc<PermitTicket>| ticket.fate() == Fate::InStore);
        self.permits = kept;
        self.lose(lost, woken)
    }

    /// Whether the store has granted some of the permits in use.
    pub(super) fn is_in_store(&self) -> bool {
        self.permits.iter().any(|ticket| ticket.fate() == Fate::InStore)
    }

    fn lose(&mut self, lost: Vec<Arc<PermitTicket>>, woken: &mut Wakers) -> u64 {
        let number = lost.len() as u64;
        self.lost += number;
        lost.iter().for_each(|ticket| woken.extend(ticket.lose()));
        number
    }

    /// Whether there is no data of the key to keep.
    pub(super) fn is_idle(&self) -> bool {
        self.permits.is_empty()
            && self.lost == 0
            && self.granted == 0
            && self.asks.is_empty()
            && !self.is_changed
    }
}
