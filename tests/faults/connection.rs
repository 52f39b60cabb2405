//! Faults of the connection: servers that are not there, holes, resets, delays, garbage.

use std::net::{SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sluicegate_core::Policy;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::DecidedBy;
use sluicegate_redis::RedisStore;
use sluicegate_resilient::Resilient;
use sluicegate_tests::servers::Server;

use crate::harness::{Excuse, NOTHING, Rig, Setup};
use crate::machine::{Turn, turn};
use crate::proxy::{Door, Flow, Proxy};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A request may wait, within its deadline, for the first attempt to replace a connection that was closed; that attempt
/// is given up after a second.
const FIRST_ATTEMPT: Duration = Duration::from_millis(1_100);

/// A service that reaches its store through a proxy.
struct Proxied {
    _turn: Turn,
    server: Server,
    proxy: Proxy,
    rig: Rig,
}

fn proxied() -> Proxied {
    let turn = turn();
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let rig = Setup::at(proxy.url()).start();
    Proxied { _turn: turn, server, proxy, rig }
}

#[test]
fn f01_a_service_starts_without_its_store_and_finds_it_later() {
    let _turn = turn();
    let mut server = Server::reserve(&[]);
    let rig = Setup::at(server.url()).unconnected().start();
    rig.fault(|| ());
    sleep(SECOND);
    assert!(!rig.redis.is_connected());
    rig.heal(|| server.restart());
    let findings = rig.finish(NOTHING);
    assert!(findings.since_fault(DecidedBy::Fallback).count() > 50);
}

#[test]
fn f02_a_service_that_requires_its_store_learns_in_time_that_it_is_not_there() {
    let _turn = turn();
    let mut server = Server::reserve(&[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = RedisStore::connect(&server.url()).unwrap();
        let begun = Instant::now();
        let error = store.connected(300 * MS).await.expect_err("nobody listens");
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(begun.elapsed() >= 300 * MS && begun.elapsed() < 20 * SECOND, "{:?}", begun.elapsed());
        tokio::task::block_in_place(|| server.restart());
        store.connected(60 * SECOND).await.expect("it is there now");
    });
}

#[test]
fn f03_a_killed_server_is_used_again_soon_after_it_was_started() {
    let _turn = turn();
    let mut server = Server::start();
    let rig = Setup::at(server.url()).start();
    rig.fault(|| server.stop());
    sleep(3 * SECOND);
    rig.heal(|| server.restart());
    let findings = rig.finish(Excuse { losses: 1, lost_answers: 5, ..NOTHING });
    findings.recovered_within(2_500 * MS);
    findings.nobody_waited(100 * MS);
    // Five in a row open the breaker, and each pause ends with one trial.
    findings.few_errors(25);
}

#[test]
fn f04_a_server_that_was_shut_down_and_started_at_once_begins_anew() {
    let _turn = turn();
    let mut server = Server::start();
    let rig = Setup::at(server.url()).start();
    rig.fault(|| {
        // It answers by closing the connection.
        let _ = redis::cmd("SHUTDOWN").arg("NOSAVE").exec(&mut server.admin());
    });
    rig.heal(|| server.restart());
    rig.finish(Excuse { losses: 1, lost_answers: 5, ..NOTHING }).recovered_within(2_500 * MS);
}

#[test]
fn f05_a_server_that_hangs_costs_a_few_timeouts_and_its_connection() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).start();
    rig.during(4 * SECOND, || server.signal("STOP"), || server.signal("CONT"));
    let findings = rig.finish(NOTHING);
    // Those that began before the first of five was given up, 50 ms later, are under way as well.
    findings.few_timeouts();
    assert_eq!(findings.logs.about("connected to Redis again").len(), 1, "the connection was replaced");
    findings.nobody_waited(300 * MS);
}

