//! The test suite that every store has to pass, for authors of stores.
//!
//! Each check takes a store and the clock that the store reads, and panics with the trace that failed. The memory store
//! is the reference: this crate's own tests compare it with exact models of the algorithms.
//!
//! ```
//! use std::time::Duration;
//!
//! use sluicegate_conformance::Conformance;
//! use sluicegate_core::MemoryStore;
//! use sluicegate_core::clock::ManualClock;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), sluicegate_core::ConfigError> {
//! let clock = ManualClock::new();
//! let store = MemoryStore::builder().clock(clock.clone()).build()?;
//! let suite = Conformance::new(&store, clock);
//! suite.worked_examples().await;
//! suite.same_decisions_as_memory(Duration::ZERO, 1, 20).await;
//! # Ok(())
//! # }
//! ```
//!
//! # The checks
//! | check | holds for |
//! |---|---|
//! | [`worked_examples`](Conformance::worked_examples) | every store: the examples that explain the algorithms |
//! | [`all_or_nothing`](Conformance::all_or_nothing) | every store: a refusal by one limiter spends nothing from the others |
//! | [`rejected_requests_count`](Conformance::rejected_requests_count) | every store, under policies with this setting |
//! | [`same_decisions_as_memory`](Conformance::same_decisions_as_memory) | every exact store, also with a clock that steps back: the rule is in `algorithms.md` |
//! | [`same_joint_decisions_as_memory`](Conformance::same_joint_decisions_as_memory) | the same, for requests with several asks about one key |
//! | [`same_refunds_as_memory`](Conformance::same_refunds_as_memory), [`same_accounts_as_memory`](Conformance::same_accounts_as_memory) | stores that give back as memory does |
//! | [`same_leases_as_memory`](Conformance::same_leases_as_memory) | all exact stores that lease |
//! | [`same_replacements_as_memory`](Conformance::same_replacements_as_memory) | stores with replaceable policies |
//! | [`looks_change_nothing`](Conformance::looks_change_nothing) | every store: a peek or a refusal never changes a later answer |
//! | [`same_quotas_of_keys_as_memory`](Conformance::same_quotas_of_keys_as_memory) | stores that support quotas of keys |
//!
//! Traces are made from a seed: the same seed gives the same trace, so a failure can be run again.
//! Each policy of the suite has a name of its own, and a store may be used for several checks.

