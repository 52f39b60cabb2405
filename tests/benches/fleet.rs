//! Limits that four processes share on one Redis, with and without denial caches and leases, on one machine.
//!
//! Each of the processes has caches and leases of its own, and decides as fast as it can: its callers are in it, each goes on when it is
//! answered, and nobody sends them anything. Processes and Redis share the machine's cores. Keys are as popular as Zipf says, and the
//! quota is sought so that what all of them decide is a fifth more than all limits allow. Then a flood: a thousand keys that are
//! refused nearly all the time.

#[path = "fleet/crowd.rs"]
mod crowd;
mod harness;
#[path = "fleet/instance.rs"]
mod instance;

use std::process::ExitCode;
use std::time::Duration;

use sluicegate::Quota;
use sluicegate_tests::servers::Server;

use crate::crowd::{Crowd, Load, Seen, whole};
use crate::harness::{Aim, Bench, Row};
use crate::instance::Tally;

/// Keys, and how much more is asked for than they allow.
const KEYS: usize = 1_000;
const DEMAND: f64 = 1.2;

/// Decisions per second that no variant makes, from which the quota is sought; and how often.
const HIGHEST: f64 = 6e6;
const TRIES: u32 = 8;

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
    flood(&mut bench, "a flood, as fast as they can", "deny", None);
    flood(&mut bench, "a flood, 100/s a key over all four, kept for 5 s", "deny=5", Some(100));
    bench.finish()
}

/// One variant under a load that is a fifth above the limits.
fn shared(bench: &mut Bench, name: &str, wrap: &str, plain: Option<&Seen>) -> Option<Seen> {
    if !bench.wants(name) {
        return None;
    }
    let server = Server::start();
    let mut crowd = Crowd::start(&server, wrap, KEYS);
    let seen = sought(bench, &mut crowd);
    let rate = seen.per_second();
    let reference = plain.map_or(rate, Seen::per_second);
    let is_all = plain.is_some() && wrap.contains(',');
    let aim = |aim| if is_all { aim } else { Aim::None };
    let faster = aim(Aim::RatioAtLeast(10.0));
    bench.record(Row::fixed(&format!("{name}: decisions"), "1/s", rate, reference, faster));
    let mut alone = |what: &str, unit: &str, ours: f64, aim: Aim| {
        bench.record(Row::alone(&format!("{name}: {what}"), unit, ours, aim));
    };
    alone("decisions on two cores", "1/s", rate, aim(Aim::OursAtLeast(1e6)));
    alone("decided locally", "%", 100.0 - seen.part(Tally::asked), aim(Aim::OursAtLeast(95.0)));
    let used = seen.admitted() as f64 / seen.ideal();
    alone("admitted, of one exact store's", "", used, aim(Aim::OursAtLeast(0.95)));
    alone("admitted above the quota", "units", seen.excess() as f64, Aim::Ours(0.0));
    let cpu = |seen: &Seen| seen.redis_us / seen.decisions() as f64;
    let reference = plain.map_or_else(|| cpu(&seen), cpu);
    let work = format!("{name}: Redis' CPU for a million");
    bench.record(Row::fixed(&work, "s", cpu(&seen), reference, Aim::None));
    bench.note(format_args!(
        "{}/s a key, demand {:.2} of the limits; {} calls; by the store {:.1} %, leases {:.1} %, cache {:.1} %; {} unanswered",
        seen.quota.limit(),
        demand(&seen),
        seen.calls,
        seen.part(|tally| tally.store),
        seen.part(|tally| tally.lease),
        seen.part(|tally| tally.cache),
        seen.unanswered(),
    ));
    Some(seen)
}

/// A run whose demand is a fifth above the limits.
///
/// The rate of a variant depends on its quota, and the quota is to be set by the rate. It is sought from above: under a quota that is
/// too high a rate is found that is too high, or right; from below, keys that are refused at once would pass for a fast variant.
fn sought(bench: &Bench, crowd: &mut Crowd<'_>) -> Seen {
    let ms = |ms: u64| Duration::from_millis(if bench.is_smoke() { 1 + ms / 200 } else { ms });
    let quota = |rate: f64| Quota::per_second(whole(rate / DEMAND / KEYS as f64).max(1));
    let mut rate = HIGHEST;
    for _ in 0..if bench.is_smoke() { 1 } else { TRIES } {
        let seen = crowd.run(quota(rate), Load::Popular, [ms(1_000), ms(1_000)]);
        rate = seen.per_second();
        if (0.97..1.03).contains(&(demand(&seen) / DEMAND)) {
            break;
        }
    }
    crowd.run(quota(rate), Load::Popular, [ms(3_000), ms(6_000)])
}

/// The demand of a run, as a part of all limits together.
fn demand(seen: &Seen) -> f64 {
    seen.per_second() / (KEYS as f64 * seen.quota.limit() as f64)
}

/// A thousand keys of five a minute, each asked for so often in a second.
fn flood(bench: &mut Bench, name: &str, wrap: &str, per_key: Option<u64>) {
    if !bench.wants(name) {
        return;
    }
    let span = |ms: u64| Duration::from_millis(if bench.is_smoke() { 1 + ms / 200 } else { ms });
    let server = Server::start();
    let mut crowd = Crowd::start(&server, wrap, KEYS);
    let quota = Quota::per_minute(5);
    let load = Load::Even(per_key.map(|rate| rate * KEYS as u64));
    let seen = crowd.run(quota, load, [span(2_000), span(10_000)]);
    let asked = seen.part(Tally::asked);
    bench.record(Row::alone(&format!("{name}: asked of Redis"), "%", asked, Aim::Ours(1.0)));
    bench.note(format_args!(
        "{:.0} requests a second a key, {} calls, {} admitted, {:.2} s of Redis' CPU",
        seen.per_second() / KEYS as f64,
        seen.calls,
        seen.admitted(),
        seen.redis_us / 1e6,
    ));
}
