//! Faults of the process itself, and of several of them.

use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use sluicegate_core::Policy;
use sluicegate_core::store::DecidedBy;
use sluicegate_redis::RedisStore;
use sluicegate_resilient::BreakerState;
use sluicegate_resilient::Resilient;
use sluicegate_tests::servers::{Server, run};

use crate::harness::{Excuse, Findings, NOTHING, Setup};
use crate::load::{KEYS, Kind};
use crate::machine::turn;
use crate::oracle::Admission;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A client that goes away, in HTTP/1.1 as by HTTP/2's RST_STREAM, is a future that is dropped where it waits.
#[test]
fn f47_requests_that_are_dropped_hold_nothing_and_are_charged_as_they_were_sent() {
    let _turn = turn();
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let redis = RedisStore::connect(&server.url()).unwrap();
        redis.connected(60 * SECOND).await.unwrap();
        let store = Resilient::new(&redis);
        let limiter = Arc::new(Policy::gcra("dropped", "100000/30d").on(&store).unwrap());
        assert!(limiter.check("ada").await.unwrap().is_allowed());
        let (mut answered, tasks) = (0, runtime_tasks());
        for wave in 0..200 {
            let drops = (0..50).map(|index| {
                let limiter = Arc::clone(&limiter);
                tokio::spawn(async move {
                    let patience = async {
                        for _ in 0..(index * 7 + wave) % 40 {
                            tokio::task::yield_now().await;
                        }
                    };
                    tokio::select! { biased; answer = limiter.check("ada") => answer.is_ok_and(|answer| answer.decided_by() == DecidedBy::Store), () = patience => false }
                })
            });
            for drop in drops.collect::<Vec<_>>() {
                answered += u64::from(drop.await.unwrap());
            }
        }
        // What was sent is carried out, answered or not; nothing comes later than that.
        tokio::time::sleep(200 * MS).await;
        let mut charged = Vec::new();
        for _ in 0..2 {
            let standing = limiter.peek("ada").await.unwrap();
            assert_eq!(standing.decided_by(), DecidedBy::Store);
            charged.push(100_000 - standing.remaining() - 1);
            tokio::time::sleep(200 * MS).await;
        }
        assert_eq!(charged[0], charged[1]);
        // Each is sent although it is dropped, unless its deadline comes first, or calls before it were so late that others decide.
        assert!(answered < charged[0] && charged[0] <= 10_000, "{answered} answered, {charged:?} charged");
        assert!(runtime_tasks() <= tasks + 2);

        // Those that were trials of the breaker make room for others.
        server.signal("STOP");
        while store.status().breaker == BreakerState::Closed {
            let _ = limiter.check("ada").await.unwrap();
        }
        for _ in 0..300 {
            let _ = tokio::time::timeout(MS, limiter.check("ada")).await;
            tokio::time::sleep(5 * MS).await;
        }
        server.signal("CONT");
        let begun = Instant::now();
        while limiter.check("ada").await.unwrap().decided_by() != DecidedBy::Store {
            assert!(begun.elapsed() < 60 * SECOND, "{:?}", store.status());
            tokio::time::sleep(5 * MS).await;
        }
    });
}

/// What a stopped server had received was once carried out when it went on, and charged once more as a debt: 9 % of all units.
#[test]
fn f57_units_that_are_decided_while_the_server_is_stopped_are_charged_once() {
    let _turn = turn();
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let redis = RedisStore::connect(&server.url()).unwrap();
        redis.connected(60 * SECOND).await.unwrap();
        let store = Resilient::new(&redis);
        let limiter = Policy::gcra("once", "100000/30d").refunds().on(&store).unwrap();
        let until_it_decides = async || {
            // The first answers settle the debts.
            while limiter.peek("ada").await.unwrap().decided_by() != DecidedBy::Store
                || store.status().debts > 0
            {
                tokio::time::sleep(5 * MS).await;
            }
        };
        let mut admitted = 0;
        for _ in 0..3 {
            until_it_decides().await;
            server.signal("STOP");
            let checks = (0..20).map(|_| limiter.check("ada").start());
            let charges = (0..3).map(|_| limiter.charge("ada", 10).start());
            for (units, answer) in
                checks.map(|answer| (1, answer)).chain(charges.map(|answer| (10, answer))).collect::<Vec<_>>()
            {
                let decision = answer.await.unwrap();
                assert!(
                    decision.is_allowed() && decision.decided_by() == DecidedBy::Fallback,
                    "{decision:?}"
                );
                admitted += units;
            }
            server.signal("CONT");
        }
        until_it_decides().await;
        assert_eq!(100_000 - limiter.peek("ada").await.unwrap().remaining(), admitted);
    });
}

