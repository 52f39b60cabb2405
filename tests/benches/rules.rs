//! A file of a thousand rules, beside one of a single rule: a request is to cost about the same.
//!
//! Of the thousand, the request meets the last one. They share everything but the value by which they tell requests apart.
//! Then the price of limits that can be swapped, how long large files take to be read and put in force, and how long answers take
//! beside reloads.

mod harness;
#[path = "rules/reloads.rs"]
mod reloads;
#[path = "../it/support.rs"]
#[expect(dead_code, clippy::unwrap_used, reason = "the tests need the rest, and report by it")]
mod support;

use std::convert::Infallible;
use std::fmt::Write as _;
use std::hint::black_box;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Instant;

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use sluicegate::key::PeerAddr;
use sluicegate::limits::{Admission, Limits};
use sluicegate::rules::{Rules, RulesFile, Variables};
use sluicegate::{MemoryStore, Policy};
use tower::{Layer, Service, service_fn};

use crate::harness::{Aim, Bench, Row};

const MANY: usize = 1_000;

fn main() -> ExitCode {
    let mut bench = Bench::from_args("Rules in a file; the reference is a file with one rule");
    for (work, only_if) in [
        ("1,000 rules by path", "path: \"/tenants/NAME/orders/{id}\""),
        ("1,000 rules by host", "host: NAME.example"),
        ("1,000 rules by header", "header: { x-tenant: NAME }"),
        (
            "1,000 rules by path, method, host and header",
            "path: \"/tenants/NAME/orders/{id}\", method: [GET, POST], host: NAME.example, header: { x-tenant: NAME }",
        ),
    ] {
        if bench.wants(work) {
            let (many, one) = (asking(MANY, only_if), asking(1, only_if));
            bench.compare(work, Aim::Ratio(1.3), many, one);
        }
    }
    swaps(&mut bench);
    loads(&mut bench);
    reloads::p99(&mut bench);
    bench.finish()
}

/// The cheapest decision that there is, with its header fields: by limits that are found as a layer finds those that can be swapped,
/// and by limits that are held.
fn swaps(bench: &mut Bench) {
    let work = "one decision, limits that can be swapped, beside limits that cannot";
    if bench.wants(work) {
        let limiter = Policy::gcra("a", "1000000/ms").on(MemoryStore::new()).expect("memory keeps it");
        let held = Limits::new(limiter);
        let swapped = ArcSwap::from_pointee(held.clone());
        bench.compare(
            work,
            Aim::Ratio(1.15),
            deciding(move |request| swapped.load().decide(request)),
            deciding(move |request| held.decide(request)),
        );
    }
}

/// Asks for one request again and again, each time as far as to the response.
fn deciding(decide: impl Fn(&Request<()>) -> Admission<'_>) -> impl FnMut(u64) {
    let mut request = Request::new(());
    request.extensions_mut().insert(PeerAddr(SocketAddr::from(([192, 0, 2, 7], 443))));
    move |times| {
        for _ in 0..times {
            let admitted = decide(&request).now_or_never().expect("memory answers at once");
            black_box(admitted.expect("there is room").leave(Response::new(())));
        }
    }
}

/// Reads files and puts them in force.
fn loads(bench: &mut Bench) {
    let path = std::env::temp_dir().join(format!("sluicegate-keys-{}.yaml", std::process::id()));
    let lines = (0..10_000).map(|key| format!("{key:064x}: free\n"));
    std::fs::write(&path, lines.collect::<String>()).expect("it can be written");
    let listed = format!(
        "version: 1
api_keys: {{ header: x-api-key, file: {} }}
policies: {{ free: {{ quota: 1/min }} }}
tiers: {{ plan: {{ by: api_key, tiers: {{ free: free }}, default_tier: free }} }}
rules: [{{ name: all, limit: plan, key: api_key }}]
",
        path.display()
    );
    let rules: &dyn Fn() = &|| drop(loaded(&text_of(MANY, "path: \"/tenants/NAME/orders/{id}\"")));
    let keys: &dyn Fn() = &|| drop(loaded(&listed));
    for (work, load) in [("1,000 rules are loaded", rules), ("10,000 API keys are loaded", keys)] {
        if bench.wants(work) {
            let rounds = (0..bench.rounds().0).map(|_| {
                let start = Instant::now();
                load();
                start.elapsed().as_secs_f64() * 1e3
            });
            // The share of a start, or of a reload, that a file may take.
            let slowest = rounds.fold(0.0, f64::max);
            bench.record(Row::alone(work, "ms", slowest, Aim::Ours(250.0)));
        }
    }
    std::fs::remove_file(&path).expect("it is there");
}

/// Sends requests through a layer with so many rules.
fn asking(rules: usize, only_if: &str) -> impl FnMut(u64) {
    let text = text_of(rules, only_if);
    let rules = loaded(&text);
    let handler =
        service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
    let mut service = rules.layer().layer(handler);
    move |times| {
        for _ in 0..times {
            let request =
                Request::get("/tenants/t0/orders/17").header("host", "t0.example").header("x-tenant", "t0");
            let response = service.call(request.body(()).expect("it is a request")).now_or_never();
            let response = response.expect("memory answers at once").expect("it never fails");
            assert_eq!(response.status(), StatusCode::OK);
            assert!(response.headers().contains_key("x-ratelimit-limit"), "a rule applies");
        }
    }
}

/// A file with so many rules.
fn text_of(rules: usize, only_if: &str) -> String {
    let mut text = "version: 1\npolicies: { a: { quota: 1000000/s, table_size: 1 } }\nrules:\n".to_owned();
    for rule in (0..rules).rev() {
        let only_if = only_if.replace("NAME", &format!("t{rule}"));
        let rule =
            format!("{{ name: r{rule}, group: g, only_if: {{ {only_if} }}, limit: a, key: everybody }}");
        writeln!(text, "  - {rule}").expect("it is a text");
    }
    text
}

fn loaded(text: &str) -> Rules {
    let file = RulesFile::parse("rules.yaml", text, &Variables::none()).expect("the file is good");
    Rules::new(MemoryStore::new(), file).expect("memory keeps all")
}
