//! The instances, each with its own stores around the shared one.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sluicegate_core::clock::Clock;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::{ConfigError, MemoryStore, OnOutage, Policy, Quota, RateLimiter, Store};
use sluicegate_fleet::{DenyCache, Leased, Regional, Sharded};
use sluicegate_resilient::BreakerSettings;
use sluicegate_resilient::Resilient;
use sluicegate_tests::random::Random;

use crate::network::{Cut, Link, Network};
use crate::plan::{Plan, Wrapper};
use crate::server::{Lost, Server, room_for};
use crate::time::{Skewed, Time};

/// All instances of a service, and what they share.
pub(crate) struct Fleet {
    plan: Plan,
    /// One for each limit that a request meets.
    policies: Vec<Policy>,
    time: Time,
    random: Random,
    /// Instances that have ever started.
    started: u64,
    /// The stores that all share: one, or one of each region and a reserve.
    pub(crate) servers: Vec<Arc<Server>>,
    /// Calls to shared stores so far.
    pub(crate) calls: Arc<AtomicU64>,
    /// All memories beside those of the shared stores, also of instances that have ended.
    memories: Vec<MemoryStore>,
    /// One per place; none while it is down.
    pub(crate) instances: Vec<Option<Instance>>,
}

/// An instance, from its start to its end.
pub(crate) struct Instance {
    /// Its number, of all that ever start.
    pub(crate) number: u64,
    /// Ask its stores, one for each limit.
    pub(crate) limiters: Limits,
    /// Its own clock.
    pub(crate) clock: Skewed,
    links: Vec<Arc<Link>>,
    resilient: Option<Resilient>,
    leased: Option<Leased>,
}

/// The limits that a request meets.
pub(crate) type Limits = Arc<[RateLimiter]>;

impl Fleet {
    /// A fleet whose instances are all up, and whose stores will lose their state so.
    pub(crate) fn start(plan: &Plan, time: &Time, losses: &[Lost]) -> Result<Self, ConfigError> {
        let mut random = Random::new(plan.seed ^ 0x666c_6565_7400);
        let ahead_us = random.below(3_600_000_000);
        let clock = Skewed::new(time, ahead_us, skew(plan, &mut random));
        let servers = if plan.has(Wrapper::Regional) { plan.regions + 1 } else { 1 };
        let mut fleet = Self {
            plan: plan.clone(),
            policies: policies(plan, plan.quota)?,
            time: time.clone(),
            random,
            started: 0,
            servers: (0..servers).map(|_| Server::new(clock.clone(), plan.keys, losses)).collect(),
            calls: Arc::default(),
            memories: Vec::new(),
            instances: (0..plan.instances).map(|_| None).collect(),
        };
        for place in 0..plan.instances {
            fleet.restart(place)?;
        }
        Ok(fleet)
    }

