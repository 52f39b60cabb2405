//! Explanations and the layer agree: of random files and requests, over a socket, the answer is the one that was explained before.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use sluicegate_core::policy::PolicyMode;
use sluicegate_rules::{Explained, Rules, RulesFile, Variables};
use sluicegate_tests::memory::store;
use sluicegate_tests::random::Random;
use sluicegate_tower::key::PeerAddr;
use sluicegate_tower::limits::{AskExplained, WouldBe};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, Service, ServiceExt, service_fn};

/// One of these.
fn one<'a>(random: &mut Random, of: &[&'a str]) -> &'a str {
    of[random.index(of.len())]
}

fn chance(random: &mut Random, of_ten: u64) -> bool {
    random.below(10) < of_ten
}

fn file(random: &mut Random) -> String {
    let mut text = "version: 1\nheaders: ietf\npolicies:\n".to_owned();
    let mut line = |words: String| writeln!(text, "{words}").expect("it is a text");
    for policy in 0..4 {
        let algorithm =
            one(random, &["gcra", "token-bucket", "fixed-window", "sliding-counter", "sliding-log"]);
        let mode = one(random, &["enforce", "enforce", "enforce", "shadow", "off"]);
        let quota = 2 + random.below(3);
        line(format!(
            "  p{policy}: {{ algorithm: {algorithm}, quota: {quota}/min, mode: {mode}, table_size: 10 }}"
        ));
    }
    line("tiers:\n  plan: { by: header(x-plan), tiers: { free: p0, pro: p1, big: unlimited }, default_tier: free }".to_owned());
    line("deny:\n  - { name: bad, only_if: { header: { x-bad: \"1\" } } }".to_owned());
    line("exempt:\n  - { name: open, only_if: { path: /open } }\nrules:".to_owned());
    for rule in 0..=random.below(6) {
        let mut only_if = Vec::new();
        if chance(random, 5) {
            only_if.push(format!("path: {:?}", one(random, &["/a", "/a/{id}", "/{*rest}", "/b"])));
        }
        if chance(random, 3) {
            only_if.push(format!("method: {}", one(random, &["GET", "POST"])));
        }
        if chance(random, 2) {
            only_if.push("header: { x-beta: \"1\" }".to_owned());
        }
        if chance(random, 2) {
            only_if.push(format!("tier: {{ plan: {} }}", one(random, &["free", "pro", "[pro, big]"])));
        }
        if chance(random, 2) {
            only_if.push("not: { query: { v: \"2\" } }".to_owned());
        }
        let only_if = match only_if.is_empty() {
            true => String::new(),
            false => format!("only_if: {{ {} }}, ", only_if.join(", ")),
        };
        let group = if chance(random, 4) { "group: g, " } else { "" };
        let limit = one(random, &["p0", "p1", "p2", "p3", "plan"]);
        let key = one(random, &["everybody", "peer", "header(x-user)", "[header(x-user), peer]"]);
        let cost = one(random, &["1", "2", "{ header: x-units, min: 1, max: 5, missing: 1 }"]);
        let missing = one(random, &["share", "skip", "401"]);
        line(format!(
            "  - {{ name: r{rule}, {group}{only_if}limit: {limit}, share: 1/1, key: {key}, cost: {cost}, on_missing_key: {missing} }}"
        ));
    }
    text
}

fn head(random: &mut Random) -> String {
    let mut head = format!(
        "{} {} HTTP/1.1\r\nhost: a.example\r\nconnection: close\r\n",
        one(random, &["GET", "POST"]),
        one(random, &["/a", "//a", "/a/1", "/b", "/b?v=2", "/c/d", "/open"])
    );
    let mut field = |of_ten: u64, name: &str, values: &[&str]| {
        if chance(random, of_ten) {
            write!(head, "{name}: {}\r\n", one(random, values)).expect("it is a text");
        }
    };
    field(7, "x-user", &["ada", "bob"]);
    field(5, "x-plan", &["free", "pro", "big", "none"]);
    field(4, "x-units", &["0", "1", "2", "9", "many"]);
    field(5, "x-beta", &["1", "2"]);
    field(1, "x-bad", &["1", "2"]);
    head + "\r\n"
}

type Body = Full<Bytes>;

/// A server that explains each request before the layer decides on it, and once more afterwards.
async fn serve(rules: Rules, told: Arc<Mutex<Vec<Explained>>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let (rules, told) = (rules.clone(), Arc::clone(&told));
            let service = service_fn(move |request: Request<Incoming>| {
                let (rules, told) = (rules.clone(), Arc::clone(&told));
                async move {
                    let (mut parts, _) = request.into_parts();
                    parts.extensions.insert(PeerAddr(peer));
                    let before = rules.explain(&parts).await;
                    let handler = service_fn(|_: Request<()>| async {
                        Ok::<_, Infallible>(Response::new(Body::default()))
                    });
                    let mut layered = rules.layer().layer(handler);
                    let request = Request::from_parts(parts.clone(), ());
                    let response = layered.ready().await.expect("it is ready").call(request).await;
                    let after = rules.explain(&parts).await;
                    told.lock().expect("nobody has panicked").extend([before, after]);
                    response
                }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
            tokio::spawn(connection);
        }
    });
    address
}

