//! What `Observed` costs: the same decisions, requests and floods with it and without it, which is the reference.
//!
//! It counts, samples those that ask, and takes down whose requests are refused, as it does in a service. In a flood from
//! 10,000 peers no key comes twice in a row, so that each refusal puts a key into the list of offenders: its worst case.

mod harness;
mod server;
mod services;

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use sluicegate::key::PeerAddr;
use sluicegate::observed::Observed;
use sluicegate::policy::PolicyBuilder;
use sluicegate::store::Store;
use sluicegate::{MemoryStore, Policy, Quota, RateLimiter};
use tower::Layer;

use crate::harness::{Aim, Bench, Row, on_threads};
use crate::server::{Round, Server};
use crate::services::{bare, calling, generous_on, router, side, strict_on};

fn main() -> ExitCode {
    // As a service has it: the lines of a flood are written, if nowhere to.
    tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_writer(std::io::sink).init();
    let mut bench = Bench::from_args("Observed; the reference is the same without it");
    decisions(&mut bench);
    requests(&mut bench);
    flooded_server(&mut bench);
    bench.finish()
}

/// A store as it is, and one that is observed.
fn stores(name: &str) -> [Arc<dyn Store>; 2] {
    let observed = Observed::named(name, MemoryStore::new()).expect("no row has the name of another one");
    [observed.into(), MemoryStore::new().into()]
}

fn limiters(name: &str, policy: fn() -> PolicyBuilder) -> [RateLimiter; 2] {
    stores(name).map(|store| policy().on(store).expect("the policy is possible"))
}

fn generous() -> PolicyBuilder {
    Policy::gcra("generous", Quota::per_second(1).burst(250_000_000))
}

/// A budget, of which most is left.
fn budget() -> PolicyBuilder {
    Policy::gcra("budget", "1000000000/month")
}

fn strict() -> PolicyBuilder {
    Policy::gcra("strict", "1/h")
}

/// The first thread asks for the first key first, and the second one for one far from it.
fn decide(limiter: &RateLimiter, keys: &[String], thread: usize, times: u64) {
    let mut at = thread * keys.len() / 2;
    for _ in 0..times {
        let decision = limiter.check(&*keys[at]);
        black_box(decision.start().known().is_some_and(|result| result.is_ok()));
        at = if at + 1 == keys.len() { 0 } else { at + 1 };
    }
}

fn decisions(bench: &mut Bench) {
    let keys: Vec<String> = (0..1_000).map(|index| format!("user-{:010}", index * 7_919 % 1_000)).collect();
    for (work, name, policy, threads, keys, aim) in [
        ("allowed, 1,000 keys", "one", generous as fn() -> _, 1, &keys[..], Aim::Ratio(1.35)),
        ("allowed, 1,000 keys, 2 threads", "two", generous, 2, &keys[..], Aim::Ratio(1.5)),
        ("allowed, 1,000 keys with a budget", "budget", budget, 1, &keys[..], Aim::None),
        ("refused, one hot key", "hot", strict, 1, &keys[..1], Aim::None),
        ("refused, 1,000 keys", "cold", strict, 1, &keys[..], Aim::None),
        ("refused, 1,000 keys, 2 threads", "cold-two", strict, 2, &keys[..], Aim::Ratio(3.0)),
    ] {
        let [observed, plain] = limiters(name, policy);
        let both = |limiter: &RateLimiter, times| {
            on_threads(threads, |thread| decide(limiter, keys, thread, times));
        };
        bench.compare(work, aim, |times| both(&observed, times), |times| both(&plain, times));
    }
}

fn requests(bench: &mut Bench) {
    let (ok, refused) = (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS);
    let [observed, plain] = stores("layer").map(|store| {
        let layer = generous_on(store).build().expect("one limit is possible");
        side(PeerAddr, ok, calling(layer.layer(bare())))
    });
    bench.compare("a request through the layer", Aim::Ratio(1.1), observed, plain);
    let [observed, plain] = stores("refusing-layer").map(|store| {
        let layer = strict_on(store).build().expect("one limit is possible");
        side(PeerAddr, refused, calling(layer.layer(bare())))
    });
    bench.compare("a request that the layer refuses, 10,000 peers", Aim::None, observed, plain);
}

/// Requests per second, where more is better.
fn flooded_server(bench: &mut Bench) {
    let work = "HTTP server, every request refused";
    if !bench.wants(work) {
        return;
    }
    let [observed, plain] = stores("server").map(|store| {
        let layer = strict_on(store).build().expect("one limit is possible");
        Server::new(router().layer(layer), 429)
    });
    let mut servers = [observed, plain];
    let (rounds, length) = if bench.is_smoke() { (1, 5) } else { (21, 300) };
    let mut seen: [Vec<Round>; 2] = Default::default();
    for round in 0..rounds {
        for position in 0..servers.len() {
            let server = (position + round) % servers.len();
            seen[server].push(servers[server].round(Duration::from_millis(length)));
        }
    }
    let [observed, plain] = seen
        .each_ref()
        .map(|rounds| rounds.iter().map(|round| round.requests_per_second).collect::<Vec<_>>());
    bench.record(Row::of_rounds(work, "req/s", &observed, &plain, Aim::RatioAtLeast(0.95)));
    let [observed, plain] =
        seen.each_ref().map(|rounds| rounds.iter().map(|round| round.cpu_us).collect::<Vec<_>>());
    bench.record(Row::of_rounds("CPU time of that server", "us", &observed, &plain, Aim::None));
}
