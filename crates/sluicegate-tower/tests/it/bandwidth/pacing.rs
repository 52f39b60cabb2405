//! The pace of downloads: exact, fair, without copies, given back.

use std::convert::Infallible;
use std::future::ready;
use std::task::{Context, Waker};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::{client, server};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use sluicegate_core::{Policy, Quota};
use sluicegate_tests::frames::{Frames, data, next};
use sluicegate_tower::RateLimitLayer;
use tokio::time::{Duration, Instant};
use tower::{Layer, service_fn};

use crate::bandwidth::{bytes, down, download, read_for, sent};
use crate::support::{answer, limiter};

const MEGABYTE: usize = 1_000_000;

/// Polls a body once, as a server does before it waits.
fn is_held(body: &mut (impl Body + Unpin)) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    std::pin::Pin::new(body).poll_frame(&mut cx).is_pending()
}

#[tokio::test(start_paused = true)]
async fn ten_downloads_of_a_key_have_a_megabyte_a_second_in_all_and_each_has_its_part() {
    for quota in ["1MB/s burst 100kB", "1MB/s", "60MB/min burst 500kB"] {
        let limiter = limiter(Policy::gcra("downloads", quota));
        let burst = usize::try_from(answer(limiter.peek("ada")).capacity()).unwrap();
        let layer = RateLimitLayer::new(down(&limiter));
        let bodies = join_all((0..10).map(|_| download(&layer, "ada", 10 * MEGABYTE))).await;
        let span = Duration::from_secs(20);
        let read = join_all(bodies.into_iter().map(|body| read_for(body, span))).await;
        let all = read.iter().sum::<usize>() - burst;
        assert!(all.abs_diff(20 * MEGABYTE) <= 20 * MEGABYTE / 50, "{quota}: {all}");
        // The burst is for those that come first.
        let (least, most) = (read.iter().min().unwrap(), read.iter().max().unwrap());
        assert!(most - least <= burst + 2 * 64 * 1024, "{quota}: {read:?}");
    }
}

/// The bytes that count are those that pass: here compressed ones.
#[tokio::test(start_paused = true)]
async fn ten_compressed_downloads_over_one_connection_of_http_2_have_the_bandwidth_of_their_key() {
    let limiter = limiter(Policy::gcra("downloads", "1MB/s burst 100kB"));
    let file = bytes(10 * MEGABYTE);
    let answers = service_fn(move |_: Request<Incoming>| {
        let response = Response::builder().header("content-encoding", "gzip");
        ready(Ok::<_, Infallible>(response.body(Full::new(file.clone())).unwrap()))
    });
    let service = RateLimitLayer::new(down(&limiter)).settling().layer(answers);
    let (client, server) = tokio::io::duplex(64 * 1024);
    let serving = server::conn::http2::Builder::new(TokioExecutor::new());
    tokio::spawn(serving.serve_connection(TokioIo::new(server), TowerToHyperService::new(service)));
    let (client, connection) =
        client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client)).await.unwrap();
    tokio::spawn(connection);
    let read = join_all((0..10).map(|_| {
        let mut client = client.clone();
        async move {
            let request = Request::get("http://files/").header("x-key", "ada").body(Empty::<Bytes>::new());
            let response = client.send_request(request.unwrap()).await.unwrap();
            read_for(response.into_body(), Duration::from_secs(20)).await
        }
    }));
    let read = read.await;
    let all = read.iter().sum::<usize>() - 100_000;
    assert!(all.abs_diff(20 * MEGABYTE) <= 20 * MEGABYTE / 50, "{all}");
    let (least, most) = (read.iter().min().unwrap(), read.iter().max().unwrap());
    assert!(most - least <= 100_000 + 2 * 64 * 1024, "{read:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_downloads_a_lot_takes_nothing_from_others() {
    let limiter = limiter(Policy::gcra("downloads", "1MB/s burst 100kB"));
    let layer = RateLimitLayer::new(down(&limiter));
    let many = join_all((0..50).map(|_| download(&layer, "ada", MEGABYTE))).await;
    let span = Duration::from_secs(1);
    let one = read_for(download(&layer, "bob", 3 * MEGABYTE).await, span);
    let (_, one) = tokio::join!(join_all(many.into_iter().map(|body| read_for(body, span))), one);
    assert!(one.abs_diff(1_100_000) <= 2 * 64 * 1024, "{one}");
}

#[tokio::test(start_paused = true)]
async fn a_download_that_begins_late_has_its_part_from_its_beginning() {
    let limiter = limiter(Policy::gcra("downloads", "1MB/s burst 100kB"));
    let layer = RateLimitLayer::new(down(&limiter));
    let early = join_all((0..9).map(|_| download(&layer, "ada", 10 * MEGABYTE))).await;
    let early = early.into_iter().map(|body| read_for(body, Duration::from_secs(15)));
    let late = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        read_for(download(&layer, "ada", 10 * MEGABYTE).await, Duration::from_secs(10)).await
    };
    let (_, late) = tokio::join!(join_all(early), late);
    assert!(late.abs_diff(MEGABYTE) <= 64 * 1024, "{late}");
}

