//! Limits that four processes share on one Redis, with and without denial caches and leases, on one machine.
//!
//! Each of the processes has caches and leases of its own, and decides as fast as it can. Keys are as popular as Zipf says, and the
//! quota is set to what the variant can do, so that all ask for a fifth more than all limits allow. Then a flood: a thousand keys
//! that are refused nearly all the time.

#[path = "fleet/crowd.rs"]
mod crowd;
mod harness;
#[path = "fleet/instance.rs"]
mod instance;

use std::process::ExitCode;
use std::time::Duration;

use sluicegate::Quota;
use sluicegate_tests::servers::Server;

use crate::crowd::{Crowd, Seen, whole};
use crate::harness::{Aim, Bench, Row};

/// Keys, and how much more is asked for than they allow.
const KEYS: usize = 1_000;
const DEMAND: f64 = 1.2;

fn main() -> ExitCode {
    if instance::is_one() {
        return instance::serve();
    }
    let mut bench = Bench::from_args(
        "A fleet of four processes and one Redis; the reference is a call of Redis for each decision",
    );
    if std::process::Command::new("redis-server").arg("--version").output().is_err() {
        bench.note("there is no redis-server here: nothing is measured");
        return bench.finish();
    }
    let plain = shared(&mut bench, "plain Redis", "", None);
    shared(&mut bench, "DenyCache", "deny", plain.as_ref());
    shared(&mut bench, "Leased", "leased", plain.as_ref());
    shared(&mut bench, "DenyCache(Leased)", "deny,leased", plain.as_ref());
    flood(&mut bench, "a flood, 100/s a key on each of the four", "deny", 400);
    flood(&mut bench, "a flood, 100/s a key over all four", "deny", 100);
    flood(&mut bench, "a flood, 100/s a key over all four, kept for 5 s", "deny=5", 100);
    bench.finish()
}

/// One variant under a load that is a fifth above the limits.
fn shared(bench: &mut Bench, name: &str, wrap: &str, plain: Option<&Seen>) -> Option<Seen> {
    if !bench.wants(name) {
        return None;
    }
    let span = |ms: u64| Duration::from_millis(if bench.is_smoke() { 1 + ms / 200 } else { ms });
    let server = Server::start();
    let mut crowd = Crowd::start(&server, wrap, KEYS);
    let quota = |rate: f64| Quota::per_second(whole(rate / DEMAND / KEYS as f64).max(1));
    // The rate of a variant depends on its quota, and the quota is set by the rate.
    let mut rate = 200_000.0;
    for _ in 0..2 {
        rate = crowd.run(quota(rate), None, [span(500), span(1_500)]).per_second();
    }
    let seen = crowd.run(quota(rate), None, [span(3_000), span(5_000)]);
    let rate = seen.per_second();
    let reference = plain.map_or(rate, Seen::per_second);
    let is_all = plain.is_some() && wrap.contains(',');
    let aim = if is_all { Aim::RatioAtLeast(10.0) } else { Aim::None };
    bench.record(Row::fixed(&format!("{name}: decisions"), "1/s", rate, reference, aim));
    let aim = |aim| if is_all { aim } else { Aim::None };
    bench.record(Row::alone(
        &format!("{name}: decisions on two cores"),
        "1/s",
        rate,
        aim(Aim::OursAtLeast(1e6)),
    ));
    bench.record(Row::alone(
        &format!("{name}: decided locally"),
        "%",
        100.0 - seen.part(|tally| tally.store),
        aim(Aim::OursAtLeast(95.0)),
    ));
    let used = seen.admitted() as f64 / seen.ideal();
    bench.record(Row::alone(
        &format!("{name}: admitted, of one exact store's"),
        "",
        used,
        aim(Aim::OursAtLeast(0.95)),
    ));
    let cpu = |seen: &Seen| seen.redis_us / seen.decisions() as f64;
    let reference = plain.map_or_else(|| cpu(&seen), cpu);
    bench.record(Row::fixed(
        &format!("{name}: Redis' CPU for a million"),
        "s",
        cpu(&seen),
        reference,
        Aim::None,
    ));
    bench.note(format_args!(
        "{}/s a key, demand {:.2} of the limits; {} calls; by the store {:.1} %, leases {:.1} %, cache {:.1} %; above the law: {}",
        seen.quota.limit(),
        rate / (KEYS as f64 * seen.quota.limit() as f64),
        seen.calls,
        seen.part(|tally| tally.store),
        seen.part(|tally| tally.lease),
        seen.part(|tally| tally.cache),
        seen.excess(),
    ));
    Some(seen)
}

/// A thousand keys of five a minute, each asked for so often in a second.
fn flood(bench: &mut Bench, name: &str, wrap: &str, per_key: u64) {
    if !bench.wants(name) {
        return;
    }
    let span = |ms: u64| Duration::from_millis(if bench.is_smoke() { 1 + ms / 200 } else { ms });
    let server = Server::start();
    let mut crowd = Crowd::start(&server, wrap, KEYS);
    let quota = Quota::per_minute(5);
    let seen = crowd.run(quota, Some(per_key * KEYS as u64), [span(2_000), span(10_000)]);
    let asked = seen.part(|tally| tally.store);
    bench.record(Row::alone(&format!("{name}: asked of Redis"), "%", asked, Aim::Ours(1.0)));
    bench.note(format_args!(
        "{:.0} requests a second, {} calls, {} admitted, {:.2} s of Redis' CPU",
        seen.per_second(),
        seen.calls,
        seen.admitted(),
        seen.redis_us / 1e6,
    ));
}
