//! The instances, each with its own stores around the shared one.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sluicegate_core::clock::Clock;
use sluicegate_core::resilient::BreakerSettings;
use sluicegate_core::{ConfigError, MemoryStore, Policy, RateLimiter, Resilient, Store};
use sluicegate_tests::random::Random;

use crate::network::{Cut, Link, Network};
use crate::plan::{Plan, Wrapper};
use crate::server::{Server, room_for};
use crate::time::{Skewed, Time};

/// All instances of a service, and what they share.
pub(crate) struct Fleet {
    plan: Plan,
    policy: Policy,
    time: Time,
    random: Random,
    /// Instances that have ever started.
    started: u64,
    /// The store that all share.
    pub(crate) server: Arc<Server>,
    /// Calls to shared stores so far.
    pub(crate) calls: Arc<AtomicU64>,
    /// One per place; none while it is down.
    pub(crate) instances: Vec<Option<Instance>>,
}

/// An instance, from its start to its end.
pub(crate) struct Instance {
    /// Its number, of all that ever start.
    pub(crate) number: u64,
    /// Asks its stores.
    pub(crate) limiter: RateLimiter,
    /// Its own clock.
    pub(crate) clock: Skewed,
    links: Vec<Arc<Link>>,
    resilient: Option<Resilient>,
}

impl Fleet {
    /// A fleet whose instances are all up.
    pub(crate) fn start(plan: &Plan, time: &Time) -> Result<Self, ConfigError> {
        let mut random = Random::new(plan.seed ^ 0x666c_6565_7400);
        let ahead_us = random.below(3_600_000_000);
        let clock = Skewed::new(time, ahead_us, skew(plan, &mut random));
        let quota = plan.quota;
        let mut policy = Policy::builder("simulated", plan.algorithm, quota);
        if plan.refunds > 0 {
            policy = policy.refunds();
        }
        let mut fleet = Self {
            plan: plan.clone(),
            policy: policy.build()?,
            time: time.clone(),
            random,
            started: 0,
            server: Server::new(clock, plan.keys, plan.flushes),
            calls: Arc::default(),
            instances: (0..plan.instances).map(|_| None).collect(),
        };
        for place in 0..plan.instances {
            fleet.restart(place)?;
        }
        Ok(fleet)
    }

    /// Asks the shared store, and no network is between.
    pub(crate) fn on_the_server(&self) -> Result<RateLimiter, ConfigError> {
        RateLimiter::new(Arc::clone(&self.server) as Arc<dyn Store>, self.policy.clone())
    }

    /// A store that decides what the shared one would if it were everywhere at once.
    pub(crate) fn ideal(&self) -> Result<RateLimiter, ConfigError> {
        let store = MemoryStore::builder().keys(room_for(self.plan.keys)).log_entries(1 << 20);
        let server = Arc::clone(&self.server);
        RateLimiter::new(store.clock(ByServer(server)).build()?, self.policy.clone())
    }

    /// A new instance at this place.
    pub(crate) fn restart(&mut self, place: usize) -> Result<(), ConfigError> {
        let number = self.started;
        self.started += 1;
        let ahead_us = self.random.below(3_600_000_000);
        let clock = Skewed::new(&self.time, ahead_us, skew(&self.plan, &mut self.random));
        let way = (self.plan.delay, self.plan.loss);
        let link = Arc::new(Link::new(number, self.plan.seed, way, &self.time, &self.calls));
        let mut store: Arc<dyn Store> =
            Arc::new(Network::new(Arc::clone(&self.server) as Arc<dyn Store>, Arc::clone(&link)));
        let mut resilient = None;
        if self.plan.has(Wrapper::Resilient) {
            let memory = MemoryStore::builder()
                .keys(room_for(self.plan.keys).min(1 << 14))
                .clock(clock.clone())
                .build()?;
            let around = Resilient::builder(store).replicas(self.plan.instances as u64).fallback(memory);
            let around = around.clock(clock.clone()).breaker(BreakerSettings::new().jitter(0)).build()?;
            store = (&around).into();
            resilient = Some(around);
        }
        let limiter = RateLimiter::new(store, self.policy.clone())?;
        self.instances[place] = Some(Instance { number, limiter, clock, links: vec![link], resilient });
        Ok(())
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

    /// It is gone from one moment to the next, with all that it held.
    pub(crate) fn crash(self) {
        self.links.iter().for_each(|link| link.end());
    }

    /// It gives back what it holds, and ends.
    pub(crate) async fn close(self) {
        if let Some(resilient) = &self.resilient {
            // What is not settled within a second is lost, as in a crash.
            let _ = resilient.close(Duration::from_secs(1)).await;
        }
        self.crash();
    }
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
