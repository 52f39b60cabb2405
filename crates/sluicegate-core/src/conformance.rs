//! The suite that every store has to pass, for authors of stores.
//!
//! Each check takes a store and the clock that the store reads, and panics with the trace that failed. The memory store
//! is the reference: it is held to exact models of the algorithms by this crate's own tests.
//!
//! ```
//! use sluicegate_core::conformance::Conformance;
//! use sluicegate_core::MemoryStore;
//! use sluicegate_core::clock::ManualClock;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), sluicegate_core::ConfigError> {
//! let clock = ManualClock::new();
//! let store = MemoryStore::builder().clock(clock.clone()).build()?;
//! let suite = Conformance::new(&store, clock);
//! suite.worked_examples().await;
//! suite.same_decisions_as_memory(1, 20).await;
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::algorithm::Drain;
use crate::algorithm::Rule;
use crate::clock::{Clock, ManualClock};
use crate::limiter::{Inherit, Receipt};
use crate::store::{DecisionFuture, Mode};
use crate::{Algorithm, Decision, Key, MemoryStore, Outcome, Policy, Quota, RateLimiter, Store};

/// Every algorithm with every setting.
pub const ALGORITHMS: [Algorithm; Algorithm::ALL.len()] = Algorithm::ALL;

/// A store under test, and the clock that it reads.
pub struct Conformance {
    store: Arc<dyn Store>,
    clock: ManualClock,
    policies: AtomicU64,
}

impl Conformance {
    /// The suite for a store that reads this clock.
    pub fn new(store: impl Into<Arc<dyn Store>>, clock: ManualClock) -> Self {
        // Not at the epoch: a store may be tested against real deployments, whose clocks are elsewhere, too.
        clock.set(Duration::from_secs(1_800_000_000));
        Self { store: store.into(), clock, policies: AtomicU64::new(0) }
    }

    /// A name that no other policy of this suite has.
    fn name(&self) -> String {
        format!("conformance-{}", self.policies.fetch_add(1, Ordering::Relaxed))
    }

    /// The examples by which the algorithms are explained.
    ///
    /// # Panics
    /// When the store decides one of them otherwise.
    pub async fn worked_examples(&self) {
        // Previous window 80, this one 60, three quarters over: 20 + 60 + 1 <= 100.
        let limiter = self.limiter(Policy::sliding_counter(self.name(), "100/100s"));
        self.to_next(100);
        allowed(limiter.check_cost("k", 80).await);
        self.clock.advance(Duration::from_secs(175));
        allowed(limiter.check_cost("k", 60).await);
        assert_eq!(allowed(limiter.check("k").await).remaining(), 19);

        // Previous 5, this one 3, three tenths over: 3 + 3 + 1 <= 7, and the next is too many.
        let limiter = self.limiter(Policy::sliding_counter(self.name(), "7/100s"));
        self.to_next(100);
        allowed(limiter.check_cost("k", 5).await);
        self.clock.advance(Duration::from_secs(130));
        allowed(limiter.check_cost("k", 3).await);
        allowed(limiter.check("k").await);
        denied(limiter.check("k").await);

        for algorithm in ALGORITHMS {
            let limiter = self.limiter(Policy::builder(self.name(), algorithm, "5/min"));
            for idle in [0, 1, 61, 3_600] {
                self.clock.advance(Duration::from_secs(idle * 60));
                limiter.reset("k").await.expect("the store answers");
                for left in (0..5).rev() {
                    let decision = allowed(limiter.check("k").await);
                    assert_eq!(decision.remaining(), left, "{algorithm}");
                }
                let decision = denied(limiter.check("k").await);
                assert!(decision.retry_after().is_some_and(|wait| !wait.is_zero()), "{algorithm}");
                let spent = limiter.peek("k").await.expect("the store answers");
                assert_eq!(
                    spent.reset_after(),
                    decision.reset_after(),
                    "{algorithm}: a denial spends nothing"
                );
            }
            let never = limiter.check_cost("other", 6).await.expect("the store answers");
            assert_eq!((never.outcome(), never.retry_after()), (Outcome::Impossible, None), "{algorithm}");
        }
    }

    /// Several limiters on one request: all spend, or none.
    ///
    /// # Panics
    /// When one of them spent although another refused.
    pub async fn all_or_nothing(&self) {
        let narrow = self.limiter(Policy::gcra(self.name(), "1/min"));
        for algorithm in ALGORITHMS {
            let wide = self.limiter(Policy::builder(self.name(), algorithm, "9/min"));
            let (address, user) = (Key::from("198.51.100.7"), Key::from(algorithm.to_string()));
            let both = || RateLimiter::check_all([(&wide, &address, 2), (&narrow, &user, 1)]);
            allowed(both().await);
            for _ in 0..3 {
                denied(both().await);
            }
            assert_eq!(allowed(wide.peek(&address).await).remaining(), 7, "{algorithm}");
        }
    }

