//! Allocations that a layer adds to a request. A bench of its own for the reason given in `allocations`.

mod harness;
mod services;

use std::alloc::System;
use std::process::ExitCode;

use axum::extract::ConnectInfo;
use http::StatusCode;
use sluicegate::key::PeerAddr;
use sluicegate::respond::HeaderFields;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tower::Layer;
use tower::layer::util::Identity;

use crate::harness::{Aim, Bench, Row};
use crate::services::{
    bare, calling, generous, governor, governor_with_headers, router, routing, side, strict, strict_governor,
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TIMES: u32 = 10_000;

const OK: StatusCode = StatusCode::OK;
const REFUSED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

fn main() -> ExitCode {
    let mut bench = Bench::from_args("Allocations that a layer adds to a request");
    let bare_alone = per_request(side(PeerAddr, OK, calling(bare())));
    let router_alone = per_request(side(ConnectInfo, OK, routing(router())));
    let mut row = |work: &str, alone: f64, aim: Aim, ours: f64, reference: f64| {
        if bench.wants(work) {
            bench.record(Row::fixed(work, "allocs", ours - alone, reference - alone, aim));
        }
    };

    let quiet =
        generous().headers(HeaderFields::None).without_extensions().build().expect("one limit is possible");
    row(
        "bare service, no headers",
        bare_alone,
        Aim::Ours(0.0),
        per_request(side(PeerAddr, OK, calling(quiet.layer(bare())))),
        per_request(side(ConnectInfo, OK, calling(governor().layer(bare())))),
    );

    let router_quiet = per_request(side(ConnectInfo, OK, routing(router().layer(quiet))));
    let router_governor = per_request(side(ConnectInfo, OK, routing(router().layer(governor()))));
    let work = "axum router, no headers, beside tower_governor without headers";
    row(work, router_alone, Aim::None, router_quiet, router_governor);

    let with_headers = per_request(side(ConnectInfo, OK, routing(router().layer(governor_with_headers()))));
    for (work, limit, aim) in [
        ("axum router, default headers", generous(), Aim::Ours(5.0)),
        ("axum router, all headers", generous().headers(HeaderFields::All), Aim::Ours(7.0)),
    ] {
        let layer = limit.build().expect("one limit is possible");
        let ours = per_request(side(ConnectInfo, OK, routing(router().layer(layer))));
        row(work, router_alone, aim, ours, with_headers);
    }
    row(
        "axum router, a layer that does nothing",
        router_alone,
        Aim::None,
        per_request(side(ConnectInfo, OK, routing(router().layer(Identity::new())))),
        with_headers,
    );

    let layer = strict().build().expect("one limit is possible");
    row(
        "axum router, refused",
        router_alone,
        Aim::None,
        per_request(side(ConnectInfo, REFUSED, routing(router().layer(layer)))),
        per_request(side(ConnectInfo, REFUSED, routing(router().layer(strict_governor())))),
    );
    bench.note(format_args!(
        "a request to the bare service alone: {bare_alone}, to the router: {router_alone}"
    ));
    bench.finish()
}

/// Allocations and reallocations.
fn per_request(mut side: impl FnMut(u64)) -> f64 {
    side(1_000);
    let region = Region::new(ALLOCATOR);
    side(u64::from(TIMES));
    let seen = region.change();
    (seen.allocations + seen.reallocations) as f64 / f64::from(TIMES)
}
