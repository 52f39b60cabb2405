//! A service that is its own limit, over sockets: its handler sleeps under a semaphore, and four times as many requests come as it
//! can bear. The reference is the fixed number that is best for it, which nobody knows after the next deploy.
//!
//! Then what a request pays for a limit that adapts while nothing waits, beside one with a fixed number, in instructions.

mod harness;
#[path = "adaptive/overload.rs"]
mod overload;
mod services;

use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use http::StatusCode;
use sluicegate::Key;
use sluicegate::in_flight::{InFlight, InFlightLayer};
use sluicegate::key::PeerAddr;
use sluicegate::respond::HeaderFields;
use tower::limit::ConcurrencyLimitLayer;
use tower::{BoxError, Layer, ServiceBuilder};
use tower_resilience_adaptive::{AdaptiveLimiterLayer, Aimd, Gradient2};

use crate::harness::callgrind::{self, Bill};
use crate::harness::{Aim, Bench, Row};
use crate::overload::{Overload, Round, WORKERS};
use crate::services::{bare, calling, side_of};

/// Few, because Valgrind is slow.
const PEERS: u32 = 100;

const OURS: &str = "InFlight::adaptive";

/// What is shown of a round, its unit, and what ours has to show.
type Column = (&'static str, &'static str, fn(&Round) -> f64, Aim);

/// A limit in front of the service, where the number that is best for it is known.
type Limit = fn(Router, usize) -> Router;

const FIXED: (&str, Limit) = ("load_shed and ConcurrencyLimit", |app, best| {
    app.layer(
        ServiceBuilder::new()
            .layer(HandleErrorLayer::new(unavailable))
            .load_shed()
            .layer(ConcurrencyLimitLayer::new(best)),
    )
});

const OTHERS: [(&str, Limit); 5] = [
    ("no limit", |app, _| app),
    ("ConcurrencyLimit", |app, best| app.layer(ConcurrencyLimitLayer::new(best))),
    ("load_shed and tower-resilience, Aimd", |app, _| {
        let limit = AdaptiveLimiterLayer::new(Aimd::builder().build().expect("the defaults are possible"));
        app.layer(ServiceBuilder::new().layer(HandleErrorLayer::new(unavailable)).load_shed().layer(limit))
    }),
    ("load_shed and tower-resilience, Gradient2", |app, _| {
        let limit = Gradient2::builder().build().expect("the defaults are possible");
        app.layer(
            ServiceBuilder::new()
                .layer(HandleErrorLayer::new(unavailable))
                .load_shed()
                .layer(AdaptiveLimiterLayer::new(limit)),
        )
    }),
    (OURS, |app, _| app.layer(InFlightLayer::new(adaptive()))),
];

/// The response to a request that `load_shed` refuses.
async fn unavailable(_: BoxError) -> StatusCode {
    StatusCode::SERVICE_UNAVAILABLE
}

fn main() -> ExitCode {
    if let Some((args, times)) = callgrind::asked() {
        uncontended(&args[0], &args[1])(times);
        return ExitCode::SUCCESS;
    }
    let mut bench =
        Bench::from_args("A service that is its own limit; the reference is the best fixed number");
    overloaded(&mut bench);
    uncontended_rows(&mut bench);
    bench.finish()
}

fn adaptive() -> InFlight {
    InFlight::adaptive("service").build().expect("the defaults are possible")
}

/// Requests a second that were answered in time, how long those took, and the time of the server for each.
fn overloaded(bench: &mut Bench) {
    let columns: [Column; 4] = [
        ("goodput", "req/s", |round| round.good_per_second, Aim::RatioAtLeast(0.95)),
        ("p50", "ms", |round| round.p50_ms, Aim::None),
        ("p99", "ms", |round| round.p99_ms, Aim::None),
        ("CPU of a good answer", "us", |round| round.cpu_us, Aim::None),
    ];
    if !columns.iter().any(|(what, ..)| bench.wants(what)) {
        return;
    }
    let (rounds, length) = if bench.is_smoke() { (1, 20) } else { (4, 2_000) };
    let length = Duration::from_millis(length);
    let best = if bench.is_smoke() { WORKERS } else { best_number(length) };
    let each: Vec<_> = OTHERS.iter().chain([&FIXED]).collect();
    let servers: Vec<_> = each.iter().map(|(_, limit)| Overload::new(|app| limit(app, best))).collect();
    let mut seen = vec![Vec::new(); servers.len()];
    for _ in 0..rounds {
        for (server, seen) in servers.iter().zip(&mut seen) {
            seen.push(server.round(length));
        }
    }
    // The first round is for limits to learn in.
    seen.iter_mut().filter(|rounds| rounds.len() > 1).for_each(|rounds| _ = rounds.remove(0));
    for (what, unit, column, aim) in columns {
        let of = |rounds: &Vec<Round>| rounds.iter().map(column).collect::<Vec<_>>();
        let fixed = of(seen.last().expect("the reference is the last"));
        for ((name, _), rounds) in each.iter().zip(&seen).take(OTHERS.len()) {
            let aim = if *name == OURS { aim } else { Aim::None };
            bench.record(Row::of_rounds(&format!("{what}: {name}"), unit, &of(rounds), &fixed, aim));
        }
    }
    bench.note(format_args!("the best number is {best}, for a service with {WORKERS} workers"));
}

/// The number with which the service answers the most requests in time.
fn best_number(length: Duration) -> usize {
    let numbers = [WORKERS / 2, WORKERS, WORKERS * 5 / 4, WORKERS * 3 / 2, WORKERS * 2];
    let tried = numbers.map(|number| {
        let server = Overload::new(|app| FIXED.1(app, number));
        (number, server.round(length).good_per_second)
    });
    let best = tried.into_iter().max_by(|one, other| one.1.total_cmp(&other.1));
    best.map_or(WORKERS, |(number, _)| number)
}

/// What a request pays for a limit that it does not reach.
fn uncontended_rows(bench: &mut Bench) {
    for (fields, what) in [("default", "as each is by default"), ("none", "one key, no fields")] {
        let work = format!("uncontended, adaptive to a fixed number: {what}");
        if bench.is_smoke() {
            ["none", "fixed", "adaptive"].iter().for_each(|kind| uncontended(fields, kind)(1));
        } else if bench.wants(&work) {
            let [alone, fixed, adaptive] =
                ["alone", "fixed", "adaptive"].map(|kind| Bill::of(&[fields, kind], 1_000).instructions);
            bench.record(Row::fixed(&work, "instr", adaptive - alone, fixed - alone, Aim::Ratio(1.2)));
        }
    }
}

/// Requests to a bare service behind a limit of this kind.
fn uncontended(fields: &str, kind: &str) -> Box<dyn FnMut(u64)> {
    let layer = match kind {
        "fixed" => InFlightLayer::new(InFlight::new("service", 1_000).expect("the number is possible")),
        "adaptive" => InFlightLayer::new(adaptive()),
        _ => return Box::new(side_of(PEERS, PeerAddr, StatusCode::OK, calling(bare()))),
    };
    let layer = if fields == "none" { layer.key(Key::shared()).headers(HeaderFields::None) } else { layer };
    Box::new(side_of(PEERS, PeerAddr, StatusCode::OK, calling(layer.layer(bare()))))
}