    /// Random traces of every mode over several keys and policies, in which the store decides exactly as the memory
    /// store: outcome, delay, and every number of every quota.
    ///
    /// # Panics
    /// At the first difference, with the trace that led to it.
    pub async fn same_decisions_as_memory(&self, seed: u64, traces: usize) {
        self.compare_decisions(seed, traces, Duration::ZERO).await;
    }

    /// As [`same_decisions_as_memory`](Self::same_decisions_as_memory), by a clock that is set back again and again, up to this far
    /// behind the latest time that it has shown.
    ///
    /// # Panics
    /// At the first difference, with the trace that led to it.
    pub async fn same_decisions_when_the_clock_is_set_back(&self, by: Duration, seed: u64, traces: usize) {
        self.compare_decisions(seed, traces, by).await;
    }

    async fn compare_decisions(&self, seed: u64, traces: usize, back: Duration) {
        let memory = MemoryStore::builder().clock(self.clock.clone()).log_entries(1 << 22).build();
        let memory = memory.expect("the settings are possible");
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..traces {
            let policy = self.random_policy(&mut random);
            let (ours, reference) = (self.open(&policy), RateLimiter::new(&memory, policy.clone()));
            let reference = reference.expect("the store can keep it");
            let mut trace = format!("seed {seed}, {policy}");
            let mut latest = Duration::ZERO;
            for _ in 0..40 {
                let step = Step::random(&mut random, &policy, &self.clock, &mut trace);
                if !back.is_zero() {
                    let now = Duration::from_micros(self.clock.now_us());
                    latest = latest.max(now);
                    let is_set = random.below(10) == 0;
                    self.clock.set((latest - back).max(if is_set { Duration::ZERO } else { now }));
                    if is_set {
                        // Writing to a string cannot fail.
                        let _ = write!(trace, ", at {back:?} before the latest time");
                    }
                }
                let (ours, reference) = (step.ask(&ours).await, step.ask(&reference).await);
                let (ours, reference) =
                    (ours.expect("the store answers"), reference.expect("memory answers"));
                assert_eq!(summary(&ours), summary(&reference), "{trace}");
            }
        }
    }

    /// Random traces in which what was spent is given back, in part or in whole, soon or late, twice or never, and turns
    /// are given up: the store gives back exactly as the memory store does.
    ///
    /// # Panics
    /// At the first difference, with the trace that led to it.
    pub async fn same_refunds_as_memory(&self, seed: u64, traces: usize) {
        self.compare_refunds(seed, traces, false).await;
    }

    /// As [`same_refunds_as_memory`](Self::same_refunds_as_memory), but only under policies that keep account of what is given
    /// back: for stores that know more than memory does of the others.
    ///
    /// # Panics
    /// At the first difference, with the trace that led to it.
    pub async fn same_accounts_as_memory(&self, seed: u64, traces: usize) {
        self.compare_refunds(seed, traces, true).await;
    }

    async fn compare_refunds(&self, seed: u64, traces: usize, all_give_back: bool) {
        let memory = MemoryStore::builder().clock(self.clock.clone()).log_entries(1 << 22).build();
        let memory = memory.expect("the settings are possible");
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..traces {
            let policy = self.random_policy(&mut random);
            if all_give_back && !policy.quotas().iter().all(|quota| is_small(quota.rule())) {
                continue;
            }
            let is_plain = random.below(2) == 0 && !all_give_back;
            let policy = if is_plain { policy } else { policy.with_refunds() };
            let reference = RateLimiter::new(&memory, policy.clone()).expect("the store can keep it");
            let limiters = [self.open(&policy), reference];
            let mut trace = format!("seed {seed}, {policy}, gives back: {}", policy.gives_back());
            let mut spent: Vec<(Key, [Receipt; 2])> = Vec::new();
            for _ in 0..60 {
                let mut step = Step::random(&mut random, &policy, &self.clock, &mut trace);
                if all_give_back {
                    // Whose turns are out memory knows of all keys together, and still after a reset.
                    step.key = Key::from(0_u64);
                    step.kind = if matches!(step.kind, 3..=5) { 6 } else { step.kind };
                }
                let about = (random.below(2) == 0 && !spent.is_empty()).then(|| {
                    let index = usize::try_from(random.below(spent.len() as u64)).unwrap_or(0);
                    spent.swap_remove(index)
                });
                if all_give_back && about.is_none() && matches!(step.kind, 1 | 3) {
                    // What that takes away may be spent by somebody else: a store may know that, or not.
                    spent.retain(|(key, _)| *key != step.key);
                }
                let mut found = match about {
                    None => [step.ask(&limiters[0]).await, step.ask(&limiters[1]).await],
                    Some((key, mut receipts)) => {
                        let is_turn = receipts[0].at_us() > self.clock.now_us();
                        let what = if is_turn { "give up the turn of" } else { "give back" };
                        // Writing to a string cannot fail.
                        let _ = write!(trace, " .. no: {what} {} of {key:?}", step.cost);
                        let mut found = Vec::new();
                        for (limiter, receipt) in limiters.iter().zip(&mut receipts) {
                            found.push(match is_turn {
                                true => RateLimiter::report([(limiter, &key, &*receipt)], Mode::Return).await,
                                false => limiter.refund_of(receipt, &key, step.cost).await,
                            });
                        }
                        if !is_turn && (receipts[0].cost() > 0 || !all_give_back) {
                            spent.push((key, receipts));
                        }
                        found.try_into().expect("there are two limiters")
                    }
                }
                .map(|decision| decision.expect("the store answers"));
                assert_eq!(summary(&found[0]), summary(&found[1]), "{trace}");
                if let [Some(ours), Some(reference)] = found.each_mut().map(|found| found.take_receipt(0)) {
                    spent.push((step.key, [ours, reference]));
                }
            }
        }
    }

