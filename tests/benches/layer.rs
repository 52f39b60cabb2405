//! The layer, beside `tower_governor`'s: what it adds to a request, what a refusal costs, and what it costs a server whose
//! requests come over sockets and are all allowed, or all refused.
//!
//! The rows named "more" are what a layer adds to the same service without one, measured in the same rounds.
//! Bodies that are read as they pass stand beside the same bodies that are not.
//! The allocations are counted by the bench `layer_allocations`.

#[path = "layer/bodies.rs"]
mod bodies;
mod harness;
mod server;
mod services;

use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use http::StatusCode;
use sluicegate::key::PeerAddr;
use sluicegate::respond::HeaderFields;
use tower::Layer;
use tower::layer::util::Identity;

use crate::harness::{Aim, Bench, Row};
use crate::server::{Round, Server};
use crate::services::{
    bare, calling, generous, generous_with_cheap_clock, governor, governor_with_headers, roomy,
    roomy_governor, router, routing, side, strict, strict_governor,
};

const OK: StatusCode = StatusCode::OK;
const REFUSED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

fn main() -> ExitCode {
    let mut bench = Bench::from_args("The layer; the reference is tower_governor's");
    on_a_bare_service(&mut bench);
    on_a_router(&mut bench);
    refusals(&mut bench);
    bodies::taps(&mut bench);
    over_sockets(&mut bench);
    bench.finish()
}

fn on_a_bare_service(bench: &mut Bench) {
    for (work, limit, aim) in [
        ("bare service, no headers", generous_with_cheap_clock(), 0.9),
        ("bare service, no headers, default clock", generous(), 1.0),
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
        ("axum router, default headers", generous(), Aim::Ratio(0.9)),
        ("axum router, all headers", generous().headers(HeaderFields::All), Aim::Ratio(1.2)),
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
            Aim::Ratio(1.0),
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
            Aim::Ratio(0.15),
            side(PeerAddr, REFUSED, calling(layer.layer(bare()))),
            side(ConnectInfo, REFUSED, calling(strict_governor().layer(bare()))),
        );
    }
    let work = "axum router, refused";
    if bench.wants(work) {
        let layer = strict().build().expect("one limit is possible");
        bench.compare(
            work,
            Aim::Ratio(0.20),
            side(ConnectInfo, REFUSED, routing(router().layer(layer))),
            side(ConnectInfo, REFUSED, routing(router().layer(strict_governor()))),
        );
    }
}

/// A server whose every request is allowed, and one whose every request is refused, each beside a server without a limit.
fn over_sockets(bench: &mut Bench) {
    let allowed = Sockets {
        rate: "HTTP server, every request allowed, beside one without a limit",
        cpu: "CPU time of the allowing server, beside one without a limit",
        aims: (Aim::None, Aim::Ratio(1.10)),
    };
    if allowed.is_wanted(bench) {
        let layer = roomy().build().expect("one limit is possible");
        let governed = router().layer(roomy_governor());
        allowed.measure(bench, [(router().layer(layer), 200), (governed, 200)]);
    }
    let refused = Sockets {
        rate: "HTTP server, every request refused, beside one without a limit",
        cpu: "CPU time of the refusing server, beside one without a limit",
        aims: (Aim::RatioAtLeast(0.9), Aim::Ratio(1.15)),
    };
    if refused.is_wanted(bench) {
        let layer = strict().build().expect("one limit is possible");
        let governed = router().layer(strict_governor());
        refused.measure(bench, [(router().layer(layer), 429), (governed, 429)]);
    }
}

/// Requests over sockets: how many a second, where more is better, and the CPU time of each.
struct Sockets {
    rate: &'static str,
    cpu: &'static str,
    aims: (Aim, Aim),
}

impl Sockets {
    fn is_wanted(&self, bench: &Bench) -> bool {
        bench.wants(self.rate) || bench.wants(self.cpu)
    }

    /// Ours and tower_governor's, each with the status that it answers with.
    fn measure(self, bench: &mut Bench, [ours, governor]: [(Router, u16); 2]) {
        let mut servers = [(router(), 200), ours, governor].map(|(app, status)| Server::new(app, status));
        let (rounds, length) = if bench.is_smoke() { (1, 5) } else { (11, 400) };
        let mut seen: [Vec<Round>; 3] = Default::default();
        for round in 0..rounds {
            for position in 0..servers.len() {
                let server = (position + round) % servers.len();
                seen[server].push(servers[server].round(Duration::from_millis(length)));
            }
        }
        let of = |number: fn(&Round) -> f64| {
            seen.each_ref().map(|rounds| rounds.iter().map(number).collect::<Vec<_>>())
        };
        let Self { rate, cpu, aims } = self;
        let theirs = |work: &str| format!("{work}: tower_governor");
        let [none, ours, governor] = of(|round| round.requests_per_second);
        bench.record(Row::of_rounds(rate, "req/s", &ours, &none, aims.0));
        bench.record(Row::of_rounds(&theirs(rate), "req/s", &governor, &none, Aim::None));
        let [none, ours, governor] = of(|round| round.cpu_us);
        bench.record(Row::of_rounds(cpu, "us", &ours, &none, aims.1));
        bench.record(Row::of_rounds(&theirs(cpu), "us", &governor, &none, Aim::None));
    }
}
