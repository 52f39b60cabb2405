use crate::budgets::{GivenWarnings, *};

const HOUR_US: u64 = 3_600_000_000;

#[test]
fn a_table_without_room_forgets_no_warning_that_was_given() {
    let mut given = GivenWarnings::new();
    // As many as fit, and more: the digests of one set are 1,024 apart.
    let set: Vec<u64> = (0..6).map(|number| 7 + number * 1_024).collect();
    let give = |given: &mut GivenWarnings, digest, now_us, parts| given.give(digest, HOUR_US, now_us, parts);
    for digest in &set[..4] {
        assert_eq!(give(&mut given, *digest, 0, 1), Some(0));
    }
    assert_eq!(give(&mut given, set[4], 0, 1), None, "nothing is known about it");
    for digest in &set[..4] {
        assert_eq!(give(&mut given, *digest, 0, 3), Some(1));
        assert_eq!(give(&mut given, *digest, 0, 1), Some(3), "what was told stays told");
    }
    assert_eq!(given.give(set[4], 2 * HOUR_US, HOUR_US, 2), Some(0), "a period has ended");
    assert_eq!(give(&mut given, 8, 0, 1), Some(0), "another set has room");
}

#[test]
fn a_policy_with_a_budget_takes_at_most_72_kib() {
    let all = GivenWarnings::new().bytes() + Nearest::default().bytes() + size_of::<Budgets>();
    assert!(all <= 72 * 1_024, "{all} bytes");
}
