//! Bandwidth beside settled costs, several limits, shadows, changes, outages and servers.

use std::convert::Infallible;
use std::future::ready;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::OnOutage;
use sluicegate_core::{Key, Policy};
use sluicegate_tests::frames::{Frames, data, next};
use sluicegate_tower::bandwidth::Direction;
use sluicegate_tower::limits::WouldBe;
use sluicegate_tower::settle::{OnAbort, Settle};
use sluicegate_tower::{Limit, RateLimitLayer};
use tokio::time::{Duration, Instant, timeout};
use tower::{Layer, ServiceExt, service_fn};

use crate::bandwidth::{bytes, down, download, read_for, sent};
use crate::support::{Protocol, answer, broken, by_header, from, limiter, paused_store, serve, slow};

#[tokio::test(start_paused = true)]
async fn a_response_settles_and_keeps_to_its_bandwidth() {
    let store = paused_store();
    let tokens = Policy::fixed_window("tokens", "10000/h").on(&store).unwrap();
    let downloads = Policy::gcra("downloads", "1kB/s burst 2kB").on(&store).unwrap();
    let settle = Settle::json("n").unwrap().or(Settle::bytes()).on_abort(OnAbort::Seen);
    let settled = by_header(tokens.clone()).cost(500).unwrap().settle(settle);
    let layer = RateLimitLayer::builder(settled).and(down(&downloads)).build().unwrap();
    let text = || Frames::new([data(format!("{{\"text\": \"{}\"", "a".repeat(5_000))), data(", \"n\": 42}")]);
    let begin = Instant::now();
    sent(&layer, "ada", text).await.collect().await.unwrap();
    assert_eq!(begin.elapsed().as_secs(), 3);
    assert_eq!(answer(tokens.peek("ada")).remaining(), 10_000 - 42);
    // A client that hangs up pays for the bytes that have passed, and not for those that were held.
    let mut body = sent(&layer, "bob", text).await;
    next(&mut body).await.unwrap().unwrap();
    drop(body);
    assert_eq!(answer(tokens.peek("bob")).remaining(), 10_000 - 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_body_keeps_to_the_limit_of_its_key_and_to_that_of_all() {
    let store = paused_store();
    let each = Policy::gcra("each", "100kB/s burst 20kB").on(&store).unwrap();
    let all = Policy::gcra("all", "300kB/s burst 20kB").on(&store).unwrap();
    let of_all = Limit::new(all).key(Key::from("all")).bandwidth(Direction::Down);
    let layer = RateLimitLayer::builder(down(&each)).and(of_all).build().unwrap();
    let span = Duration::from_secs(20);
    // Two keys have what is theirs, six share what there is.
    let keys = ["a", "b", "c", "d", "e", "f"];
    for (count, expected) in [(2, 2_000_000), (6, 1_000_000)] {
        let bodies = join_all(keys[..count].iter().map(|key| download(&layer, key, 4_000_000))).await;
        let read = join_all(bodies.into_iter().map(|body| read_for(body, span))).await;
        for read in &read {
            assert!(read.abs_diff(expected) <= expected / 20, "{count} keys: {read}");
        }
        tokio::time::sleep(span).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_in_shadow_holds_nothing_and_counts_the_bodies_that_it_would_hold() {
    let store = paused_store();
    let tried = Policy::gcra("tried", "1kB/s burst 2kB").shadow().on(&store).unwrap();
    let layer = RateLimitLayer::new(down(&tried));
    let begin = Instant::now();
    for length in [1_500, 100_000, 0] {
        download(&layer, "ada", length).await.collect().await.unwrap();
    }
    assert_eq!(begin.elapsed(), Duration::ZERO);
    let counts = layer.shadow_counts();
    assert_eq!((counts[0].passed, counts[0].delayed, counts[0].refused), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_body_follows_a_change_of_its_policy_in_the_middle() {
    let limiter = limiter(Policy::gcra("downloads", "10kB/s burst 1kB"));
    let layer = RateLimitLayer::new(down(&limiter));
    let mut body = download(&layer, "ada", 1_000_000).await;
    let second = async |body: &mut _| {
        let (until, mut read) = (Instant::now() + Duration::from_secs(1), 0);
        while let Ok(Some(Ok(frame))) = tokio::time::timeout_at(until, next(body)).await {
            read += Bytes::len(frame.data_ref().unwrap());
        }
        read
    };
    assert!(second(&mut body).await.abs_diff(11_000) <= 1_000);
    for (quota, expected) in
        [("100kB/s burst 10kB", 100_000), ("50kB/s burst 5kB", 50_000), ("20kB/s", 20_000)]
    {
        limiter.replace(Policy::gcra("downloads", quota).build().unwrap(), Inherit::Spent).unwrap();
        second(&mut body).await;
        let read = second(&mut body).await;
        assert!(read.abs_diff(expected) <= expected / 5, "{quota}: {read}");
    }
    limiter.replace(Policy::gcra("downloads", "1/s").shadow().build().unwrap(), Inherit::Spent).unwrap();
    let begin = Instant::now();
    // One that waits for its turn keeps it.
    body.collect().await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_decided_by_the_policy() {
    for at_once in [true, false] {
        let with =
            |on_outage| down(&broken(Policy::gcra("downloads", "1kB/s").on_outage(on_outage), at_once));
        let body = download(&RateLimitLayer::new(with(OnOutage::Allow)), "ada", 100_000).await;
        let begin = Instant::now();
        assert_eq!(body.collect().await.unwrap().to_bytes(), bytes(100_000));
        assert_eq!(begin.elapsed(), Duration::ZERO);
        let mut body = download(&RateLimitLayer::new(with(OnOutage::Deny)), "ada", 100_000).await;
        assert!(timeout(Duration::from_secs(60), next(&mut body)).await.is_err(), "it stands still");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_late_holds_bodies_as_well_and_takes_pieces_back() {
    let limiter = slow(Policy::gcra("downloads", "1kB/s burst 2kB"));
    limiter.remember(Policy::with_refunds).unwrap();
    let layer = RateLimitLayer::new(down(&limiter));
    let begin = Instant::now();
    let body = download(&layer, "ada", 5_000).await;
    assert_eq!(body.collect().await.unwrap().to_bytes(), bytes(5_000));
    assert_eq!(begin.elapsed(), Duration::from_secs(3));
    tokio::time::sleep(Duration::from_secs(2)).await;
    // The first has its piece, and is gone before it knows; the second its turn.
    for _ in 0..3 {
        let mut body = Box::pin(download(&layer, "ada", 5_000).await);
        assert!(
            std::future::poll_fn(|cx| std::task::Poll::Ready(
                http_body::Body::poll_frame(body.as_mut(), cx).is_pending()
            ))
            .await
        );
        drop(body);
    }
    tokio::task::yield_now().await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(limiter.peek("ada").await.unwrap().remaining(), 2_000);
}

#[tokio::test(start_paused = true)]
async fn conditions_costs_of_nothing_and_missing_keys_are_those_of_other_limits() {
    let limiter = limiter(Policy::gcra("downloads", "1kB/s"));
    let begin = Instant::now();
    let limit = || down(&limiter);
    for limit in [limit().only_if(|_| false), limit().cost_fn(|_| 0)] {
        download(&RateLimitLayer::new(limit), "ada", 100_000).await.collect().await.unwrap();
    }
    assert_eq!(begin.elapsed(), Duration::ZERO);
    let limit =
        limit().on_missing_key(sluicegate_tower::key::OnMissingKey::Reject(http::StatusCode::UNAUTHORIZED));
    let file =
        service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))));
    let refused = RateLimitLayer::new(limit).settling().layer(file).oneshot(Request::new(())).await.unwrap();
    assert_eq!(refused.status(), 401);
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_does_not_read_bodies_holds_none() {
    let limiter = limiter(Policy::gcra("downloads", "1kB/s"));
    let file = service_fn(|_: Request<()>| {
        ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(bytes(100_000)))))
    });
    let begin = Instant::now();
    let response = RateLimitLayer::new(down(&limiter)).layer(file).oneshot(from("ada")).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), bytes(100_000));
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn fields_show_nothing_of_bytes_and_an_explanation_all() {
    let limiter = limiter(Policy::gcra("downloads", "1kB/s"));
    let layer = RateLimitLayer::new(down(&limiter));
    let file = service_fn(|_: Request<()>| {
        ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(bytes(500)))))
    });
    let response = layer.clone().settling().layer(file).oneshot(from("ada")).await.unwrap();
    assert_eq!(crate::support::fields(&response), [""; 0]);
    response.into_body().collect().await.unwrap();
    let limits = layer.limits_handle().current();
    let explained = limits.explain(&from("ada")).await;
    assert_eq!(explained.outcome, WouldBe::Allowed);
    let text = explained.limits[0].to_string();
    let (begin, end) = (
        "downloads: holds the response's body to the bytes of downloads: 1000/s (gcra) for ",
        "; 500 of 1000 left, all back after 500ms",
    );
    assert!(text.starts_with(begin) && text.ends_with(end), "{text}");
}

#[tokio::test]
async fn bodies_pass_over_sockets_whole() {
    for protocol in [Protocol::Http1, Protocol::Http1Copying] {
        let limiter =
            Policy::gcra("downloads", "100MB/s burst 100kB").on(sluicegate_core::MemoryStore::new()).unwrap();
        let file = service_fn(|_: Request<hyper::body::Incoming>| {
            ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(bytes(3_000_000)))))
        });
        let layer = RateLimitLayer::new(down(&limiter)).settling();
        let address = serve(protocol, layer.layer(file)).await;
        let client = reqwest::Client::new();
        let get = async || {
            let response =
                client.get(format!("http://{address}/")).header("x-key", "ada").send().await.unwrap();
            response.bytes().await.unwrap()
        };
        for body in join_all((0..4).map(|_| get())).await {
            assert_eq!(body, bytes(3_000_000), "{protocol:?}");
        }
        let head = client.head(format!("http://{address}/")).header("x-key", "bob").send().await.unwrap();
        assert_eq!(head.headers()["content-length"], "3000000");
        assert_eq!(limiter.peek("bob").await.unwrap().remaining(), 100_000, "{protocol:?}");
    }
}
