//! The suite that every store has to pass, on every kind of deployment; the memory store is the reference.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_conformance::Conformance;
use sluicegate_core::algorithm::Drain;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::limiter::check_all;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::store::Mode;
use sluicegate_core::{Algorithm, Decision, MemoryStore, Policy, RateLimiter, Store};
use sluicegate_tests::servers::deployments::{Cluster, Sentinels, standalone};

use crate::support::{connected, patient, seeds};

/// A suite, after which the script and the rules of the core have to have agreed.
struct Suite {
    suite: Conformance,
    store: Arc<dyn Store>,
}

impl Deref for Suite {
    type Target = Conformance;

    fn deref(&self) -> &Conformance {
        &self.suite
    }
}

impl Drop for Suite {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.store.status().disagreements, 0);
        }
    }
}

/// A connected suite, on a clock of its own.
async fn suite(url: &str, prefix: &str) -> Suite {
    let clock = ManualClock::new();
    let store: Arc<dyn Store> = connected(patient(prefix).clock(clock.clone()), url).await.into();
    Suite { suite: Conformance::new(Arc::clone(&store), clock), store }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_decides_the_worked_examples() {
    let suite = suite(&standalone().url(), "worked").await;
    suite.worked_examples().await;
    suite.all_or_nothing().await;
    suite.rejected_requests_count().await;
    suite.modes().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_decides_every_trace_as_memory_does() {
    let suite = suite(&standalone().url(), "traces").await;
    for seed in seeds(20) {
        suite.same_decisions_as_memory(Duration::ZERO, seed, 15).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_decides_as_memory_does_when_the_clock_is_set_back() {
    let suite = suite(&standalone().url(), "back").await;
    for seed in seeds(10) {
        let by = Duration::from_secs(if seed % 2 == 0 { 60 } else { 10 });
        suite.same_decisions_as_memory(by, seed, 15).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_decides_several_asks_about_one_key_as_memory_does() {
    let suite = suite(&standalone().url(), "joint").await;
    for seed in seeds(12) {
        let back = Duration::from_secs(if seed % 2 == 0 { 10 } else { 0 });
        suite.same_joint_decisions_as_memory(back, seed, 10).await;
    }
}

/// A request of several asks, most of them about one key, that is refused.
struct JointRefusal {
    policy: PolicyBuilder,
    /// The units that keys owe before, two seconds ahead of the clock of the request.
    owed: &'static [(&'static str, u64)],
    asks: Vec<(&'static str, u64, Mode)>,
    /// The index of an ask, and the longest wait of its quotas.
    ask: usize,
    wait: Duration,
    /// Whether the whole request passes after its wait.
    passes: bool,
}

impl JointRefusal {
    async fn check(&self, limiter: &RateLimiter) -> Decision {
        let check =
            |(key, cost, mode): &(&'static str, u64, Mode)| limiter.check(*key).cost(*cost).mode(*mode);
        check_all(self.asks.iter().map(check)).await.expect("the store answers")
    }
}

/// Memory tried each quota of an ask by itself, and Redis an ask only if all of its quotas passed.
#[tokio::test]
async fn both_stores_report_one_wait_for_each_ask_of_a_joint_refusal() {
    const START: Duration = Duration::from_secs(1_800_000_000);
    let drains = |name, drain, quota| Policy::builder(name, Algorithm::LeakyBucket(drain), quota);
    let refusals = [
        // Beside a report, a refused ask counts for the next ask of its key in all quotas.
        JointRefusal {
            policy: Policy::gcra("joint-0", "4/30d").and("3/s burst 3").and("10/7ms burst 20"),
            owed: &[("ada", 2), ("bob", 4)],
            asks: vec![
                ("ada", 1, Mode::Charge),
                ("ada", 1, Mode::Spend),
                ("bob", 1, Mode::Reserve { longest: Duration::from_secs(600_000) }),
                ("ada", 1, Mode::Spend),
            ],
            ask: 3,
            wait: Duration::from_secs(648_002),
            passes: true,
        },
        // After the refusal was counted, an ask for the rest is cut again, which an ask without a cost follows.
        JointRefusal {
            policy: drains("joint-1", Drain::Queue, "3/h burst 3").count_rejected(),
            owed: &[("ada", 1)],
            asks: vec![("ada", 2, Mode::Take), ("ada", 1, Mode::Spend), ("ada", 0, Mode::Spend)],
            ask: 2,
            wait: Duration::from_secs(2_400),
            passes: true,
        },
        // An ask for the rest takes the units that a charge before it leaves.
        JointRefusal {
            policy: drains("joint-2", Drain::QueueAbove(2), "1000/s burst 333"),
            owed: &[],
            asks: vec![
                ("ada", 30, Mode::Charge),
                ("ada", 320, Mode::Take),
                ("ada", 60, Mode::Reserve { longest: Duration::from_millis(100) }),
            ],
            ask: 2,
            wait: Duration::from_millis(231),
            passes: false,
        },
        // A reservation counts from its ask's turn in all quotas.
        JointRefusal {
            policy: Policy::gcra("joint-3", "1/min").and("10/s burst 2"),
            owed: &[("ada", 1)],
            asks: vec![
                ("ada", 1, Mode::Reserve { longest: Duration::from_mins(2) }),
                ("ada", 0, Mode::Charge),
                ("ada", 0, Mode::Reserve { longest: Duration::from_secs(1) }),
                ("bob", 4_294_967_295, Mode::Spend),
            ],
            ask: 2,
            wait: Duration::from_secs(61),
            passes: false,
        },
    ];
    let clock = ManualClock::new();
    let memory = MemoryStore::builder().clock(clock.clone()).build().expect("the settings are possible");
    let redis = connected(patient("refusals").clock(clock.clone()), &standalone().url()).await;
    let stores: [Arc<dyn Store>; 2] = [memory.into(), redis.into()];
    for (case, refusal) in refusals.iter().enumerate() {
        let mut reports = Vec::new();
        for store in &stores {
            clock.set(START);
            let policy = refusal.policy.clone().build().expect("it is possible");
            let limiter = RateLimiter::new(Arc::clone(store), policy).expect("the store can keep it");
            for (key, units) in refusal.owed {
                let _ = limiter.charge(*key, *units).await.expect("the store answers");
            }
            clock.set(START - Duration::from_secs(2));
            let refused = refusal.check(&limiter).await;
            let of_ask = refused.quotas().iter().filter(|status| status.policy_index() == refusal.ask);
            let wait = of_ask.map(|status| status.available_after()).max();
            assert_eq!(wait, Some(refusal.wait), "case {case}: {refused:?}");
            reports.push(format!("{:?} {:?}", refused.outcome(), refused.quotas()));
            if refusal.passes {
                clock.advance(refused.retry_after().expect("it is refused"));
                assert!(refusal.check(&limiter).await.is_allowed(), "case {case}");
            }
        }
        assert_eq!(reports[0], reports[1], "case {case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_suspends_keys_as_memory_does() {
    let suite = suite(&standalone().url(), "suspensions").await;
    for seed in seeds(20) {
        suite.same_suspensions_as_memory(seed, 10).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_replaces_policies_as_memory_does() {
    let suite = suite(&standalone().url(), "replacements").await;
    for seed in seeds(30) {
        suite.same_replacements_as_memory(seed, 20).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_one_server_no_look_changes_a_later_answer() {
    let suite = suite(&standalone().url(), "looks").await;
    for seed in seeds(20) {
        suite.looks_change_nothing(seed, 20).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_decides_keys_with_quotas_of_their_own_as_memory_does() {
    let suite = suite(&standalone().url(), "quotas").await;
    for seed in seeds(30) {
        match seed % 2 {
            0 => suite.same_quotas_of_keys_as_memory(Duration::ZERO, seed, 20).await,
            _ => {
                let by = Duration::from_secs(10);
                suite.same_quotas_of_keys_as_memory(by, seed, 20).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_gives_back_as_memory_does() {
    let suite = suite(&standalone().url(), "refunds").await;
    for seed in seeds(30) {
        suite.same_accounts_as_memory(seed, 15).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_leases_as_memory_does() {
    let suite = suite(&standalone().url(), "leases").await;
    for seed in seeds(30) {
        suite.same_leases_as_memory(seed, 20).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_group_decides_as_memory_does() {
    let suite = suite(&Sentinels::shared().url(), "sentinel").await;
    suite.worked_examples().await;
    suite.all_or_nothing().await;
    suite.rejected_requests_count().await;
    suite.modes().await;
    for seed in seeds(5) {
        suite.same_decisions_as_memory(Duration::ZERO, seed, 15).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_decides_as_memory_does() {
    let suite = suite(&Cluster::shared().url(), "cluster").await;
    suite.worked_examples().await;
    suite.all_or_nothing().await;
    suite.rejected_requests_count().await;
    suite.modes().await;
    for seed in 6..=10 {
        suite.same_decisions_as_memory(Duration::ZERO, seed, 15).await;
        suite.same_suspensions_as_memory(seed, 5).await;
        suite.same_leases_as_memory(seed, 10).await;
    }
}
