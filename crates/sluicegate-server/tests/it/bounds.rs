//! What is over a bound is told the bound, and what is slow is closed.

use std::net::SocketAddr;
use std::time::Duration;

use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use prost::Message as _;
use serde_json::{Value, json};
use sluicegate_server::Bounds;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::grpc::descriptor;
use crate::support::{Answered, RULES, Served};

async fn bounded(change: impl FnOnce(&mut Bounds)) -> Served {
    let mut bounds = Bounds::default();
    change(&mut bounds);
    Served::with(RULES, |builder| builder.bounds(bounds)).await
}

/// Sends these bytes, and reads until the server closes.
async fn sends(served: &Served, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_body_above_its_bound_is_413_however_it_comes() {
    let served = Served::start().await;
    let long = json!({ "policy": "mail", "key": "a".repeat(70_000) });
    let announced = served.ask("/v1/check", long).await;
    assert!(announced.status == 413 && announced.detail().contains("65536 bytes"), "{announced:?}");
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let head = "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    let answer = sends(&served, format!("{head}{chunk}{chunk}0\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn batches_and_lists_have_a_bound() {
    let served = bounded(|bounds| bounds.batch = 3).await;
    let check = json!({ "policy": "mail", "key": "ada", "cost": 0 });
    let many = |count: usize| Value::from(vec![check.clone(); count]);
    assert_eq!(served.ask("/v1/peek", json!({ "batch": many(3) })).await.status, 200);
    let answered = served.ask("/v1/peek", json!({ "batch": many(4) })).await;
    assert!(answered.status == 413 && answered.detail().contains("at most 3"), "{answered:?}");
    assert_eq!(served.ask("/v1/peek", json!({ "checks": many(4) })).await.status, 413);
}

#[tokio::test]
async fn what_is_no_question_is_told_so() {
    let served = Served::start().await;
    let post = |body: &'static str, media: &'static str| {
        let request = served.post("/v1/check", &Value::Null).body(body).build().unwrap();
        served.send_as(request, media)
    };
    let wrong = post("{\"policy\": \"login\"", "application/json").await;
    assert!(wrong.status == 400 && wrong.detail().contains("line 1 column"), "{wrong:?}");
    assert_eq!(post("{}", "text/plain").await.status, 415, "a form of another origin could send it");
    let deep = "[".repeat(60_000);
    let request = served.post("/v1/check", &Value::Null).body(deep).send().await.unwrap();
    assert_eq!(request.status(), 400);
    for typo in [
        json!({ "polici": "mail", "key": "ada" }),
        json!({ "policy": "mail", "key": "ada", "cost": -1 }),
        // Members by their position.
        json!(["mail", "ada", null, null, null, null, null, null, null]),
        json!({ "policy": "mail", "key": ["ada", null, null, null, null] }),
        json!({ "checks": [["mail", "ada", null]] }),
        json!({ "batch": [["mail", "ada", null, null, null, null, null, null, null]] }),
        json!({ "request": [null, "/login", null, {}, "192.0.2.7"] }),
    ] {
        let answered = Answered::of(served.post("/v1/check", &typo).send().await.unwrap()).await;
        assert_eq!(answered.status, 400, "{typo}");
    }
}

#[tokio::test]
async fn a_slow_body_is_408_and_a_silent_connection_is_closed() {
    let served = bounded(|bounds| {
        bounds.request = Duration::from_millis(300);
        bounds.handshake = Duration::from_millis(100);
    })
    .await;
    let head = b"POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{";
    let answer = sends(&served, head).await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("within 100ms"), "{answer}");
    for silent in [&b""[..], b"GET /healthz HT", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        // Only that it is closed matters here, and that is when the read ends.
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(silent).await.unwrap();
        _ = stream.read_to_end(&mut Vec::new()).await;
    }
    assert_eq!(served.get("/healthz").send().await.unwrap().status(), 200);
}

/// A connection that has sent this, and has got an answer that begins so.
async fn opened(served: &Served, sent: &str, answer: &str) -> TcpStream {
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    let mut begin = vec![0; answer.len()];
    stream.read_exact(&mut begin).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&begin), answer);
    stream
}

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200";

