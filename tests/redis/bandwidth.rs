//! Bodies that keep to a bandwidth on a server.

use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use bytes::Bytes;
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