    /// Random traces in the middle of which the policy is replaced, in every way: keys go on under the new one exactly as in
    /// memory.
    ///
    /// # Panics
    /// At the first difference, with the trace that led to it.
    pub async fn same_replacements_as_memory(&self, seed: u64, traces: usize) {
        let memory = MemoryStore::builder().clock(self.clock.clone()).log_entries(1 << 22).build();
        let memory = memory.expect("the settings are possible");
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let ways = [
            Inherit::Spent,
            Inherit::Spent,
            Inherit::Reset,
            Inherit::AsIs,
            Inherit::Proportional,
            Inherit::Additive,
        ];
        for _ in 0..traces {
            let name = self.name();
            let [before, after] = [(); 2].map(|()| random_policy(name.clone(), &mut random));
            let how = random.pick(&ways);
            let reference = RateLimiter::new(&memory, before.clone()).expect("the store can keep it");
            let limiters = [self.open(&before), reference];
            let mut trace = format!("seed {seed}, {before}, then {how:?} {after}");
            for count in 0..30 {
                if count == 12 {
                    trace.push_str("\n  replace");
                    for limiter in &limiters {
                        limiter.replace(after.clone(), how).expect("the store can keep it");
                    }
                }
                let policy = if count < 12 { &before } else { &after };
                let now_us = self.clock.now_us();
                let step = Step::random(&mut random, policy, &self.clock, &mut trace);
                // A key that was at rest when it was handed over may not be so a moment before.
                self.clock.set(Duration::from_micros(now_us.max(self.clock.now_us())));
                let [ours, reference] = [step.ask(&limiters[0]).await, step.ask(&limiters[1]).await]
                    .map(|answer| answer.expect("the store answers"));
                let ages = Duration::from_secs(86_400 * 365 * 15);
                if reference.quotas().iter().any(|status| status.reset_after() > ages) {
                    // How exact that is is for each store to say.
                    break;
                }
                assert_eq!(summary(&ours), summary(&reference), "{trace}");
            }
        }
    }

    fn open(&self, policy: &Policy) -> RateLimiter {
        RateLimiter::new(Arc::clone(&self.store), policy.clone()).expect("the store can keep it")
    }

    fn limiter(&self, policy: crate::policy::PolicyBuilder) -> RateLimiter {
        self.open(&policy.build().expect("the policy is possible"))
    }

    /// Moves on to the next multiple of a period.
    fn to_next(&self, seconds: u64) {
        let now = Duration::from_micros(self.clock.now_us());
        self.clock.set(Duration::from_secs((now.as_secs() / seconds + 1) * seconds));
    }

    fn random_policy(&self, random: &mut Random) -> Policy {
        random_policy(self.name(), random)
    }
}

fn random_policy(name: String, random: &mut Random) -> Policy {
    let algorithm = random.pick(&ALGORITHMS);
    let mut builder = Policy::builder(name, algorithm, random_quota(random, algorithm));
    let is_queue = matches!(algorithm, Algorithm::LeakyBucket(Drain::Queue | Drain::QueueAbove(_)));
    if random.below(3) == 0 && !is_queue {
        builder = builder.and(random_quota(random, algorithm)).named("second");
    }
    builder.build().expect("all of these quotas can be kept")
}

