//! What is over a bound is told the bound, and what is slow is closed.

use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_server::Bounds;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

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
    for typo in
        [json!({ "polici": "mail", "key": "ada" }), json!({ "policy": "mail", "key": "ada", "cost": -1 })]
    {
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

#[tokio::test]
async fn one_connection_more_than_may_be_open_is_turned_away_and_the_next_finds_room() {
    let served = bounded(|bounds| bounds.connections = 2).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).await.unwrap();
        assert_eq!(&begin, b"HTTP/1.1 200");
        open.push(stream);
    }
    let answer = sends(&served, b"").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("2 connections are open"), "{answer}");
    drop(open);
    // The server sees in its own time that they are gone.
    while !sends(&served, b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await
        .contains(" 200 ")
    {}
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
