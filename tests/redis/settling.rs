//! Costs that responses tell, settled on a server.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::future::ready;
use std::io::{BufRead, BufReader};
use std::time::Duration;

use http::{Request, Response};
use sluicegate::key::HeaderKey;
use sluicegate::settle::{OnAbort, Settle};
use sluicegate::{Limit, Policy, RateLimitLayer, RateLimiter, RedisStore};
use sluicegate_core::clock::ManualClock;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_tests::frames::{Frames, next};
use sluicegate_tests::process::{begin_again, is_alone};
use sluicegate_tests::servers::Server;
use sluicegate_tests::servers::deployments::standalone;
use sluicegate_tests::streams::{BUDGET, play, stream};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{connected, patient};

async fn store(prefix: &str) -> RedisStore {
    let clock = ManualClock::new();
    clock.set(Duration::from_secs(1_800_000_000));
    connected(patient(prefix).clock(clock), &standalone().url()).await
}

type Upstream = Result<Response<Frames>, Infallible>;

/// An upstream whose streams cost what the header says.
fn upstream()
-> impl Service<Request<()>, Response = Response<Frames>, Error = Infallible, Future: Send> + Clone {
    service_fn(|request: Request<()>| -> std::future::Ready<Upstream> {
        let cost = request.headers()["x-cost"].to_str().unwrap().parse().unwrap();
        ready(Ok(Response::new(stream(cost))))
    })
}

fn request(cost: u64) -> Request<()> {
    Request::get("/").header("x-user", "ada").header("x-cost", cost).body(()).unwrap()
}

/// The units that a key has spent. A settlement is not waited for, so this asks until the server has it.
async fn used(limiter: &RateLimiter, expected: u64) -> u64 {
    let mut used = 0;
    for _ in 0..10_000 {
        used = BUDGET - limiter.peek("ada").await.unwrap().remaining();
        if used == expected {
            break;
        }
    }
    used
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_through_a_layer_on_a_server_are_admitted_as_counted_by_hand() {
    for (seed, on_abort) in [(0, OnAbort::Reserved), (1, OnAbort::Seen), (2, OnAbort::Seen)] {
        let store = store(&format!("settling-{seed}")).await;
        let limiter = Policy::fixed_window("tokens", "10000/min").on(&store).unwrap();
        let settle = Settle::sse("usage.total_tokens").unwrap().on_abort(on_abort);
        let key = HeaderKey::new("x-user").unwrap();
        let limit = Limit::new(limiter.clone()).key(key).cost(500).unwrap().settle(settle);
        let layer = RateLimitLayer::new(limit).settling();
        let send = async |cost| {
            let response = layer.layer(upstream()).oneshot(request(cost)).await.unwrap();
            (response.status() == 200).then(|| response.into_body())
        };
        play(seed, on_abort == OnAbort::Seen, send, async |expected| used(&limiter, expected).await).await;
    }
}

/// The reservation is what is left of a process that has ended in the middle of a stream.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_leaves_its_reservations_to_the_others() {
    let (killed, other) = (store("settling-killed").await, store("settling-killed").await);
    let policy = || Policy::fixed_window("tokens", "10000/min").refunds();
    let limiter = policy().on(&killed).unwrap();
    let key = HeaderKey::new("x-user").unwrap();
    let settle = Settle::sse("usage.total_tokens").unwrap().on_abort(OnAbort::Seen);
    let limit = Limit::new(limiter.clone()).key(key).cost(500).unwrap().settle(settle);
    let response =
        RateLimitLayer::new(limit).settling().layer(upstream()).oneshot(request(20)).await.unwrap();
    // Nothing of the response runs any more, not even its destructor.
    std::mem::forget(response);
    assert_eq!(used(&policy().on(&other).unwrap(), 500).await, 500);
}

/// The variable that tells a process that holds reservations where the server is.
const SERVER: &str = "SLUICEGATE_SETTLING";

/// The budgets of the two processes: so that no period ends meanwhile.
fn of_year(name: &str) -> PolicyBuilder {
    Policy::gcra(name, "10000/year")
}

/// The process that the next test starts; by itself it has nothing to do.
#[test]
fn streams_are_under_way_until_their_process_is_killed() {
    if !is_alone() {
        return;
    }
    let url = std::env::var(SERVER).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = connected(patient("killed"), &url).await;
        let mut bodies = Vec::new();
        for (name, on_abort) in [("reserved", OnAbort::Reserved), ("seen", OnAbort::Seen)] {
            let settle = Settle::sse("usage.total_tokens").unwrap().on_abort(on_abort);
            let limit = Limit::new(of_year(name).on(&store).unwrap()).key(HeaderKey::new("x-user").unwrap());
            let layer = RateLimitLayer::new(limit.cost(500).unwrap().settle(settle)).settling();
            let response = layer.layer(upstream()).oneshot(request(20)).await.unwrap();
            let mut body = response.into_body();
            // Both events have passed, and told what the stream costs; its end has not.
            for _ in 0..2 {
                assert!(next(&mut body).await.is_some());
            }
            bodies.push(body);
        }
        println!("held");
        // Until it is killed, or the process that waits for it is gone.
        _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        drop(bodies);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_leaves_its_reservations_spent() {
    let server = Server::start();
    let child = "settling::streams_are_under_way_until_their_process_is_killed";
    let mut child = begin_again(child, [(SERVER, OsStr::new(&server.url()))]);
    let said = BufReader::new(child.stdout.take().unwrap());
    assert!(said.lines().map_while(Result::ok).any(|line| line.contains("held")), "it holds both");
    child.kill().unwrap();
    child.wait().unwrap();
    let store = connected(patient("killed"), &server.url()).await;
    for name in ["reserved", "seen"] {
        let limiter = of_year(name).on(&store).unwrap();
        let left = limiter.peek("ada").await.unwrap();
        assert_eq!(left.remaining(), 9_500, "{name}: the reservation, whatever the stream has told");
        // The key goes on with the rest.
        assert!(limiter.check("ada").cost(9_500).await.unwrap().is_allowed());
        assert!(!limiter.check("ada").await.unwrap().is_allowed());
    }
}
