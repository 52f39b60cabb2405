//! Reloads while clients go on, a thousand of them or as many as `SLUICEGATE_RELOADS` says: policies, tiers, keys and rules change together, and each answer has the limits of one file.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use http::{Request, StatusCode};
use sluicegate::clock::SystemClock;
use sluicegate_tests::memory;
use sluicegate_tests::servers::eventually;
use tokio::sync::{mpsc, watch};

use crate::rules::folder::Folder;
use crate::support::{Client, field, serve, whole};

/// How often the rules are loaded again.
fn reloads() -> u64 {
    let said = std::env::var("SLUICEGATE_RELOADS").ok();
    said.map_or(1_000, |said| said.parse().expect("SLUICEGATE_RELOADS is a number"))
}

/// The limit of each quota of the file of generation 0; that of generation 7 has seven more. It is the mark of its file.
const MARK: u64 = 500_000;

/// The most units that a file gives out under `bound`.
const BOUND: u64 = 100;

/// The file of a generation. All of it changes: quotas, an algorithm, the name of a policy, tiers, keys, the order of rules.
fn text(generation: u64) -> String {
    let of = |words: &[&'static str]| words[usize::try_from(generation % words.len() as u64).unwrap()];
    let (mark, third) = (MARK + generation, generation % 3);
    let key = of(&["client", "everybody", "[header(x-user), client]"]);
    let (gold, silver) = tiers(generation);
    let (algorithm, bound) =
        (of(&["gcra", "sliding-log", "fixed-window", "sliding-counter"]), of(&["60", "100", "80"]));
    let pace = of(&["50/s", "40/s"]);
    let all = format!("  - {{ name: all, limit: all, key: {key} }}\n");
    let path = format!(
        "  - {{ name: marked, group: path, only_if: {{ path: /marked }}, limit: [path-{third}, plan], key: {key} }}
  - {{ name: bound, group: path, only_if: {{ path: /bound }}, limit: bound, key: header(x-user) }}
  - {{ name: turn, group: path, only_if: {{ path: /turn }}, limit: turn, key: everybody }}\n"
    );
    let rules = if generation.is_multiple_of(2) { all + &path } else { path + &all };
    format!(
        "version: 1
headers: all
policies:
  all: {{ quota: {mark}/h }}
  path-{third}: {{ quota: {mark}/h }}
  gold: {{ quota: {mark}/h }}
  silver: {{ quota: {mark}/h }}
  bound: {{ algorithm: {algorithm}, quota: {bound}/d, hidden: true }}
  turn: {{ quota: {pace} burst 1, on_exceeded: wait 60s, hidden: true }}
tiers:
  plan: {{ by: header(x-plan), tiers: {{ gold: {gold}, silver: {silver} }}, default_tier: silver }}
rules:
{rules}"
    )
}

/// The policies of the tiers gold and silver.
fn tiers(generation: u64) -> (&'static str, &'static str) {
    if generation % 4 < 2 { ("gold", "silver") } else { ("silver", "gold") }
}

/// The names in the answer to a gold request of `/marked`, by the file of a generation.
fn names(generation: u64) -> [String; 3] {
    let (all, path) = ("all".to_owned(), format!("path-{}", generation % 3));
    let plan = tiers(generation).0.to_owned();
    if generation.is_multiple_of(2) { [all, path, plan] } else { [path, plan, all] }
}

/// The generations that have begun and that have ended to be put in force, and whether clients may stop.
#[derive(Default)]
struct Progress {
    begun: AtomicU64,
    done: watch::Sender<u64>,
    is_over: AtomicBool,
    /// The requests of each user of `/bound`.
    asked: [AtomicU64; 2],
}

/// Asks for `/marked` until it is over, and returns how long each answer took. Each has the limits of one file, which was in force then.
async fn marked(
    server: SocketAddr,
    progress: Arc<Progress>,
    answered: mpsc::UnboundedSender<()>,
    most: usize,
) -> Vec<Duration> {
    let mut client = Client::connect(server).await;
    let mut took = Vec::new();
    while took.len() < most && !progress.is_over.load(Ordering::SeqCst) {
        let first = *progress.done.borrow();
        let request = Request::get("/marked").header("x-plan", "gold").header("x-user", "ada");
        let began = Instant::now();
        let answer = whole(client.begin_with(request, "").await).await;
        took.push(began.elapsed());
        let last = progress.begun.load(Ordering::SeqCst);
        assert_eq!(answer.status(), StatusCode::OK);
        let policies = field(&answer, "ratelimit-policy");
        let names_in = |list: &str| -> Vec<String> {
            list.split(", ")
                .filter_map(|quota| Some(quota.split(';').next()?.trim_matches('"').to_owned()))
                .collect()
        };
        let named = names_in(policies);
        assert!(
            (first..=last).any(|generation| names(generation)[..] == named),
            "{first} to {last}: {policies}"
        );
        assert_eq!(names_in(field(&answer, "ratelimit")), named);
        // A request that begins under the limits of one file may be decided by numbers of the next.
        for policy in policies.split(", ") {
            let limit = policy.split(';').find_map(|word| word.strip_prefix("q=")).unwrap();
            let limit: u64 = limit.parse().unwrap();
            assert!((MARK..=MARK + last).contains(&limit), "{limit} is of no file up to {last}");
        }
        // Nobody counts them any more when it is over.
        _ = answered.send(());
    }
    took
}

/// What four such clients see, from now on.
fn all_marked(
    server: SocketAddr,
    progress: &Arc<Progress>,
    answered: &mpsc::UnboundedSender<()>,
    most: usize,
) -> impl Future<Output = Vec<Duration>> + use<> {
    let clients =
        [(); 4].map(|()| tokio::spawn(marked(server, Arc::clone(progress), answered.clone(), most)));
    async move {
        let mut all = Vec::new();
        for client in clients {
            all.extend(client.await.expect("each answer is that of one file"));
        }
        all
    }
}

/// Asks for `/bound` by one key, and returns how often it passed.
async fn bound(server: SocketAddr, progress: Arc<Progress>, number: usize) -> u64 {
    let user = ["ada", "bob"][number];
    let mut client = Client::connect(server).await;
    let mut done = progress.done.subscribe();
    let mut passed = 0;
    while !progress.is_over.load(Ordering::SeqCst) {
        let answer = whole(client.begin_with(Request::get("/bound").header("x-user", user), "").await).await;
        progress.asked[number].fetch_add(1, Ordering::SeqCst);
        match answer.status() {
            StatusCode::OK => passed += 1,
            // Another file lets it pass, perhaps.
            StatusCode::TOO_MANY_REQUESTS => done.changed().await.expect("the test goes on"),
            other => panic!("{other}"),
        }
    }
    passed
}

/// Asks for `/turn`, where each request waits, and returns how often it came to its turn.
async fn turns(server: SocketAddr, progress: Arc<Progress>) -> u64 {
    let mut client = Client::connect(server).await;
    let mut passed = 0;
    while !progress.is_over.load(Ordering::SeqCst) {
        assert_eq!(client.get("/turn").await.status(), StatusCode::OK, "after {passed} turns");
        passed += 1;
    }
    passed
}

/// The middle and the hundredth of those that took longest, in microseconds.
fn percentiles(mut took: Vec<Duration>) -> [u128; 2] {
    took.sort_unstable();
    [took.len() / 2, took.len() * 99 / 100].map(|place| took[place].as_micros())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_under_load_mix_no_answer_drop_none_admit_no_more_and_keep_every_turn() {
    let most = reloads();
    let folder = Folder::with(&text(0));
    let rules = folder.open(memory::store_on(SystemClock::new()));
    let server = serve(Router::new().fallback(async || "hello").layer(rules.layer())).await;
    let progress = Arc::new(Progress::default());
    let (tell, mut answered) = mpsc::unbounded_channel();
    let users = [0, 1].map(|number| tokio::spawn(bound(server, Arc::clone(&progress), number)));
    let waiters = [(); 8].map(|()| tokio::spawn(turns(server, Arc::clone(&progress))));
    let quiet = percentiles(all_marked(server, &progress, &tell, 1_000).await);
    while answered.try_recv().is_ok() {}

    let clients = all_marked(server, &progress, &tell, usize::MAX);
    drop(tell);
    let began = Instant::now();
    let reloads = {
        let progress = Arc::clone(&progress);
        tokio::task::spawn_blocking(move || {
            for generation in 1..=most {
                // At the pace of the clients.
                answered.blocking_recv().expect("a client goes on");
                folder.swap(&text(generation));
                progress.begun.store(generation, Ordering::SeqCst);
                let changes = rules.reload().unwrap_or_else(|error| panic!("{error}"));
                assert!(changes.is_some(), "the file of generation {generation} is another one");
                let asked_before = progress.asked.each_ref().map(|asked| asked.load(Ordering::SeqCst));
                progress.done.send_replace(generation);
                // Memory follows a key through 32 replacements between two of its requests.
                if generation.is_multiple_of(16) {
                    for (asked, before) in progress.asked.iter().zip(asked_before) {
                        eventually("a user asks", || asked.load(Ordering::SeqCst) > before);
                    }
                }
            }
        })
    };
    let reloaded = reloads.await;
    progress.is_over.store(true, Ordering::SeqCst);
    progress.done.send_replace(most);
    let took = clients.await;
    reloaded.expect("each file is good");
    let (answers, busy) = (took.len(), percentiles(took));
    for user in users {
        let passed = user.await.expect("each request is answered");
        assert!((60..=BOUND).contains(&passed), "{passed} passed, where no file lets more than {BOUND} pass");
    }
    let mut turns = 0;
    for waiter in waiters {
        turns += waiter.await.expect("each request comes to its turn");
    }
    println!(
        "{most} reloads in {:.1} s beside {answers} requests and {turns} turns; p50 and p99 without them {quiet:?} us, with them {busy:?} us",
        began.elapsed().as_secs_f64()
    );
}
