//! A service under the traffic of a real log, over a socket on the log's clock: each request is answered as it was explained, and the
//! replay of the log has the figures of the service.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use http::{Method, StatusCode};
use sluicegate::clock::ManualClock;
use sluicegate::key::PeerAddr;
use sluicegate::limits::WouldBe;
use sluicegate::policy::PolicyMode;
use sluicegate::rules::{Explained, Rules, RulesFile, Variables};
use sluicegate_replay::Replay;
use sluicegate_tests::memory::store_on;

use crate::support::{Client, serve_without_peer_address, whole};

const RULES: &str = r#"
version: 1
policies:
  blog: { algorithm: sliding-log, quota: 4/min }
  pages: { quota: 12/min burst 6 }
  site: { algorithm: fixed-window, quota: 30/min }
  tried: { algorithm: sliding-counter, quota: 3/min, mode: shadow }
exempt: [{ name: robots, only_if: { path: /robots.txt } }]
deny: [{ name: fonts, only_if: { path: "/files/{*rest}", query: { secret: "1" } } }]
rules:
  - { name: blog, group: part, only_if: { path: "/blog/{*rest}" }, limit: blog, key: client, refund_if: [404, 304] }
  - { name: pages, group: part, limit: pages, key: client, cost: 2, only_if: { method: GET } }
  - { name: site, limit: site, key: everybody }
  - { name: tried, limit: tried, key: client }
"#;

/// A line of the log, and the request that was in it.
struct Logged {
    line: String,
    at: Duration,
    address: IpAddr,
    method: Method,
    target: String,
    status: u16,
}

/// The requests of the real log in the order of their times, those of one second spread over it.
fn logged() -> Vec<Logged> {
    let log = include_bytes!("../../crates/sluicegate-replay/tests/access.log.gz");
    let text = std::io::read_to_string(flate2::read::GzDecoder::new(&log[..])).expect("it is text");
    let read = |line: &str| {
        let part = |from: usize, to: usize| {
            line.split('"').nth(1)?.split(' ').nth(from).map(|part| part[to..].to_owned())
        };
        let stamp = &line[line.find('[')? + 1..];
        let digits = |from: usize| stamp[from..from + 2].parse::<u64>().ok();
        // 1 May 2015 began 16,556 days after the epoch.
        let hours = (16_555 + digits(0)?) * 24 + digits(12)?;
        Some(Logged {
            at: Duration::from_secs((hours * 60 + digits(15)?) * 60 + digits(18)?),
            address: line.split(' ').next()?.parse().ok()?,
            method: part(0, 0)?.parse().ok()?,
            target: part(1, 0)?,
            status: line.split("\" ").nth(1)?[..3].parse().ok()?,
            line: line.to_owned(),
        })
    };
    let mut all: Vec<Logged> =
        text.lines().map(|line| read(line).expect("it is in the combined format")).collect();
    all.sort_by_key(|logged| logged.at);
    for second in all.chunk_by_mut(|one, next| one.at == next.at) {
        let length = second.len() as u64;
        (0..)
            .zip(second)
            .for_each(|(place, logged)| logged.at += Duration::from_micros(place * 1_000_000 / length));
    }
    all
}

/// A handler that answers with the status of then, behind the limits, behind a server that says the address of then.
fn app(rules: &Rules) -> Router {
    let status = async |request: Request| {
        let status = request.headers()["x-status"].to_str().unwrap().parse::<u16>().unwrap();
        StatusCode::from_u16(status).unwrap()
    };
    let peer = async |mut request: Request, next: Next| {
        let address: IpAddr = request.headers()["x-address"].to_str().unwrap().parse().unwrap();
        request.extensions_mut().insert(PeerAddr(SocketAddr::new(address, 1)));
        next.run(request).await
    };
    Router::new().fallback(status).layer(rules.layer()).layer(from_fn(peer))
}

/// What the service has counted for each rule: asked, and without room.
type Counts = BTreeMap<String, (u64, u64)>;

/// Counts a request as it was explained.
fn count(explained: &Explained, passes: bool, counts: &mut Counts) {
    for rule in &explained.rules {
        for asks in rule.limits.iter().filter_map(|limit| limit.asks.as_ref().ok()) {
            // A policy that is only tried out is not asked once another one has refused the request.
            if asks.policy.mode() == PolicyMode::Enforce || passes {
                let has_room = asks.quotas[0].remaining() >= asks.cost;
                let (asked, rejected) = counts.entry(rule.name.clone()).or_default();
                *asked += 1;
                *rejected += u64::from(!has_room);
            }
        }
    }
}

#[tokio::test]
async fn requests_of_a_real_log_are_answered_as_explained_and_replayed_as_answered() {
    let clock = ManualClock::new();
    let file = || RulesFile::parse("rules.yaml", RULES, &Variables::none()).unwrap();
    let rules = Rules::new(store_on(clock.clone()), file()).unwrap();
    let mut client = Client::connect(serve_without_peer_address(app(&rules)).await).await;
    let (mut counts, mut refused, all) = (Counts::new(), 0, logged());
    for Logged { line, at, address, method, target, status } in &all {
        clock.set(*at);
        let request = || http::Request::builder().method(method.clone()).uri(target);
        let mut seen = request().body(()).unwrap().into_parts().0;
        seen.extensions.insert(PeerAddr(SocketAddr::new(*address, 1)));
        let explained = rules.explain(&seen).await;

        let sent = request().header("x-status", *status).header("x-address", address.to_string());
        let response = whole(client.begin_with(sent, "").await).await;
        let wait =
            response.headers().get("retry-after").map(|wait| wait.to_str().unwrap().parse::<u64>().unwrap());
        let expected = match &explained.outcome {
            WouldBe::Refused { status, retry_after, .. } => {
                (status.as_u16(), retry_after.map(|wait| wait.as_secs()))
            }
            _ => (*status, None),
        };
        assert_eq!((response.status().as_u16(), wait), expected, "{line}\n{explained}");
        let passes = !matches!(explained.outcome, WouldBe::Refused { .. });
        refused += u64::from(!passes);
        count(&explained, passes, &mut counts);
    }
    assert!(refused > 300, "the limits have something to do: {refused}");

    let lines: String = all.iter().map(|logged| format!("{}\n", logged.line)).collect();
    let outcome = Replay::new(file()).unwrap().run([("access.log", Cursor::new(lines))]).unwrap();
    let replayed = outcome.rules.iter().map(|rule| (rule.name.clone(), (rule.asked, rule.rejected)));
    assert_eq!(replayed.collect::<Counts>(), counts);
    assert!(
        counts.len() == 4 && counts.values().all(|(asked, rejected)| *asked > 100 && *rejected > 10),
        "{counts:?}"
    );
    assert!(outcome.lines.exempt > 10 && outcome.left_out.is_empty(), "{outcome}");
}
