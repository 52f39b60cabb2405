//! Faults of a cluster: of one node, and of all.

use std::thread::sleep;
use std::time::{Duration, Instant};

use sluicegate_core::Policy;
use sluicegate_core::store::DecidedBy;
use sluicegate_tests::servers::deployments::Cluster;
use sluicegate_tests::servers::{Server, eventually};

use crate::harness::{Excuse, Findings, NOTHING, Rig, Setup};
use crate::load::{KEYS, Record, key};
use crate::machine::turn;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// What a failover costs, and that the client has connections to other nodes afterwards. Each of 64 parts of the slots has
/// a breaker of its own, which closes when its few keys have been asked for often enough.
const FAILOVER: Excuse =
    Excuse { losses: 1, lost_answers: 20, tasks: 10, later_by: Duration::from_secs(4), ..NOTHING };

/// Nodes answer for their own slots, whatever has become of the others.
const PARTIAL: [&str; 2] = ["--cluster-require-full-coverage", "no"];

/// On which of the first three nodes each key of the load lives.
fn homes(cluster: &Cluster, rig: &Rig) -> Vec<usize> {
    let limiter = Policy::gcra("home", "1000/day").on(rig.patient()).unwrap();
    let count = |node: &Server| node.run::<Vec<String>>("KEYS *:home:*").len();
    let mut counts: Vec<_> = cluster.nodes[..3].iter().map(count).collect();
    let mut home = |index| {
        let _ = rig.block_on(limiter.check(key(index)).start()).expect("the store decides");
        let grown =
            (0..3).find(|node| count(&cluster.nodes[*node]) > counts[*node]).expect("some node has it");
        counts[grown] += 1;
        grown
    };
    (0..KEYS).map(&mut home).collect()
}

/// Checks that the store decided nearly all requests for keys that live elsewhere than on the first node, from some time after the fault
/// on and for this time.
fn others_decided(findings: &Findings, homes: &[usize], from: Duration, time: Duration) {
    let (store, all) = elsewhere(findings, homes, from, time);
    let least = 100 - 5 * findings.strain() as usize;
    assert!(store * 100 >= all * least, "the other shards decided {store} of {all}");
}

/// The number of these requests that the store decided, and their number.
fn elsewhere(findings: &Findings, homes: &[usize], from: Duration, time: Duration) -> (usize, usize) {
    let during = findings.fault + from..findings.fault + from + time;
    let of_others = |record: &&Record| homes[record.key] != 0 && during.contains(&record.at);
    let records: Vec<_> = findings.records.iter().filter(of_others).collect();
    (records.iter().filter(|record| record.is(DecidedBy::Store)).count(), records.len())
}

#[test]
fn f40_a_killed_master_is_followed_by_its_replica() {
    let _turn = turn();
    let mut cluster = Cluster::start(&PARTIAL);
    let rig = Setup::at(cluster.url()).start();
    let homes = homes(&cluster, &rig);
    rig.fault(|| cluster.nodes[0].stop());
    eventually("the replica is a master", || Cluster::is_whole_for(&cluster.nodes[1]));
    rig.heal(|| ());
    let findings = rig.finish(FAILOVER);
    findings.recovered_within(3 * SECOND);
    others_decided(&findings, &homes, Duration::ZERO, 3 * SECOND);
}

#[test]
fn f41_a_hanging_master_is_left_for_its_replica() {
    let _turn = turn();
    let cluster = Cluster::start(&[]);
    let rig = Setup::at(cluster.url()).start();
    let fault = Instant::now();
    rig.fault(|| cluster.nodes[0].signal("STOP"));
    eventually("the replica is a master", || Cluster::is_whole_for(&cluster.nodes[1]));
    rig.heal(|| ());
    // It hangs on, and the store does not need it: a third of the requests are for its slots.
    eventually("the replica decides what its master did", || rig.is_calm(SECOND));
    cluster.nodes[0].signal("CONT");
    let later_by = fault.elapsed();
    rig.finish(Excuse { later_by, ..FAILOVER });
}

#[test]
fn f42_a_failover_by_hand_costs_a_few_calls() {
    let _turn = turn();
    let cluster = Cluster::start(&[]);
    let rig = Setup::at(cluster.url()).start();
    rig.fault(|| cluster.replica_of(0).run::<()>("CLUSTER FAILOVER"));
    eventually("the replica is a master", || {
        cluster.nodes[0].is_replica() && Cluster::is_whole_for(&cluster.nodes[1])
    });
    rig.heal(|| ());
    let findings = rig.finish(Excuse { unnoticed: true, ..FAILOVER });
    findings.few_errors(20);
}

