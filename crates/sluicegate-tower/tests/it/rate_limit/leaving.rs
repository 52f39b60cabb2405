//! Requests that leave while they wait: through several layers of one policy, and under several limits of one layer.

use std::time::Duration;

use http::Request;
use sluicegate_core::algorithm::Anchor;
use sluicegate_core::{Algorithm, Policy};
use sluicegate_tower::call::CallLimitLayer;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{advance, sleep};
use tower::{Layer, Service, ServiceExt};

use crate::rate_limit::waiting::Departures;
use crate::support::{from, on, paused_store, send};

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
