//! Faults of a server that answers, but not with decisions.

use std::thread::{scope, sleep};
use std::time::Duration;

use redis::Connection;
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::{Server, eventually, run};

use crate::harness::{Excuse, NOTHING, Setup};
use crate::machine::turn;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A number out of what `INFO` says.
fn info(server: &mut Connection, section: &str, field: &str) -> u64 {
    let text: String = run(server, &format!("INFO {section}"));
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    // `cmdstat_eval:calls=12,usec=...`, or a number alone.
    let line = line.map(|line| line.trim_start_matches("calls=").split(',').next().unwrap_or_default());
    line.map_or(0, |number| number.trim().parse().unwrap())
}

fn set(server: &mut Connection, name: &str, value: &str) {
    redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec(server).unwrap();
}

#[test]
fn f19_a_script_that_is_flushed_all_the_time_is_sent_along() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).start();
    let mut admin = server.admin();
    rig.fault(|| {
        for _ in 0..60 {
            run::<()>(&mut admin, "SCRIPT FLUSH");
            sleep(50 * MS);
        }
    });
    rig.heal(|| ());
    let findings = rig.finish(Excuse { unnoticed: true, ..NOTHING });
    findings.stayed_closed();
    let calls = |command: &str| info(&mut server.admin(), "commandstats", &format!("cmdstat_{command}"));
    assert!(calls("eval") >= 30, "{}", calls("eval"));
    assert_eq!(calls("script|load"), 0);
}

#[test]
fn f20_flushed_counters_start_anew_and_nothing_fails() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).start();
    rig.fault(|| server.run::<()>("FLUSHALL"));
    sleep(SECOND);
    rig.heal(|| server.run::<()>("FLUSHALL"));
    let findings = rig.finish(Excuse { losses: 2, unnoticed: true, ..NOTHING });
    findings.stayed_closed();
}

#[test]
fn f21_a_server_that_sleeps_now_and_then_piles_nothing_up() {
    let _turn = turn();
    let server = Server::start_with(&["--enable-debug-command", "yes"]);
    let rig = Setup::at(server.url()).start();
    let mut admin = server.admin();
    let most = scope(|scope| {
        let sleeper = scope.spawn(|| {
            for _ in 0..3 {
                run::<()>(&mut admin, "DEBUG SLEEP 1");
                sleep(700 * MS);
            }
        });
        rig.fault(|| ());
        let mut most = 0;
        while !sleeper.is_finished() {
            most = most.max(rig.load.under_way().len());
            sleep(5 * MS);
        }
        most
    });
    rig.heal(|| ());
    let strain = rig.finish(NOTHING).strain() as usize;
    // 200 a second for at most 50 ms each are ten.
    assert!(most <= 40 * strain, "{most} requests at once");
}

#[test]
fn f22_paused_writes_are_a_hanging_server() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).start();
    rig.during(1_500 * MS, || server.run::<()>("CLIENT PAUSE 1500 WRITE"), || ());
    assert!(rig.finish(NOTHING).status.timeouts >= 3);
}

#[test]
fn f23_a_busy_server_is_left_to_its_operator() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).start();
    let (mut admin, mut busy) = (server.admin(), server.admin());
    // Its name of today, `busy-reply-threshold`, is not known to Redis 6.2.
    set(&mut admin, "lua-time-limit", "100");
    scope(|scope| {
        scope.spawn(move || {
            // It ends by being killed, which is an error.
            redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut busy).expect_err("it is killed");
        });
        rig.fault(|| sleep(3 * SECOND));
        // It would be refused if somebody had killed the script before.
        rig.heal(|| run::<()>(&mut admin, "SCRIPT KILL"));
    });
    rig.finish(NOTHING).logged("BUSY");
}

#[test]
fn f24_a_full_server_is_replaced_until_there_is_room() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).start();
    rig.during(2 * SECOND, || server.run("CONFIG SET maxmemory 1"), || server.run("CONFIG SET maxmemory 0"));
    rig.finish(NOTHING).logged("OOM");
}

