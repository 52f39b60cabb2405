//! Everything at once, for as long as is wanted: see `./tests/run soak`.

use std::time::{Duration, Instant};

use sluicegate_tests::random::Random;
use sluicegate_tests::servers::{Server, eventually};

use crate::fleet::crowd::{ALL, Crowd, losing, now_us, pass};
use crate::fleet::permits::Fleet;

/// How long, in seconds, if it is not a moment as in a plain run.
const SECONDS: &str = "SLUICEGATE_SOAK_SECONDS";

#[test]
fn random_faults_break_no_limit_and_leave_nothing_behind() {
    let seconds = std::env::var(SECONDS).map_or(15, |seconds| seconds.parse().expect("a number of seconds"));
    let server = Server::start();
    let mut crowd = Crowd::start(&server.url(), ALL);
    // Others share permits on the same server.
    let (permits, mut forgotten) = (Fleet::start(&server.url()), Vec::new());
    let (mut random, mut losses, mut faults) = (Random::new(seconds), Vec::new(), 0);
    let (begun, mut sizes) = (Instant::now(), Vec::new());
    let (mut slowest_us, mut early_tasks) = (0, 0);
    while begun.elapsed() < Duration::from_secs(seconds) {
        match random.below(6) {
            0 => {
                let before_us = now_us();
                losses.push(losing(|| server.run("FLUSHALL")));
                forgotten.push((before_us, now_us()));
            }
            1 => {
                server.signal("STOP");
                std::thread::sleep(Duration::from_millis(200 + random.below(2_000)));
                server.signal("CONT");
            }
            2 => drop(server.run::<u64>("CLIENT KILL TYPE normal SKIPME yes")),
            3 => server.run::<()>("SCRIPT FLUSH"),
            4 => {
                crowd.signal(1, "STOP");
                pass(1);
                crowd.signal(1, "CONT");
            }
            _ => {
                let key = random.below(3);
                losses.push(losing(|| crowd.tell(2, &format!("reset {key}"))));
            }
        }
        faults += 1;
        let from_us = now_us();
        eventually("all instances are answered by the store", || crowd.is_served_since(from_us));
        slowest_us = slowest_us.max(now_us() - from_us);
        if sizes.len() == 3 {
            early_tasks = tasks(&mut crowd, "early");
        }
        sizes.push((0..4).map(|member| crowd.memory(member)).sum::<u64>());
    }
    let ended_us = now_us();
    for instance in 0..4 {
        eventually("each instance gets permits", || permits.has_begun_since(instance, ended_us));
    }
    permits.check(&forgotten);
    let late_tasks = tasks(&mut crowd, "late");
    // Requests that are under way are tasks, too.
    assert!(late_tasks < early_tasks + 100, "{early_tasks} tasks of four instances became {late_tasks}");
    let connections: String = server.run("INFO clients");
    let connections = connections.lines().find_map(|line| line.strip_prefix("connected_clients:")).unwrap();
    assert!(connections.trim().parse::<u64>().unwrap() < 60, "{connections} connections");
    let (early, late) = (sizes[sizes.len() / 3], sizes[sizes.len() - 1]);
    assert!(late < early + 8 * 1_024, "{early} KiB of four instances became {late}");
    crowd.check(&losses);
    let requests = crowd.said().len();
    println!(
        "{faults} faults, {requests} requests, each of the four served again after {slowest_us} us at most"
    );
    println!(
        "{early} KiB became {late}, {early_tasks} tasks {late_tasks}, {} connections",
        connections.trim()
    );
}

/// The tasks of all instances.
fn tasks(crowd: &mut Crowd, when: &str) -> u64 {
    let of = |member| {
        crowd.tell(member, &format!("tasks {when}"));
        crowd.number(member, &format!("alive {when}"))
    };
    (0..4).map(of).sum()
}
