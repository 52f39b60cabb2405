//! Scripts of other parts of a service, on the connection of a store.

use std::time::Duration;

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::{Policy, StoreError};
use sluicegate_redis::Script;
use sluicegate_tests::servers::Server;
use sluicegate_tests::servers::deployments::{Cluster, Sentinels};

use crate::support::{connected, patient};

fn count() -> Script {
    Script::new("return {redis.call('INCRBY', KEYS[1], ARGV[1]), redis.call('GET', KEYS[2])}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_runs_on_parts_that_live_together_on_every_deployment() {
    let alone = Server::start();
    for url in [alone.url(), Cluster::shared().url(), Sentinels::shared().url()] {
        let store = connected(patient("own"), &url).await;
        for key in 0..20_u64 {
            let slot = store.slot("counts", key).unwrap();
            for expected in ["2", "4"] {
                let reply = slot.run(&count(), &["sum", "none"], &[b"2"]).await.unwrap();
                assert_eq!(reply, [expected.as_bytes(), b""], "{url} {key}");
            }
        }
    }
    let name = connected(patient("own"), &alone.url()).await.slot("counts", 7).unwrap().key_name("sum");
    assert_eq!(alone.run::<u64>(&format!("GET {name}")), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_lost_the_script_is_sent_its_text_and_runs_it_once() {
    let server = Server::start();
    let store = connected(patient("own"), &server.url()).await;
    let slot = store.slot("counts", "ada").unwrap();
    for expected in 1..=3_u64 {
        server.run::<()>("SCRIPT FLUSH");
        let reply = slot.run(&count(), &["sum", "none"], &[b"1"]).await.unwrap();
        assert_eq!(reply[0], expected.to_string().into_bytes());
    }
    // Nobody has to wait for it.
    drop(slot.run(&count(), &["sum", "none"], &[b"1"]));
    let dropped = async { while slot.run(&count(), &["sum", "none"], &[b"0"]).await.unwrap()[0] != b"4" {} };
    tokio::time::timeout(Duration::from_secs(20), dropped).await.expect("it runs all the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_a_script_are_those_of_a_decision_and_harm_no_decision() {
    let server = Server::start();
    let store = connected(patient("own").deadline(Duration::from_secs(2)), &server.url()).await;
    let limiter = Policy::gcra("login", "1000/s").on(&store).unwrap();
    let slot = store.slot("counts", "ada").unwrap();
    let run = async |text: &'static str| slot.run(&Script::new(text), &["sum"], &[]).await;
    let kind = |reply: Result<Vec<Vec<u8>>, StoreError>| reply.unwrap_err().kind();
    assert_eq!(kind(run("return redis.error_reply('ERR no')").await), StoreErrorKind::Unavailable);
    assert_eq!(kind(run("return nonsense.nonsense").await), StoreErrorKind::Unavailable);
    assert_eq!(kind(run("return {{1}}").await), StoreErrorKind::Protocol);
    assert_eq!(run("return false").await.unwrap(), Vec::<Vec<u8>>::new());
    assert_eq!(run("return redis.status_reply('well')").await.unwrap(), [b"well"]);
    assert!(limiter.check("ada").await.unwrap().is_allowed());
    server.signal("STOP");
    let late = run("return 1").await.unwrap_err();
    assert!(late.kind() == StoreErrorKind::Timeout && late.may_have_spent());
    server.signal("CONT");
    assert_eq!(run("return 1").await.unwrap(), [b"1"]);
    drop(server);
    let gone = async {
        while !matches!(run("return 1").await, Err(error) if !error.may_have_spent()) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("without a connection nothing is sent");
}