/// Connections of strangers once held all places for ten minutes, and probes were turned away.
#[tokio::test]
async fn connections_of_strangers_make_room_and_those_that_work_for_known_callers_do_not() {
    let mut bounds = Bounds::default();
    (bounds.connections, bounds.request) = (2, Duration::from_secs(3_600));
    let served = Served::with(RULES, |builder| builder.bounds(bounds).secret("0123456789abcdef")).await;
    let known = "Host: a\r\nAuthorization: Bearer 0123456789abcdef\r\n";
    let working = format!(
        "POST /v1/peek HTTP/1.1\r\n{known}Content-Type: application/json\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
    );
    let once = format!("GET /metrics HTTP/1.1\r\n{known}Connection: close\r\n\r\n");
    let work = opened(&served, &working, "HTTP/1.1 100").await;
    for (sent, answer) in [
        (HEALTH, OK),
        ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 401"),
        ("GET /healthz HT", ""),
        ("", ""),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""),
    ] {
        let stranger = opened(&served, sent, answer).await;
        let answer = sends(&served, once.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{sent:?}: {answer}");
        drop(stranger);
    }
    let another = opened(&served, &working, "HTTP/1.1 100").await;
    let refused = sends(&served, once.as_bytes()).await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("2 connections are open"), "{refused}");
    let probe = HEALTH.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    assert!(sends(&served, probe.as_bytes()).await.starts_with(OK), "a probe is answered nevertheless");
    drop((work, another));
    // The server sees in its own time that they are gone.
    while !sends(&served, once.as_bytes()).await.starts_with("HTTP/1.1 404 ") {}
}

#[tokio::test]
async fn a_head_has_its_time_from_its_first_byte_and_strangers_are_idle_for_a_shorter_time() {
    let served = bounded(|bounds| {
        bounds.handshake = Duration::from_millis(200);
        bounds.idle_stranger = Duration::from_secs(600);
    })
    .await;
    let mut late = opened(&served, HEALTH, OK).await;
    late.write_all(b"GET /healthz HT").await.unwrap();
    _ = late.read_to_end(&mut Vec::new()).await;

    let served = bounded(|bounds| {
        bounds.handshake = Duration::from_millis(50);
        bounds.idle_stranger = Duration::from_millis(50);
    })
    .await;
    let mut known = opened(&served, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 404").await;
    let mut stranger = opened(&served, HEALTH, OK).await;
    _ = stranger.read_to_end(&mut Vec::new()).await;
    known.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answers = Vec::new();
    known.read_to_end(&mut answers).await.unwrap();
    assert_eq!(
        String::from_utf8_lossy(&answers).matches("HTTP/1.1 404").count(),
        1,
        "it is let in, and stays"
    );
}

#[tokio::test]
async fn only_as_many_wait_as_may() {
    let rules = RULES.replace("100/s burst 1", "1/h burst 1");
    let mut bounds = Bounds::default();
    bounds.waiting = 0;
    let served = Served::with(&rules, |builder| builder.bounds(bounds)).await;
    let reserve = json!({ "policy": "turns", "key": "ada", "wait": "1s" });
    let answered = served.ask("/v1/reserve", reserve).await;
    assert_eq!((answered.status, answered.field("retry-after")), (503, "1"));
    assert!(answered.detail().starts_with("0 requests wait"), "{answered:?}");
}

#[tokio::test]
async fn requests_above_their_bound_are_refused_and_probes_are_not() {
    let mut bounds = Bounds::default();
    bounds.requests = 0;
    let served = Served::with(RULES, |builder| builder.bounds(bounds)).await;
    let answered = served.ask("/v1/peek", json!({ "policy": "mail", "key": "ada" })).await;
    assert_eq!((answered.status, answered.field("retry-after")), (503, "1"));
    assert!(answered.detail().starts_with("0 requests are in progress"), "{answered:?}");
    assert_eq!(served.get("/healthz").send().await.unwrap().status(), 200);
}

/// A client that speaks HTTP/2, takes the heads of responses, and of their bodies no more than a window.
struct Unread(TcpStream);

impl Unread {
    /// Asks for these paths. The server has sent the heads of all responses, and this many bytes of each, when this returns.
    async fn asks(served: &Served, window: u8, paths: &[&str]) -> Self {
        let get = |path: &&str| (block(0x82, path), None);
        Self::sends(served.address, window, &paths.iter().map(get).collect::<Vec<_>>()).await
    }

    /// Makes this number of calls of the rate limit service.
    async fn calls(served: &Served, window: u8, calls: usize) -> Self {
        let call = RateLimitRequest {
            domain: "any".to_owned(),
            descriptors: vec![descriptor(&[("user", "ada")])],
            hits_addend: 0,
        };
        let message = call.encode_to_vec();
        let prefix = [0, 0, 0, 0, u8::try_from(message.len()).unwrap()];
        let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
        // The index of content-type is 31.
        let block = [&block(0x83, path), &[0x0f, 0x10, 16][..], b"application/grpc"].concat();
        Self::sends(served.grpc, window, &vec![(block, Some([&prefix, &message[..]].concat())); calls]).await
    }

    async fn sends(address: SocketAddr, window: u8, requests: &[(Vec<u8>, Option<Vec<u8>>)]) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let settings = [&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0][..], &[window]].concat();
        stream.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..]].concat()).await.unwrap();
        for (id, (block, body)) in (1_u8..).step_by(2).zip(requests) {
            let flags = if body.is_some() { 0b100 } else { 0b101 };
            let bodies = body.iter().map(|body| (0, 1, body));
            for (kind, flags, payload) in [(1, flags, block)].into_iter().chain(bodies) {
                let frame = [0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, id];
                stream.write_all(&[&frame, &payload[..]].concat()).await.unwrap();
            }
        }
        let (mut heads, mut data) = (0, 0);
        while heads < requests.len() || data < requests.len() * usize::from(window) {
            let mut frame = [0; 9];
            stream.read_exact(&mut frame).await.unwrap();
            let mut rest = vec![0; usize::from(u16::from_be_bytes([frame[1], frame[2]]))];
            stream.read_exact(&mut rest).await.unwrap();
            match frame[3] {
                0 => data += rest.len(),
                1 => heads += 1,
                _ => {}
            }
        }
        Self(stream)
    }

    /// Waits until the server closes the connection.
    async fn until_closed(mut self) {
        _ = self.0.read_to_end(&mut Vec::new()).await;
    }
}

