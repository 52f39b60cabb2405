//! What must hold after every fault; what does not is said in the words that a failed test shows.

use std::time::{Duration, Instant};

use sluicegate_core::store::DecidedBy;
use sluicegate_resilient::BreakerState;
use sluicegate_tests::servers::is_so_within;

use super::ledger::{admitted, spent};
use super::{Excuse, Rig, SLACK};
use crate::load::{KEYS, Kind, Record};
use crate::machine::{AT_ONCE, memory, memory_before, panics_of, strain};

/// How long a test waits for a state that must come: far longer than the most loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the slowest decision may take in all.
const HARD_CAP: Duration = Duration::from_millis(250);

/// From the healing to the first decision of the store on an idle machine: the longest pause of the breaker with its 20 % of
/// chance, 1.5 s for the connection, and half a second.
const RECOVERY: Duration = Duration::from_millis(1_200 + 1_500 + 500);

/// After it has closed, the breaker lets only a part of the calls through for so long.
const RAMP: Duration = Duration::from_secs(1);

impl Rig {
    /// I4.
    pub(super) fn recover(&self, healed: Instant, excuse: Excuse, broken: &mut Vec<String>) -> Duration {
        let time = Duration::from_millis(500);
        let is_settled = || {
            let status = self.status();
            let is_quiet = status.breaker == BreakerState::Closed && status.debts == 0;
            healed.elapsed() > time && is_quiet && self.is_calm(time)
        };
        let settled = is_so_within(PATIENCE, is_settled).then(|| healed.elapsed());
        let since = self.load.since(healed);
        let first = since.iter().filter(|record| record.is(DecidedBy::Store)).map(Record::end).min();
        let after = first.map_or(Duration::MAX, |first| first - healed);
        let until = RECOVERY + excuse.later_by;
        let strain = strain(healed, healed + until);
        if after > until * strain {
            broken.push(format!("I4: the store decided again {after:?} after the healing"));
        }
        if settled.is_none_or(|settled| settled > (until + RAMP + time) * strain + time) {
            broken.push(format!("I4: {settled:?} after the healing, others than the store still decided"));
        }
        after
    }

    /// I2.
    pub(super) fn check_tasks_and_memory(&self, excuse: Excuse, broken: &mut Vec<String>) {
        let tasks = || self.runtime.metrics().num_alive_tasks();
        // The connections that were given up end in their own time.
        is_so_within(PATIENCE, || self.load.under_way().is_empty() && tasks() <= self.tasks + excuse.tasks);
        let under_way = self.load.under_way();
        if !under_way.is_empty() {
            broken.push(format!("I2: these requests are still under way: {under_way:?}"));
        }
        if tasks() > self.tasks + excuse.tasks {
            broken.push(format!("I2: {} tasks, and {} before the load", tasks(), self.tasks));
        }
        broken.extend(panics_of(&self.name).iter().map(|panic| format!("I2: {panic}")));
        // What all scenarios that run at once have allocated, so it is what all of them may have: what one leaves behind adds
        // up over the suite, and is found by those that come after it.
        let grown = memory().saturating_sub(memory_before()) >> 20;
        if grown >= 20 * AT_ONCE {
            broken.push(format!("I2: {grown} MiB more than in the beginning"));
        }
    }

    /// I1. All must be decided. Of the calls, 99.5 % may take the deadline and 25 ms, and none more than 250 ms; on a machine that
    /// is busy with other things more of them may, and longer.
    pub(super) fn check_times(&self, records: &[Record], blocked: Duration, broken: &mut Vec<String>) {
        let undecided = records.iter().find_map(|record| record.basis.as_ref().err());
        if let Some(error) = undecided {
            let count = records.iter().filter(|record| record.basis.is_err()).count();
            broken.push(format!("I1: {count} requests were not decided: {error}"));
        }
        let (Some(first), Some(last)) = (records.first(), records.last()) else { return };
        let strain = strain(first.at, last.end());
        let late = self.deadline + SLACK * strain + blocked;
        let late = records.iter().filter(|record| record.took > late).count();
        // One stall makes all calls late that are under way.
        if late > (records.len() / 200).max(15) * strain as usize {
            broken.push(format!("I1: {late} of {} requests were late", records.len()));
        }
        let slowest = records.iter().map(|record| record.took).max().unwrap_or_default();
        if slowest > HARD_CAP * strain + blocked {
            broken.push(format!("I1: a request took {slowest:?}"));
        }
    }