#[test]
fn f43_a_slot_that_moves_under_load_decides_as_before() {
    let _turn = turn();
    let cluster = Cluster::start(&[]);
    let rig = Setup::at(cluster.url()).start();
    let (from, to) = (&cluster.nodes[0], &cluster.nodes[1]);
    let (from_id, to_id) = (Cluster::id_of(from), Cluster::id_of(to));
    // The busiest of its slots.
    let names: Vec<String> = from.run("KEYS rl:*");
    let count = |slot: u16| from.run::<u64>(&format!("CLUSTER COUNTKEYSINSLOT {slot}"));
    let slots = names.iter().map(|name| from.run::<u16>(&format!("CLUSTER KEYSLOT {name}")));
    let slot = slots.max_by_key(|slot| count(*slot)).expect("there are keys");
    let mut moved = 0;
    rig.fault(|| {
        to.run::<()>(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"));
        from.run::<()>(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"));
        let begun = Instant::now();
        while begun.elapsed() < 2 * SECOND {
            let names: Vec<String> = from.run(&format!("CLUSTER GETKEYSINSLOT {slot} 1"));
            for name in names {
                from.run::<String>(&format!("MIGRATE 127.0.0.1 {} {name} 0 1000", to.port()));
                moved += 1;
            }
            sleep(50 * MS);
        }
        for node in [to, from, &cluster.nodes[2]] {
            node.run::<()>(&format!("CLUSTER SETSLOT {slot} NODE {to_id}"));
        }
    });
    rig.heal(|| ());
    let findings = rig.finish(Excuse { unnoticed: true, tasks: 10, lost_answers: 5, ..NOTHING });
    assert!(moved >= 2, "{moved} keys were moved");
    findings.stayed_closed();
    findings.few_errors(20);
}

/// Hangs the first node together with its replica, so that nobody can take its place.
fn without_a_shard(options: &[&str], time: Duration) -> (Findings, Vec<usize>) {
    let cluster = Cluster::start(options);
    let rig = Setup::at(cluster.url()).start();
    let homes = homes(&cluster, &rig);
    let replica = cluster.replica_of(0);
    rig.fault(|| {
        replica.signal("STOP");
        cluster.nodes[0].signal("STOP");
    });
    sleep(time);
    rig.heal(|| {
        cluster.nodes[0].signal("CONT");
        replica.signal("CONT");
        eventually("the cluster is whole", || {
            cluster.nodes[..3]
                .iter()
                .all(|node| node.run::<String>("CLUSTER INFO").contains("cluster_state:ok"))
        });
    });
    (rig.finish(FAILOVER), homes)
}

#[test]
fn f44_a_shard_without_a_node_falls_back_and_no_other_does() {
    let _turn = turn();
    let (findings, homes) = without_a_shard(&PARTIAL, 5 * SECOND);
    others_decided(&findings, &homes, SECOND, 4 * SECOND);
}

#[test]
fn f44_a_cluster_that_wants_all_its_slots_falls_back_as_a_whole() {
    let _turn = turn();
    let (findings, homes) = without_a_shard(&[], 5 * SECOND);
    let (store, all) = elsewhere(&findings, &homes, 4 * SECOND, SECOND);
    assert!(store * 100 <= all * 20, "the other shards decided {store} of {all}");
}

#[test]
fn f45_a_cluster_whose_first_nodes_are_all_gone_is_found_by_the_later_ones() {
    let _turn = turn();
    let mut cluster = Cluster::start(&[]);
    let hosts: Vec<_> = cluster.nodes[..3].iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let rig = Setup::at(format!("redis+cluster://{}", hosts.join(","))).ledger_at(cluster.url()).start();
    rig.fault(|| ());
    for master in 0..3 {
        cluster.replica_of(master).run::<()>("CLUSTER FAILOVER");
        eventually("the replica is a master", || cluster.nodes[master].is_replica());
        sleep(500 * MS);
    }
    eventually("all know it", || cluster.nodes.iter().all(Cluster::is_whole_for));
    sleep(SECOND);
    for node in &mut cluster.nodes[..3] {
        node.stop();
    }
    for node in &cluster.nodes[3..] {
        node.run::<u64>("CLIENT KILL TYPE normal SKIPME yes");
    }
    rig.heal(|| ());
    rig.finish(Excuse { unnoticed: true, ..FAILOVER });
}

#[test]
fn f46_a_script_that_one_node_lost_is_sent_to_that_node_alone() {
    let _turn = turn();
    let cluster = Cluster::start(&[]);
    let rig = Setup::at(cluster.url()).start();
    let homes = homes(&cluster, &rig);
    // Shorter than the time after which the others would miss it.
    rig.fault(|| {
        cluster.nodes[0].signal("STOP");
        for _ in 0..15 {
            cluster.nodes[1].run::<()>("SCRIPT FLUSH");
            cluster.nodes[2].run::<()>("SCRIPT FLUSH");
            sleep(100 * MS);
        }
    });
    rig.heal(|| cluster.nodes[0].signal("CONT"));
    let findings = rig.finish(Excuse { tasks: 10, lost_answers: 20, later_by: SECOND, ..NOTHING });
    others_decided(&findings, &homes, Duration::ZERO, 1_500 * MS);
}
