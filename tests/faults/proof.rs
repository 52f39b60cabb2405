//! That the harness finds what it looks for: services that break the promises, one by one.

use std::thread::sleep;
use std::time::Duration;

use sluicegate_resilient::BreakerSettings;
use sluicegate_tests::servers::Server;

use crate::harness::{Excuse, NOTHING, Setup};
use crate::machine::turn;

const SECOND: Duration = Duration::from_secs(1);

#[track_caller]
fn finds(broken: &[String], what: &str) {
    assert!(broken.iter().any(|line| line.contains(what)), "{what} is not among {broken:#?}");
}

#[test]
fn a_store_without_a_breaker_is_found_to_count_no_errors() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).bare().start();
    rig.during(SECOND, || server.signal("STOP"), || server.signal("CONT"));
    finds(&rig.examine(NOTHING).1, "I5: 0 errors");
}

#[test]
fn a_store_without_a_short_deadline_is_late() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).deadline(20 * SECOND).start();
    rig.during(5 * SECOND, || server.signal("STOP"), || server.signal("CONT"));
    let (_, broken) = rig.examine(NOTHING);
    finds(&broken, "requests were late");
    finds(&broken, "I1: a request took");
}

#[test]
fn a_breaker_that_pauses_for_long_is_found_not_to_recover() {
    let _turn = turn();
    let server = Server::start();
    let slow = BreakerSettings::new().pause(600 * SECOND, 600 * SECOND);
    let rig = Setup::at(server.url()).breaker(slow).start();
    rig.during(SECOND, || server.signal("STOP"), || server.signal("CONT"));
    finds(&rig.examine(NOTHING).1, "I4");
}

#[test]
fn what_is_admitted_uncharged_or_told_too_much_is_found() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).start();
    rig.fault(|| {
        for _ in 0..10 {
            // Nobody is told that the counters are lost.
            server.run::<()>("FLUSHALL");
            rig.spawn(async { tracing::warn!(key = crate::load::key(7), "a warning that comes too often") });
            sleep(Duration::from_millis(100));
        }
        rig.spawn(async { panic!("a task that panics") });
        rig.spawn(sleep_for_ever());
        rig.spawn(sleep_for_ever());
        rig.spawn(sleep_for_ever());
        sleep(Duration::from_millis(100));
    });
    rig.heal(|| ());
    let (_, broken) = rig.examine(Excuse { unnoticed: true, ..NOTHING });
    for what in ["tasks, and", "a task that panics", "I3", "times in a second", "I6", "I7"] {
        finds(&broken, what);
    }
}

async fn sleep_for_ever() {
    std::future::pending().await
}
