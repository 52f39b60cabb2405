use std::time::Duration;

use super::*;
use crate::store::{Trace, judge};

fn status(policy: u8, passed: bool, remaining: u64, available_after_us: u64) -> QuotaStatus {
    let status =
        QuotaStatus::at_rest((policy, 0), 10).with_remaining(remaining).with_reset_after_us(1_000_000);
    if passed {
        status.with_more_after_us(available_after_us)
    } else {
        status.refused_for_us(available_after_us)
    }
}

#[test]
fn a_suspension_makes_the_outcome_and_whatever_refuses_longest_the_wait() {
    let suspended = status(1, false, 3, 10).suspended_for_us(7_000_000);
    let impossible = status(2, false, 0, 5).impossible();
    let decision = judge(0, 0, [status(0, false, 0, 5_000_000), suspended, impossible]);
    assert_eq!(decision.outcome(), Outcome::Suspended);
    assert_eq!((decision.deciding().policy_index(), decision.remaining()), (1, 0));
    assert_eq!(decision.retry_after(), Some(Duration::from_secs(7)));
    assert!(decision.reset_after() >= Duration::from_secs(7), "nothing is back before");
    let longer = judge(0, 0, [status(0, false, 0, 9_000_000), suspended]);
    assert_eq!((longer.outcome(), longer.deciding().policy_index()), (Outcome::Suspended, 0));
    assert_eq!(longer.retry_after(), Some(Duration::from_secs(9)));
}

#[test]
fn the_tightest_quota_speaks_for_the_decision() {
    let roomy = status(0, true, 9, 5);
    let allowed = judge(0, 0, [roomy, status(1, true, 2, 5)]);
    assert_eq!((allowed.remaining(), allowed.retry_after()), (2, None));
    let denied = judge(0, 0, [status(0, false, 0, 30), roomy, status(1, false, 1, 70)]);
    assert_eq!((denied.remaining(), denied.retry_after()), (1, Some(Duration::from_micros(70))));
}

#[test]
fn merged_decisions_keep_every_quota() {
    let outer = judge(0, 0, [status(0, true, 7, 1)]);
    let inner = judge(0, 0, [status(0, false, 0, 9)]);
    let merged = outer.merge(1, &inner);
    assert_eq!(merged.outcome(), Outcome::Denied);
    assert_eq!(merged.quotas().len(), 2);
    assert_eq!(merged.deciding().policy_index(), 1);
}

/// A receipt that was taken came back with the decision of fewer asks, and could give the same units back again.
#[test]
fn a_decision_of_its_first_asks_has_only_the_receipts_that_were_not_taken() {
    let spent = |policy, cost| status(policy, true, 7, 1).spending(cost);
    let decision = judge(5, 0, [spent(0, 2), spent(1, 3), spent(2, 4)]);
    let mut decision = decision
        .by(DecidedBy::Fallback)
        .with_traces([1, 2, 3].map(|birth| Trace { birth, ..Trace::default() }));
    assert!(decision.take_receipt(0).is_some());
    let mut first = decision.of_first(2);
    assert_eq!(
        (first.quotas().len(), first.decided_by(), first.deciding().policy_index()),
        (2, DecidedBy::Fallback, 0)
    );
    assert!(first.take_receipt(0).is_none() && first.take_receipt(2).is_none());
    let left = first.take_receipt(1).expect("nobody has taken it");
    assert_eq!((left.cost(), left.trace(0).map(|trace| trace.birth)), (3, Some(2)));
}

#[test]
fn a_turn_that_has_come_resets_at_the_moment_that_was_said_when_it_was_reserved() {
    let reserved = judge(5_000_000, 300_000, [status(0, true, 2, 400_000).spending(1)]);
    let resets_at = |decision: &Decision| decision.stands_at() + decision.reset_after();
    assert_eq!(reserved.stands_at(), Duration::from_secs(5));
    let come = reserved.clone().after_delay();
    assert_eq!((come.delay(), come.stands_at()), (reserved.delay(), Duration::from_millis(5_300)));
    assert_eq!(come.reset_after(), Duration::from_millis(700));
    assert_eq!(resets_at(&come), resets_at(&reserved));
    assert_eq!(resets_at(&come.clone().after_delay()), resets_at(&come), "a turn comes once");
    let denied = judge(5_000_000, 300_000, [status(0, false, 0, 400_000)]).after_delay();
    assert_eq!(denied.stands_at(), Duration::from_secs(5), "what was refused waits for nothing");
}

#[test]
fn a_joined_decision_keeps_its_receipts_when_its_asks_move_apart() {
    let spent = |place, cost| judge(5, 0, [status(place, true, 7, 1).spending(cost)]);
    let traced = spent(0, 2).with_traces([Trace { birth: 9, ..Trace::default() }]);
    let pieces = [(traced, [0]), (spent(0, 3).by(DecidedBy::Fallback), [1])];
    let joined = Decision::joined(pieces).unwrap();
    // A third ask came between them and did not decide.
    let mut moved = joined.of_asks(&[0, 2]);
    let receipt = |moved: &mut Decision, ask| {
        let receipt = moved.take_receipt(ask)?;
        Some((receipt.decided_by(), receipt.cost(), receipt.trace(0).map(|trace| trace.birth)))
    };
    assert_eq!(receipt(&mut moved, 0), Some((DecidedBy::Store, 2, Some(9))));
    assert_eq!(receipt(&mut moved, 1), None);
    assert_eq!(receipt(&mut moved, 2), Some((DecidedBy::Fallback, 3, None)));
}

#[cfg(feature = "tokio")]
#[test]
fn a_request_that_moves_up_to_a_turn_before_its_decision_has_spent_at_that_turn() {
    let waiting = judge(16_392, 10_000, [status(0, true, 0, 0)]);
    let moved_up = waiting.at_turn(13_000, []);
    assert_eq!((moved_up.at_us(), moved_up.spent_us()), (13_000, 13_000));
}
