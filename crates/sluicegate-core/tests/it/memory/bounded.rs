//! Up to three million strangers: the memory stays what it was, and a heavy debtor stays known.
//!
//! Each flood runs in a process of its own, this binary started again for one test, so that no other test's memory is
//! measured with it.

use sluicegate_core::algorithm::Anchor;
use sluicegate_core::{Algorithm, MemoryStore, Outcome, Quota};
use sluicegate_tests::process::alone;

use crate::support::{ALL, START, answer, limiter, secs, store_for, us};

const KEYS: u64 = 3_000_000;
const CAPACITY: usize = 100_000;
/// What malloc and the test harness may add; eight bytes a key would be three times as much.
const SLACK: usize = 8 << 20;

macro_rules! floods {
    ($($name:ident: $algorithm:expr, $keys:expr;)*) => {$(
        #[test]
        fn $name() {
            alone(|| flood($algorithm, $keys));
        }
    )*};
}

floods! {
    three_million_keys_leave_gcra_where_it_was: Algorithm::Gcra, KEYS;
    half_a_million_keys_leave_the_sliding_counter_where_it_was: Algorithm::SlidingCounter, KEYS / 6;
    half_a_million_keys_leave_the_fixed_window_where_it_was: Algorithm::FixedWindow(Anchor::Epoch), KEYS / 6;
    half_a_million_keys_leave_the_sliding_log_where_it_was: Algorithm::SlidingLog, KEYS / 6;
}

fn flood(algorithm: Algorithm, keys: u64) {
    let (store, clock) = store_for(CAPACITY, 262_144);
    let limiter = limiter(&store, "flood", algorithm, Quota::per_minute(100));
    let debtor = "debtor";
    let _ = answer(limiter.charge(debtor, 300));
    // The tables are there from the first decision on; a first round touches all their pages.
    for key in 0..2 * CAPACITY as u64 {
        let _ = answer(limiter.check(key));
    }
    let before = resident();
    for key in 0..keys {
        let _ = answer(limiter.check(u64::MAX - key));
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < SLACK, "{algorithm}: {grown} bytes more after {keys} keys");
    bounded(&store, algorithm);
    let denied = answer(limiter.check(debtor));
    assert_eq!(denied.outcome(), Outcome::Denied, "{algorithm}: the debtor was forgotten");
    assert_eq!(denied.remaining(), 0, "{algorithm}");
    // Everyone is at rest an hour later, and nothing had to be swept for it.
    clock.set(START * 2);
    assert!(answer(limiter.check(debtor)).is_allowed());
    bounded(&store, algorithm);
}

/// Who has spent all of a limit is denied until it comes back, and cannot buy that back with new keys. Windows once
/// took the key whose window ends first for the least indebted one, which is whoever came first.
#[test]
fn a_key_that_has_spent_its_limit_outlasts_a_flood() {
    let mut forgotten = Vec::new();
    for algorithm in ALL {
        let (store, clock) = store_for(100, 1_600);
        let limiter = limiter(&store, "flood", algorithm, Quota::per_hour(100));
        let spent = answer(limiter.check("spent").cost(100));
        assert!(spent.is_allowed(), "{algorithm}");
        for key in 0..5_000_u64 {
            clock.advance(us(1_000));
            let _ = answer(limiter.check(key));
        }
        if answer(limiter.check("spent")).is_allowed() {
            forgotten.push(algorithm.to_string());
        }
    }
    assert!(forgotten.is_empty(), "{forgotten:?}");
}

#[test]
fn keys_at_rest_are_not_counted() {
    // With room for many more: in a store for a hundred, 20 keys at random once in a while fill a set, and one makes room.
    for algorithm in ALL {
        let (store, clock) = store_for(10_000, 1_600);
        let limiter = limiter(&store, "p", algorithm, Quota::per_minute(10));
        for key in 0..20_u64 {
            let _ = answer(limiter.check(key));
        }
        assert_eq!(store.stats().keys, 20, "{algorithm}");
        clock.advance(secs(121));
        assert_eq!(store.stats().keys, 0, "{algorithm}");
    }
}

fn bounded(store: &MemoryStore, algorithm: Algorithm) {
    let stats = store.stats();
    assert!(stats.keys <= stats.slots, "{algorithm}: {stats:?}");
    assert!(stats.slots <= CAPACITY * 9 / 4 + 3, "{algorithm}: {stats:?}");
    assert!(stats.evictions > 0, "{algorithm}: the flood was no flood");
}

/// Resident memory in bytes; the second number of `statm`, in pages.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("this test needs Linux");
    let pages: usize =
        statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a count of pages");
    pages * 4_096
}
