use std::sync::atomic::Ordering;

use std::time::Duration;

use super::*;
use crate::algorithm::Rule;
use crate::{Algorithm, Quota};

fn shard(keys: usize, entries: usize, limit: u64, period: Duration) -> Shard {
    Shard::new(rule(limit, period), (keys, entries), (OnFull::Forget, false), 42, Arc::default())
}

fn rule(limit: u64, period: Duration) -> SlidingLog {
    match Rule::new(Algorithm::SlidingLog, Quota::new(limit, period)) {
        Ok(Rule::SlidingLog(rule)) => rule,
        other => panic!("{other:?}"),
    }
}

fn entries(shard: &Shard, hash: u64) -> Vec<(u64, u64)> {
    shard.chain(shard.logs[shard.index[&hash] as usize].head).collect()
}

#[test]
fn a_refund_takes_the_newest_entries() {
    let mut shard = shard(4, 8, 10, Duration::from_micros(100));
    for (at, cost) in [(1, 3), (2, 3), (3, 3)] {
        shard.spend((9, &shard.rule.clone()), at, at, cost);
    }
    shard.refund((9, &shard.rule.clone()), 3, None, 4);
    assert_eq!(entries(&shard, 9), [(1, 3), (2, 2)]);
    assert_eq!(shard.used((9, &shard.rule.clone()), 3), 5);
    shard.refund((9, &shard.rule.clone()), 3, Some(2), 1); // spent at 1
    assert_eq!(entries(&shard, 9), [(1, 2), (2, 2)]);
    shard.refund((9, &shard.rule.clone()), 3, None, 99);
    assert_eq!((shard.used((9, &shard.rule.clone()), 3), shard.index.len()), (0, 0));
}

#[test]
fn an_entry_is_given_back_by_its_name_and_no_other_is() {
    let mut shard = shard(4, 8, 10, Duration::from_micros(100));
    let [first, second] = [1, 2].map(|at| shard.spend((9, &shard.rule.clone()), at, at, 3));
    shard.give_back((9, &shard.rule.clone()), first, 2, 3);
    assert_eq!(entries(&shard, 9), [(1, 1), (2, 3)]);
    shard.give_back((9, &shard.rule.clone()), first, 9, 3);
    assert_eq!((entries(&shard, 9), shard.used((9, &shard.rule.clone()), 3)), (vec![(2, 3)], 3));
    shard.reset(9);
    shard.spend((9, &shard.rule.clone()), 4, 2, 3);
    shard.give_back((9, &shard.rule.clone()), second, 3, 4);
    assert_eq!(entries(&shard, 9), [(2, 3)], "that is another log of the key");
}

#[test]
fn a_new_log_begins_with_what_was_left_once_and_is_put_back_as_it_was() {
    let rule = rule(10, Duration::from_micros(100));
    let mut shard = Shard::new(rule, (1, 8), (OnFull::Inherit, false), 42, Arc::default());
    // Each log makes room for the next one.
    for (hash, at, cost) in [(1, 10, 7), (2, 15, 1), (3, 20, 2)] {
        shard.spend((hash, &shard.rule.clone()), at, at, cost);
    }
    assert_eq!((entries(&shard, 3), shard.used((1, &shard.rule.clone()), 20)), (vec![(10, 7), (20, 2)], 7));
    let copy = shard.copy(3, 20);
    shard.spend((3, &shard.rule.clone()), 30, 30, 1);
    shard.restore(3, &copy, 30);
    assert_eq!(entries(&shard, 3), [(10, 7), (20, 2)]);
    assert_eq!([1, 3, 9].map(|hash| shard.reset_after_us((hash, &shard.rule.clone()), 30)), [85, 90, 85]);
    assert_eq!([1, 9].map(|hash| shard.used((hash, &shard.rule.clone()), 115)), [0, 0], "it has drained");
}

