//! A run of a plan: requests and faults, one after the other, on virtual time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sluicegate_core::clock::Clock;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{ConfigError, Decision, RateLimiter};
use sluicegate_tests::random::{Random, Zipf};

use crate::fault::{Fault, faults};
use crate::fleet::{Fleet, Instance};
use crate::law::{Excess, Law, Loss};
use crate::log::{Asked, Log};
use crate::plan::{Plan, Wrapper};
use crate::server::Server;
use crate::time::{Skewed, Time};

/// Parts of a run that a picture shows.
const SLICES: usize = 240;

/// Requests that are under way at the end have this long.
const REST_US: u64 = 5_000_000;

/// What has become of a plan.
#[derive(Clone, Debug)]
pub struct Run {
    /// The plan.
    pub plan: Plan,
    /// What was decided.
    pub log: Log,
    /// What befell the fleet, and when, in microseconds.
    pub faults: Vec<(u64, Fault)>,
    /// How long requests came, in microseconds.
    pub lasted_us: u64,
    /// Calls to the shared store.
    pub calls: u64,
}

/// A key that was admitted more than the law allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The place of the key.
    pub key: usize,
    /// The instance that was alone, by its number; none if it is about all that was admitted with the shared store's knowledge.
    pub alone: Option<u64>,
    /// By how much.
    pub excess: Excess,
}

impl Run {
    /// Runs the plan.
    ///
    /// # Errors
    /// When the policy is not possible.
    ///
    /// # Panics
    /// When there is no room for a runtime.
    pub fn of(plan: &Plan) -> Result<Self, ConfigError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("there is room for a runtime").block_on(async { Driver::begin(plan)?.drive().await })
    }

    /// What the plan's algorithm allows.
    #[must_use]
    pub fn law(&self) -> Law {
        Law::of(self.plan.algorithm, &self.plan.quota)
    }

    /// All keys that were admitted more than this allows, the worst first: by all together, and by instances that were alone,
    /// each of which has its share. What nobody counted, by a policy that allows requests in an outage, has no law.
    #[must_use]
    pub fn broken(&self, law: Law) -> Vec<Broken> {
        let shared =
            self.log.shared.iter().zip(&self.log.losses).enumerate().filter_map(|(key, (list, losses))| {
                Some(Broken { key, alone: None, excess: law.check(list, losses).err()? })
            });
        let share = law.share(self.plan.instances as u64);
        let alone = self.log.alone.iter().filter_map(|((instance, key), list)| {
            let losses = self.log.forgotten.get(&(*instance, *key)).map_or(&[][..], Vec::as_slice);
            Some(Broken { key: *key, alone: Some(*instance), excess: share.check(list, losses).err()? })
        });
        let mut all: Vec<_> = shared.chain(alone).collect();
        all.sort_by_key(|broken| std::cmp::Reverse(broken.excess.units));
        all
    }
}

struct Driver {
    plan: Plan,
    time: Time,
    fleet: Fleet,
    server: Option<RateLimiter>,
    ideal: RateLimiter,
    log: Arc<Mutex<Log>>,
    lasts_us: u64,
}

/// A request that is under way, with all that is needed to write down what becomes of it.
struct Request {
    asked: Asked,
    limiter: RateLimiter,
    server: Option<RateLimiter>,
    clocks: (Arc<Server>, Skewed),
    began: (u64, u64),
    log: Arc<Mutex<Log>>,
    /// After so long it gives back what it has spent.
    refund: Option<Duration>,
}

impl Driver {
    fn begin(plan: &Plan) -> Result<Self, ConfigError> {
        let time = Time::begin();
        let fleet = Fleet::start(plan, &time)?;
        let (server, ideal) = (fleet.on_the_server()?, fleet.ideal()?);
        let log = Arc::new(Mutex::new(Log::new(plan.keys, SLICES, !plan.has(Wrapper::Regional))));
        #[expect(clippy::cast_possible_truncation, reason = "a run is shorter than an age")]
        let lasts_us = (plan.requests as f64 / plan.rate() * 1e6) as u64 + 1;
        Ok(Self { plan: plan.clone(), time, fleet, server, ideal, log, lasts_us })
    }