/// Whether the account that memory keeps of what is given back never overflows, and no turns are out without being asked for.
fn is_small(rule: &Rule) -> bool {
    !rule.is_queue() && rule.capacity().saturating_mul(rule.per_unit()) < 1 << 38
}

fn random_quota(random: &mut Random, algorithm: Algorithm) -> Quota {
    let limit = random.pick(&[1, 2, 3, 7, 10, 97, 1_000, 7_919, 999_983, 1_000_000]);
    // The room that a store has for logs bounds their limits.
    let limit = if algorithm == Algorithm::SlidingLog { limit.min(2_000) } else { limit };
    let period_ms = random.pick(&[1, 7, 1_000, 10_000, 60_000, 86_400_000, 2_592_000_000]);
    let quota = Quota::new(limit, Duration::from_millis(period_ms));
    let has_burst = matches!(
        algorithm,
        Algorithm::Gcra | Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(Drain::Meter | Drain::Queue)
    );
    let small = limit.div_ceil(1 + random.below(4));
    match random.below(3) {
        0 if has_burst => quota.burst(small),
        1 if has_burst && limit < 1_000 => quota.burst(limit * 3),
        _ => quota,
    }
}

/// What is asked next.
struct Step {
    key: Key,
    cost: u64,
    longest: Duration,
    kind: u64,
}

impl Step {
    fn random(random: &mut Random, policy: &Policy, clock: &ManualClock, trace: &mut String) -> Self {
        let quota = policy.quotas()[0].quota();
        let capacity = policy.quotas().iter().map(|quota| quota.rule().capacity()).min().unwrap_or(1);
        let period_us = u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX);
        let now_us = clock.now_us();
        let moved_us = match random.below(8) {
            0..=2 => now_us,
            3 => now_us + random.below(1_000),
            4 => now_us + random.below(period_us / quota.limit().max(1) + 2),
            5 => now_us + random.below(period_us.saturating_mul(3)),
            6 => now_us + random.below(period_us),
            // What has lapsed out of a log may be forgotten, or not.
            _ if policy.algorithm() == Algorithm::SlidingLog => now_us + 1,
            _ => now_us - random.below(500_000.min(period_us)),
        };
        clock.set(Duration::from_micros(moved_us));
        let cost = match random.below(6) {
            0 => random.below(capacity) + 1,
            1 => capacity,
            2 => capacity + random.below(3),
            _ => 1,
        };
        let step = Self {
            key: Key::from(random.below(2)),
            cost,
            longest: Duration::from_micros(random.below(period_us.saturating_mul(2))),
            kind: random.below(12),
        };
        // Writing to a string cannot fail.
        let _ = write!(trace, "\n  {:+} us: {step}", i128::from(moved_us) - i128::from(now_us));
        step
    }

    fn ask(&self, limiter: &RateLimiter) -> DecisionFuture {
        match self.kind {
            0 => limiter.peek_cost(&self.key, self.cost),
            1 => limiter.refund(&self.key, self.cost),
            2 => limiter.charge(&self.key, self.cost),
            3 => limiter.reset(&self.key),
            4 | 5 => limiter.reserve(&self.key, self.cost, self.longest),
            _ => limiter.check_cost(&self.key, self.cost),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, cost, longest, kind } = self;
        match kind {
            0 => write!(f, "peek {cost} of {key:?}"),
            1 => write!(f, "refund {cost} of {key:?}"),
            2 => write!(f, "charge {cost} of {key:?}"),
            3 => write!(f, "reset {key:?}"),
            4 | 5 => write!(f, "reserve {cost} of {key:?} within {longest:?}"),
            _ => write!(f, "check {cost} of {key:?}"),
        }
    }
}

/// All that two stores have to agree on.
fn summary(decision: &Decision) -> String {
    let mut text = format!("{:?} after {:?}", decision.outcome(), decision.delay());
    for status in decision.quotas() {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {status:?}");
    }
    text
}

fn allowed(verdict: Result<Decision, crate::StoreError>) -> Decision {
    let decision = verdict.expect("the store answers");
    assert!(decision.is_allowed(), "expected to be allowed: {decision:?}");
    decision
}

fn denied(verdict: Result<Decision, crate::StoreError>) -> Decision {
    let decision = verdict.expect("the store answers");
    assert_eq!(decision.outcome(), Outcome::Denied, "{decision:?}");
    decision
}

impl fmt::Debug for Conformance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conformance").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// xorshift64*: reproducible, and good enough to choose steps.
struct Random(u64);

impl Random {
    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        let index = self.below(choices.len() as u64);
        choices[usize::try_from(index).unwrap_or(0)]
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound.max(1)
    }
}
