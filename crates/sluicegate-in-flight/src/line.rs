//! Requests that compete for the permits of one service: [`PermitLine`].
//!
//! A request waits in the queue of its class and its tenant. A free permit goes to the most important class, within it to the
//! tenant with the fewest permits by its weight, and in that tenant's queue to the oldest request, or the newest under overload.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;

use foldhash::quality::RandomState;
use sluicegate_core::key::Key;
use smallvec::SmallVec;

use self::queues::{ClassQueues, TenantQueue, WaitingRequest};
use crate::Class;
use crate::place::QueuePlace;

mod queues;

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

/// A request that competes for a permit.
pub(super) struct Contender<'a> {
    pub(super) class: Class,
    pub(super) tenant: &'a Key,
    /// The weight of its tenant: the fair share of the permits, in proportion to the weights of others.
    pub(super) weight: u64,
    pub(super) now_us: u64,
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

/// The place of a request in the queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub(super) class: Class,
    number: u64,
    /// The longest wait of this request.
    pub(super) longest_us: u64,
}

/// Tasks to be woken, outside the lock.
pub(super) type Wakers = SmallVec<[Waker; 1]>;

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
        asks: &Contender<'_>,
        waits: &QueueBounds,
    ) -> Option<(Arc<QueuePlace>, Seat, Displaced)> {
        if waits.longest_us == 0 || waits.queue == 0 {
            return None;
        }
        let least = if self.waiting_in_all() < waits.queue { None } else { Some(self.least(asks)?) };
        let lost = least.and_then(|(class, tenant, number)| {
            let request = self.remove(class, &tenant, number)?;
            Some((class, request.key, request.place.lose()))
        });
        let place = Arc::<QueuePlace>::default();
        let number = self.next;
        self.next += 1;
        let (place_of, key) = (Arc::clone(&place), asks.tenant.clone());
        let request = WaitingRequest { place: place_of, key, weight: asks.weight.max(1) };
        let tenant = self.only.as_ref().unwrap_or(asks.tenant);
        let in_use = self.counted(tenant);
        let queue = self.queues[asks.class.place()].add(tenant, (number, request), in_use, asks.now_us);
        let is_standing = queue.is_standing(asks.now_us, waits.longest_us);
        let longest_us = if is_standing { waits.longest_us / SHORTER } else { waits.longest_us };
        Some((place, Seat { class: asks.class, number, longest_us }, lost))
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
    fn least(&self, asks: &Contender<'_>) -> Option<(Class, Key, u64)> {
        let class = Class::ALL.into_iter().rev().find(|class| self.queues[class.place()].waiting() > 0)?;
        let queues = &self.queues[class.place()];
        let (tenant, queue) = queues.greediest()?;
        let loses = class > asks.class || {
            let asking = self.only.as_ref().unwrap_or(asks.tenant);
            let own = self.counted(asking) + queues.of(asking).map_or(0, TenantQueue::waiting);
            let [theirs, ours] = [self.counted(tenant) + queue.waiting(), own + 1].map(u128::from);
            class == asks.class
                && tenant != asking
                && theirs * u128::from(asks.weight.max(1)) > ours * u128::from(queue.weight())
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

/// The class and the key of a request that has lost its place to another one, and the waker to call.
pub(super) type Displaced = Option<(Class, Key, Option<Waker>)>;

/// A queue is standing if it was not empty for the longest wait of a request: the wait is then this many times shorter. 5 ms of
/// 100 ms in the source.
const SHORTER: u64 = 20;