    async fn drive(mut self) -> Result<Run, ConfigError> {
        let faults = faults(&self.plan, self.lasts_us);
        let mut coming = faults.iter().copied().peekable();
        let mut random = Random::new(self.plan.seed ^ 0x6c6f_6164);
        let popularity = Zipf::new(self.plan.keys, self.plan.zipf);
        let mut at_us = 0.0;
        for _ in 0..self.plan.requests {
            // The time between two requests is as that of many callers who know nothing of each other.
            at_us -= (1.0 - random.fraction()).ln() / self.plan.rate() * 1e6;
            #[expect(clippy::cast_possible_truncation, reason = "whole microseconds are enough")]
            let now_us = at_us as u64;
            while let Some((at_us, fault)) = coming.next_if(|(at_us, _)| *at_us <= now_us) {
                self.time.until(at_us).await;
                self.befall(fault)?;
            }
            self.time.until(now_us).await;
            self.look();
            let key = popularity.draw(&mut random);
            self.request(key, &mut random);
        }
        let lasted_us = self.time.now_us();
        self.time.until(lasted_us + REST_US).await;
        let calls = self.fleet.calls.load(std::sync::atomic::Ordering::Relaxed);
        let log = std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Run { plan: self.plan, log, faults, lasted_us, calls })
    }

    fn request(&self, key: usize, random: &mut Random) {
        let place = random.index(self.plan.instances);
        let units = 1 + random.below(self.plan.cost);
        let refund =
            (random.below(1_000) < self.plan.refunds).then(|| Duration::from_millis(random.below(200)));
        let slice = usize::try_from(self.time.now_us() * SLICES as u64 / self.lasts_us).unwrap_or(SLICES);
        let asked = Asked { instance: 0, key, units, slice: slice.min(SLICES - 1) };
        let is_ideal = self
            .ideal
            .check_cost(key as u64, units)
            .now()
            .is_ok_and(|answer| answer.is_ok_and(|decision| decision.is_allowed()));
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if is_ideal {
            log.ideal_units += units;
            log.slices[asked.slice].ideal += units;
        }
        let Some(instance) = self.fleet.near(place) else {
            log.unserved += 1;
            return;
        };
        drop(log);
        let (Instance { number, limiter, clock, .. }, stands_for) = (instance, instance.stands_for());
        let server = Arc::clone(self.fleet.server());
        let request = Request {
            asked: Asked { instance: *number, ..asked },
            limiter: limiter.clone(),
            server: self.server.clone(),
            began: (0, 0),
            clocks: (server, clock.clone()),
            log: Arc::clone(&self.log),
            refund,
        };
        if stands_for.is_zero() {
            request.begin();
        } else {
            // It is asked when the instance goes on.
            tokio::spawn(async move {
                tokio::time::sleep(stands_for).await;
                request.begin();
            });
        }
    }

    /// Looks at what instances hold, once in a slice.
    fn look(&self) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let slice = usize::try_from(self.time.now_us() * SLICES as u64 / self.lasts_us).unwrap_or(SLICES);
        let slice = &mut log.slices[slice.min(SLICES - 1)];
        if self.plan.has(Wrapper::Leased) && slice.held.is_none() {
            slice.held = Some(self.fleet.held());
        }
    }

    fn befall(&mut self, fault: Fault) -> Result<(), ConfigError> {
        match fault {
            Fault::Crash(place) => {
                if let Some(instance) = self.fleet.instances[place].take() {
                    instance.crash();
                }
            }
            Fault::Close(place) => {
                if let Some(instance) = self.fleet.instances[place].take() {
                    tokio::spawn(instance.close());
                }
            }
            Fault::Start(place) => {
                if self.fleet.instances[place].is_none() {
                    self.fleet.restart(place)?;
                }
            }
            Fault::Part(first, cut) => {
                for instance in self.fleet.instances.iter().skip(first).step_by(3).flatten() {
                    instance.cut(cut);
                }
            }
            Fault::Pause(place, for_us) => {
                if let Some(instance) = &self.fleet.instances[place] {
                    instance.pause(self.time.now_us() + for_us);
                }
            }
            Fault::Flush => {
                self.fleet.servers.iter().for_each(|server| server.flush());
                let (now_us, life_us) = (self.fleet.server().time_us(), self.life_us());
                let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
                for losses in &mut log.losses {
                    losses.push(Loss { from_us: now_us, to_us: now_us + life_us, units: Loss::ALL });
                }
            }
            Fault::Reset(key) => self.reset(key),
        }
        Ok(())
    }

    /// How long instances may spend what they held of a key that the store has forgotten, beside what it admits anew.
    fn life_us(&self) -> u64 {
        let quota = self.plan.quota;
        let drains =
            quota.period() * u32::try_from(quota.burst_size().div_ceil(quota.limit())).unwrap_or(u32::MAX);
        if self.plan.has(Wrapper::Leased) { u64::try_from(drains.as_micros()).unwrap_or(u64::MAX) } else { 0 }
    }

    fn reset(&self, key: usize) {
        let Some(Instance { number, limiter, clock, .. }) = self.fleet.near(key % self.plan.instances) else {
            return;
        };
        let (number, clock) = (*number, clock.clone());
        let (server, log) = (Arc::clone(self.fleet.server()), Arc::clone(&self.log));
        let (from_us, own_from_us, life_us) = (server.time_us(), clock.now_us(), self.life_us());
        let reset = limiter.reset(key as u64);
        tokio::spawn(async move {
            // Unanswered, it may have been carried out all the same.
            let _ = reset.await;
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.losses[key].push(Loss { from_us, to_us: server.time_us() + life_us, units: Loss::ALL });
            let own = Loss { from_us: own_from_us, to_us: clock.now_us(), units: Loss::ALL };
            log.forgotten.entry((number, key)).or_default().push(own);
        });
    }
}

