use super::*;

fn standing(policy: u8, passed: bool, remaining: u64, available_after_us: u64) -> QuotaStatus {
    QuotaStatus::new((policy, 0), passed, 10, remaining, 1_000_000, available_after_us)
}

#[test]
fn the_tightest_quota_speaks_for_the_decision() {
    let roomy = standing(0, true, 9, 5);
    let allowed = Decision::new(Outcome::Allowed, 0, 0, [roomy, standing(1, true, 2, 5)]);
    assert_eq!((allowed.remaining(), allowed.retry_after()), (2, None));
    let denied =
        Decision::new(Outcome::Denied, 0, 0, [standing(0, false, 0, 30), roomy, standing(1, false, 1, 70)]);
    assert_eq!((denied.remaining(), denied.retry_after()), (1, Some(Duration::from_micros(70))));
}

#[test]
fn merged_decisions_keep_every_quota() {
    let outer = Decision::new(Outcome::Allowed, 0, 0, [standing(0, true, 7, 1)]);
    let inner = Decision::new(Outcome::Denied, 0, 0, [standing(0, false, 0, 9)]);
    let merged = outer.merge(&inner);
    assert_eq!(merged.outcome(), Outcome::Denied);
    assert_eq!(merged.quotas().len(), 2);
    assert_eq!(merged.deciding().policy_index(), 1);
}

/// A receipt that was taken came back with the decision of fewer asks, and could give the same units back again.
#[test]
fn a_decision_of_its_first_asks_has_only_the_receipts_that_were_not_taken() {
    let spent = |policy, cost| standing(policy, true, 7, 1).spending(cost);
    let decision = Decision::new(Outcome::Allowed, 5, 0, [spent(0, 2), spent(1, 3), spent(2, 4)]);
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
