//! Judges the same quotas under another algorithm, each row alone: [`OtherAlgorithm`].
//!
//! A comparison shows the effect of another algorithm with the same quotas, for each rule by itself: if all rules changed at once,
//! a rule would be asked fewer requests because another one has refused more, and the figures would say nothing about the algorithm. Each
//! algorithm has a store of its own with a separate policy for each row, so that rows that share a policy stay apart.
//!
//! Each algorithm takes at least as much memory and time as the replay itself.

use std::sync::Arc;

use sluicegate_core::algorithm::{Anchor, Refill};
use sluicegate_core::policy::Quotas;
use sluicegate_core::{Algorithm, Policy, Quota};
use sluicegate_tower::limits::Limits;

use crate::error::ReplayError;
use crate::judge::evaluator::{Evaluator, RowAsk, Verdict};
use crate::judge::figures::{Compared, RowTally};
use crate::judge::trial;

/// Algorithms that are compared.
///
/// Only algorithms with a definition of their own: the policing leaky bucket is GCRA, a shaping one delays requests and rejects by its
/// queue, and aligned windows differ from these only by where they begin.
pub(super) const COMPARED: [Algorithm; 6] = [
    Algorithm::Gcra,
    Algorithm::FixedWindow(Anchor::Epoch),
    Algorithm::SlidingCounter,
    Algorithm::SlidingLog,
    Algorithm::TokenBucket(Refill::Greedy),
    Algorithm::TokenBucket(Refill::Interval),
];

/// All rows under one algorithm, each alone.
pub(super) struct OtherAlgorithm {
    algorithm: Algorithm,
    evaluator: Evaluator,
    rows: Vec<AloneRow>,
}

/// One row, under the compared algorithm.
struct AloneRow {
    /// The index in the evaluator, or the reason why there is none.
    place: Result<usize, String>,
    /// Whether its quotas were taken without their burst, because the algorithm supports none.
    drops_burst: bool,
    /// The number of its requests that were rejected so far.
    rejected: u64,
}

impl OtherAlgorithm {
    /// All rows under this algorithm. A row whose quotas the algorithm cannot keep has the reason instead of a count.
    ///
    /// # Errors
    /// When the store cannot keep what the builder has accepted.
    pub(super) fn new(algorithm: Algorithm, all: &[RowTally], limits: &Limits) -> Result<Self, ReplayError> {
        let mut policies: Vec<Policy> = Vec::new();
        let rows = all.iter().enumerate().map(|(number, row)| {
            let (policy, drops_burst) = under(algorithm, number, &row.policy);
            let place = policy.map(|policy| {
                policies.push(policy);
                policies.len() - 1
            });
            AloneRow { place, drops_burst, rejected: 0 }
        });
        let rows: Vec<AloneRow> = rows.collect();
        let evaluator = Evaluator::new(&policies).map_err(ReplayError::limits)?;
        for (row, _) in rows.iter().zip(all).filter(|(_, tally)| limits.may_give_back(tally.limit)) {
            row.place.iter().for_each(|place| evaluator.keep_accounts(*place));
        }
        Ok(Self { algorithm, evaluator, rows })
    }

    /// Decides the asks of a request.
    ///
    /// Gives back what a response gives back, as in the replay: `given_back` says for a row whether it does.
    pub(super) fn decide(&mut self, at_us: u64, asks: &[RowAsk], given_back: impl Fn(usize) -> bool) {
        self.evaluator.set(at_us);
        for ask in asks {
            let row = &mut self.rows[ask.row];
            if let Ok(place) = &row.place {
                let quotas = ask.quotas.as_deref().map(|own| under_it(self.algorithm, own, row.drops_burst));
                let ask = RowAsk { row: *place, key: ask.key.clone(), quotas, ..*ask };
                let verdict = self.evaluator.check(&ask, given_back(ask.row));
                row.rejected += u64::from(matches!(verdict, Verdict::Rejected(_)));
            }
        }
    }

    /// The result of the row at this index.
    pub(super) fn compared(&self, row: usize) -> Compared {
        let AloneRow { place, drops_burst, rejected } = &self.rows[row];
        Compared {
            algorithm: self.algorithm,
            rejected: place.clone().map(|_| *rejected),
            drops_burst: *drops_burst,
        }
    }
}

/// The quotas of a key under another algorithm, changed like those of its row.
fn under_it(algorithm: Algorithm, own: &Quotas, drops_burst: bool) -> Arc<Quotas> {
    let under = |(_, quota): (Option<&str>, Quota)| {
        let quota = if drops_burst { Quota::new(quota.limit(), quota.period()) } else { quota };
        quota.counted_by(algorithm)
    };
    Arc::new(own.each().map(under).collect::<Vec<_>>().into())
}

/// The policy under another algorithm, without bursts if that algorithm supports none. An algorithm that starts full is not compared where
/// keys start with less than a burst, and says so.
fn under(algorithm: Algorithm, number: usize, policy: &Policy) -> (Result<Policy, String>, bool) {
    let name = format!("row-{number}");
    let quotas: Vec<Quota> =
        trial::quotas(policy).into_iter().map(|quota| quota.counted_by(algorithm)).collect();
    let build =
        |quotas: &[Quota]| trial::copy(policy, &name, algorithm, quotas).map_err(|error| error.to_string());
    let plain: Vec<Quota> = quotas.iter().map(|quota| Quota::new(quota.limit(), quota.period())).collect();
    let has_burst = quotas.iter().any(|quota| quota.burst_size() != quota.limit());
    let starts = quotas.iter().any(|quota| quota.start().is_some_and(|start| start < quota.burst_size()));
    match build(&quotas) {
        Err(_) if has_burst && !starts => (build(&plain), true),
        built => (built, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_quotas_of_a_row_are_counted_by_the_algorithm_that_is_compared() {
        let mixed = Policy::gcra("p", "5/min burst 2").and("9/d by sliding-log").build().unwrap();
        for algorithm in COMPARED {
            let (compared, drops_burst) = under(algorithm, 0, &mixed);
            let compared = compared.unwrap();
            assert!(compared.quotas().iter().all(|quota| quota.algorithm() == algorithm), "{compared}");
            assert_eq!(drops_burst, compared.quotas()[0].quota().burst_size() == 5, "{compared}");
        }
    }
}