impl Request {
    fn begin(mut self) {
        self.began = (self.clocks.0.time_us(), self.clocks.1.now_us());
        match self.limiter.check_cost(self.asked.key as u64, self.asked.units).now() {
            Ok(answer) => self.answered(answer.ok()),
            Err(pending) => drop(tokio::spawn(async { self.answered(pending.await.ok()) })),
        }
    }

    fn answered(self, answer: Option<Decision>) {
        let (by_store, own) = (self.clocks.0.time_us(), self.clocks.1.now_us());
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut decision) = answer else {
            log.failed += 1;
            return;
        };
        let entry = log.decide(self.asked, &decision, [self.began.0, by_store], [self.began.1, own]);
        if !decision.is_allowed() && decision.decided_by() != DecidedBy::Fallback && self.has_room() {
            *log.wrongly.entry(decision.decided_by()).or_default() += 1;
        }
        drop(log);
        let receipt = self.refund.and_then(|_| decision.take_receipt(0));
        if let (Some(entry), Some(after), Some(mut receipt)) = (entry, self.refund, receipt) {
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                self.log.lock().unwrap_or_else(PoisonError::into_inner).strike(entry, self.clocks.1.now_us());
                // Lost, it is not repeated.
                let _ = self.limiter.refund_of(&mut receipt, self.asked.key as u64, self.asked.units).await;
            });
        }
    }

    /// Whether the shared store would let this request pass now.
    fn has_room(&self) -> bool {
        let Some(server) = &self.server else { return false };
        server
            .peek_cost(self.asked.key as u64, self.asked.units)
            .now()
            .is_ok_and(|answer| answer.is_ok_and(|decision| decision.is_allowed()))
    }
}
