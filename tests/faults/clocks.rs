//! Clocks that jump: the server's, and our own.

use std::thread::sleep;
use std::time::{Duration, Instant};

use sluicegate_core::Policy;
use sluicegate_core::store::DecidedBy;
use sluicegate_tests::servers::run;
use sluicegate_tests::servers::skewed::Skewed;

use crate::harness::{Excuse, NOTHING, Setup};
use crate::load::{KEYS, Kind, key};
use crate::machine::turn;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn f34_a_clock_that_jumps_neither_doubles_a_limit_nor_blocks_a_key() {
    const HOUR_US: i64 = 3_600_000_000;
    let _turn = turn();
    let skewed = Skewed::start();
    let rig = Setup::at(skewed.server.url()).start();
    let limiter = Policy::fixed_window("waits", "3/2s").on(rig.patient()).unwrap();
    let waits = || {
        for _ in 0..4 {
            let decision = rig.block_on(limiter.check("ada").start()).expect("the store decides");
            let wait = decision.retry_after().unwrap_or_default();
            // What is left of the window that had begun before a step back, and the one that begins after it.
            assert!(wait <= 4 * SECOND, "{wait:?}");
        }
    };
    rig.fault(|| {
        for shift in [-HOUR_US, HOUR_US] {
            skewed.shift(shift);
            for _ in 0..2 {
                waits();
                sleep(500 * MS);
            }
        }
        for turn in 0..20 {
            skewed.shift(if turn % 2 == 0 { 50_000 } else { -50_000 });
            waits();
            sleep(100 * MS);
        }
    });
    rig.heal(|| skewed.shift(0));
    sleep(2_500 * MS);
    // Whoever is refused now was admitted since then: every key is written again.
    let bucket = Kind::Gcra.policy().on(rig.patient()).unwrap();
    for index in 0..KEYS {
        let _ = rig.block_on(bucket.check(key(index)).start()).expect("the store decides");
    }
    // The tasks behind them are not the service's.
    drop((limiter, bucket));
    // To an hour ahead and back to the time that it is: each forgets what was spent, once.
    let findings = rig.finish(Excuse { losses: 3, unnoticed: true, clock: true, ..NOTHING });
    findings.stayed_closed();
    let mut admin = skewed.server.admin();
    let names: Vec<String> = run(&mut admin, "KEYS *:bucket:*");
    assert!(names.len() > 5);
    for name in names {
        let left: i64 = run(&mut admin, &format!("PTTL {name}"));
        assert!(left <= 4_000, "{name} lives for another {left} ms");
    }
}

/// The process' own clock is a child's, whose wall clock is shifted while it runs.
#[test]
fn f35_the_local_store_does_not_look_at_the_wall_clock() {
    if let Some(file) = std::env::var_os("SKEW_FILE") {
        return decides_the_same_whatever_the_wall_clock_shows(std::path::Path::new(&file));
    }
    let _turn = turn();
    let skewed = Skewed::reserve();
    skewed.run_in_child("clocks::f35_the_local_store_does_not_look_at_the_wall_clock");
}

fn decides_the_same_whatever_the_wall_clock_shows(file: &std::path::Path) {
    use sluicegate_core::MemoryStore;
    use sluicegate_resilient::Resilient;
    let store = Resilient::new(MemoryStore::new());
    let limiter = Policy::gcra("local", "2/2s").on(&store).unwrap();
    let mut admitted = 0;
    let begun = Instant::now();
    let wall = std::time::SystemTime::now();
    for hours in [0_i64, -1, 1, 0, -1] {
        std::fs::write(file, (hours * 3_600_000_000).to_ne_bytes()).unwrap();
        for _ in 0..100 {
            let decision = limiter.check("ada").now().expect("memory answers at once").unwrap();
            admitted += u64::from(decision.is_allowed());
            assert!(decision.retry_after().unwrap_or_default() <= SECOND);
        }
        sleep(100 * MS);
    }
    let back = wall.duration_since(std::time::SystemTime::now()).expect("the wall clock was set back");
    assert!(back > 3_000 * SECOND);
    assert_eq!(admitted, 2, "within {:?}", begun.elapsed());
    assert_eq!(limiter.peek("ada").now().unwrap().unwrap().decided_by(), DecidedBy::Store);
}