#[test]
fn f25_evicted_keys_start_anew_and_nothing_fails() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).start();
    let mut admin = server.admin();
    let junk = "x".repeat(4_000);
    rig.fault(|| {
        let used = info(&mut admin, "memory", "used_memory");
        set(&mut admin, "maxmemory-policy", "allkeys-random");
        set(&mut admin, "maxmemory", &(used + 200_000).to_string());
        for index in 0..1_000 {
            redis::cmd("SET").arg(format!("junk{index}")).arg(&junk).exec(&mut admin).unwrap();
            sleep(MS);
        }
    });
    rig.heal(|| {
        set(&mut admin, "maxmemory-policy", "noeviction");
        set(&mut admin, "maxmemory", "0");
    });
    let evicted = info(&mut admin, "stats", "evicted_keys");
    assert!(evicted > 500, "{evicted}");
    // A key of ours was evicted some times, but not most of a thousand, of which most were junk.
    let findings = rig.finish(Excuse { losses: 20, unnoticed: true, ..NOTHING });
    findings.stayed_closed();
}

#[test]
fn f26_a_server_that_cannot_save_is_replaced_until_it_can() {
    let _turn = turn();
    let server = Server::start_with(&["--enable-protected-configs", "yes"]);
    let rig = Setup::at(server.url()).start();
    let mut admin = server.admin();
    let lost = server.folder().join("lost");
    rig.fault(|| {
        std::fs::create_dir(&lost).unwrap();
        set(&mut admin, "dir", lost.to_str().unwrap());
        std::fs::remove_dir_all(&lost).unwrap();
        set(&mut admin, "save", "1000000 1");
        let _ = redis::cmd("BGSAVE").exec(&mut admin);
        eventually("saving has failed", || {
            run::<String>(&mut admin, "INFO persistence").contains("rdb_last_bgsave_status:err")
        });
    });
    sleep(1_500 * MS);
    rig.heal(|| set(&mut admin, "save", ""));
    rig.finish(NOTHING).logged("MISCONF");
}

#[test]
fn f27_a_server_without_its_replicas_is_replaced_until_they_are_there() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).start();
    rig.during(
        1_500 * MS,
        || server.run("CONFIG SET min-replicas-to-write 1"),
        || server.run("CONFIG SET min-replicas-to-write 0"),
    );
    rig.finish(NOTHING).logged("NOREPLICAS");
}

#[test]
fn f28_a_master_that_becomes_a_replica_for_a_while_is_left_and_found_again() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).start();
    rig.during(2 * SECOND, || server.run("REPLICAOF 127.0.0.1 1"), || server.run("REPLICAOF NO ONE"));
    rig.finish(NOTHING).logged("read only replica");
}

#[test]
fn f29_a_replica_that_has_lost_its_master_is_left_and_found_again() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).start();
    let mut admin = server.admin();
    rig.fault(|| {
        set(&mut admin, "replica-serve-stale-data", "no");
        run::<()>(&mut admin, "REPLICAOF 127.0.0.1 1");
    });
    sleep(2 * SECOND);
    rig.heal(|| run::<()>(&mut admin, "REPLICAOF NO ONE"));
    rig.finish(NOTHING).logged("MasterDown");
}

