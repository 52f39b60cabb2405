//! A batch of keys is decided as its checks would be, one after the other.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::clock::ManualClock;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::{OnFull, PolicyBuilder, PolicyMode};
use sluicegate_core::store::{Ask, DecisionFuture, Limiters, PreparedPolicy};
use sluicegate_core::{
    ConfigError, Decision, Key, MemoryStore, OnOutage, Outcome, Policy, RateLimiter, Store, StoreError,
};
use sluicegate_resilient::Resilient;
use sluicegate_tests::around::plain;

use crate::support::{ALL, START, answer, is_queue};

/// So large that no key has to make room: which one would, differs from store to store.
fn memory(clock: &ManualClock) -> MemoryStore {
    MemoryStore::builder().table_size(20_000).log_entries(65_536).clock(clock.clone()).build().unwrap()
}

/// The stores that have to keep the promise.
fn stores(clock: &ManualClock) -> [Arc<dyn Store>; 3] {
    let resilient = Resilient::builder(memory(clock)).clock(clock.clone()).build().unwrap();
    [memory(clock).into(), resilient.into(), plain(memory(clock))]
}

/// Each algorithm, and what a limiter may be told beside its quota.
fn policies() -> Vec<PolicyBuilder> {
    let mut policies = Vec::new();
    for algorithm in ALL {
        let policy = |name: &str| Policy::builder(format!("{name}-{}", policies.len()), algorithm, "5/10s");
        let mut kinds =
            vec![policy("plain"), policy("refunds").refunds(), policy("off").mode(PolicyMode::Off)];
        if !is_queue(algorithm) {
            kinds.push(policy("two").and("7/20s").named("second"));
            kinds.push(policy("inherits").on_full(OnFull::Inherit));
            kinds.push(policy("waits").wait_up_to(Duration::from_secs(3)));
        }
        kinds.push(policy("suspends").suspend(2, "1min", "5min"));
        let starts = Policy::builder(format!("starts-{}", policies.len()), algorithm, "5/10s start 2");
        kinds.extend(Some(starts).filter(|starts| starts.clone().build().is_ok()));
        policies.extend(kinds);
    }
    policies
}

/// All that a caller sees of a decision.
fn told(mut decision: Decision) -> String {
    // By the machine's clock, if no store was asked.
    let at_us = decision.is_counted().then(|| decision.at_us());
    let receipt = decision.take_receipt(0).map(|receipt| (receipt.cost(), receipt.trace(0).is_some()));
    let said = (decision.outcome(), decision.decided_by(), decision.delay(), decision.quotas());
    format!("{said:?} {at_us:?} {receipt:?}")
}

fn batch(limiter: &RateLimiter, requests: &[(Key, u64)]) -> Vec<String> {
    let mut seen = Vec::new();
    limiter.check_many(requests.iter().map(|(key, cost)| (key, *cost)), |decided| {
        seen.push(told(answer(decided)));
    });
    seen
}

#[tokio::test]
async fn a_batch_is_decided_as_its_checks_are_one_after_the_other() {
    for (number, policy) in policies().into_iter().enumerate() {
        let clock = ManualClock::new();
        clock.set(START);
        let (batched, checked) = (stores(&clock), stores(&clock));
        for (batched, checked) in batched.into_iter().zip(checked) {
            let (batched, checked) = [batched, checked].map(|store| policy.clone().on(store).unwrap()).into();
            // More than are looked at together, and than fit without a list; some keys come again.
            for length in [0, 1, 16, 17, 40] {
                let requests: Vec<_> = (0..length)
                    .map(|index| (Key::from(index % 7), [1, 1, 2, 0, 9][index as usize % 5]))
                    .collect();
                let one_by_one: Vec<_> =
                    requests.iter().map(|(key, cost)| told(answer(checked.check(key).cost(*cost)))).collect();
                assert_eq!(batch(&batched, &requests), one_by_one, "{number}: {policy:?}, {length} requests");
                clock.advance(Duration::from_millis(1_300));
            }
        }
    }
}

/// Answers nothing.
#[derive(Default)]
struct Silent {
    limiters: Limiters,
}

impl Store for Silent {
    fn limiters(&self) -> &Limiters {
        &self.limiters
    }

    fn open(
        &self,
        policy: Arc<Policy>,
        _: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        Ok(PreparedPolicy::new(policy, Arc::new(())))
    }

    fn decide(&self, _: &[Ask<'_>]) -> DecisionFuture {
        DecisionFuture::pending(async { Err(StoreError::new(StoreErrorKind::Timeout)) })
    }
}

#[tokio::test]
async fn each_request_of_a_batch_that_gets_no_answer_is_decided_by_the_policy() {
    let store: Arc<dyn Store> = Arc::new(Silent::default());
    let denies = Policy::gcra("denies", "5/s").on_outage(OnOutage::Deny).on(store).unwrap();
    let keys = ["ada", "eve"].map(Key::from);
    let mut answers = Vec::new();
    denies.check_many(keys.iter().map(|key| (key, 1)), |decided| answers.push(decided));
    assert_eq!(answers.len(), 2);
    for decided in answers {
        assert_eq!(decided.await.unwrap().outcome(), Outcome::Denied);
    }
}
