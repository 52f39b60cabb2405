//! Requests that compete for the permits of one service: [`PermitLine`].
//!
//! A request waits in the queue of its class and its tenant. A free permit goes to the most important class, within it to the
//! tenant with the fewest permits by its weight, and in that tenant's queue to the oldest request, or the newest under overload.
//!
//! The tenants of a class stand in two orders, so that neither the next one nor the one that loses a place is searched for among all of
//! them. A tenant moves only when its own requests or permits change, with some tens of comparisons among thousands.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use foldhash::quality::RandomState;
use sluicegate_core::key::Key;

use crate::Class;
use crate::pool::{Displaced, PermitAsk, QueuePlace, Seat, Wakers};

/// Permits in use, and the requests that wait for one.
pub(super) struct PermitLine {
    in_use: u64,
    by_class: [u64; 4],
    /// The one tenant that all requests belong to, unless tenants are distinguished.
    only: Option<Key>,
    /// The permits of each tenant that has any, if tenants are distinguished.
    by_tenant: HashMap<Key, u64, RandomState>,
    queues: [ClassQueues; 4],
    next: u64,
}

/// Bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueBounds {
    /// The most waiting requests.
    pub(super) queue: usize,
    /// The longest wait.
    pub(super) longest_us: u64,
    /// The guaranteed part of each class before other classes, in percent of the limit.
    pub(super) guaranteed: [u64; 4],
}

/// A queue is standing if it was not empty for the longest wait of a request: the wait is then this many times shorter. 5 ms of
/// 100 ms in the source.
const SHORTER: u64 = 20;

impl PermitLine {
    pub(super) fn new(is_fair: bool) -> Self {
        let only = (!is_fair).then(Key::shared);
        let (by_tenant, queues) = (HashMap::default(), [(); 4].map(|()| ClassQueues::default()));
        Self { in_use: 0, by_class: [0; 4], only, by_tenant, queues, next: 0 }
    }

    pub(super) fn in_use(&self) -> u64 {
        self.in_use
    }

    /// The number of permits that a tenant has; all permits in use, if tenants are not distinguished.
    pub(super) fn in_use_of(&self, tenant: &Key) -> u64 {
        if self.is_fair() { self.counted(tenant) } else { self.in_use }
    }

    pub(super) fn is_fair(&self) -> bool {
        self.only.is_none()
    }

    pub(super) fn tenants(&self) -> usize {
        if self.is_fair() { self.by_tenant.len() } else { usize::from(self.in_use > 0) }
    }

    pub(super) fn waiting(&self) -> [usize; 4] {
        self.queues.each_ref().map(ClassQueues::waiting)
    }

    pub(super) fn waiting_in_all(&self) -> usize {
        self.waiting().iter().sum()
    }

    /// Takes a permit, if one is left and no request waits.
    pub(super) fn take(&mut self, class: Class, tenant: &Key, limit: u64) -> bool {
        let takes = self.in_use < limit && self.waiting_in_all() == 0;
        if takes {
            self.give(class, tenant);
        }
        takes
    }

    /// Counts one more permit as in use, whatever the limit.
    pub(super) fn give(&mut self, class: Class, tenant: &Key) {
        self.in_use += 1;
        self.by_class[class.place()] += 1;
        if self.is_fair() {
            match self.by_tenant.get_mut(tenant) {
                Some(in_use) => *in_use += 1,
                None => _ = self.by_tenant.insert(tenant.clone(), 1),
            }
            self.rank(tenant);
        }
    }

    /// Counts a permit as back.
    pub(super) fn put_back(&mut self, class: Class, tenant: &Key) {
        self.in_use -= 1;
        self.by_class[class.place()] -= 1;
        if let Some(in_use) = self.by_tenant.get_mut(tenant) {
            *in_use -= 1;
            if *in_use == 0 {
                self.by_tenant.remove(tenant);
            }
            self.rank(tenant);
        }
    }

    /// Adds a request to its queue. If there is no room, it takes the place of a less important request, which is notified; `None` if there
    /// is none.
    pub(super) fn wait(
        &mut self,
        ask: &PermitAsk<'_>,
        waits: &QueueBounds,
        now_us: u64,
    ) -> Option<(Seat, Displaced)> {
        if waits.longest_us == 0 || waits.queue == 0 {
            return None;
        }
        let least = if self.waiting_in_all() < waits.queue { None } else { Some(self.least(ask)?) };
        let lost = least.and_then(|(class, tenant, number)| {
            let request = self.remove(class, &tenant, number)?;
            Some((class, request.key, request.place.lose()))
        });
        let (place, number) = (Arc::<QueuePlace>::default(), self.next);
        self.next += 1;
        let (seat_place, key) = (Arc::clone(&place), ask.key.clone());
        let tenant = self.only.as_ref().unwrap_or(ask.key);
        let in_use = self.counted(tenant);
        let request = WaitingRequest { place, key, weight: ask.weight.max(1) };
        let queue = self.queues[ask.class.place()].add(tenant, number, request, in_use, now_us);
        let is_standing = queue.is_standing(now_us, waits.longest_us);
        let longest_us = if is_standing { waits.longest_us / SHORTER } else { waits.longest_us };
        let longest = Some(Duration::from_micros(longest_us));
        Some((Seat { place: seat_place, class: ask.class, number, longest, ticket: None }, lost))
    }

    /// Takes a request out of its queue.
    pub(super) fn leave(&mut self, tenant: &Key, seat: &Seat) {
        self.remove(seat.class, tenant, seat.number);
    }