#[test]
fn f30_a_server_that_loads_is_connected_to_and_not_used() {
    let _turn = turn();
    // The server's own folder goes with it; its data have to stay.
    let data = std::env::temp_dir().join(format!("sluicegate-loading-{}", std::process::id()));
    std::fs::create_dir_all(&data).unwrap();
    let mut server = Server::start_with(&[
        "--enable-debug-command",
        "yes",
        "--dir",
        data.to_str().unwrap(),
        "--key-load-delay",
        "500",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    server.run::<()>("DEBUG POPULATE 7000 k 10");
    let rig = Setup::at(server.url()).start();
    server.run::<()>("SAVE");
    rig.fault(|| server.restart());
    sleep(SECOND);
    let is_loading = || server.run::<String>("INFO persistence").contains("loading:1");
    assert!(is_loading() && !rig.redis.is_connected());
    eventually("it has loaded", || !is_loading());
    rig.heal(|| ());
    rig.finish(Excuse { losses: 1, lost_answers: 5, ..NOTHING });
    std::fs::remove_dir_all(&data).unwrap();
}

#[test]
fn f31_a_password_that_was_wrong_for_a_while_is_tried_again() {
    let _turn = turn();
    let server = Server::start();
    let mut admin = server.admin();
    run::<()>(&mut admin, "ACL SETUSER app on >hunter2-one ~rl:* +@all");
    let url = |password: &str| format!("redis://app:{password}@127.0.0.1:{}", server.port());
    let rig = Setup::at(url("hunter2-one")).start();
    rig.fault(|| {
        run::<()>(&mut admin, "ACL SETUSER app resetpass >hunter2-two");
        run::<u64>(&mut admin, "CLIENT KILL USER app");
    });
    sleep(4 * SECOND);
    // Who has the new password meanwhile, needs no more than a new store.
    rig.block_on(async {
        let store = RedisStore::connect(&url("hunter2-two")).unwrap();
        store.connected(60 * SECOND).await.expect("the password is right");
    });
    rig.heal(|| run::<()>(&mut admin, "ACL SETUSER app resetpass >hunter2-one"));
    rig.finish(Excuse { lost_answers: 5, ..NOTHING });
}

#[test]
fn f32_a_right_that_was_taken_away_is_noticed_when_it_is_back() {
    let _turn = turn();
    let server = Server::start();
    let mut admin = server.admin();
    run::<()>(&mut admin, "ACL SETUSER app on >hunter2 ~rl:* +@all");
    let rig = Setup::at(format!("redis://app:hunter2@127.0.0.1:{}", server.port())).start();
    rig.during(
        2 * SECOND,
        || server.run("ACL SETUSER app -evalsha"),
        || server.run("ACL SETUSER app +evalsha"),
    );
    rig.finish(NOTHING).logged("permission");
}

/// Once the first problem was the only one in the log: a server that had forgotten its users was "refused" for ever.
#[test]
fn f32_a_right_that_is_missing_after_a_restart_is_named_in_the_log() {
    let _turn = turn();
    let mut server = Server::start();
    let rights = "on >hunter2 ~rl:* +eval +evalsha +time +get +set +del +pexpire +lindex +lrange +lset +rpush +rpop +lpop";
    server.run::<()>(&format!("ACL SETUSER app {rights}"));
    let rig = Setup::at(format!("redis://app:hunter2@127.0.0.1:{}", server.port())).start();
    rig.fault(|| {
        server.stop();
        sleep(1_500 * MS);
        server.restart();
        server.run::<()>(&format!("ACL SETUSER app {rights} -set"));
    });
    sleep(3 * SECOND);
    assert!(!rig.redis.is_connected(), "it cannot decide");
    rig.heal(|| server.run::<()>("ACL SETUSER app +set"));
    let findings = rig.finish(Excuse { losses: 1, lost_answers: 5, ..NOTHING });
    findings.logged("give the user the rights");
    assert_eq!(findings.logs.about("connected to Redis again").len(), 1);
}

#[test]
fn f33_a_server_with_no_room_for_a_client_is_tried_until_there_is() {
    let _turn = turn();
    let server = Server::start();
    let rig = Setup::at(server.url()).start();
    let mut admin = server.admin();
    rig.fault(|| {
        set(&mut admin, "maxclients", "1");
        run::<u64>(&mut admin, "CLIENT KILL TYPE normal SKIPME yes");
    });
    sleep(2 * SECOND);
    assert!(!rig.redis.is_connected());
    rig.heal(|| set(&mut admin, "maxclients", "1000"));
    rig.finish(Excuse { lost_answers: 5, ..NOTHING }).logged("cannot connect to Redis");
}
