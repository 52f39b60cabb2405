//! Bytes a second of bodies, as a file says it.

use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use sluicegate_rules::{Rules, RulesFile, Variables};
use sluicegate_tests::frames::next;
use sluicegate_tests::log::lines_of;
use sluicegate_tests::memory::paused_store;
use sluicegate_tower::bandwidth::PacedBody;
use sluicegate_tower::in_flight::PermitBody;
use sluicegate_tower::request_fields::ReadBody;
use sluicegate_tower::settle::SettlingBody;
use tokio::time::{Instant, timeout_at};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{error, parse, request};

/// A body behind the layers of rules.
type Download = PermitBody<SettlingBody<Full<Bytes>>>;

fn rules(text: &str) -> Rules {
    Rules::new(paused_store(), parse(text)).expect("memory keeps all")
}

/// The body of a response of this length.
async fn download(rules: &Rules, user: &str, length: usize) -> Download {
    let file = service_fn(move |_: Request<()>| {
        ready(Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(vec![0; length])))))
    });
    let sent = rules.layer().layer(file).oneshot(request("/", &[("x-user", user)])).await;
    sent.expect("the upstream does not fail").into_body()
}

/// The bytes that come within a second.
async fn second(body: &mut Download) -> usize {
    let (until, mut read) = (Instant::now() + Duration::from_secs(1), 0);
    while let Ok(Some(Ok(frame))) = timeout_at(until, next(body)).await {
        read += frame.data_ref().map_or(0, Bytes::len);
    }
    read
}

async fn length(body: Download) -> usize {
    body.collect().await.expect("it does not fail").to_bytes().len()
}

fn of_keys(quota: &str, more: &str) -> String {
    format!(
        "
version: 1
policies: {{ downloads: {{ quota: {quota}, {more} }} }}
rules: [{{ name: files, limit: downloads, key: header(x-user), bandwidth: down }}]
"
    )
}

