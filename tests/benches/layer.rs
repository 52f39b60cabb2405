//! The layer, beside `tower_governor`'s: what it adds to a request, what a refusal costs, and what a flood of requests
//! that are all refused does to a server.
//!
//! The rows named "more" are what a layer adds to the same service without one, measured in the same rounds.
//! The allocations are counted by the bench `layer_allocations`.

mod harness;
mod server;
mod services;

use std::process::ExitCode;
use std::time::Duration;

use axum::extract::ConnectInfo;
use http::StatusCode;
use sluicegate::key::PeerAddr;
use sluicegate::respond::HeaderFields;
use tower::Layer;
use tower::layer::util::Identity;

use crate::harness::{Aim, Bench, Row};
use crate::server::{Round, Server};
use crate::services::{
    bare, calling, generous, generous_with_cheap_clock, governor, governor_with_headers, router, routing,
    side, strict, strict_governor,
};

const OK: StatusCode = StatusCode::OK;
const REFUSED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

fn main() -> ExitCode {
    let mut bench = Bench::from_args("The layer; the reference is tower_governor's");
    on_a_bare_service(&mut bench);
    on_a_router(&mut bench);
    refusals(&mut bench);
    refusing_server(&mut bench);
    bench.finish()
}

fn on_a_bare_service(bench: &mut Bench) {
    for (work, limit, aim) in [
        ("bare service, no headers", generous_with_cheap_clock(), 0.6),
        ("bare service, no headers, default clock", generous(), 0.9),
    ] {
        if !bench.wants(work) {
            continue;
        }
        let layer = limit.headers(HeaderFields::None).without_extensions().build();
        let layer = layer.expect("one limit is possible");
        bench.compare_added(
            work,
            Aim::Ratio(aim),
            side(PeerAddr, OK, calling(bare())),
            side(PeerAddr, OK, calling(layer.layer(bare()))),
            side(ConnectInfo, OK, calling(governor().layer(bare()))),
        );
    }
}

fn on_a_router(bench: &mut Bench) {
    for (work, limit, aim) in [
        ("axum router, all headers", generous(), Aim::Ratio(0.7)),
        ("axum router, all headers, no extensions", generous().without_extensions(), Aim::None),
        (
            "axum router, X-RateLimit headers, no extensions",
            generous().headers(HeaderFields::Legacy).without_extensions(),
            Aim::None,
        ),
    ] {
        if bench.wants(work) {
            let layer = limit.build().expect("one limit is possible");
            bench.compare_added(
                work,
                aim,
                side(ConnectInfo, OK, routing(router())),
                side(ConnectInfo, OK, routing(router().layer(layer))),
                side(ConnectInfo, OK, routing(router().layer(governor_with_headers()))),
            );
        }
    }
    let work = "axum router, a layer that does nothing";
    if bench.wants(work) {
        bench.compare_added(
            work,
            Aim::None,
            side(ConnectInfo, OK, routing(router())),
            side(ConnectInfo, OK, routing(router().layer(Identity::new()))),
            side(ConnectInfo, OK, routing(router().layer(governor_with_headers()))),
        );
    }
    let work = "axum router, no headers, beside tower_governor without headers";
    if bench.wants(work) {
        let layer = generous().headers(HeaderFields::None).without_extensions().build();
        let layer = layer.expect("one limit is possible");
        bench.compare_added(
            work,
            Aim::None,
            side(ConnectInfo, OK, routing(router())),
            side(ConnectInfo, OK, routing(router().layer(layer))),
            side(ConnectInfo, OK, routing(router().layer(governor()))),
        );
        bench.note("the reference of the other rows with a router has headers: two");
    }
}

fn refusals(bench: &mut Bench) {
    let work = "bare service, refused";
    if bench.wants(work) {
        let layer = strict().build().expect("one limit is possible");
        bench.compare(
            work,
            Aim::Ours(1_000.0),
            side(PeerAddr, REFUSED, calling(layer.layer(bare()))),
            side(ConnectInfo, REFUSED, calling(strict_governor().layer(bare()))),
        );
    }
    let work = "axum router, refused";
    if bench.wants(work) {
        let layer = strict().build().expect("one limit is possible");
        bench.compare(
            work,
            Aim::Ours(1_000.0),
            side(ConnectInfo, REFUSED, routing(router().layer(layer))),
            side(ConnectInfo, REFUSED, routing(router().layer(strict_governor()))),
        );
    }
}

/// Requests per second, where more is better.
fn refusing_server(bench: &mut Bench) {
    let work = "HTTP server, every request refused, beside one without a limit";
    let theirs = "the same by tower_governor, beside one without a limit";
    let cpu = "CPU time of the refusing server, beside one without a limit";
    let their_cpu = "the same by tower_governor, CPU time";
    if !bench.wants(work) {
        return;
    }
    let layer = strict().build().expect("one limit is possible");
    let mut servers = [
        Server::new(router(), 200),
        Server::new(router().layer(layer), 429),
        Server::new(router().layer(strict_governor()), 429),
    ];
    let (rounds, length) = if bench.is_smoke() { (1, 5) } else { (11, 400) };
    let mut seen: [Vec<Round>; 3] = Default::default();
    for round in 0..rounds {
        for position in 0..servers.len() {
            let server = (position + round) % servers.len();
            seen[server].push(servers[server].round(Duration::from_millis(length)));
        }
    }
    let [none, ours, governor] = seen
        .each_ref()
        .map(|rounds| rounds.iter().map(|round| round.requests_per_second).collect::<Vec<_>>());
    bench.record(Row::of_rounds(work, "req/s", &ours, &none, Aim::RatioAtLeast(0.9)));
    bench.record(Row::of_rounds(theirs, "req/s", &governor, &none, Aim::None));
    let [none, ours, governor] =
        seen.each_ref().map(|rounds| rounds.iter().map(|round| round.cpu_us).collect::<Vec<_>>());
    bench.record(Row::of_rounds(cpu, "us", &ours, &none, Aim::None));
    bench.record(Row::of_rounds(their_cpu, "us", &governor, &none, Aim::None));
}