/// An answer, as a client sees it.
struct Answer {
    status: u16,
    retry_after: Option<u64>,
    /// The policies of the field `RateLimit` with what is left.
    left: Vec<(String, u64)>,
}

async fn ask(address: SocketAddr, head: &str) -> Answer {
    let mut stream = TcpStream::connect(address).await.expect("it accepts");
    stream.write_all(head.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers in text");
    let field = |name: &str| {
        let mut lines = answer.lines().take_while(|line| !line.is_empty());
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned))
    };
    let left = field("ratelimit").unwrap_or_default();
    let left = left.split(", ").filter(|entry| !entry.is_empty()).map(|entry| {
        let mut parts = entry.split(';');
        let name = parts.next().unwrap_or_default().trim_matches('"').to_owned();
        let rest = parts.find_map(|part| part.strip_prefix("r=")).expect("each says what is left");
        (name, rest.parse().expect("it is a number"))
    });
    Answer {
        status: answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("it has a status"),
        retry_after: field("retry-after").map(|seconds| seconds.parse().expect("it is a number")),
        left: left.collect(),
    }
}

/// What is asked, with each limit's place.
fn asks(explained: &Explained) -> Vec<&AskExplained> {
    explained
        .rules
        .iter()
        .flat_map(|rule| &rule.limits)
        .filter_map(|limit| limit.asks.as_ref().ok())
        .collect()
}

fn left(asks: &AskExplained) -> u64 {
    asks.quotas.first().map(|quota| quota.remaining()).expect("memory answers")
}

fn check(before: &Explained, after: &Explained, answer: &Answer) {
    let (status, wait) = match &before.outcome {
        WouldBe::Refused { status, retry_after, .. } => {
            (status.as_u16(), retry_after.map(|wait| wait.as_secs()))
        }
        _ => (200, None),
    };
    assert_eq!((answer.status, answer.retry_after), (status, wait));
    let passes = status == 200;
    let enforced: Vec<_> =
        asks(before).into_iter().filter(|asks| asks.policy.mode() == PolicyMode::Enforce).collect();
    let shown = |asks: &&AskExplained| {
        (asks.policy.name().to_owned(), left(asks) - if passes { asks.cost } else { 0 })
    };
    let mut expected: Vec<_> = enforced.iter().map(shown).collect();
    if answer.left.is_empty() && !passes {
        // Refused for something else than a limit.
        let mut applying = before.rules.iter().filter(|rule| rule.why_not.is_none());
        let is_elsewhere = applying.any(|rule| rule.limits.iter().all(|limit| limit.asks.is_err()));
        assert!(is_elsewhere, "a limit that refuses shows itself");
        expected.clear();
    }
    let mut seen = answer.left.clone();
    seen.sort();
    expected.sort();
    assert_eq!(seen, expected);
    // Key, tier and cost are those that were spent from and by.
    assert_eq!(asks(before).len(), asks(after).len());
    for (before, after) in asks(before).into_iter().zip(asks(after)) {
        let has_room = left(before) >= before.cost;
        let spends = passes && has_room;
        assert_eq!((&before.key, &before.tier), (&after.key, &after.tier));
        assert_eq!(left(after), left(before) - if spends { before.cost } else { 0 }, "{}", before.policy);
    }
}

#[tokio::test]
async fn of_a_thousand_random_requests_and_files_each_is_answered_as_it_was_explained() {
    let mut random = Random::new(11);
    let mut outcomes = [0; 4];
    for _ in 0..100 {
        let text = file(&mut random);
        let read = RulesFile::parse("rules.yaml", &text, &Variables::none());
        let read = read.unwrap_or_else(|error| panic!("{error}\n{text}"));
        let (store, _clock) = store();
        let rules = Rules::new(&store, read).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let told = Arc::new(Mutex::new(Vec::new()));
        let address = serve(rules, Arc::clone(&told)).await;
        for _ in 0..10 {
            let head = head(&mut random);
            let answer = ask(address, &head).await;
            let told = std::mem::take(&mut *told.lock().expect("nobody has panicked"));
            let [before, after] = &told[..] else { panic!("it was explained twice") };
            println!("{text}\n{head}{before}\n{after}");
            check(before, after, &answer);
            outcomes[match before.outcome {
                WouldBe::Exempt => 0,
                WouldBe::Unlimited => 1,
                WouldBe::Allowed => 2,
                _ => 3,
            }] += 1;
        }
    }
    assert!(outcomes.iter().all(|count| *count > 50), "all ways are tried: {outcomes:?}");
}