#[tokio::test(start_paused = true)]
async fn downloads_of_a_key_keep_to_the_quota_of_the_file() {
    let rules = rules(&of_keys("1kB/s burst 2kB", "table_size: 100"));
    let begin = Instant::now();
    assert_eq!(length(download(&rules, "ada", 5_000).await).await, 5_000);
    assert_eq!(begin.elapsed(), Duration::from_secs(3));
    assert_eq!(length(download(&rules, "bob", 2_000).await).await, 2_000);
    assert_eq!(begin.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_reload_changes_the_pace_of_bodies_that_are_under_way() {
    let rules = rules(&of_keys("10kB/s burst 1kB", ""));
    let mut body = download(&rules, "ada", 1_000_000).await;
    second(&mut body).await;
    for (quota, more, expected) in [
        ("50kB/s burst 5kB", "", 50_000),
        ("20kB/s burst 2kB", "on_outage: deny", 20_000),
        ("20kB/s burst 2kB", "overrides: { ada: 30kB/s burst 3kB }", 20_000),
    ] {
        rules.replace(parse(&of_keys(quota, more))).expect("it is good");
        second(&mut body).await;
        let read = second(&mut body).await;
        assert!(read.abs_diff(expected) <= expected / 10, "{quota}, {more}: {read}");
    }
    let without = "version: 1\npolicies: { other: { quota: 5/s } }\nrules: [{ name: all, limit: other, key: everybody }]";
    rules.replace(parse(without)).expect("it is good");
    // A body keeps the policy that left the file, and what begins from then on has none.
    assert!(second(&mut body).await.abs_diff(20_000) <= 2_000);
    let mut body = download(&rules, "ada", 1_000_000).await;
    assert_eq!(second(&mut body).await, 1_000_000);
}

#[tokio::test(start_paused = true)]
async fn tiers_overrides_and_a_limit_for_all_hold_bodies() {
    let rules = rules(
        "
version: 1
clients: { proxies: 10.0.0.0/8 }
policies:
  downloads: { quota: 1kB/s, overrides: { acme: 10kB/s, staff: unlimited } }
  line: { quota: 50kB/s }
rules:
  - { name: files, limit: downloads, key: header(x-user), bandwidth: down }
  - { name: line, limit: line, key: everybody, bandwidth: down }
",
    );
    for (user, length_of_body, expected) in [("ada", 4_000, 3), ("acme", 40_000, 3), ("staff", 200_000, 3)] {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let begin = Instant::now();
        assert_eq!(length(download(&rules, user, length_of_body).await).await, length_of_body);
        assert_eq!(begin.elapsed().as_secs(), expected, "{user}");
    }
}

#[tokio::test(start_paused = true)]
async fn uploads_are_held_behind_a_layer_that_reads_requests() {
    let rules = rules(
        "
version: 1
policies: { uploads: { quota: 1kB/s burst 2kB } }
rules: [{ name: up, limit: uploads, key: body(user), bandwidth: up }]
",
    );
    let upload = || {
        let text = format!("{{\"user\": \"ada\", \"text\": \"{}\"}}", "a".repeat(4_974));
        Request::new(Full::new(Bytes::from(text)))
    };
    let begin = Instant::now();
    for (reads, took) in [(false, 0), (true, 3)] {
        let receives = async |length| assert_eq!(length, 5_001);
        let sent = if reads {
            let upstream = service_fn(async |request: Request<_>| {
                let body: PacedBody<_> = request.into_body();
                receives(body.collect().await.expect("it does not fail").to_bytes().len()).await;
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
            });
            rules.layer().reading_requests().layer(upstream).oneshot(upload()).await
        } else {
            let upstream = service_fn(async |request: Request<Full<Bytes>>| {
                receives(request.into_body().collect().await.expect("it does not fail").to_bytes().len())
                    .await;
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
            });
            rules.layer().layer(upstream).oneshot(upload()).await
        };
        assert_eq!(sent.expect("the upstream does not fail").status(), 200);
        assert_eq!(begin.elapsed().as_secs(), took);
    }
}

#[tokio::test(start_paused = true)]
async fn an_explanation_says_which_bodies_are_held() {
    let rules = rules(&of_keys("1MB/s burst 2MB", "mode: shadow"));
    let explained = rules.explain(&request("/", &[("x-user", "ada")])).await.to_string();
    assert!(
        explained.contains(
            "files: would hold the response's body to the bytes of downloads: 1000000/s burst 2000000"
        ),
        "{explained}"
    );
    assert!(explained.contains("; 2000000 of 2000000 left"), "{explained}");
}

#[test]
fn a_policy_counts_requests_or_bytes_and_two_directions_may_share_one() {
    let text = |first: &str, second: &str| {
        format!(
            "
version: 1
policies: {{ api: {{ quota: 1MB/s }} }}
rules:
  - {{ name: one, limit: api, key: client, {first} }}
  - {{ name: two, limit: api, key: client, {second} }}
"
        )
    };
    let read = |first, second| RulesFile::parse("rules.yaml", &text(first, second), &Variables::none());
    let told = error(read("bandwidth: down", "cost: 1"));
    assert!(
        told.contains(
            "policy \"api\" is rule \"one\"'s, too, and one of them counts requests and the other bytes"
        ),
        "{told}"
    );
    let file = read("bandwidth: down", "bandwidth: up").expect("it is good");
    assert!(file.warnings().is_empty(), "{:?}", file.warnings());
}

/// What is logged of bodies meanwhile; keys that clients make up are worth a line, too.
fn told(run: impl FnOnce()) -> Vec<String> {
    lines_of(run).into_iter().filter(|line| line.contains("the rules look at")).collect()
}

/// A file that looked at bodies limited nothing behind a layer that did not, and nothing said so.
#[test]
fn a_layer_that_does_not_read_what_the_file_looks_at_is_worth_one_line() {
    let plain = of_keys("1MB/s", "");
    let by_model = "version: 1\npolicies: { tokens: { quota: 5/s } }\nrules: [{ name: all, limit: tokens, key: body(model) }]";
    let uploads = plain.replace("bandwidth: down", "bandwidth: up");
    let upstream =
        || service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))));
    for (text, expected) in [
        (by_model, "the fields \"model\" of requests' bodies"),
        (&*uploads, "the bandwidth of requests' bodies"),
    ] {
        let rules = rules(text);
        let lines = told(|| {
            for _ in 0..2 {
                drop(rules.layer().layer(upstream()));
            }
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("WARN")
                && lines[0].contains(expected)
                && lines[0].contains("reading_requests()"),
            "{lines:?}"
        );
    }
    let rules = rules(&plain);
    let quiet = told(|| {
        let reading = rules.layer().reading_requests();
        drop(reading.layer(service_fn(|_: Request<PacedBody<ReadBody<Full<Bytes>>>>| {
            ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
        })));
        rules.replace(parse(by_model)).expect("it is good");
        rules.replace(parse(&plain)).expect("it is good");
        drop(rules.layer().layer(upstream()));
    });
    assert_eq!(quiet, [""; 0]);
    let lines = told(|| drop(rules.replace(parse(by_model))));
    assert!(lines.len() == 1 && lines[0].contains("the fields \"model\""), "{lines:?}");
}
