//! Taking, leaving, resetting and replacing in any order, on paused time: never more goes than the policies allow.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sluicegate_core::algorithm::{Anchor, Drain, Refill};
use sluicegate_core::clock::Clock;
use sluicegate_core::limiter::check_all;
use sluicegate_core::limiter::{Inherit, Receipt, Turn};
use sluicegate_core::{Algorithm, Decision, Key, MemoryStore, Policy, Quota, RateLimiter, Store};
use sluicegate_tests::around::instance;
use sluicegate_tests::random::Random;
use sluicegate_tests::time::Paused;
use tokio::time::Instant;

use crate::algorithm::exact::promised;
use crate::support::{ALL, is_queue, us};

/// A limit and a key of it.
type Bucket = (usize, u64);

/// Which life of a bucket it is: another one after a reset or a replacement.
type Life = (Bucket, usize);

struct World {
    algorithm: Algorithm,
    random: Random,
    start: Instant,
    /// By instance and by limit.
    limiters: Vec<[RateLimiter; 2]>,
    /// The quotas that each limit had.
    quotas: [Vec<Quota>; 2],
    lives: HashMap<Bucket, usize>,
    /// The life that each turn was reserved in, by its bucket and the birth of the key there.
    births: HashMap<(Bucket, u64), Life>,
    /// Requests with the moments of their own turns.
    waiting: Vec<(Turn, Own, u64)>,
    gone: HashMap<Life, Vec<(u64, u64)>>,
    receipts: Vec<(Life, u64, Receipt)>,
}

/// What a request asks for: the lives of its buckets when it came, in the order of the asks.
type Own = Vec<Life>;

const QUOTAS: [(u64, u64, u64); 4] =
    [(1, 1_000_000, 1), (3, 2_000_000, 3), (5, 7_000_001, 4), (2, 10_000_000, 2)];

impl World {
    fn new(algorithm: Algorithm, instances: usize, seed: u64) -> Self {
        let start = Instant::now();
        let mut random = Random::new(seed);
        let shared: Arc<dyn Store> =
            MemoryStore::builder().table_size(64).clock(Paused(start)).build().unwrap().into();
        let quotas = [0, 1].map(|_| vec![quota(algorithm, &mut random)]);
        let limiters = (0..instances).map(|_| {
            let store = instance(&shared);
            [0, 1].map(|limit| {
                RateLimiter::new(Arc::clone(&store), policy(algorithm, limit, quotas[limit][0])).unwrap()
            })
        });
        Self {
            algorithm,
            limiters: limiters.collect(),
            start,
            quotas,
            random,
            lives: HashMap::new(),
            births: HashMap::new(),
            waiting: Vec::new(),
            gone: HashMap::new(),
            receipts: Vec::new(),
        }
    }

    fn now_us(&self) -> u64 {
        Paused(self.start).now_us()
    }

    async fn step(&mut self) {
        match self.random.below(20) {
            0..=8 => self.take().await,
            9..=13 => self.leave(),
            14..=16 => {
                let span = [1, 250_000, 1_000_000, 1_700_000][self.random.index(4)];
                tokio::time::advance(us(span)).await;
                self.poll_all();
            }
            17 => {
                // Nobody looks at the turns that come.
                tokio::time::advance(us(1_300_000)).await;
            }
            18 if self.random.below(3) > 0 => self.give_back().await,
            18 => self.reset().await,
            _ => self.replace(),
        }
    }

