//! Everything at once, for as long as is wanted: see `./tests/run soak`.

use std::time::{Duration, Instant};

use sluicegate_tests::random::Random;
use sluicegate_tests::servers::{Server, eventually};

use crate::crowd::{ALL, Crowd, losing, now_us, pass};

/// How long, in seconds, if it is not a moment as in a plain run.
const SECONDS: &str = "SLUICEGATE_SOAK_SECONDS";

#[test]
fn random_faults_break_no_limit_and_leave_nothing_behind() {
    let seconds = std::env::var(SECONDS).map_or(15, |seconds| seconds.parse().expect("a number of seconds"));
    let server = Server::start();
    let mut crowd = Crowd::start(&server.url(), ALL);
    let (mut random, mut losses, mut faults) = (Random::new(seconds), Vec::new(), 0);
    let (begun, mut sizes) = (Instant::now(), Vec::new());
    while begun.elapsed() < Duration::from_secs(seconds) {
        match random.below(6) {
            0 => losses.push(losing(|| server.run("FLUSHALL"))),
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
        eventually("all instances are answered by the store", || {
            let said = crowd.said();
            let is_served = |instance| {
                said.iter()
                    .rev()
                    .take_while(|one| one.to_us > from_us)
                    .any(|one| one.instance == instance && one.by == "Store")
            };
            (0..4).all(is_served)
        });
        assert!(now_us() - from_us < 5_000_000, "back to normal after {} us", now_us() - from_us);
        sizes.push((0..4).map(|member| crowd.memory(member)).sum::<u64>());
    }
    let connections: String = server.run("INFO clients");
    let connections = connections.lines().find_map(|line| line.strip_prefix("connected_clients:")).unwrap();
    assert!(connections.trim().parse::<u64>().unwrap() < 40, "{connections} connections");
    let (early, late) = (sizes[sizes.len() / 3], sizes[sizes.len() - 1]);
    assert!(late < early + 8 * 1_024, "{early} KiB of four instances became {late}");
    crowd.check(&losses);
    println!("{faults} faults, {} requests, {early} KiB became {late}", crowd.said().len());
}