    /// I3. What the store admitted keeps the law of the whole, what the fallback admitted that of a share; so the sum
    /// keeps the bound that is documented.
    pub(super) fn check_admissions(&self, records: &[Record], excuse: Excuse, broken: &mut Vec<String>) {
        for policy in Kind::LAWFUL {
            for index in 0..KEYS {
                let store = admitted(records, policy, index, DecidedBy::Store);
                let store = policy.law().check(&store, excuse.losses);
                let fallback = admitted(records, policy, index, DecidedBy::Fallback);
                let fallback = policy.law().share(self.replicas).check(&fallback, 0);
                for problem in [store.err(), fallback.err()].into_iter().flatten() {
                    broken.push(format!("I3: {policy:?}, key {index}: {problem}"));
                }
            }
        }
        for record in records.iter().filter(|record| record.is(DecidedBy::Outage)) {
            let is_so = match record.kind {
                Kind::Allow => record.allowed,
                Kind::Deny => !record.allowed,
                _ => false,
            };
            if !is_so {
                broken.push(format!("I3: not what the policy says of an outage: {record:?}"));
                break;
            }
        }
    }

    /// I5 and I6.
    pub(super) fn check_counts_and_logs(
        &self,
        records: &[Record],
        fault: Instant,
        excuse: Excuse,
        broken: &mut Vec<String>,
    ) {
        let status = self.status();
        let errors = status.timeouts + status.unavailable + status.protocol;
        let elsewhere = records.iter().filter(|r| r.at >= fault && !r.is(DecidedBy::Store)).count();
        if !excuse.unnoticed && (errors == 0 || elsewhere == 0) {
            broken.push(format!("I5: {errors} errors, {elsewhere} decisions without the store"));
        }
        let lines = self.logs.lines();
        let changes: Vec<_> = ["the rate limit store fails", "the rate limit store decides again"]
            .map(|message| self.logs.about(message).len())
            .into();
        let balanced = if status.breaker == BreakerState::Closed { changes[0] >= changes[1] } else { true };
        if !balanced || (status.opened > 0) != (changes[0] > 0) || (changes[0] > 0) != (changes[1] > 0) {
            broken.push(format!("I5: opened {} times, and logged {changes:?}", status.opened));
        }
        broken.extend(self.logs.flood().map(|flood| format!("I5: {flood}")));
        let secrets = ["secret.example", "hunter2"];
        let told = lines.iter().find(|line| secrets.iter().any(|secret| line.text.contains(secret)));
        broken.extend(told.map(|line| format!("I6: {}", line.text)));
    }

    /// I7.
    pub(super) fn check_ledger(&self, records: &[Record], excuse: Excuse, broken: &mut Vec<String>) {
        if self.is_bare || excuse.clock || excuse.shared {
            return;
        }
        let ledger = self.ledger();
        let (by_store, alone, given_up) = spent(records, self.deadline);
        let most = by_store + alone + given_up + excuse.lost_answers;
        let least = if excuse.losses > 0 { 0 } else { by_store + alone };
        // What the fallback admitted is charged in the background.
        is_so_within(PATIENCE, || ledger.charged() >= least);
        let charged = ledger.charged();
        if !(least..=most).contains(&charged) {
            broken.push(format!(
                "I7: {charged} charged; admitted {by_store} and {alone} alone, {given_up} given up"
            ));
        }
    }
}
