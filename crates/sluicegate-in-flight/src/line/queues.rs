//! The waiting requests of a class, by tenant: [`ClassQueues`].
//!
//! The tenants stand in two orders, so that neither the next one nor the one that loses a place is searched for among all of them. A
//! tenant moves only when its own requests or permits change, with some tens of comparisons among thousands.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::quality::RandomState;
use sluicegate_core::key::Key;

use crate::place::QueuePlace;

/// The waiting requests of a class.
#[derive(Default)]
pub(super) struct ClassQueues {
    by_tenant: HashMap<Key, TenantQueue, RandomState>,
    /// By permits in use for each weight: the first tenant is served next.
    to_serve: BTreeMap<TenantRank, Key>,
    /// By weight for each permit that is in use or waited for: the first tenant has and wants the most.
    to_lose: BTreeMap<TenantRank, Key>,
    waiting: usize,
}

/// The waiting requests of a class and a tenant. Empty queues do not exist.
pub(super) struct TenantQueue {
    /// The requests by their number, which is the order of their arrival.
    requests: BTreeMap<u64, WaitingRequest>,
    /// The time at which the queue was last empty.
    since_us: u64,
    /// Its position among other tenants: to be served, and to lose a place.
    ranks: Option<[TenantRank; 2]>,
}

/// A request that waits.
pub(super) struct WaitingRequest {
    pub(super) place: Arc<QueuePlace>,
    /// The key of the request, also where tenants are not distinguished.
    pub(super) key: Key,
    /// At least 1.
    pub(super) weight: u64,
}

impl ClassQueues {
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The tenant with the fewest permits by its weight; of equal tenants, the one with the oldest request.
    pub(super) fn first(&self) -> Option<(&Key, &TenantQueue)> {
        self.head(&self.to_serve)
    }

    /// The tenant that has and wants the most by its weight; of equal tenants, the one with the oldest request.
    pub(super) fn greediest(&self) -> Option<(&Key, &TenantQueue)> {
        self.head(&self.to_lose)
    }

    pub(super) fn of(&self, tenant: &Key) -> Option<&TenantQueue> {
        self.by_tenant.get(tenant)
    }

    /// Adds the newest request of a tenant that has this many permits; returns its queue.
    pub(super) fn add(
        &mut self,
        tenant: &Key,
        (number, request): (u64, WaitingRequest),
        in_use: u64,
        now_us: u64,
    ) -> &TenantQueue {
        let begun = TenantQueue { requests: BTreeMap::new(), since_us: now_us, ranks: None };
        let queue = self.by_tenant.entry(tenant.clone()).or_insert(begun);
        queue.requests.insert(number, request);
        self.waiting += 1;
        self.rank(tenant, in_use);
        &self.by_tenant[tenant]
    }

    /// Takes out a request of a tenant that has this many permits.
    pub(super) fn remove(&mut self, tenant: &Key, number: u64, in_use: u64) -> Option<WaitingRequest> {
        let removed = self.by_tenant.get_mut(tenant)?.requests.remove(&number)?;
        self.waiting -= 1;
        self.rank(tenant, in_use);
        Some(removed)
    }

    /// Moves a tenant to its position after its requests or its permits have changed.
    pub(super) fn rank(&mut self, tenant: &Key, in_use: u64) {
        let Some(queue) = self.by_tenant.get_mut(tenant) else { return };
        let ranks = queue.now_ranks(in_use);
        let before = std::mem::replace(&mut queue.ranks, ranks);
        for (order, place) in [&mut self.to_serve, &mut self.to_lose].into_iter().zip(0..) {
            let known = before.and_then(|ranks| order.remove(&ranks[place]));
            if let Some(ranks) = ranks {
                order.insert(ranks[place], known.unwrap_or_else(|| tenant.clone()));
            }
        }
        if ranks.is_none() {
            self.by_tenant.remove(tenant);
        }
    }

    fn head(&self, order: &BTreeMap<TenantRank, Key>) -> Option<(&Key, &TenantQueue)> {
        let (_, tenant) = order.first_key_value()?;
        self.by_tenant.get_key_value(tenant)
    }
}

impl TenantQueue {
    /// Whether the queue was not empty for the longest wait of a request.
    pub(super) fn is_standing(&self, now_us: u64, longest_us: u64) -> bool {
        now_us.saturating_sub(self.since_us) > longest_us
    }

    pub(super) fn waiting(&self) -> u64 {
        self.requests.len() as u64
    }

    pub(super) fn oldest(&self) -> u64 {
        self.requests.first_key_value().map_or(u64::MAX, |(number, _)| *number)
    }

    pub(super) fn newest(&self) -> u64 {
        self.requests.last_key_value().map_or(u64::MAX, |(number, _)| *number)
    }

    /// The weight of the newest request.
    pub(super) fn weight(&self) -> u64 {
        self.requests.last_key_value().map_or(1, |(_, request)| request.weight)
    }

    /// `None` if no request waits.
    fn now_ranks(&self, in_use: u64) -> Option<[TenantRank; 2]> {
        let (oldest, weight) = (*self.requests.first_key_value()?.0, self.weight());
        let wants = in_use + self.waiting();
        Some([
            TenantRank { part: in_use, of: weight, oldest },
            TenantRank { part: weight, of: wants, oldest },
        ])
    }
}

/// The position of a tenant: by a ratio, and of equal ratios the one with the oldest request. No two tenants of a class have the same.
#[derive(Clone, Copy, Debug)]
struct TenantRank {
    part: u64,
    /// Not 0.
    of: u64,
    oldest: u64,
}

impl Ord for TenantRank {
    /// By cross products, so that no rounding is needed.
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        tests::COMPARISONS.with(|counted| counted.set(counted.get() + 1));
        let product = |part: u64, of: u64| u128::from(part) * u128::from(of);
        let ratio = product(self.part, other.of).cmp(&product(other.part, self.of));
        ratio.then(self.oldest.cmp(&other.oldest))
    }
}

impl PartialOrd for TenantRank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for TenantRank {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for TenantRank {}

#[cfg(test)]
pub(super) mod tests;
