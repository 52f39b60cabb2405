//! Requests that leave while they wait: through several layers of one policy, and under several limits of one layer.

use std::time::Duration;

use http::{Request, StatusCode};
use sluicegate_core::algorithm::Anchor;
use sluicegate_core::{Algorithm, MemoryStore, Policy, RateLimiter};
use sluicegate_tower::call::CallLimitLayer;
use sluicegate_tower::key::{HeaderKey, RequestView};
use sluicegate_tower::rate_limit::RateLimit;
use sluicegate_tower::{Limit, RateLimitLayer};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, advance, sleep};
use tower::{Layer, Service, ServiceExt};

use crate::rate_limit::waiting::Departures;
use crate::support::{Handler, by_header, from, on, paused_store, send};

const MINUTE: Duration = Duration::from_secs(60);

/// A client that has sent its request; it hangs up when the task is aborted.
async fn client<S>(service: &S, request: Request<()>) -> JoinHandle<()>
where
    S: Service<Request<()>, Future: Send, Response: Send, Error: Send> + Clone + Send + 'static,
{
    let service = service.clone();
    let client = tokio::spawn(async move { drop(service.oneshot(request).await) });
    yield_now().await;
    client
}

/// The places of the clients, each once, in an order that depends on the step.
fn order(clients: usize, step: usize) -> impl Iterator<Item = usize> {
    (0..clients).map(move |place| place * step % clients)
}

/// Each layer had a queue of its own, and the turns that came back let two go at one instant.
#[tokio::test(start_paused = true)]
async fn whichever_clients_leave_the_layers_of_one_policy_let_one_go_at_a_time() {
    for algorithm in [Algorithm::Gcra, Algorithm::FixedWindow(Anchor::Epoch), Algorithm::SlidingLog] {
        for step in [1, 7, 11, 29, 39] {
            let (store, departures) = (paused_store(), Departures::new());
            let mail = || on(&store, Policy::builder("mail", algorithm, "1/s").wait_up_to(MINUTE));
            let layers = [mail(), mail()].map(|limiter| departures.behind(&limiter));
            let calls = CallLimitLayer::new(mail(), |_: &Request<()>| "ada").layer(departures.service());
            let mut clients = Vec::new();
            for place in 0..40 {
                clients.push(match place % 3 {
                    0 => client(&calls, from("ada")).await,
                    layer => client(&layers[layer - 1], from("ada")).await,
                });
            }
            for place in order(40, step).take(20) {
                clients[place].abort();
                sleep(Duration::from_millis(130)).await;
            }
            for place in 0..10 {
                clients.push(client(&layers[place % 2], from("ada")).await);
            }
            for client in clients {
                let _ = client.await;
            }
            let seen = departures.seen_ms();
            let one_a_second: Vec<_> = (0..seen.len() as u128).map(|second| second * 1_000).collect();
            assert!(seen.len() >= 30, "{algorithm}, {step}: {seen:?}");
            assert_eq!(seen, one_a_second, "{algorithm}, {step}");
        }
    }
}

/// Due at 1 s and dropped at 10 s, the turn came back, and two went at one instant.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_after_its_turn_has_come_has_spent_it() {
    let departures = Departures::new();
    let mail = on(&paused_store(), Policy::gcra("mail", "1/s burst 1").wait_up_to(MINUTE));
    let mut service = departures.behind(&mail);
    send(&service, from("ada")).await;
    let due = [service.call(from("ada")), service.call(from("ada"))];
    advance(Duration::from_secs(10)).await;
    send(&service, from("ada")).await;
    drop(due);
    send(&service, from("ada")).await;
    assert_eq!(departures.seen_ms(), [0, 10_000, 11_000]);
}

/// A request of this user from this address.
fn of(user: &str, address: &str) -> Request<()> {
    Request::get("/").header("x-user", user).header("x-address", address).body(()).unwrap()
}

fn under(limiter: RateLimiter, header: &'static str) -> Limit {
    Limit::new(limiter).key(HeaderKey::new(header).unwrap())
}

/// 100 a second for an address, and a user who waits a minute for each request.
fn shared_address(store: &MemoryStore) -> RateLimit<Handler> {
    let address = under(on(store, Policy::gcra("address", "100/s burst 100")), "x-address");
    let user = on(store, Policy::gcra("user", "1/min burst 1").wait_up_to(2 * MINUTE));
    let layer = RateLimitLayer::builder(address).and(under(user, "x-user")).build().unwrap();
    layer.layer(Handler::default())
}

/// All others were refused for 59 seconds, because every limit was spent at the moment of the departure.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_limit_of_its_own_locks_nobody_out_of_a_shared_one() {
    let (service, start) = (shared_address(&paused_store()), Instant::now());
    send(&service, of("ada", "home")).await;
    let waits = client(&service, of("ada", "home")).await;
    // One has gone and one is held, so 98 are left.
    for user in 0..98 {
        assert_eq!(send(&service, of(&user.to_string(), "home")).await.status(), StatusCode::OK, "{user}");
    }
    assert_eq!(send(&service, of("98", "home")).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(start.elapsed(), Duration::ZERO);
    advance(MINUTE / 2).await;
    for user in 100..199 {
        assert_eq!(send(&service, of(&user.to_string(), "home")).await.status(), StatusCode::OK, "{user}");
    }
    waits.await.unwrap();
    assert_eq!(start.elapsed(), MINUTE);
}

/// It waited 14 s: the turns of those that had gone were lost wherever others stood behind them.
#[tokio::test(start_paused = true)]
async fn the_next_request_waits_for_few_of_150_that_were_opened_and_aborted() {
    for (limits, costs) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        for step in [1, 7, 11, 29, 77, 149] {
            let (store, departures) = (paused_store(), Departures::new());
            let cost = move |request: RequestView<'_>| {
                1 + u64::from(costs == 2 && request.headers.contains_key("x-two"))
            };
            let user = on(&store, Policy::gcra("user", "10/s burst 2").wait_up_to(MINUTE));
            let mut layer = RateLimitLayer::builder(by_header(user).cost_fn(cost));
            if limits == 2 {
                layer = layer
                    .and(by_header(on(&store, Policy::gcra("all", "50/s burst 50").refunds())).cost_fn(cost));
            }
            let service = layer.build().unwrap().layer(departures.service());
            let mut clients = Vec::new();
            for request in 0..150 {
                let mut opened = from("ada");
                if request % 2 == 1 {
                    opened.headers_mut().insert("x-two", "units".parse().unwrap());
                }
                clients.push(client(&service, opened).await);
            }
            for place in order(150, step) {
                clients[place].abort();
                yield_now().await;
            }
            let start = Instant::now();
            assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
            let waited = start.elapsed();
            // Requests of one limit and of both stand in different lines.
            let longest = Duration::from_secs(if limits == 1 { 3 } else { 8 });
            assert!(waited <= longest, "{limits} limits, {costs} costs, {step}: {waited:?}");
        }
    }
}
