//! Clients that wait, hang up and are given back what they spent, while the policy is reloaded.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use sluicegate_core::algorithm::Anchor;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::{Algorithm, Policy};
use sluicegate_tower::RateLimitLayer;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Body, by_header, from, on, paused_store};

const PERIOD_US: u64 = 5_000_000;
const LIMIT: u64 = 20;
/// Of the policy with a burst.
const BURST: u64 = 3;

/// The units that may pass from one moment to another one, if the policy says anything of those.
type Allowed = fn(u64, u64) -> Option<u64>;

const POLICIES: [(Algorithm, &str, Allowed); 3] = [
    (Algorithm::Gcra, "20/5s burst 3", |from_us, until_us| {
        Some(BURST + (until_us - from_us) * LIMIT / PERIOD_US)
    }),
    (Algorithm::FixedWindow(Anchor::Epoch), "20/5s", |from_us, until_us| {
        (from_us / PERIOD_US == until_us / PERIOD_US).then_some(LIMIT)
    }),
    (Algorithm::SlidingLog, "20/5s", |from_us, until_us| (until_us - from_us < PERIOD_US).then_some(LIMIT)),
];

/// How a client behaves: each of these differently from one to the next, and the same in each run.
#[derive(Clone, Copy)]
struct Client {
    cost: u64,
    patience: Duration,
    works: Duration,
    is_given_back: bool,
}

fn client(number: u64) -> Client {
    let digit = |factor: u64, bound: u64| (number + 1).wrapping_mul(factor) % 9_973 % bound;
    Client {
        cost: 1 + digit(7_919, 3),
        patience: Duration::from_millis(if digit(6_841, 2) == 0 { 60_000 } else { digit(3_331, 4_000) }),
        works: Duration::from_millis(digit(5_417, 900)),
        is_given_back: digit(2_129, 6) == 0,
    }
}

fn request(number: u64) -> Request<()> {
    let mut request = from("ada");
    request.headers_mut().insert("x-number", number.into());
    request
}

fn number(headers: &HeaderMap) -> u64 {
    headers["x-number"].to_str().unwrap().parse().unwrap()
}

/// 15 passed within three seconds at 4 a second and 3 at once: refunds and hang-ups gave back what later turns stood on.
#[tokio::test(start_paused = true)]
async fn crowds_that_wait_leave_and_are_given_back_never_lift_a_policy_that_is_reloaded() {
    for (policy, reload_every, first) in
        POLICIES.into_iter().flat_map(|policy| [(policy, 1_000, 0), (policy, 7, 1_000), (policy, 1, 2_000)])
    {
        let ((algorithm, quota, allowed), store, start) = (policy, paused_store(), Instant::now());
        let policy = || Policy::builder("p", algorithm, quota).wait_up_to(Duration::from_secs(20));
        let kept: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
        let notes = Arc::clone(&kept);
        let handler = service_fn(move |request: Request<()>| {
            let client = client(number(request.headers()));
            if !client.is_given_back {
                let now_us = u64::try_from(start.elapsed().as_micros()).unwrap();
                notes.lock().unwrap().push((now_us, client.cost));
            }
            async move {
                sleep(client.works).await;
                let mut response = Response::new(Body::from("ok"));
                if client.is_given_back {
                    *response.status_mut() = StatusCode::NOT_MODIFIED;
                }
                Ok::<_, Infallible>(response)
            }
        });
        let layers = [(); 2].map(|()| {
            let limit = by_header(on(&store, policy()))
                .cost_fn(|request| client(number(request.headers)).cost)
                .refund_if(|head| head.status == StatusCode::NOT_MODIFIED);
            RateLimitLayer::new(limit).layer(handler.clone())
        });
        let limiter = on(&store, policy());
        let mut clients = Vec::new();
        for (arrival, service) in (0..600).zip(layers.iter().cycle()) {
            let (client, answer) =
                (client(first + arrival), service.clone().oneshot(request(first + arrival)));
            clients.push(tokio::spawn(async move { drop(timeout(client.patience, answer).await) }));
            yield_now().await;
            if arrival % reload_every == 0 {
                limiter.replace(policy().build().unwrap(), Inherit::Spent).unwrap();
            }
            sleep(Duration::from_millis(arrival * 37 % 200)).await;
        }
        for client in clients {
            client.await.unwrap();
        }
        let kept = kept.lock().unwrap().clone();
        for (first, (from_us, _)) in kept.iter().enumerate() {
            let mut sum = 0;
            for (until_us, cost) in &kept[first..] {
                sum += cost;
                let Some(allowed) = allowed(*from_us, *until_us) else { break };
                assert!(sum <= allowed, "{algorithm}, {reload_every}: {sum} from {from_us} to {until_us}");
            }
        }
        // A sixth is given back; the rest is lost by those that leave before others.
        let used = kept.iter().map(|(_, cost)| cost).sum::<u64>() * 500 / LIMIT / start.elapsed().as_secs();
        assert!(used >= 66, "{algorithm}, {reload_every}: {used} %");
    }
}
