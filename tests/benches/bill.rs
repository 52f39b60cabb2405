//! What a request pays for the layer, in instructions and allocations, and what each capability adds that is there and that
//! the request does not use.
//!
//! Callgrind counts them, so that neighbours on the machine change nothing. Each side runs in a process of its own.

mod harness;
mod services;
#[path = "bill/set_ups.rs"]
mod set_ups;

use std::net::SocketAddr;
use std::process::ExitCode;

use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use http::StatusCode;
use sluicegate::key::PeerAddr;
use tower::Layer;
use tower::layer::util::Identity;

use crate::harness::callgrind::{self, Bill};
use crate::harness::{Aim, Bench, Row};
use crate::services::{
    bare, calling, generous_policy, governor_with_headers, router, routing, side_of, strict_governor,
    strict_policy,
};
use crate::set_ups::{ALL_FIELDS, NO_FIELDS, NOTHING, SET_UPS};

/// Few, because Valgrind is slow, and each has sent two requests before those that are counted.
const PEERS: u32 = 100;

/// The sides that have no set-up.
const ALONE: &str = "no layer";
const IDLE: &str = "a layer that does nothing";
const GOVERNOR: &str = "tower_governor";

type Side = Box<dyn FnMut(u64)>;

/// Where the layer is, and what it answers.
#[derive(Clone, Copy)]
struct Case {
    in_axum: bool,
    refuses: bool,
}

fn main() -> ExitCode {
    if let Some((args, times)) = callgrind::asked() {
        let case = Case::all().find(|case| case.title() == args[1]).expect("the parent names a case");
        case.side(&args[0])(times);
        return ExitCode::SUCCESS;
    }
    let mut bench =
        Bench::from_args("What a layer adds to a request; the reference is a layer with nothing else");
    Case::all().for_each(|case| case.measure(&mut bench));
    bench.finish()
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        let each = [(false, false), (true, false), (false, true), (true, true)];
        each.into_iter().map(|(in_axum, refuses)| Self { in_axum, refuses })
    }

    fn title(self) -> String {
        let Self { in_axum, refuses } = self;
        format!("{}, {}", if refuses { "refused" } else { "allowed" }, if in_axum { "axum" } else { "bare" })
    }

    fn measure(self, bench: &mut Bench) {
        let names = || SET_UPS.iter().map(|(name, _)| *name).chain(self.in_axum.then_some(IDLE));
        if bench.is_smoke() {
            names().chain([ALONE, GOVERNOR]).for_each(|name| self.side(name)(1));
            return;
        }
        let work = |name: &str| format!("{}: {name}", self.title());
        if !names().any(|name| bench.wants(&work(name))) {
            return;
        }
        // quanta calibrates the clock of tower_governor when it starts, which takes millions of instructions more or fewer.
        let times = |name: &str| if name == GOVERNOR { 40_000 } else { 1_000 };
        let of = |name: &str| Bill::of(&[name, &self.title()], times(name));
        let (alone, governor, floor) = (of(ALONE), of(GOVERNOR), of(NOTHING));
        for name in names().filter(|name| bench.wants(&work(name))).collect::<Vec<_>>() {
            let (ours, reference, aim) = match name {
                NOTHING => (floor, governor, self.aim(name)),
                IDLE | NO_FIELDS | ALL_FIELDS => (of(name), floor, self.aim(name)),
                _ => (of(name), floor, Aim::Ratio(1.08)),
            };
            let [more, of_reference] = [ours, reference].map(|bill| bill.more_than(alone));
            let row = |bill: fn(&Bill) -> f64, unit, aim| {
                Row::fixed(&work(name), unit, bill(&more), bill(&of_reference), aim)
            };
            bench.record(row(|bill| bill.instructions, "instr", aim));
            if name == NOTHING || more.allocations != of_reference.allocations {
                bench.record(row(|bill| bill.allocations, "allocs", Aim::None));
            }
            if name == NOTHING {
                bench.note("its reference is tower_governor with the two fields that it has");
            }
        }
    }

    /// The most instructions of a layer with nothing beside its limit.
    fn aim(self, name: &str) -> Aim {
        Aim::Ours(match (name, self.refuses, self.in_axum) {
            (NO_FIELDS, false, true) => 1_500.0,
            (NO_FIELDS, false, false) => 600.0,
            (NOTHING, false, true) => 3_250.0,
            (NOTHING, false, false) => 2_600.0,
            (NOTHING, true, _) => 6_200.0,
            (ALL_FIELDS, false, true) => 6_300.0,
            _ => return Aim::None,
        })
    }

    /// Requests to the service behind the layer of this name.
    fn side(self, name: &str) -> Side {
        let Self { in_axum, refuses } = self;
        let policy = if refuses { strict_policy } else { generous_policy };
        let set_up = SET_UPS.iter().find(|(known, _)| *known == name);
        let answers = if refuses { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
        match (name, set_up) {
            (_, Some((_, set_up))) => match (set_up(policy()), in_axum) {
                (layer, false) => side(PeerAddr, answers, calling(layer.layer(bare()))),
                (layer, true) => side(ConnectInfo, answers, routing(router().layer(layer))),
            },
            (GOVERNOR, _) => {
                match (if refuses { strict_governor() } else { governor_with_headers() }, in_axum) {
                    (layer, false) => side(ConnectInfo, answers, calling(layer.layer(bare()))),
                    (layer, true) => side(ConnectInfo, answers, routing(router().layer(layer))),
                }
            }
            (IDLE, _) => side(ConnectInfo, StatusCode::OK, routing(router().layer(Identity::new()))),
            _ if in_axum => side(ConnectInfo, StatusCode::OK, routing(router())),
            _ => side(PeerAddr, StatusCode::OK, calling(bare())),
        }
    }
}

fn side<E>(
    extension: fn(SocketAddr) -> E,
    answers: StatusCode,
    send: impl FnMut(Request) -> Response + 'static,
) -> Side
where
    E: Clone + Send + Sync + 'static,
{
    Box::new(side_of(PEERS, extension, answers, send))
}