#[test]
fn a_full_shard_keeps_its_size_and_its_heavy_debtors() {
    let mut shard = shard(8, 16, 16, Duration::from_micros(1_000));
    for at in 1..=8 {
        shard.spend((1, &shard.rule.clone()), at, 500 + at, 2);
    }
    for flood in 2..10_000_u64 {
        shard.spend((flood, &shard.rule.clone()), 10, 10, 1);
        assert!(shard.index.len() <= 8);
    }
    assert_eq!(shard.used((1, &shard.rule.clone()), 600), 16, "the debtor is still remembered");
    assert!(shard.evictions.load(Ordering::Relaxed) > 9_000);
    // Long after, every entry is free again.
    shard.spend((1, &shard.rule.clone()), 20_000_000, 20_000_000, 1);
    for _ in 0..20 {
        shard.tidy(70_000_000);
    }
    let mut free = 0;
    let mut at = shard.free_entry;
    while let Some(entry) = shard.entries.get(at as usize) {
        (free, at) = (free + 1, entry.next);
    }
    assert_eq!((free + 1, shard.index.len()), (shard.entries.len(), 1));
}

/// Of four logs, one in a hundred samples with replacement misses the flood's own: each of its keys was worth a try.
#[test]
fn a_small_shard_keeps_all_debtors_but_for_one_place() {
    for logs in [2, 4, 16] {
        let mut shard = shard(logs, 4_096, 8, Duration::from_secs(1));
        let debtors = 1..logs as u64;
        for key in debtors.clone().chain(100..10_000) {
            let units = if debtors.contains(&key) { 8 } else { 1 };
            shard.spend((key, &shard.rule.clone()), 10, 10, units);
        }
        let known = debtors.clone().filter(|debtor| shard.index.contains_key(debtor)).count();
        assert_eq!(known, logs - 1, "of {logs}");
    }
}

#[test]
fn a_clock_that_is_set_back_a_little_finds_the_logs_that_others_passed_by() {
    let mut shard = shard(8, 16, 10, Duration::from_micros(100));
    shard.spend((1, &shard.rule.clone()), 50, 50, 3);
    for at in [200, 5_000_000, 60_000_140] {
        shard.spend((2, &shard.rule.clone()), at, at, 1);
        shard.spend((3, &shard.rule.clone()), at, at, 1);
    }
    assert_eq!(shard.used((1, &shard.rule.clone()), 140), 3, "seen last when it was over, but not for long");
    for _ in 0..3 {
        shard.spend((2, &shard.rule.clone()), 60_000_150, 60_000_150, 1);
    }
    assert_eq!(shard.used((1, &shard.rule.clone()), 140), 0);
}

#[test]
fn a_log_with_a_resolution_has_one_entry_more_than_parts_and_no_more() {
    for (parts, period) in [(1, 100), (3, 10), (3, 11), (7, 100), (20, 100), (20, 7)] {
        let rule =
            Rule::new(Algorithm::SlidingLogIn(parts), Quota::new(1_000, Duration::from_micros(period)));
        let Ok(Rule::SlidingLog(rule)) = rule else { panic!("{rule:?}") };
        let mut shard = Shard::new(rule, (4, 64), (OnFull::Forget, false), 42, Arc::default());
        let mut longest = 0;
        for at in 1..=500 {
            shard.spend((9, &shard.rule.clone()), at, at, 1);
            assert!(
                shard.used((9, &shard.rule.clone()), at) >= at.min(period),
                "none is forgotten too early"
            );
            longest = longest.max(entries(&shard, 9).len());
        }
        assert!(
            longest as u64 <= rule.most_entries().min(period),
            "{longest} entries of {parts} in {period}"
        );
    }
}

#[test]
fn units_of_one_part_are_given_back_by_any_moment_in_it() {
    let rule = Rule::new(Algorithm::SlidingLogIn(10), Quota::new(10, Duration::from_micros(100)));
    let Ok(Rule::SlidingLog(rule)) = rule else { panic!("{rule:?}") };
    let mut shard = Shard::new(rule, (4, 8), (OnFull::Forget, false), 42, Arc::default());
    let [first, _, third] = [11, 18, 21].map(|at| shard.spend((9, &shard.rule.clone()), at, at, 2));
    assert_eq!(entries(&shard, 9), [(18, 4), (21, 2)]);
    assert_eq!(
        (
            shard.entered((9, &shard.rule.clone()), first, 21),
            shard.entered((9, &shard.rule.clone()), third, 21)
        ),
        (4, 2)
    );
    shard.give_back((9, &shard.rule.clone()), first, 1, 21);
    shard.refund((9, &shard.rule.clone()), 21, Some(9), 1); // spent at 12, in the same part
    assert_eq!(entries(&shard, 9), [(18, 2), (21, 2)]);
}
