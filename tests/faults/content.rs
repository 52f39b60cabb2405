//! What is in the store, and what it answers, is not what it should be; and floods of keys.

use std::thread::sleep;
use std::time::Duration;

use sluicegate_tests::servers::{Server, run};

use crate::harness::{Excuse, NOTHING, Setup};
use crate::machine::turn;
use crate::proxy::{Flow, Proxy};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn f60_foreign_values_are_fresh_keys_and_trip_nothing() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).start();
    let mut admin = server.admin();
    let values = ["abc", "nan", "1e400", "-5", ""];
    rig.fault(|| {
        for (round, value) in values.iter().chain(&["a list"]).enumerate() {
            for name in run::<Vec<String>>(&mut admin, "KEYS rl:*") {
                let write = if round == values.len() { "RPUSH" } else { "SET" };
                // In one step: requests come in between, and write the key again.
                let mut both = redis::pipe();
                both.atomic().cmd("DEL").arg(&name).cmd(write).arg(&name).arg(*value);
                both.exec(&mut admin).unwrap();
            }
            sleep(Duration::from_millis(300));
        }
    });
    rig.heal(|| ());
    let findings = rig.finish(Excuse { losses: 6, unnoticed: true, ..NOTHING });
    findings.stayed_closed();
    assert_eq!((findings.status.unavailable, findings.status.protocol), (0, 0), "{:?}", findings.status);
}

#[test]
fn b72_an_answer_of_the_wrong_shape_is_no_decision() {
    let _turn = turn();
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let rig = Setup::at(proxy.url()).start();
    let wrong = Flow::Instead(b"*1\r\n$3\r\nabc\r\n");
    rig.during(2 * SECOND, || proxy.replies(wrong), || proxy.replies(Flow::Pass));
    let findings = rig.finish(Excuse { lost_answers: 40, ..NOTHING });
    assert!(findings.status.protocol >= 5, "{:?}", findings.status);
    findings.logged("something unexpected");
}

#[test]
fn b73_a_push_between_answers_is_ignored() {
    let _turn = turn();
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let rig = Setup::at(format!("{}/?protocol=resp3", proxy.url())).start();
    let push = Flow::Before(b">3\r\n+message\r\n+channel\r\n+hello\r\n");
    rig.during(2 * SECOND, || proxy.replies(push), || proxy.replies(Flow::Pass));
    let findings = rig.finish(Excuse { unnoticed: true, ..NOTHING });
    assert_eq!(findings.status.protocol, 0, "{:?}", findings.status);
    findings.stayed_closed();
}

#[test]
fn b74_an_answer_without_an_end_is_given_up() {
    let _turn = turn();
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let rig = Setup::at(proxy.url()).start();
    rig.during(2 * SECOND, || proxy.replies(Flow::Flood(b"$536870912\r\n")), || proxy.replies(Flow::Pass));
    let findings = rig.finish(NOTHING);
    assert!(findings.status.timeouts >= 3, "{:?}", findings.status);
}
