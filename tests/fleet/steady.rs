//! Nothing happens but requests.

use sluicegate_tests::servers::Server;

use crate::fleet::crowd::{ALL, Crowd, Setup, now_us, pass};

/// The quota is used up, and not by more than its algorithm allows.
fn share(setup: Setup<'_>) {
    let server = Server::start();
    let mut crowd = Crowd::start(&server.url(), setup);
    pass(2);
    let from_us = now_us();
    pass(5);
    let admitted = crowd.admitted_since(from_us);
    let seconds = (now_us() - from_us) as f64 / 1e6;
    crowd.check(&[]);
    let limit = 60.0 * seconds;
    let popular =
        |said: &&crate::fleet::crowd::Said| said.key == 0 && said.is_allowed && said.from_us >= from_us;
    let of_one = crowd.said().iter().filter(popular).count() as f64;
    assert!(of_one >= 0.9 * limit, "{of_one} of {limit}, {admitted} in all");
    let local = crowd.said().iter().filter(|one| ["Lease", "Cache"].contains(&one.by.as_str())).count();
    println!("{}: {of_one} of {limit:.0} units, {local} of {} locally", setup.algorithm, crowd.said().len());
}

#[test]
fn four_processes_share_a_bucket() {
    share(ALL);
}

#[test]
fn four_processes_share_a_token_bucket_that_has_a_small_burst() {
    share(Setup { algorithm: "token-bucket", quota: "60/s burst 20", ..ALL });
}

#[test]
fn four_processes_share_a_fixed_window() {
    share(Setup { algorithm: "fixed-window", ..ALL });
}

#[test]
fn four_processes_share_a_sliding_counter() {
    share(Setup { algorithm: "sliding-counter", ..ALL });
}

#[test]
fn four_processes_share_a_log_which_is_not_leased() {
    share(Setup { algorithm: "sliding-log", ..ALL });
}