#[test]
fn f06_replies_that_vanish_cost_a_few_timeouts() {
    let Proxied { _turn, proxy, rig, server: _server } = proxied();
    rig.during(6 * SECOND, || proxy.replies(Flow::Hold), || proxy.replies(Flow::Pass));
    let findings = rig.finish(NOTHING);
    findings.recovered_within(2 * SECOND);
    findings.nobody_waited(300 * MS);
    findings.few_timeouts();
}

#[test]
fn f07_requests_that_vanish_are_not_charged_in_a_burst_when_they_arrive() {
    let Proxied { _turn, proxy, rig, server: _server } = proxied();
    rig.during(6 * SECOND, || proxy.requests(Flow::Hold), || proxy.requests(Flow::Pass));
    let findings = rig.finish(NOTHING);
    findings.recovered_within(2 * SECOND);
    findings.few_timeouts();
}

#[test]
fn f08_a_server_that_restarted_behind_a_hole_is_found_again() {
    let Proxied { _turn, proxy, rig, mut server } = proxied();
    rig.fault(|| {
        proxy.requests(Flow::Hold);
        proxy.replies(Flow::Hold);
    });
    sleep(SECOND);
    server.restart();
    sleep(2 * SECOND);
    rig.heal(|| {
        proxy.requests(Flow::Pass);
        proxy.replies(Flow::Pass);
    });
    rig.finish(Excuse { losses: 1, ..NOTHING }).recovered_within(2 * SECOND);
}

#[test]
fn f09_no_request_waits_for_a_connection_that_hangs() {
    let Proxied { _turn, proxy, rig, server: _server } = proxied();
    rig.fault(|| {
        proxy.door(Door::Hole);
        proxy.reset();
    });
    sleep(500 * MS);
    let address = SocketAddr::from(([127, 0, 0, 1], proxy.port()));
    TcpStream::connect_timeout(&address, 500 * MS).expect_err("nobody answers a SYN");
    sleep(2 * SECOND);
    rig.heal(|| proxy.door(Door::Open));
    rig.finish(Excuse { lost_answers: 5, ..NOTHING }).nobody_waited(FIRST_ATTEMPT);
}

#[test]
fn f10_a_server_that_refuses_is_tried_less_often_with_time() {
    let Proxied { _turn, proxy, rig, server: _server } = proxied();
    rig.fault(|| {
        proxy.door(Door::Refuse);
        proxy.reset();
    });
    sleep(5 * SECOND);
    proxy.door(Door::Slam);
    let from = Instant::now();
    sleep(4 * SECOND);
    let tried = proxy.accepted().iter().filter(|at| **at >= from).count();
    rig.heal(|| proxy.door(Door::Open));
    rig.finish(Excuse { lost_answers: 5, ..NOTHING }).nobody_waited(FIRST_ATTEMPT);
    assert!((1..=8).contains(&tried), "tried {tried} times in four seconds");
}

#[test]
fn f11_a_reset_connection_is_replaced_at_once() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).start();
    for _ in 0..3 {
        rig.fault(|| ());
        rig.heal(|| server.run::<u64>("CLIENT KILL TYPE normal SKIPME yes"));
        // One that lives for less than a second is not replaced at once.
        sleep(1_200 * MS);
        rig.block_on(rig.redis.connected(20 * SECOND)).expect("it was replaced");
    }
    let findings = rig.finish(Excuse { lost_answers: 25, unnoticed: true, ..NOTHING });
    findings.recovered_within(200 * MS);
    // A few each time: those under way, and those that came before the new connection was there.
    findings.few_errors(3 * 8);
}

#[test]
fn f12_the_first_call_after_an_idle_connection_was_closed_is_decided_as_well() {
    let _turn = turn();
    let server = Server::start_with(&["--timeout", "1"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let redis = RedisStore::connect(&server.url()).unwrap();
        let limiter = Policy::gcra("idle", "100/min").on(Resilient::new(&redis)).unwrap();
        redis.connected(60 * SECOND).await.unwrap();
        for _ in 0..2 {
            tokio::time::sleep(3 * SECOND).await;
            assert!(limiter.check("ada").await.expect("it is decided").is_allowed());
            tokio::time::sleep(500 * MS).await;
            let decision = limiter.check("ada").await.expect("it is decided");
            assert_eq!(decision.decided_by(), DecidedBy::Store, "the connection was replaced");
        }
    });
}

