//! Costs that responses tell, settled on a server.

use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use http::{Request, Response};
use sluicegate::key::HeaderKey;
use sluicegate::rules::{Rules, RulesFile, Variables};
use sluicegate::settle::{OnAbort, Settle};
use sluicegate::{Limit, Policy, RateLimitLayer, RateLimiter, RedisStore};
use sluicegate_core::clock::ManualClock;
use sluicegate_tests::frames::Frames;
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

#[tokio::test(flavor = "multi_thread")]
async fn streams_through_rules_on_a_server_are_admitted_as_counted_by_hand() {
    for (seed, word) in [(3, "reserved"), (4, "seen")] {
        let text = format!(
            "
version: 1
policies: {{ tokens: {{ algorithm: fixed-window, quota: 10000/min }} }}
rules:
  - name: all
    limit: tokens
    key: header(x-user)
    cost: 500
    settle: {{ sse: usage.total_tokens, on_abort: {word} }}
"
        );
        let file = RulesFile::parse("rules.yaml", &text, &Variables::none()).unwrap();
        let rules = Rules::new(&store(&format!("settling-rules-{seed}")).await, file).unwrap();
        let limiter = rules.store().limiters().get("tokens").unwrap();
        let send = async |cost| {
            let response = rules.layer().layer(upstream()).oneshot(request(cost)).await.unwrap();
            (response.status() == 200).then(|| response.into_body())
        };
        play(seed, word == "seen", send, async |expected| used(&limiter, expected).await).await;
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
