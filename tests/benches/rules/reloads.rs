//! How long answers take over sockets while the rules are loaded again and again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use sluicegate::MemoryStore;
use sluicegate::rules::{Rules, Variables};

use crate::harness::{Aim, Bench, Row};
use crate::support::{Client, serve};

/// A file that is followed takes effect four times a second at most.
const PACE: Duration = Duration::from_millis(10);

const CLIENTS: usize = 4;

/// The hundredth of all answers that takes longest, beside reloads and without them, in turns: where the machine has a processor left
/// for the reloads, so that an answer takes longer only if it waits for one of them, and where clients and server need both.
pub(crate) fn p99(bench: &mut Bench) {
    beside_reloads(bench, "p99 of an answer over a socket, 100 reloads a second, beside none", 1);
    beside_reloads(bench, "p99, the same on a server that leaves no processor to reloads", 2);
}

fn beside_reloads(bench: &mut Bench, work: &str, threads: usize) {
    if !bench.wants(work) {
        return;
    }
    let (rounds, requests) = if bench.is_smoke() { (1, 50) } else { (bench.rounds().0, 2_500) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let took = runtime.expect("threads can be started").block_on(async {
        let path = std::env::temp_dir().join(format!("sluicegate-reloads-{}.yaml", std::process::id()));
        std::fs::write(&path, text(0)).expect("it can be written");
        let rules = Rules::open(MemoryStore::new(), &path, Variables::none()).expect("the file is good");
        let server = serve(Router::new().fallback(async || "hello").layer(rules.layer())).await;
        answers(server, requests).await;
        let (mut busy, mut quiet) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            // The order changes with every round, so that a drift is nobody's advantage.
            if round % 2 == 0 {
                quiet.push(answers(server, requests).await);
            }
            let is_over = Arc::new(AtomicBool::new(false));
            let reloads = std::thread::spawn({
                let (rules, path, is_over) = (rules.clone(), path.clone(), Arc::clone(&is_over));
                move || {
                    for generation in 1.. {
                        // SeqCst: nothing depends on its cost.
                        if is_over.load(Ordering::SeqCst) {
                            return;
                        }
                        std::fs::write(&path, text(generation % 7)).expect("it can be written");
                        rules.reload().expect("the file is good");
                        std::thread::sleep(PACE);
                    }
                }
            });
            busy.push(answers(server, requests).await);
            is_over.store(true, Ordering::SeqCst);
            reloads.join().expect("each file is good");
            if round % 2 == 1 {
                quiet.push(answers(server, requests).await);
            }
        }
        std::fs::remove_file(&path).expect("it is there");
        (busy, quiet)
    });
    bench.record(Row::of_rounds(work, "us", &took.0, &took.1, Aim::Ratio(1.5)));
}

/// The hundredth of the answers to these clients that takes longest, in microseconds.
async fn answers(server: SocketAddr, requests: usize) -> f64 {
    let clients = [(); CLIENTS].map(|()| {
        tokio::spawn(async move {
            let mut client = Client::connect(server).await;
            let mut took = Vec::with_capacity(requests);
            for _ in 0..requests {
                let began = Instant::now();
                assert_eq!(client.get("/orders/17").await.status(), 200);
                took.push(began.elapsed());
            }
            took
        })
    });
    let mut all = Vec::new();
    for client in clients {
        all.extend(client.await.expect("each request is answered"));
    }
    all.sort_unstable();
    all[all.len() * 99 / 100].as_secs_f64() * 1e6
}

/// The file of a generation: policies, tiers, keys and the order of rules change together.
fn text(generation: u64) -> String {
    let limit = 500_000 + generation;
    let algorithm = ["gcra", "fixed-window", "sliding-counter"][usize::try_from(generation % 3).unwrap_or(0)];
    let key = ["client", "everybody"][usize::try_from(generation % 2).unwrap_or(0)];
    let mut rules: Vec<String> = (0..20)
        .map(|rule| {
            format!("  - {{ name: r{rule}, group: path, only_if: {{ path: \"/part-{rule}/{{*rest}}\" }}, limit: part, key: {key} }}\n")
        })
        .collect();
    rules.push(format!("  - {{ name: orders, group: path, only_if: {{ path: \"/orders/{{id}}\" }}, limit: [plan, part], key: {key} }}\n"));
    let turn = usize::try_from(generation).unwrap_or(0) % rules.len();
    rules.rotate_left(turn);
    format!(
        "version: 1
policies:
  part: {{ quota: {limit}/s }}
  free: {{ algorithm: {algorithm}, quota: {limit}/s }}
tiers:
  plan: {{ by: header(x-plan), tiers: {{ free: free }}, default_tier: free }}
rules:
{}",
        rules.concat()
    )
}
