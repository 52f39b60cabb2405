//! Clients that mean no good: each is answered or closed in bounded time, and the server's memory stays where it was.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use serde_json::{Value, json};

use crate::serve::crowd::client;
use crate::serve::processes::Sluicegate;

const RULES: &str = r#"
version: 1
policies:
  user: { quota: 5/h, table_size: 20000 }
  mail: { quota: 10/h }
rules:
  - { name: user, only_if: { domain: edge, descriptor: [{ user: "*" }] }, limit: user, key: descriptor }
"#;

/// More than the allocator keeps for itself, and far less than a hundred thousand keys would take.
const SLACK_KIB: u64 = 16 * 1024;

const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

fn user(name: &str) -> RateLimitDescriptor {
    let entry = Entry { key: "user".to_owned(), value: name.to_owned() };
    RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() }
}

/// Reads until the server closes the connection: for far longer than a busy machine needs, and not for ever.
fn until_closed(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answer = Vec::new();
    // A reset is a close, too.
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_messages_are_refused_malformed_json_gets_an_error_and_the_next_client_an_answer() {
    let serving = Sluicegate::serve(RULES, &[]);
    let stream = tokio::net::TcpStream::connect(serving.grpc).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for message in [
        &b""[..],
        b"\0\0\0\0\x05\xff\xff\xff\xff\xff",
        b"\0\0\0\0\x03\x0a\x7fa",
        b"\0\xff\xff\xff\xff\x0a",
        b"\x01\0\0\0\x02\x0a\0",
        b"\0\0\0\0\x04\x0a\x02\xff\xfe",
    ] {
        let request = http::Request::post(format!("http://{}{METHOD}", serving.grpc));
        let request = request.header("content-type", "application/grpc").header("te", "trailers");
        let response =
            sender.send_request(request.body(Full::new(Bytes::from_static(message))).unwrap()).await;
        let response = response.unwrap();
        let answer = response.into_body().collect().await.unwrap().to_bytes();
        let answer = RateLimitResponse::decode(answer.get(5..).unwrap_or_default()).unwrap();
        assert_eq!(answer.overall_code(), Code::OverLimit, "{message:?}");
    }
    let (client, url) = (client(1), format!("http://{}/v1/check", serving.http));
    for body in [
        "{",
        "[1]",
        "{\"policy\":7}",
        "\u{0}",
        "{\"batch\":[{\"batch\":[]}]}",
        "nul",
        "{\"policy\":\"mail\",\"key\":{}}",
    ] {
        let request = client.post(&url).header("content-type", "application/json").body(body);
        let status = request.send().await.unwrap().status().as_u16();
        assert!(status == 400 || status == 200 && body.contains("batch"), "{body}: {status}");
    }
    let mut client = RateLimitServiceClient::connect(format!("http://{}", serving.grpc)).await.unwrap();
    let call = RateLimitRequest { domain: "edge".to_owned(), descriptors: vec![user("ada")], hits_addend: 0 };
    assert_eq!(client.should_rate_limit(call).await.unwrap().into_inner().overall_code(), Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_keys_are_answered_in_flat_memory() {
    let serving = Sluicegate::serve(RULES, &[]);
    let mut client = RateLimitServiceClient::connect(format!("http://{}", serving.grpc)).await.unwrap();
    let mut flood = async |from: usize| {
        for call in from / 16..(from + 100_000) / 16 {
            let descriptors = (0..16).map(|n| user(&format!("{call}-{n}"))).collect();
            let call = RateLimitRequest { domain: "edge".to_owned(), descriptors, hits_addend: 0 };
            assert_eq!(client.should_rate_limit(call).await.unwrap().into_inner().overall_code(), Code::Ok);
        }
    };
    // So that the table is full, and buffers have their size.
    flood(0).await;
    let before = serving.rss_kib();
    flood(100_000).await;
    let after = serving.rss_kib();
    assert!(after < before + SLACK_KIB, "{before} KiB before, {after} KiB after");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_bodies_and_idle_connections_are_closed_in_time_and_memory_stays_flat() {
    let serving = Sluicegate::serve(RULES, &["--max-time", "2s"]);
    let before = serving.rss_kib();
    let mut idle = Vec::new();
    for number in 0..1_000 {
        let address = if number % 2 == 0 { serving.http } else { serving.grpc };
        idle.push(TcpStream::connect(address).unwrap());
    }
    let head = "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    let mut slow = TcpStream::connect(serving.http).unwrap();
    slow.write_all(head.as_bytes()).unwrap();
    // Others are served meanwhile.
    let checked = client(1).post(format!("http://{}/v1/check", serving.http));
    assert_eq!(checked.json(&json!({ "policy": "mail", "key": "ada" })).send().await.unwrap().status(), 200);
    let during = serving.rss_kib();
    assert!(during < before + 2 * SLACK_KIB, "{before} KiB before, {during} KiB with them");
    let answer = until_closed(slow);
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    for stream in idle {
        until_closed(stream);
    }
    let after = serving.rss_kib();
    assert!(after < before + 2 * SLACK_KIB, "{before} KiB before, {after} KiB after");
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_receipts_and_replayed_settles_give_nothing_back() {
    let serving = Sluicegate::serve(RULES, &[]);
    let client = client(1);
    let post = async |path: &str, call: Value| {
        let response =
            client.post(format!("http://{}{path}", serving.http)).json(&call).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let (_, reserved) = post("/v1/reserve", json!({ "policy": "mail", "key": "ada", "cost": 8 })).await;
    let receipt = reserved["receipt"].as_str().unwrap().to_owned();
    let settle = |receipt: &str| post("/v1/settle", json!({ "receipt": receipt, "actual": 1 }));
    for place in (0..receipt.len()).step_by(7) {
        let mut forged = receipt.clone().into_bytes();
        forged[place] = if forged[place] == b'A' { b'B' } else { b'A' };
        let (status, _) = settle(std::str::from_utf8(&forged).unwrap()).await;
        assert_eq!(status, 400, "byte {place}");
    }
    assert_eq!(settle(&receipt).await.0, 200);
    for _ in 0..20 {
        assert!(settle(&receipt).await.0 >= 400);
    }
    let (_, look) = post("/v1/peek", json!({ "policy": "mail", "key": "ada" })).await;
    assert_eq!(look["limits"][0]["remaining"], 9, "one unit is spent, and seven came back once");
}

/// Each such reload once kept a table for good.
#[tokio::test]
async fn reloads_that_alternate_a_quota_take_a_bounded_memory() {
    let rules = |quota: &str| format!("version: 1\npolicies: {{ p: {{ quota: {quota} }} }}\nrules: []\n");
    let serving = Sluicegate::serve(&rules("100/d"), &[]);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = async |path: &str, call: Value| -> Value {
        let answer = client.post(format!("http://{}/v1/{path}", serving.http)).json(&call).send();
        answer.await.unwrap().json().await.unwrap()
    };
    let checks: Vec<_> = (0..500).map(|key| json!({ "policy": "p", "key": format!("k{key}") })).collect();
    let mut taken = Vec::new();
    for _ in 0..2 {
        for number in 0..40 {
            let limit = 100 + number % 2;
            serving.change(&rules(&format!("{limit}/d")));
            while ask("peek", json!({ "policy": "p", "key": "look" })).await["limits"][0]["capacity"] != limit
            {
            }
            ask("check", json!({ "batch": checks })).await;
        }
        taken.push(serving.rss_kib());
    }
    assert!(taken[0] < 160 * 1_024 && taken[1] < taken[0] + 32 * 1_024, "{taken:?} KiB");
}