#[tokio::test(start_paused = true)]
async fn a_frame_above_the_burst_passes_in_pieces_at_the_pace_of_the_quota() {
    for (quota, seconds) in [("1000/s burst 10", 99), ("1kB/s", 99), ("50kB/s burst 1kB", 1)] {
        let limiter = limiter(Policy::gcra("downloads", quota));
        let begin = Instant::now();
        let body = download(&RateLimitLayer::new(down(&limiter)), "ada", 100_000).await;
        assert_eq!(body.collect().await.unwrap().to_bytes(), bytes(100_000));
        let took = begin.elapsed().as_secs();
        assert!((seconds..seconds + 2).contains(&took), "{quota}: {took}");
    }
}

#[tokio::test(start_paused = true)]
async fn windows_and_logs_hold_bodies_as_buckets_do() {
    let window = || Policy::fixed_window("window", "10kB/s");
    let counter = || Policy::sliding_counter("counter", "10kB/s");
    let bucket = || Policy::token_bucket("bucket", "10kB/s");
    let two = || Policy::gcra("two", "100kB/s").and(Quota::per_minute(600_000).burst(10_000));
    for policy in [window(), counter(), bucket(), two()] {
        let begin = Instant::now();
        let limiter = limiter(policy);
        let body = download(&RateLimitLayer::new(down(&limiter)), "ada", 100_000).await;
        assert_eq!(body.collect().await.unwrap().to_bytes(), bytes(100_000));
        let took = begin.elapsed();
        let limit = limiter.policy();
        assert!((Duration::from_secs(8)..Duration::from_secs(12)).contains(&took), "{limit}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_are_not_copied() {
    let limiter = limiter(Policy::gcra("downloads", "1MB/s burst 100kB"));
    let whole = bytes(300_000);
    let mut at = whole.as_ptr().addr();
    let layer = RateLimitLayer::new(down(&limiter));
    let frame = whole.clone();
    let mut body = sent(&layer, "ada", move || Frames::from(frame.clone())).await;
    while let Some(frame) = next(&mut body).await {
        let piece: Bytes = frame.unwrap().into_data().unwrap();
        assert_eq!(piece.as_ptr().addr(), at);
        at += piece.len();
    }
    assert_eq!(at, whole.as_ptr().addr() + whole.len());
}

#[tokio::test(start_paused = true)]
async fn trailers_come_last_and_hints_stay_right() {
    let limiter = limiter(Policy::gcra("downloads", "1MB/s burst 100kB"));
    let make = || {
        let trailers: HeaderMap = [("x-sum".parse().unwrap(), "7".parse().unwrap())].into_iter().collect();
        Frames::new([data(bytes(250_000)), data(""), Ok(Frame::trailers(trailers))])
    };
    let mut body = sent(&RateLimitLayer::new(down(&limiter)), "ada", make).await;
    next(&mut body).await.unwrap().unwrap();
    let hint = body.size_hint();
    assert!(hint.lower() >= 250_000 - 64 * 1024 && hint.upper().is_none(), "{hint:?}");
    assert!(!body.is_end_stream());
    let collected = body.collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-sum"], "7");
    assert_eq!(answer(limiter.peek("ada")).remaining(), 0, "trailers cost nothing");
}

#[tokio::test(start_paused = true)]
async fn a_body_without_bytes_spends_nothing_and_one_that_nobody_reads_neither() {
    let limiter = limiter(Policy::gcra("downloads", "1MB/s"));
    let layer = RateLimitLayer::new(down(&limiter));
    let empty = sent(&layer, "ada", Frames::default).await;
    assert!(empty.collect().await.unwrap().to_bytes().is_empty());
    // As the body of a response to HEAD.
    drop(download(&layer, "ada", 1_000).await);
    assert_eq!(answer(limiter.peek("ada")).remaining(), 1_000_000);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_dropped_while_it_waits_gives_its_turn_back() {
    let limiter = limiter(Policy::gcra("downloads", "1kB/s burst 2kB"));
    let layer = RateLimitLayer::new(down(&limiter));
    let mut bodies = join_all((0..4).map(|_| download(&layer, "ada", 5_000))).await;
    for body in &mut bodies[..2] {
        assert_eq!(next(body).await.unwrap().unwrap().into_data().unwrap().len(), 1_000);
    }
    // Each waits a second longer than the one before.
    for body in &mut bodies[2..] {
        assert!(is_held(body));
    }
    assert_eq!(limiter.waiting(), 2);
    let begin = Instant::now();
    let (mut last, dropped) = (bodies.pop().unwrap(), bodies.pop().unwrap());
    drop(dropped);
    assert_eq!(next(&mut last).await.unwrap().unwrap().into_data().unwrap().len(), 1_000);
    assert_eq!(begin.elapsed(), Duration::from_secs(1));
    drop((last, bodies));
    assert_eq!(limiter.waiting(), 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(answer(limiter.peek("ada")).remaining(), 2_000, "no piece is taken for those that are gone");
}

#[test]
fn bodies_may_be_boxed() {
    fn is_boxed<T: Send + Sync>() {}
    is_boxed::<sluicegate_tower::settle::SettlingBody<Frames>>();
    is_boxed::<sluicegate_tower::bandwidth::PacedBody<Frames>>();
}