mod against_memory;
mod joint;
mod leases;
mod looks;
mod random;
mod steps;
mod suspensions;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_core::limiter::Inherit;
use sluicegate_core::limiter::check_all;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::store::IntoStore;
use sluicegate_core::{Algorithm, Decision, Key, Outcome, Policy, Quota, RateLimiter, Store};

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
    pub fn new(store: impl IntoStore, clock: ManualClock) -> Self {
        // Not at the epoch, because a store may be tested against real deployments with real clocks, too.
        clock.set(Duration::from_secs(1_800_000_000));
        Self { store: store.into(), clock, policies: AtomicU64::new(0) }
    }

    /// A name that no other policy of this suite has.
    fn name(&self) -> String {
        format!("conformance-{}", self.policies.fetch_add(1, Ordering::Relaxed))
    }

    /// The worked examples from the documentation of the algorithms.
    ///
    /// # Panics
    /// When the store decides an example differently.
    pub async fn worked_examples(&self) {
        // Previous window 80, this one 60, three quarters over: 20 + 60 + 1 <= 100.
        let limiter = self.limiter(Policy::sliding_counter(self.name(), "100/100s"));
        self.to_next(100);
        let _ = allowed(limiter.check("k").cost(80).await);
        self.clock.advance(Duration::from_secs(175));
        let _ = allowed(limiter.check("k").cost(60).await);
        assert_eq!(allowed(limiter.check("k").await).remaining(), 19);

        // Previous 5, this one 3, three tenths over: 3 + 3 + 1 <= 7, and the next is too many.
        let limiter = self.limiter(Policy::sliding_counter(self.name(), "7/100s"));
        self.to_next(100);
        let _ = allowed(limiter.check("k").cost(5).await);
        self.clock.advance(Duration::from_secs(130));
        let _ = allowed(limiter.check("k").cost(3).await);
        let _ = allowed(limiter.check("k").await);
        let _ = denied(limiter.check("k").await);

        for algorithm in ALGORITHMS {
            let limiter = self.limiter(Policy::builder(self.name(), algorithm, "5/min"));
            for idle in [0, 1, 61, 3_600] {
                self.clock.advance(Duration::from_secs(idle * 60));
                let _ = limiter.reset("k").await.expect("the store answers");
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
            let never = limiter.check("other").cost(6).await.expect("the store answers");
            assert_eq!((never.outcome(), never.retry_after()), (Outcome::Impossible, None), "{algorithm}");
        }
    }

    /// Several limiters on one request, and several quotas of one policy, by different algorithms: all spend, or none.
    ///
    /// # Panics
    /// When one of them spends although another refuses.
    pub async fn all_or_nothing(&self) {
        let narrow = self.limiter(Policy::gcra(self.name(), "1/min"));
        for algorithm in ALGORITHMS {
            let wide = self.limiter(Policy::builder(self.name(), algorithm, "9/min"));
            let (address, user) = (Key::from("198.51.100.7"), Key::from(algorithm.to_string()));
            let both = || check_all([wide.check(&address).cost(2), narrow.check(&user)]);
            let _ = allowed(both().await);
            for _ in 0..3 {
                let _ = denied(both().await);
            }
            assert_eq!(allowed(wide.peek(&address).await).remaining(), 7, "{algorithm}");
        }
        self.all_quotas_or_none().await;
    }

    /// Two quotas of one policy, in all pairs of algorithms: both spend, or none.
    async fn all_quotas_or_none(&self) {
        let several = || ALGORITHMS.into_iter().filter(|algorithm| !algorithm.is_queue());
        let left = |decision: Decision| -> Vec<u64> {
            decision.quotas().iter().map(|status| status.remaining()).collect()
        };
        for (one, other) in several().flat_map(|one| several().map(move |other| (one, other))) {
            let narrow = Quota::per_hour(2).counted_by(other);
            let mixed = self.limiter(Policy::builder(self.name(), one, "9/min").and(narrow));
            assert_eq!(left(allowed(mixed.check("k").cost(2).await)), [7, 0], "{one} and {other}");
            assert_eq!(left(denied(mixed.check("k").await)), [7, 0], "{one} and {other}");
        }
    }

    /// Refused requests spend from the policies that count them, whichever limit refuses, and from no others.
    ///
    /// # Panics
    /// When a refused request spends from a policy that does not count it, or spends nothing from a policy that does.
    pub async fn rejected_requests_count(&self) {
        for algorithm in ALGORITHMS {
            let limiter = |counts: bool| {
                let policy = Policy::builder(self.name(), algorithm, "4/min");
                self.limiter(if counts { policy.count_rejected() } else { policy })
            };
            let (counts, plain, full) = (limiter(true), limiter(false), limiter(false));
            let key = Key::from(algorithm.to_string());
            let _ = allowed(full.check(&key).cost(4).await);
            let all = || check_all([plain.check(&key), counts.check(&key), full.check(&key)]);
            for left in [3, 2, 1, 0, 0] {
                let refused = denied(all().await);
                let remaining: Vec<_> = refused.quotas().iter().map(|status| status.remaining()).collect();
                assert_eq!(remaining, [4, left, 0], "{algorithm}");
                assert_eq!(refused.granted(), Some(0));
            }
            let stands = counts.peek(&key).await.expect("the store answers");
            assert_eq!((stands.remaining(), stands.is_allowed()), (0, false), "{algorithm}");
        }
    }

    /// A policy that is switched off and on again finds its keys unchanged.
    ///
    /// # Panics
    /// When a key is forgotten, or when requests that pass while the policy is off are counted.
    pub async fn modes(&self) {
        for algorithm in ALGORITHMS {
            let limiter = self.limiter(Policy::builder(self.name(), algorithm, "5/min"));
            let put = |mode| limiter.replace(limiter.policy().in_mode(mode), Inherit::Spent);
            let _ = allowed(limiter.check("k").cost(5).await);
            for mode in [PolicyMode::Off, PolicyMode::Shadow, PolicyMode::Off] {
                put(mode).expect("it is the same policy");
                let asked = limiter.check("k").cost(5).await.expect("the store answers");
                assert_eq!(asked.is_allowed(), mode == PolicyMode::Off, "{algorithm}, {mode}");
            }
            put(PolicyMode::Enforce).expect("it is the same policy");
            let _ = denied(limiter.check("k").await);
            self.clock.advance(Duration::from_secs(120));
            let _ = allowed(limiter.check("k").cost(5).await);
        }
    }

    fn open(&self, policy: &Policy) -> RateLimiter {
        RateLimiter::new(Arc::clone(&self.store), policy.clone()).expect("the store can keep it")
    }

    fn limiter(&self, policy: sluicegate_core::policy::PolicyBuilder) -> RateLimiter {
        self.open(&policy.build().expect("the policy is possible"))
    }

    /// Moves the clock to the next multiple of a period.
    fn to_next(&self, seconds: u64) {
        let now = Duration::from_micros(self.clock.now_us());
        self.clock.set(Duration::from_secs((now.as_secs() / seconds + 1) * seconds));
    }
}

fn allowed(verdict: Result<Decision, sluicegate_core::StoreError>) -> Decision {
    let decision = verdict.expect("the store answers");
    assert!(decision.is_allowed(), "expected to be allowed: {decision:?}");
    decision
}

fn denied(verdict: Result<Decision, sluicegate_core::StoreError>) -> Decision {
    let decision = verdict.expect("the store answers");
    assert_eq!(decision.outcome(), Outcome::Denied, "{decision:?}");
    decision
}

sluicegate_core::debug_as!(Conformance { clock });
