//! A run of a plan: requests and faults, one after the other, on virtual time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sluicegate_core::clock::Clock;
use sluicegate_core::{ConfigError, Quota};
use sluicegate_tests::random::{Random, Zipf};

use crate::fault::{Fault, faults, losses};
use crate::fleet::{Fleet, Instance, Limits};
use crate::law::Loss;
use crate::log::{Asked, Log};
use crate::plan::{Plan, Wrapper};
use crate::request::{Request, is_allowed};
use crate::run::{AGAIN, Run};
use crate::time::Time;

/// Parts of a run that a picture shows.
const SLICES: usize = 240;

/// Requests that are under way at the end have this long.
const REST_US: u64 = 5_000_000;

impl Run {
    /// Runs the plan; again, if a memory forgot a key because others fell into the same set of a table: into which set a key falls is
    /// drawn anew each time.
    ///
    /// # Errors
    /// When the policy is not possible.
    ///
    /// # Panics
    /// When there is no room for a runtime.
    pub fn of(plan: &Plan) -> Result<Self, ConfigError> {
        Self::with_room(if plan.is_repeatable() { AGAIN } else { 0 }, || Self::played(plan))
    }

    fn played(plan: &Plan) -> Result<Self, ConfigError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("there is room for a runtime").block_on(async { Driver::begin(plan)?.drive().await })
    }
}

/// Twice as much in the same time.
fn doubled(quota: &Quota) -> Quota {
    Quota::new(quota.limit() * 2, quota.period()).burst(quota.burst_size() * 2)
}

struct Driver {
    plan: Plan,
    time: Time,
    fleet: Fleet,
    server: Option<Limits>,
    ideal: Limits,
    log: Arc<Mutex<Log>>,
    lasts_us: u64,
    /// The quotas in force, each from a moment of the shared store's clock on.
    quotas: Vec<(u64, Quota)>,
    faults: Vec<(u64, Fault)>,
}

impl Driver {
    fn begin(plan: &Plan) -> Result<Self, ConfigError> {
        let time = Time::begin();
        #[expect(clippy::cast_possible_truncation, reason = "a run is shorter than an age")]
        let lasts_us = (plan.requests as f64 / plan.rate() * 1e6) as u64 + 1;
        let faults = faults(plan, lasts_us);
        let mut fleet = Fleet::start(plan, &time, &losses(&faults))?;
        let (server, ideal) = (fleet.on_the_server()?, fleet.ideal()?);
        let log = Arc::new(Mutex::new(Log::new(plan.all_keys(), SLICES, !plan.has(Wrapper::Regional))));
        let quotas = vec![(0, plan.quota)];
        Ok(Self { plan: plan.clone(), time, fleet, server, ideal, log, lasts_us, quotas, faults })
    }

    async fn drive(mut self) -> Result<Run, ConfigError> {
        let faults = std::mem::take(&mut self.faults);
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
            let keys = (0..self.plan.asks).map(|_| popularity.draw(&mut random)).collect();
            self.request(keys, &mut random);
        }
        let lasted_us = self.time.now_us();
        self.time.until(lasted_us + REST_US).await;
        let calls = self.fleet.calls.load(std::sync::atomic::Ordering::Relaxed);
        let log = std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner));
        let forgotten = self.fleet.forgotten();
        Ok(Run { plan: self.plan, log, faults, quotas: self.quotas, lasted_us, calls, forgotten })
    }

    fn request(&self, keys: Vec<usize>, random: &mut Random) {
        let place = random.index(self.plan.instances);
        let units = 1 + random.below(self.plan.cost);
        let refund =
            (random.below(1_000) < self.plan.refunds).then(|| Duration::from_millis(random.below(200)));
        let slice = usize::try_from(self.time.now_us() * SLICES as u64 / self.lasts_us).unwrap_or(SLICES);
        let asked = Asked { instance: 0, keys, units, slice: slice.min(SLICES - 1) };
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if is_allowed(asked.check(&self.ideal)) {
            // Each limit counts what it admits.
            log.ideal_units += units * self.plan.asks as u64;
            log.slices[asked.slice].ideal += units;
        }
        let Some(instance) = self.fleet.near(place) else {
            log.unserved += 1;
            return;
        };
        drop(log);
        let (Instance { number, limiters, clock, .. }, stands_for) = (instance, instance.stands_for());
        let request = Request {
            asked: Asked { instance: *number, ..asked },
            limiters: Arc::clone(limiters),
            server: self.server.clone(),
            began: (0, 0),
            clocks: (Arc::clone(self.fleet.server()), clock.clone()),
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
                self.lose(0);
            }
            Fault::Failover(behind_us) => {
                self.fleet.servers.iter().for_each(|server| server.fail_over(behind_us));
                self.lose(behind_us);
            }
            Fault::Replace => {
                let is_doubled = self.quotas.len() % 2 == 1;
                let quota = if is_doubled { doubled(&self.plan.quota) } else { self.plan.quota };
                let now_us = self.fleet.server().time_us();
                self.fleet.replace(quota, self.server.iter().chain([&self.ideal]))?;
                self.quotas.push((now_us, quota));
            }
            Fault::Reset(key) => self.reset(key),
        }
        Ok(())
    }

    /// The shared stores have lost what they have learned since.
    fn lose(&self, since_us: u64) {
        let (now_us, life_us) = (self.fleet.server().time_us(), self.life_us());
        let loss = Loss { from_us: now_us - since_us, to_us: now_us + life_us, units: Loss::ALL };
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.losses.iter_mut().for_each(|losses| losses.push(loss));
    }

    /// How long instances may spend what they held of a key that the store has forgotten, beside what it admits anew.
    fn life_us(&self) -> u64 {
        let quota = self.plan.quota;
        let drains =
            quota.period() * u32::try_from(quota.burst_size().div_ceil(quota.limit())).unwrap_or(u32::MAX);
        if self.plan.has(Wrapper::Leased) { u64::try_from(drains.as_micros()).unwrap_or(u64::MAX) } else { 0 }
    }

    fn reset(&self, key: usize) {
        let Some(Instance { number, limiters, clock, .. }) = self.fleet.near(key % self.plan.instances)
        else {
            return;
        };
        let (number, clock) = (*number, clock.clone());
        let (server, log) = (Arc::clone(self.fleet.server()), Arc::clone(&self.log));
        let (from_us, own_from_us, life_us) = (server.time_us(), clock.now_us(), self.life_us());
        let reset = limiters[0].reset(key as u64).start();
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