    /// Gives free permits to waiting requests; returns the wakers to call.
    pub(super) fn serve(&mut self, limit: u64, waits: &QueueBounds, now_us: u64) -> Wakers {
        let mut woken = Wakers::new();
        while self.in_use < limit
            && let Some((class, tenant, number)) = self.first(limit, waits, now_us)
            && let Some(request) = self.remove(class, &tenant, number)
        {
            self.give(class, &request.key);
            woken.extend(request.place.give());
        }
        woken
    }

    /// The request that the next permit goes to.
    fn first(&self, limit: u64, waits: &QueueBounds, now_us: u64) -> Option<(Class, Key, u64)> {
        let waits_in = |class: &Class| self.queues[class.place()].waiting() > 0;
        let is_below = |class: &Class| {
            self.by_class[class.place()] * 100 < waits.guaranteed[class.place()].saturating_mul(limit)
        };
        let mut classes = Class::ALL.into_iter().filter(waits_in);
        let class = classes.clone().find(is_below).or_else(|| classes.next())?;
        let (tenant, queue) = self.queues[class.place()].first()?;
        let number =
            if queue.is_standing(now_us, waits.longest_us) { queue.newest() } else { queue.oldest() };
        Some((class, tenant.clone(), number))
    }

    /// The waiting request that loses its place to this one: of the least important class, and there of the tenant that has and wants
    /// the most by its weight. It is the oldest request, which would leave first in any case. `None` if no request is less important.
    fn least(&self, ask: &PermitAsk<'_>) -> Option<(Class, Key, u64)> {
        let class = Class::ALL.into_iter().rev().find(|class| self.queues[class.place()].waiting() > 0)?;
        let queues = &self.queues[class.place()];
        let (tenant, queue) = queues.greediest()?;
        let loses = class > ask.class || {
            let asking = self.only.as_ref().unwrap_or(ask.key);
            let own = self.counted(asking) + queues.of(asking).map_or(0, TenantQueue::waiting);
            let [theirs, ours] = [self.counted(tenant) + queue.waiting(), own + 1].map(u128::from);
            class == ask.class
                && tenant != asking
                && theirs * u128::from(ask.weight.max(1)) > ours * u128::from(queue.weight())
        };
        loses.then(|| (class, tenant.clone(), queue.oldest()))
    }

    fn remove(&mut self, class: Class, tenant: &Key, number: u64) -> Option<WaitingRequest> {
        let tenant = self.only.as_ref().unwrap_or(tenant);
        let in_use = self.counted(tenant);
        self.queues[class.place()].remove(tenant, number, in_use)
    }

    /// The number of permits that a tenant has; 0 if tenants are not distinguished.
    fn counted(&self, tenant: &Key) -> u64 {
        self.by_tenant.get(tenant).copied().unwrap_or(0)
    }

    /// Moves a tenant to its position in each class after its permits have changed.
    fn rank(&mut self, tenant: &Key) {
        let in_use = self.counted(tenant);
        self.queues.iter_mut().for_each(|queues| queues.rank(tenant, in_use));
    }
}

/// The waiting requests of a class.
#[derive(Default)]
struct ClassQueues {
    by_tenant: HashMap<Key, TenantQueue, RandomState>,
    /// By permits in use for each weight: the first tenant is served next.
    to_serve: BTreeMap<TenantRank, Key>,
    /// By weight for each permit that is in use or waited for: the first tenant has and wants the most.
    to_lose: BTreeMap<TenantRank, Key>,
    waiting: usize,
}

/// The waiting requests of a class and a tenant. Empty queues do not exist.
struct TenantQueue {
    /// The requests by their number, which is the order of their arrival.
    requests: BTreeMap<u64, WaitingRequest>,
    /// The time at which the queue was last empty.
    since_us: u64,
    /// Its position among other tenants: to be served, and to lose a place.
    ranks: Option<[TenantRank; 2]>,
}

/// A request that waits.
struct WaitingRequest {
    place: Arc<QueuePlace>,
    /// The key of the request, also where tenants are not distinguished.
    key: Key,
    /// At least 1.
    weight: u64,
}

impl ClassQueues {
    fn waiting(&self) -> usize {
        self.waiting
    }

    /// The tenant with the fewest permits by its weight; of equal tenants, the one with the oldest request.
    fn first(&self) -> Option<(&Key, &TenantQueue)> {
        self.head(&self.to_serve)
    }

    /// The tenant that has and wants the most by its weight; of equal tenants, the one with the oldest request.
    fn greediest(&self) -> Option<(&Key, &TenantQueue)> {
        self.head(&self.to_lose)
    }

    fn of(&self, tenant: &Key) -> Option<&TenantQueue> {
        self.by_tenant.get(tenant)
    }

    /// Adds the newest request of a tenant that has this many permits; returns its queue.
    fn add(
        &mut self,
        tenant: &Key,
        number: u64,
        request: WaitingRequest,
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
    fn remove(&mut self, tenant: &Key, number: u64, in_use: u64) -> Option<WaitingRequest> {
        let removed = self.by_tenant.get_mut(tenant)?.requests.remove(&number)?;
        self.waiting -= 1;
        self.rank(tenant, in_use);
        Some(removed)
    }

    /// Moves a tenant to its position after its requests or its permits have changed.
    fn rank(&mut self, tenant: &Key, in_use: u64) {
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
    fn is_standing(&self, now_us: u64, longest_us: u64) -> bool {
        now_us.saturating_sub(self.since_us) > longest_us
    }

    fn waiting(&self) -> u64 {
        self.requests.len() as u64
    }

    fn oldest(&self) -> u64 {
        self.requests.first_key_value().map_or(u64::MAX, |(number, _)| *number)
    }

    fn newest(&self) -> u64 {
        self.requests.last_key_value().map_or(u64::MAX, |(number, _)| *number)
    }

    /// The weight of the newest request.
    fn weight(&self) -> u64 {
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
mod tests;