fn runtime_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[test]
fn f48_a_runtime_that_is_blocked_is_late_and_recovers() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).start();
    rig.fault(|| {
        for _ in 0..10 {
            // Both workers.
            for _ in 0..2 {
                rig.spawn(async { sleep(200 * MS) });
            }
            sleep(250 * MS);
        }
    });
    rig.heal(|| ());
    rig.finish(Excuse { unnoticed: true, blocked: 400 * MS, lost_answers: 0, ..NOTHING });
}

/// With as few file descriptors as this, in a process of its own.
#[test]
fn f49_a_process_without_file_descriptors_decides_by_itself() {
    const CHILD: &str = "SLUICEGATE_FAULTS_PORT";
    if let Ok(port) = std::env::var(CHILD) {
        return without_file_descriptors(port.parse().unwrap());
    }
    let _turn = turn();
    let server = Server::start();
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -n 48; exec \"$0\" --exact --nocapture \"$1\""])
        .arg(std::env::current_exe().unwrap())
        .arg("process::f49_a_process_without_file_descriptors_decides_by_itself")
        .env(CHILD, server.port().to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Who changes this process' limit from outside: a process without descriptors can start none.
struct Limits(std::process::Child);

impl Limits {
    fn start() -> Self {
        let script = "while read most; do prlimit --pid $PPID --nofile=$most:48; echo done; done";
        let mut shell = std::process::Command::new("sh");
        let shell = shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Self(shell.expect("there is a shell"))
    }

    /// Returns when it is so.
    fn allow(&mut self, most: u32) {
        let (input, output) = (self.0.stdin.as_mut().unwrap(), self.0.stdout.as_mut().unwrap());
        writeln!(input, "{most}").unwrap();
        output.read_exact(&mut [0; 5]).unwrap();
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn without_file_descriptors(port: u16) {
    let mut limits = Limits::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let redis = RedisStore::connect(&format!("redis://127.0.0.1:{port}")).unwrap();
        redis.connected(60 * SECOND).await.unwrap();
        let store = Resilient::new(&redis);
        let limiter = Policy::gcra("scarce", "1000000/day").on(&store).unwrap();
        let mut admin = redis::Client::open(("127.0.0.1", port)).unwrap().get_connection().unwrap();
        assert_eq!(limiter.check("ada").await.unwrap().decided_by(), DecidedBy::Store);
        limits.allow(3);
        assert!(std::fs::File::open("/dev/null").is_err());
        run::<u64>(&mut admin, "CLIENT KILL TYPE normal SKIPME yes");
        let mut alone = 0;
        for _ in 0..200 {
            alone += u32::from(
                limiter.check("ada").await.expect("it is decided").decided_by() == DecidedBy::Fallback,
            );
            tokio::time::sleep(5 * MS).await;
        }
        limits.allow(48);
        assert!(alone > 100, "{alone} of 200 decided without the store");
        let begun = Instant::now();
        while limiter.check("ada").await.unwrap().decided_by() != DecidedBy::Store {
            assert!(begun.elapsed() < 60 * SECOND, "{:?}", store.status());
            tokio::time::sleep(5 * MS).await;
        }
    });
}

/// Four instances of a service, each with its own runtime, connection, breaker and memory: they share nothing but the
/// server, as four processes do.
#[test]
fn f54_four_instances_admit_no_more_than_their_shares_and_pay_them_back() {
    let _turn = turn();
    let mut server = Server::start();
    let start = || {
        scope(|scope| {
            let start = || Setup::at(server.url()).replicas(4).start();
            let rigs: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
            rigs.into_iter().map(|rig| rig.join().unwrap()).collect::<Vec<_>>()
        })
    };
    let rigs = start();
    for rig in &rigs {
        rig.fault(|| ());
    }
    server.signal("STOP");
    sleep(3 * SECOND);
    server.signal("CONT");
    for rig in &rigs {
        rig.heal(|| ());
    }
    let ledger = rigs[0].ledger();
    let excuse = Excuse { shared: true, ..NOTHING };
    let findings: Vec<Findings> = scope(|scope| {
        let ends: Vec<_> = rigs.into_iter().map(|rig| scope.spawn(move || rig.finish(excuse))).collect();
        ends.into_iter().map(|end| end.join().unwrap()).collect()
    });
    for policy in Kind::LAWFUL {
        for key in 0..KEYS {
            let by_store: Vec<_> =
                findings.iter().flat_map(|f| f.admitted(policy, key, DecidedBy::Store)).collect();
            policy
                .law()
                .check(&by_store, 0)
                .unwrap_or_else(|problem| panic!("{policy:?}, key {key}: {problem}"));
            let alone: Vec<Admission> =
                findings.iter().flat_map(|f| f.admitted(policy, key, DecidedBy::Fallback)).collect();
            // Four times a quarter, rounded up.
            let shares = crate::oracle::Law { limit: policy.law().share(4).limit * 4, ..policy.law() };
            shares.check(&alone, 0).unwrap_or_else(|problem| panic!("{policy:?}, key {key}: {problem}"));
        }
    }
    let sums: Vec<_> = findings.iter().map(Findings::spent).collect();
    let (admitted, given_up) = sums.iter().fold((0, 0), |sum, spent| (sum.0 + spent.0, sum.1 + spent.1));
    let charged = ledger.charged();
    assert!(
        (admitted..=admitted + given_up).contains(&charged),
        "{charged}: {admitted}, {given_up} given up"
    );
    server.stop();
}

/// An instance admits without its store, and ends when the store is back, before any request has tried it.
#[test]
fn f52_an_instance_that_is_closed_pays_before_it_ends() {
    let _turn = turn();
    let mut server = Server::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let redis = RedisStore::connect(&server.url()).unwrap();
        redis.connected(60 * SECOND).await.unwrap();
        let store = Resilient::new(&redis);
        let limiter = Policy::gcra("closed", "100/h").on(&store).unwrap();
        assert_eq!(limiter.check("ada").await.unwrap().decided_by(), DecidedBy::Store);
        tokio::task::block_in_place(|| server.stop());
        for key in 0..40_u64 {
            assert_eq!(limiter.check(key).cost(3).await.unwrap().decided_by(), DecidedBy::Fallback);
        }
        let begun = Instant::now();
        let unsettled = store.close(SECOND).await.expect_err("nobody is there");
        assert_eq!(unsettled.debts(), 40);
        assert!(begun.elapsed() >= SECOND, "{:?}", begun.elapsed());

        let closing = tokio::spawn({
            let store = store.clone();
            async move { store.close(60 * SECOND).await }
        });
        tokio::task::block_in_place(|| server.restart());
        closing.await.unwrap().expect("the store is back");
        let other = RedisStore::connect(&server.url()).unwrap();
        other.connected(60 * SECOND).await.unwrap();
        let other = Policy::gcra("closed", "100/h").on(&other).unwrap();
        for key in 0..40_u64 {
            assert_eq!(other.peek(key).await.unwrap().remaining(), 97, "{key}");
        }
    });
}

#[test]
fn f55_a_store_that_comes_and_goes_floods_neither_the_log_nor_the_limits() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).start();
    rig.fault(|| {
        for _ in 0..6 {
            server.signal("STOP");
            sleep(SECOND);
            server.signal("CONT");
            sleep(SECOND);
        }
    });
    rig.heal(|| ());
    let findings = rig.finish(Excuse { lost_answers: 40, ..NOTHING });
    assert!(findings.status.opened >= 3, "{:?}", findings.status);
    let lines = findings.logs.lines().into_iter().filter(|line| line.level <= tracing::Level::WARN).count();
    assert!(lines <= 2 * 6 * findings.strain() as usize, "{lines} warnings in twelve seconds");
}
