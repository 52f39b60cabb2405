//! Faults of a group that Sentinel watches.

use std::thread::sleep;
use std::time::Duration;

use sluicegate_core::store::DecidedBy;
use sluicegate_tests::servers::deployments::Sentinels;
use sluicegate_tests::servers::eventually;

use crate::harness::{Excuse, NOTHING, Setup};
use crate::machine::turn;
use crate::proxy::{Flow, Proxy};

const SECOND: Duration = Duration::from_secs(1);

/// What a failover costs: the writes that the replica had not seen, and the calls under way.
const FAILOVER: Excuse = Excuse { losses: 1, lost_answers: 10, ..NOTHING };

#[test]
fn f36_the_promoted_replica_is_used_when_the_master_was_killed() {
    let _turn = turn();
    let mut group = Sentinels::start();
    let rig = Setup::at(group.url()).start();
    rig.fault(|| group.master.stop());
    eventually("the replica is the master", || group.has_switched());
    rig.heal(|| ());
    let findings = rig.finish(FAILOVER);
    findings.recovered_within(3 * SECOND);
    findings.nobody_waited(SECOND / 2);
}

#[test]
fn f37_a_master_that_hung_while_another_was_promoted_is_not_believed_when_it_wakes() {
    let _turn = turn();
    let group = Sentinels::start();
    let rig = Setup::at(group.url()).start();
    rig.fault(|| group.master.signal("STOP"));
    eventually("the replica is the master", || group.has_switched());
    rig.heal(|| group.master.signal("CONT"));
    let findings = rig.finish(Excuse { later_by: 2 * SECOND, ..FAILOVER });
    assert!(findings.status.timeouts >= 3, "{:?}", findings.status);
}

#[test]
fn f38_a_failover_by_hand_is_followed() {
    let _turn = turn();
    let group = Sentinels::start();
    let rig = Setup::at(group.url()).start();
    rig.fault(|| group.sentinels[0].run::<()>("SENTINEL FAILOVER main"));
    eventually("they have changed places", || group.has_switched() && group.master.is_replica());
    rig.heal(|| ());
    // The connections are closed, and replaced before most requests could miss them.
    rig.finish(Excuse { unnoticed: true, ..FAILOVER }).recovered_within(3 * SECOND);
    assert!(group.replica.run::<String>("INFO commandstats").contains("cmdstat_evalsha"));
}

#[test]
fn f39_one_sentinel_of_three_is_enough_to_reconnect_in_time() {
    let _turn = turn();
    let group = Sentinels::start();
    let holes = [0, 1].map(|index| Proxy::start(group.sentinels[index].port()));
    let url = format!(
        "redis+sentinel://127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}/main",
        holes[0].port(),
        holes[1].port(),
        group.sentinels[2].port()
    );
    let rig = Setup::at(url).start();
    rig.fault(|| {
        for hole in &holes {
            hole.replies(Flow::Hold);
        }
        group.master.run::<u64>("CLIENT KILL TYPE normal SKIPME yes");
    });
    rig.heal(|| ());
    eventually("it is connected", || rig.redis.is_connected());
    sleep(SECOND);
    let findings = rig.finish(Excuse { later_by: 2 * SECOND, lost_answers: 10, ..NOTHING });
    assert!(findings.since_fault(DecidedBy::Store).count() > 50);
    findings.recovered_within(4 * SECOND);
    findings.nobody_waited(SECOND);
}