    async fn take(&mut self) {
        let instance = self.random.index(self.limiters.len());
        let key = self.random.below(2);
        let limits: &[usize] = [&[0][..], &[0], &[1], &[0, 1]][self.random.index(4)];
        let costs: Vec<u64> = limits.iter().map(|_| [1, 1, 1, 2][self.random.index(4)]).collect();
        let longest = Duration::from_secs(60);
        let limiters = &self.limiters[instance];
        // The second limit is each key's own, or all share it.
        let keys = [key, [key, 0][self.random.index(2)]];
        let k = keys.map(Key::from);
        let checks =
            limits.iter().zip(&costs).map(|(limit, cost)| limiters[*limit].check(&k[*limit]).cost(*cost));
        tokio::time::advance(us(1)).await;
        let decision = check_all(checks.map(|check| check.reserve(longest))).await.unwrap();
        let under = limits
            .iter()
            .zip(&costs)
            .map(|(limit, cost)| (limiters[*limit].clone(), k[*limit].clone(), *cost));
        let lives = limits.iter().map(|limit| (*limit, keys[*limit]));
        let lives: Own =
            lives.map(|bucket| (bucket, self.lives.get(&bucket).copied().unwrap_or(0))).collect();
        if !decision.is_allowed() {
            return;
        }
        for (ask, life) in lives.iter().enumerate() {
            let receipt = decision.receipt(ask);
            let birth = receipt.and_then(|receipt| Some(receipt.trace(0)?.birth));
            self.births.extend(birth.map(|birth| ((life.0, birth), *life)));
        }
        if decision.delay().is_zero() {
            self.goes(decision, &lives);
        } else {
            let latest = decision.spent_us();
            let turn = Turn::new(decision, under.collect::<Vec<_>>());
            self.waiting.push((turn, lives, latest));
        }
    }

    fn leave(&mut self) {
        if !self.waiting.is_empty() {
            let leaves = self.random.index(self.waiting.len());
            drop(self.waiting.remove(leaves));
        }
    }

    fn poll_all(&mut self) {
        let mut index = 0;
        while let Some((turn, ..)) = self.waiting.get_mut(index) {
            match Pin::new(turn).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => index += 1,
                Poll::Ready(decision) => {
                    let (_, own, latest) = self.waiting.remove(index);
                    assert!(decision.spent_us() <= self.now_us(), "it went before its turn");
                    assert!(decision.spent_us() <= latest, "it went after its own turn");
                    self.goes(decision, &own);
                }
            }
        }
    }

    /// A request goes at a turn that it or another one has reserved.
    fn goes(&mut self, mut decision: Decision, own: &Own) {
        for (ask, own) in own.iter().enumerate() {
            let Some(receipt) = decision.take_receipt(ask) else { continue };
            let reserved = receipt.trace(0).and_then(|trace| self.births.get(&(own.0, trace.birth)));
            let life = *reserved.unwrap_or(own);
            self.gone.entry(life).or_default().push((receipt.at_us(), receipt.cost()));
            self.receipts.push((life, receipt.at_us(), receipt));
        }
    }

    /// A request that has gone gives back what it has spent, in one life of its buckets or another.
    async fn give_back(&mut self) {
        if self.receipts.is_empty() {
            return;
        }
        let which = self.random.index(self.receipts.len());
        let (life, at, mut receipt) = self.receipts.swap_remove(which);
        let ((limit, key), _) = life;
        let cost = receipt.cost();
        let _ = self.limiters[0][limit].refund(key, cost).of(&mut receipt).await.unwrap();
        // As if it had never been: no more than that can come back.
        let gone = self.gone.get_mut(&life).unwrap();
        let place = gone.iter().position(|spent| *spent == (at, cost)).unwrap();
        gone.remove(place);
    }

    async fn reset(&mut self) {
        let bucket = (0, self.random.below(2));
        let _ = self.limiters[0][0].reset(bucket.1).await.unwrap();
        self.begins_anew(bucket);
    }

    fn begins_anew(&mut self, bucket: Bucket) {
        let quota = *self.quotas[bucket.0].last().unwrap();
        self.quotas[bucket.0].push(quota);
        let life = self.quotas[bucket.0].len() - 1;
        self.lives.insert(bucket, life);
    }

    fn replace(&mut self) {
        // On another instance it would be another policy of the same name.
        if self.limiters.len() > 1 {
            return;
        }
        let hows = [Inherit::Spent, Inherit::Spent, Inherit::Reset, Inherit::AsIs, Inherit::Additive];
        let how = hows[self.random.index(5)];
        let old = *self.quotas[0].last().unwrap();
        let new = if self.random.below(3) == 0 { old } else { quota(self.algorithm, &mut self.random) };
        self.limiters[0][0].replace(policy(self.algorithm, 0, new), how).unwrap();
        if new != old || how == Inherit::Reset {
            self.quotas[0].push(new);
            for key in 0..2 {
                self.lives.insert((0, key), self.quotas[0].len() - 1);
            }
        }
    }

    /// All that waits goes in the end, and every life of every bucket keeps its policy.
    async fn ends(mut self, trace: &str) {
        tokio::time::advance(Duration::from_secs(600)).await;
        self.poll_all();
        assert!(self.waiting.is_empty(), "{trace}: {} wait for ever", self.waiting.len());
        for (((limit, key), life), mut gone) in self.gone {
            gone.sort_unstable();
            let quota = self.quotas[limit][life];
            keeps(self.algorithm, quota, &gone).unwrap_or_else(|at| {
                panic!("{trace}, {quota}, limit {limit}, key {key}: {at} is over in {gone:?}")
            });
        }
    }
}