/// The header block of a request with this method, an index of HPACK's static table.
fn block(method: u8, path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).unwrap();
    [&[method, 0x86, 0x04, length], path.as_bytes(), &[0x01, 1, b'a']].concat()
}

async fn metrics(served: &Served) -> u16 {
    served.get("/metrics").bearer_auth("0123456789abcdef").send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_response_counts_as_in_progress_until_it_is_sent_or_its_connection_is_gone() {
    let served = bounded(|bounds| bounds.requests = 2).await;
    // Without a window the body holds its data, and then the connection does.
    for window in [0, 1] {
        let unread = Unread::asks(&served, window, &["/metrics"; 2]).await;
        assert_eq!(metrics(&served).await, 503, "two requests are in progress");
        drop(unread);
        while metrics(&served).await == 503 {}
        let called = Unread::calls(&served, window, 2).await;
        assert_eq!(metrics(&served).await, 503, "two calls are in progress");
        drop(called);
        // The server sees in its own time that it is gone.
        while metrics(&served).await == 503 {}
    }
    for _ in 0..5 {
        assert_eq!(metrics(&served).await, 404, "a response that was read counts no more");
    }
}

#[tokio::test]
async fn responses_to_callers_that_are_not_let_in_take_nothing_from_others() {
    let mut bounds = Bounds::default();
    bounds.requests = 1;
    let served = Served::with(RULES, |builder| builder.bounds(bounds).secret("0123456789abcdef")).await;
    let paths = ["/metrics", "/v1/check", "/status", "/proxy/nginx", "/openapi.json", "/healthz", "/no"];
    let _unread = Unread::asks(&served, 0, &paths).await;
    assert_eq!(metrics(&served).await, 404);
}

#[tokio::test]
async fn a_connection_whose_client_takes_no_response_is_closed_and_a_watch_of_health_goes_on() {
    let mut served = bounded(|bounds| bounds.request = Duration::from_millis(100)).await;
    let channel = Endpoint::new(format!("http://{}", served.grpc)).unwrap().connect().await.unwrap();
    let everything = HealthCheckRequest { service: String::new() };
    let mut watched = HealthClient::new(channel).watch(everything).await.unwrap().into_inner();
    while watched.message().await.unwrap().unwrap().status() != ServingStatus::Serving {}
    for path in ["/metrics", "/openapi.json", "/healthz", "/no"] {
        Unread::asks(&served, 1, &[path]).await.until_closed().await;
    }
    Unread::calls(&served, 1, 1).await.until_closed().await;
    served.stop();
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
}
