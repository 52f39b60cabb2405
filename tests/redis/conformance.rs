//! The suite that every store has to pass, on every kind of deployment; the memory store is the reference.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_conformance::Conformance;
use sluicegate_core::Store;
use sluicegate_core::clock::ManualClock;
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
        suite.same_decisions_as_memory(seed, 15).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_decides_as_memory_does_when_the_clock_is_set_back() {
    let suite = suite(&standalone().url(), "back").await;
    for seed in seeds(10) {
        let by = Duration::from_secs(if seed % 2 == 0 { 60 } else { 10 });
        suite.same_decisions_when_the_clock_is_set_back(by, seed, 15).await;
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
            0 => suite.same_quotas_of_keys_as_memory(seed, 20).await,
            _ => {
                let by = Duration::from_secs(10);
                suite.same_quotas_of_keys_when_the_clock_is_set_back(by, seed, 20).await;
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
        suite.same_decisions_as_memory(seed, 15).await;
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
        suite.same_decisions_as_memory(seed, 15).await;
        suite.same_suspensions_as_memory(seed, 5).await;
        suite.same_leases_as_memory(seed, 10).await;
    }
}