#[test]
fn f13_a_delay_below_the_deadline_changes_nothing() {
    let Proxied { _turn, proxy, rig, server: _server } = proxied();
    // TCP keeps the order, so that what comes behind a late packet is late as well: most take nearly 30 ms.
    let delay = Flow::Delay { base: 15 * MS, jitter: 15 * MS };
    rig.during(4 * SECOND, || proxy.replies(delay), || proxy.replies(Flow::Pass));
    let findings = rig.finish(Excuse { unnoticed: true, ..NOTHING });
    let strain = findings.strain();
    assert!(findings.status.opened <= 2 * u64::from(strain), "it flaps: {:?}", findings.status);
    let (store, all) = (findings.since_fault(DecidedBy::Store).count(), findings.records.len());
    assert!(store * 10 * strain as usize > all * 6, "{store} of {all}");
}

#[test]
fn f14_a_delay_about_the_deadline_opens_the_breaker() {
    let Proxied { _turn, proxy, rig, server: _server } = proxied();
    let delay = Flow::Delay { base: 50 * MS, jitter: 15 * MS };
    rig.during(4 * SECOND, || proxy.replies(delay), || proxy.replies(Flow::Pass));
    let findings = rig.finish(NOTHING);
    assert!(findings.status.opened >= 1 && findings.status.timeouts >= 5, "{:?}", findings.status);
}

#[test]
fn f15_a_connection_that_drips_is_replaced() {
    let Proxied { _turn, proxy, rig, server: _server } = proxied();
    rig.during(3 * SECOND, || proxy.replies(Flow::Drip(10 * MS)), || proxy.replies(Flow::Pass));
    let findings = rig.finish(NOTHING);
    assert!(findings.status.timeouts >= 3, "{:?}", findings.status);
    assert!(proxy.accepted().len() >= 2, "the connection was replaced");
}

#[test]
fn f16_garbage_is_no_decision() {
    let Proxied { _turn, proxy, rig, server: _server } = proxied();
    rig.during(2 * SECOND, || proxy.replies(Flow::Instead(b"\x01garbage\r\n")), || proxy.replies(Flow::Pass));
    let findings = rig.finish(Excuse { lost_answers: 20, ..NOTHING });
    assert!(findings.status.opened >= 1, "{:?}", findings.status);
    assert!(proxy.accepted().len() >= 2, "the connection was replaced");
}

#[test]
fn f17_a_reply_that_is_cut_is_no_decision() {
    let Proxied { _turn, proxy, rig, server: _server } = proxied();
    rig.during(500 * MS, || proxy.replies(Flow::CutAfter(30)), || proxy.replies(Flow::Pass));
    let findings = rig.finish(Excuse { lost_answers: 20, ..NOTHING });
    findings.recovered_within(1_500 * MS);
    findings.few_errors(25);
}

#[test]
fn f18_a_server_that_accepts_and_is_silent_is_waited_for_in_the_background() {
    let Proxied { _turn, proxy, rig, server: _server } = proxied();
    rig.fault(|| {
        proxy.door(Door::Silent);
        proxy.reset();
    });
    let from = Instant::now();
    sleep(4 * SECOND);
    let tried: Vec<_> = proxy.accepted().into_iter().filter(|at| *at >= from).collect();
    rig.heal(|| {
        proxy.door(Door::Open);
        proxy.reset();
    });
    rig.finish(Excuse { lost_answers: 5, ..NOTHING }).nobody_waited(FIRST_ATTEMPT);
    assert!(tried.len() >= 2, "it gives up after a second, and tries again: {tried:?}");
    assert!(tried.windows(2).all(|pair| pair[1] - pair[0] >= 900 * MS), "{tried:?}");
}
