use super::*;

fn standing(policy: u8, passed: bool, remaining: u64, available_after_us: u64) -> Standing {
    Standing::new((policy, 0), passed, 10, remaining, 1_000_000, available_after_us)
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
    assert_eq!(merged.standings().len(), 2);
    assert_eq!(merged.deciding().policy_index(), 1);
}