fn quota(algorithm: Algorithm, random: &mut Random) -> Quota {
    let (limit, period, burst) = QUOTAS[random.index(4)];
    // A cost of two has to fit.
    let quota = Quota::new(limit.max(2), us(period));
    let is_window = matches!(
        algorithm,
        Algorithm::FixedWindow(_)
            | Algorithm::SlidingCounter
            | Algorithm::SlidingLog
            | Algorithm::SlidingLogIn(_)
    );
    if is_window { quota } else { quota.burst(burst.max(2)) }
}

fn policy(algorithm: Algorithm, limit: usize, quota: Quota) -> Policy {
    Policy::builder(["first", "second"][limit], algorithm, quota).build().unwrap()
}

/// Whether the policy lets all of these go, at these times; otherwise the first one that is too much.
fn keeps(algorithm: Algorithm, quota: Quota, gone: &[(u64, u64)]) -> Result<(), u64> {
    if is_queue(algorithm) {
        return keeps_its_distance(algorithm, quota, gone);
    }
    if let Algorithm::FixedWindow(Anchor::FirstHit) | Algorithm::TokenBucket(Refill::Interval) = algorithm {
        return keeps_two_windows(quota, gone);
    }
    let mut model = promised(algorithm, quota);
    for &(at, cost) in gone {
        if !model.passes(at, cost) {
            return Err(at);
        }
        model.spend(at, cost);
    }
    Ok(())
}

/// A turn that was left may have begun a window, so that nobody can tell any more where the windows were.
fn keeps_two_windows(quota: Quota, gone: &[(u64, u64)]) -> Result<(), u64> {
    let period = u64::try_from(quota.period().as_micros()).unwrap();
    for &(end, _) in gone {
        let within = gone.iter().filter(|(at, _)| *at <= end && at + period > end);
        if within.map(|(_, cost)| cost).sum::<u64>() > quota.burst_size() + quota.limit() {
            return Err(end);
        }
    }
    Ok(())
}

/// A queue lets the next go when those before it have leaked, but for those that it does not delay.
fn keeps_its_distance(algorithm: Algorithm, quota: Quota, gone: &[(u64, u64)]) -> Result<(), u64> {
    let undelayed = if let Algorithm::LeakyBucket(Drain::QueueAbove(units)) = algorithm { units } else { 0 };
    let (limit, period) = (u128::from(quota.limit()), quota.period().as_micros());
    let mut empty = 0;
    for &(at, cost) in gone {
        // A turn comes at the whole microsecond after its time.
        if (u128::from(at) + 1) * limit + u128::from(undelayed) * period < empty {
            return Err(at);
        }
        empty = empty.max(u128::from(at) * limit) + u128::from(cost) * period;
    }
    Ok(())
}

async fn never_over(instances: usize) {
    for algorithm in ALL {
        for seed in 0..40 {
            let mut world = World::new(algorithm, instances, seed);
            for _ in 0..150 {
                world.step().await;
            }
            world.ends(&format!("{algorithm}, seed {seed}")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn turns_keep_the_policy_whatever_is_taken_left_reset_and_replaced() {
    never_over(1).await;
}

#[tokio::test(start_paused = true)]
async fn turns_of_two_instances_keep_the_policy() {
    never_over(2).await;
}