    /// The time by the clock of the shared stores.
    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.servers[0]
    }

    /// Asks the shared store, and no network is between; none if several stores have a part of each quota.
    pub(crate) fn on_the_server(&self) -> Result<Option<Limits>, ConfigError> {
        if self.plan.has(Wrapper::Regional) || self.plan.has(Wrapper::Sharded) {
            return Ok(None);
        }
        self.limits(&(Arc::clone(self.server()) as Arc<dyn Store>)).map(Some)
    }

    /// A store that decides what the shared one would if it were everywhere at once.
    pub(crate) fn ideal(&mut self) -> Result<Limits, ConfigError> {
        let store = MemoryStore::builder().table_size(room_for(self.plan.keys)).log_entries(1 << 20);
        let store = store.clock(ByServer(Arc::clone(self.server()))).build()?;
        self.memories.push(store.clone());
        self.limits(&Arc::from(store))
    }

    /// The policies on this store.
    fn limits(&self, store: &Arc<dyn Store>) -> Result<Limits, ConfigError> {
        self.policies.iter().map(|policy| RateLimiter::new(Arc::clone(store), policy.clone())).collect()
    }

    /// Replaces the policies on all instances, and on these others.
    pub(crate) fn replace<'a>(
        &mut self,
        quota: Quota,
        others: impl Iterator<Item = &'a Limits>,
    ) -> Result<(), ConfigError> {
        self.policies = policies(&self.plan, quota)?;
        let replace = |limits: &Limits| -> Result<(), ConfigError> {
            let mut each = limits.iter().zip(&self.policies);
            each.try_for_each(|(limiter, policy)| limiter.replace(policy.clone(), Inherit::Spent))
        };
        for instance in self.instances.iter().flatten() {
            replace(&instance.limiters)?;
        }
        for limits in others {
            replace(limits)?;
        }
        Ok(())
    }

    /// A new instance at this place.
    pub(crate) fn restart(&mut self, place: usize) -> Result<(), ConfigError> {
        let number = self.started;
        self.started += 1;
        let ahead_us = self.random.below(3_600_000_000);
        let clock = Skewed::new(&self.time, ahead_us, skew(&self.plan, &mut self.random));
        let mut links = Vec::new();
        let mut network = |server: usize, delay_us: u64| {
            // Each way has fates of its own.
            let seed = self.plan.seed ^ (server as u64) << 32;
            let link = Link::new(number, seed, (delay_us, self.plan.loss), &self.time, &self.calls);
            links.push(Arc::new(link));
            let server = Arc::clone(&self.servers[server]) as Arc<dyn Store>;
            Arc::new(Network::new(server, Arc::clone(&links[links.len() - 1]))) as Arc<dyn Store>
        };
        let mut store = if self.plan.has(Wrapper::Regional) {
            let (region, reserve) = (place % self.plan.regions, self.plan.regions);
            let far = if self.plan.regions > 1 { self.plan.far } else { self.plan.delay };
            let (own, reserve) = (network(region, self.plan.delay), network(reserve, far));
            let regional = Regional::builder(format!("region-{region}"), own, reserve);
            let each = (0..self.plan.regions).map(|region| format!("region-{region}"));
            each.fold(regional, |regional, name| regional.region(name, 1)).build()?.into()
        } else {
            network(0, self.plan.delay)
        };
        if self.plan.has(Wrapper::Sharded) {
            let sharded = Sharded::builder(store, 2);
            let sharded = self.policies.iter().fold(sharded, |sharded, policy| sharded.policy(policy.name()));
            store = sharded.build()?.into();
        }
        let resilient = self.plan.has(Wrapper::Resilient).then(|| {
            // A key that a full table forgets is admitted its share again: of ten million keys, one instance meets a part.
            let memory = MemoryStore::builder().table_size(room_for(self.plan.keys).min(1 << 17));
            let memory = memory.clock(clock.clone()).build()?;
            self.memories.push(memory.clone());
            let around = Resilient::builder(Arc::clone(&store)).replicas(self.plan.instances as u64);
            around.fallback(memory).clock(clock.clone()).breaker(BreakerSettings::new().jitter(0)).build()
        });
        let resilient = resilient.transpose()?;
        if let Some(resilient) = &resilient {
            store = resilient.into();
        }
        let leased = self.plan.has(Wrapper::Leased).then(|| {
            Leased::builder(Arc::clone(&store))
                .keys(leases_for(self.plan.all_keys()))
                .clock(clock.clone())
                .build()
        });
        let leased = leased.transpose()?;
        if let Some(leased) = &leased {
            store = leased.into();
        }
        if self.plan.has(Wrapper::Deny) {
            store = DenyCache::builder(store).clock(clock.clone()).build()?.into();
        }
        let limiters = self.limits(&store)?;
        self.instances[place] = Some(Instance { number, limiters, clock, links, resilient, leased });
        Ok(())
    }

    /// Units that instances hold and have not spent.
    pub(crate) fn held(&self) -> u64 {
        let leased = self.instances.iter().flatten().filter_map(|instance| instance.leased.as_ref());
        leased.map(|leased| leased.status().held).sum()
    }

    /// Keys that had to make room for others so far, in all memories.
    pub(crate) fn forgotten(&self) -> u64 {
        let servers = self.servers.iter().map(|server| server.forgotten());
        servers.chain(self.memories.iter().map(|memory| memory.stats().evictions)).sum()
    }

    /// An instance that is up, near this place.
    pub(crate) fn near(&self, place: usize) -> Option<&Instance> {
        let (before, after) = self.instances.split_at(place);
        after.iter().chain(before).flatten().next()
    }
}

impl Instance {
    /// Cuts its way to the store, or mends it.
    pub(crate) fn cut(&self, cut: Cut) {
        self.links.iter().for_each(|link| link.cut(cut));
    }

    /// It stands still until this moment of the run.
    pub(crate) fn pause(&self, until_us: u64) {
        self.links.iter().for_each(|link| link.pause(until_us));
    }

    /// How long it stands still from now on.
    pub(crate) fn stands_for(&self) -> Duration {
        self.links.first().map_or(Duration::ZERO, |link| link.stands_for())
    }

    /// It is gone from one moment to the next, with all that it held.
    pub(crate) fn crash(self) {
        self.links.iter().for_each(|link| link.end());
    }

    /// It gives back what it holds, and ends.
    pub(crate) async fn close(self) {
        if let Some(leased) = &self.leased {
            let _ = leased.close(Duration::from_secs(1)).await;
        }
        if let Some(resilient) = &self.resilient {
            // What is not settled within a second is lost, as in a crash.
            let _ = resilient.close(Duration::from_secs(1)).await;
        }
        self.crash();
    }
}

/// Leases for this many keys, of which none makes room for another one in a plan that is repeatable. A thousand instances have no memory
/// for more.
fn leases_for(keys: usize) -> usize {
    (keys * 32).clamp(1 << 12, 1 << 16)
}

/// The policies of this plan, under this quota. Without `Resilient` an instance would hold them by itself in an outage, by the machine's
/// clock, which no seed repeats: then they say that everything passes.
fn policies(plan: &Plan, quota: Quota) -> Result<Vec<Policy>, ConfigError> {
    let policy = |index| {
        let on_outage = if plan.has(Wrapper::Resilient) { OnOutage::Local } else { OnOutage::Allow };
        let policy =
            Policy::builder(format!("simulated-{index}"), plan.algorithm, quota).on_outage(on_outage);
        if plan.refunds > 0 { policy.refunds().build() } else { policy.build() }
    };
    (0..plan.asks).map(policy).collect()
}

/// The clock of the shared store.
struct ByServer(Arc<Server>);

impl Clock for ByServer {
    fn now_us(&self) -> u64 {
        self.0.time_us()
    }
}

/// How many millionths a clock is too fast.
fn skew(plan: &Plan, random: &mut Random) -> i64 {
    let most = i64::try_from(plan.skew).unwrap_or(0);
    i64::try_from(random.below(2 * plan.skew + 1)).unwrap_or(0) - most
}
