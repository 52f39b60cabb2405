//! Bodies that keep to a bandwidth on a server.

use std::convert::Infallible;
use std::future::ready;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use sluicegate::bandwidth::Direction;
use sluicegate::key::Key;
use sluicegate::{Limit, Policy, RateLimitLayer};
use sluicegate_core::clock::ManualClock;
use sluicegate_tests::frames::next;
use sluicegate_tests::servers::deployments::standalone;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{connected, patient};

/// The server's clock stands still, so that all of it is counted by hand: the burst passes, and what comes then waits for its turn.
#[tokio::test(flavor = "multi_thread")]
async fn pieces_of_bodies_are_taken_from_a_server_and_turns_go_back_to_it() {
    let clock = ManualClock::new();
    clock.set(Duration::from_secs(1_800_000_000));
    let store = connected(patient("bandwidth").clock(clock.clone()), &standalone().url()).await;
    let downloads = Policy::gcra("downloads", "1kB/s burst 10kB").refunds().on(&store).unwrap();
    let limit = Limit::new(downloads.clone()).key(Key::from("ada")).bandwidth(Direction::Down);
    let service = RateLimitLayer::new(limit).settling().layer(service_fn(|_: Request<()>| {
        ready(Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(vec![7; 10_000])))))
    }));
    let whole = service.clone().oneshot(Request::new(())).await.unwrap();
    assert_eq!(whole.into_body().collect().await.unwrap().to_bytes(), vec![7; 10_000]);
    assert_eq!(downloads.peek("ada").await.unwrap().remaining(), 0);
    // The next piece comes in a second of the server's clock. A client that hangs up leaves its turn.
    for _ in 0..3 {
        let mut body = service.clone().oneshot(Request::new(())).await.unwrap().into_body();
        let waits = tokio::time::timeout(Duration::from_millis(50), next(&mut body)).await;
        assert!(waits.is_err(), "{waits:?}");
    }
    assert!(downloads.store().limiters().turns_returned(Duration::from_secs(10)).await);
    clock.advance(Duration::from_secs(10));
    let mut left = 0;
    // A turn that the server had still to tell goes back when it has.
    for _ in 0..10_000 {
        left = downloads.peek("ada").await.unwrap().remaining();
        if left == 10_000 {
            break;
        }
    }
    assert_eq!(left, 10_000);
}

/// Whatever time the machine takes for it: no byte that comes back to the bucket is lost, and none passes twice.
#[tokio::test(flavor = "multi_thread")]
async fn ten_downloads_of_a_key_have_a_megabyte_a_second_in_all() {
    const BURST: u64 = 3_000_000;
    const EACH: usize = 800_000;
    let store = connected(patient("ten-downloads"), &standalone().url()).await;
    let downloads = Policy::gcra("downloads", "1MB/s burst 3MB").refunds().on(&store).unwrap();
    let limit = Limit::new(downloads.clone()).key(Key::from("ada")).bandwidth(Direction::Down);
    let service = RateLimitLayer::new(limit).settling().layer(service_fn(|_: Request<()>| {
        ready(Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(vec![7; EACH])))))
    }));
    let earliest = Instant::now();
    let mut bodies = Vec::new();
    for _ in 0..10 {
        bodies.push(service.clone().oneshot(Request::new(())).await.unwrap().into_body());
    }
    let first = next(&mut bodies[0]).await.unwrap().unwrap().into_data().unwrap().len();
    let latest = Instant::now();
    let read = join_all(bodies.into_iter().map(async |body| body.collect().await.unwrap().to_bytes().len()));
    let read = first + read.await.into_iter().sum::<usize>();
    assert_eq!(read, 10 * EACH);
    let least = latest.elapsed();
    let left = downloads.peek("ada").await.unwrap().remaining();
    let most = earliest.elapsed();
    // A byte comes back in a microsecond.
    let bytes = |time: Duration| BURST + u64::try_from(time.as_micros()).unwrap();
    let (seen, tolerance) = (read as u64 + left, read as u64 / 50);
    let expected = bytes(least) - tolerance..=bytes(most) + tolerance;
    assert!(expected.contains(&seen), "{expected:?} {seen}");
}
